use super::*;

fn bytes(hex: &str) -> Vec<u8> {
    let pair = |pair: &[u8]| u8::from_str_radix(str::from_utf8(pair).unwrap(), 16).unwrap();
    hex.as_bytes().chunks(2).map(pair).collect()
}

/// A key pair whose secret is what the source of randomness gives.
fn pair(group: Group, secret: &str) -> KeyPair {
    let secret = bytes(secret);
    let mut random = |wanted: &mut [u8]| wanted.copy_from_slice(&secret);
    KeyPair::generate(group, &mut random).expect("a secret of an RFC")
}

/// Random enough for a test, and the same in every run.
fn counting() -> impl FnMut(&mut [u8]) {
    let mut state = 0x9e37_79b9_u32;
    move |wanted| {
        for byte in wanted {
            state = state.wrapping_mul(0x0019_660d).wrapping_add(0x3c6e_f35f);
            *byte = (state >> 24) as u8;
        }
    }
}

struct Case {
    group: Group,
    secrets: [&'static str; 2],
    publics: [&'static str; 2],
    shared: &'static str,
}

/// RFC 5903 8.1 to 8.3.
#[rustfmt::skip]
const CASES: [Case; 3] = [
    Case {
        group: Group::P256,
        secrets: ["c88f01f510d9ac3f70a292daa2316de544e9aab8afe84049c62a9c57862d1433",
                  "c6ef9c5d78ae012a011164acb397ce2088685d8f06bf9be0b283ab46476bee53"],
        publics: ["dad0b65394221cf9b051e1feca5787d098dfe637fc90b9ef945d0c37725811805271a0461cdb8252d61f1c456fa3e59ab1f45b33accf5f58389e0577b8990bb3",
                  "d12dfb5289c8d4f81208b70270398c342296970a0bccb74c736fc7554494bf6356fbf3ca366cc23e8157854c13c58d6aac23f046ada30f8353e74f33039872ab"],
        shared: "d6840f6b42f6edafd13116e0e12565202fef8e9ece7dce03812464d04b9442de",
    },
    Case {
        group: Group::P384,
        secrets: ["099f3c7034d4a2c699884d73a375a67f7624ef7c6b3c0f160647b67414dce655e35b538041e649ee3faef896783ab194",
                  "41cb0779b4bdb85d47846725fbec3c9430fab46cc8dc5060855cc9bda0aa2942e0308312916b8ed2960e4bd55a7448fc"],
        publics: ["667842d7d180ac2cde6f74f37551f55755c7645c20ef73e31634fe72b4c55ee6de3ac808acb4bdb4c88732aee95f41aa9482ed1fc0eeb9cafc4984625ccfc23f65032149e0e144ada024181535a0f38eeb9fcff3c2c947dae69b4c634573a81c",
                  "e558dbef53eecde3d3fccfc1aea08a89a987475d12fd950d83cfa41732bc509d0d1ac43a0336def96fda41d0774a3571dcfbec7aacf3196472169e838430367f66eebe3c6e70c416dd5f0c68759dd1fff83fa40142209dff5eaad96db9e6386c"],
        shared: "11187331c279962d93d604243fd592cb9d0a926f422e47187521287e7156c5c4d603135569b9e9d09cf5d4a270f59746",
    },
    Case {
        group: Group::P521,
        secrets: ["0037ade9319a89f4dabdb3ef411aaccca5123c61acab57b5393dce47608172a095aa85a30fe1c2952c6771d937ba9777f5957b2639bab072462f68c27a57382d4a52",
                  "0145ba99a847af43793fdd0e872e7cdfa16be30fdc780f97bccc3f078380201e9c677d600b343757a3bdbf2a3163e4c2f869cca7458aa4a4effc311f5cb151685eb9"],
        publics: ["0015417e84dbf28c0ad3c278713349dc7df153c897a1891bd98bab4357c9ecbee1e3bf42e00b8e380aeae57c2d107564941885942af5a7f4601723c4195d176ced3e017cae20b6641d2eeb695786d8c946146239d099e18e1d5a514c739d7cb4a10ad8a788015ac405d7799dc75e7b7d5b6cf2261a6a7f1507438bf01beb6ca3926f9582",
                  "00d0b3975ac4b799f5bea16d5e13e9af971d5e9b984c9f39728b5e5739735a219b97c356436adc6e95bb0352f6be64a6c2912d4ef2d0433ced2b6171640012d9460f015c68226383956e3bd066e797b623c27ce0eac2f551a10c2c724d9852077b87220b6536c5c408a1d2aebb8e86d678ae49cb57091f4732296579ab44fcd17f0fc56a"],
        shared: "01144c7d79ae6956bc8edb8e7c787c4521cb086fa64407f97894e5e6b2d79b04d1427e73ca4baa240a34786859810c06b3c715a3a8cc3151f2bee417996d19f3ddea",
    },
];

#[test]
fn curves_give_the_values_that_the_rfcs_print() {
    for case in &CASES {
        for (own, peer) in [(0, 1), (1, 0)] {
            let pair = pair(case.group, case.secrets[own]);
            assert_eq!(pair.public(), bytes(case.publics[own]), "{}", case.group);
            let shared = pair.agree(&bytes(case.publics[peer])).unwrap();
            assert_eq!(shared[..], bytes(case.shared), "{}", case.group);
        }
    }
}

/// RFC 7748 5.2; the second value has a high bit that is to be ignored.
#[test]
fn x25519_gives_the_values_that_its_rfc_prints() {
    let cases = [
        (
            "a546e36bf0527c9d3b16154b82465edd62144c0ac1fc5a18506a2244ba449ac4",
            "e6db6867583030db3594c1a424b15f7c726624ec26b3353b10a903a6d0ab1c4c",
            "c3da55379de9c6908e94ea4df28d084f32eccf03491c71f754b4075577a28552",
        ),
        (
            "4b66e9d4d1b4673c5ad22691957d6af5c11b6421e0ea01d42ca4169e7918ba0d",
            "e5210f12786811d3f4b7959d0538ae2c31dbe7106fc03c3efc4cd549c715a493",
            "95cbde9476e8907d7aade45cb4b873f88b595a68799fa152e6f8f7647aac7957",
        ),
    ];
    for (secret, peer, expected) in cases {
        let shared = pair(Group::X25519, secret).agree(&bytes(peer)).unwrap();
        assert_eq!(shared[..], bytes(expected));
    }
}

#[test]
fn every_group_agrees_with_itself_and_keeps_its_lengths() {
    let mut random = counting();
    for (id, group, name) in GROUPS {
        assert_eq!(Group::from_transform(id), Some(group));
        assert_eq!(Group::named(name), Some(group));
        assert_eq!((group.transform(), group.name()), (id, name));
        let first = KeyPair::generate(group, &mut random).unwrap();
        let second = KeyPair::generate(group, &mut random).unwrap();
        let publics = [first.public().to_vec(), second.public().to_vec()];
        assert_eq!(publics[0].len(), group.public_len());
        assert_ne!(publics[0], publics[1]);
        let shared = first.agree(&publics[1]).unwrap();
        assert_eq!(shared, second.agree(&publics[0]).unwrap(), "{group}");
    }
}

#[test]
fn only_the_two_short_groups_have_to_be_named() {
    let weak: Vec<_> = GROUPS
        .iter()
        .filter(|row| row.1.weakness().is_some())
        .collect();
    assert_eq!(weak.iter().map(|row| row.0).collect::<Vec<_>>(), [2, 5]);
}

/// RFC 6989 2.3: a point off the curve, the point with both coordinates 0, and coordinates that are not reduced.
#[test]
fn points_that_are_not_on_the_curve_are_refused() {
    let mut random = counting();
    for group in [Group::P256, Group::P384, Group::P521] {
        let good = KeyPair::generate(group, &mut random)
            .unwrap()
            .public()
            .to_vec();
        let mut off = good.clone();
        *off.last_mut().unwrap() ^= 1;
        for wrong in [off, vec![0; good.len()], vec![0xff; good.len()]] {
            let own = KeyPair::generate(group, &mut random).unwrap();
            assert_eq!(
                own.agree(&wrong),
                Err(KeyExchangeError::PublicValue),
                "{group}"
            );
        }
    }
}

/// RFC 7748 6.1 and RFC 8031 3: points of small order give zeroes with every secret.
#[test]
fn an_x25519_secret_of_zeroes_is_refused() {
    let small_orders = [
        "0000000000000000000000000000000000000000000000000000000000000000",
        "0100000000000000000000000000000000000000000000000000000000000000",
        "e0eb7a7c3b41b8ae1656e3faf19fc46ada098deb9c32b1fd866205165f49b800",
        "5f9c95bca3508c24b1d0b1559c83ef5b04445cc4581c8e86d8224eddd09f1157",
        "ecffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f",
        "edffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f",
        "eeffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f",
    ];
    for small in small_orders {
        let own = KeyPair::generate(Group::X25519, &mut counting()).unwrap();
        assert_eq!(own.agree(&bytes(small)), Err(KeyExchangeError::PublicValue));
    }
}

#[test]
fn a_public_value_has_the_length_of_its_group() {
    for (_, group, _) in GROUPS {
        for received in [0, group.public_len() - 1, group.public_len() + 1] {
            let own = KeyPair::generate(group, &mut counting()).unwrap();
            let expected = group.public_len();
            let error = KeyExchangeError::Length { expected, received };
            assert_eq!(own.agree(&vec![2; received]), Err(error), "{group}");
        }
    }
}

#[test]
fn a_source_that_gives_no_scalar_is_called_broken() {
    for group in [Group::P256, Group::P384, Group::P521] {
        for constant in [0, 0xff] {
            let mut draws = 0;
            let mut random = |wanted: &mut [u8]| {
                draws += 1;
                wanted.fill(constant);
            };
            let made = KeyPair::generate(group, &mut random).err();
            assert_eq!(made, Some(KeyExchangeError::Random), "{group}");
            assert_eq!(draws, MAX_SCALAR_DRAWS);
        }
    }
}
