use super::*;

fn bytes(hex: &str) -> Vec<u8> {
    let pair = |pair: &[u8]| u8::from_str_radix(str::from_utf8(pair).unwrap(), 16).unwrap();
    hex.as_bytes().chunks(2).map(pair).collect()
}

/// A case of NIST's validation suite for SP 800-135 4.1.2 (public domain), HMAC-SHA1 with keying material of 132 bytes:
/// as much as AES-CBC-128 and HMAC-SHA1-96 take.
struct Nist {
    shared: Vec<u8>,
    shared_new: Vec<u8>,
    nonces: [Vec<u8>; 2],
    spis: IkeSpis,
    material: Vec<u8>,
    child: Vec<u8>,
    child_with_exchange: Vec<u8>,
    skeyseed_of_rekey: Vec<u8>,
}

#[rustfmt::skip]
fn nist() -> Nist {
    Nist {
        shared: bytes("4b2c1f971981a8ad8d0abeafabf38cf75fc8349c148142465ed9c8b516b8be52"),
        shared_new: bytes("863f3c9d06efd39d2b907b97f8699e5dd5251ef64a2a176f36ee40c87d4f9330"),
        nonces: [bytes("32b50d5f4a3763f3"), bytes("9206a04b26564cb1")],
        spis: IkeSpis {
            initiator: [0x34, 0xc9, 0xe7, 0xc1, 0x88, 0x86, 0x87, 0x85],
            responder: [0x3f, 0xf7, 0x7d, 0x76, 0x0d, 0x2b, 0x21, 0x99],
        },
        material: bytes("a14293677cc80ff8f9cc0eee30d895da9d8f405666e30ef0dfcb63c634a46002a2a63080e514a062768b76606f9fa5e992204fc5a670bde3f10d6b027113936a5c55b648a194ae587b0088d52204b702c979fa280870d2ed41efa9c549fd11198af1670b143d384bd275c5f594cf266b05ebadca855e4249520a441a81157435a7a56cc4"),
        child: bytes("8059e3ee8810e6c3a91bc8bcd2a7a41151b8d0e6ae239c7b38093ad85ef4c5811a8e7b5d1cdabd9560b2d5e092d1f24e2d4b85eccdf0ad0dc9abd94b51ee71814ca6dbc8bb51b6309f5b9545c7eb35cf5580b1e521a8fe20754a2d883ba0c2cf285f524aea6545b33106bc03e614296d319d41d4b50b3f510b1c0a22f3e664994d234cb4"),
        child_with_exchange: bytes("bb43244c1860ad65ee1e211ffe8bb3661750c8f89cb9f547df7f4fa61d37301628190e38c66232eab4b3ab14c400a5197dd3730ed4820a8a10394d51e1c0400052f63ebd36b0e7ef53aaed31eba4a5080d7d4b5666023a8bbb5ffb7857240f9a05884d1b7d2f933708450b7b3288f1fc863ab49fa901227cffc06e27899c7054d56fd74c"),
        skeyseed_of_rekey: bytes("63e81194946ebd05df7df5ebf5d8750056bf1f1d"),
    }
}

fn protection(encryption: &str, len: usize, integrity: Option<&str>) -> Protection {
    let named = |name| Integrity::named(name).expect("a row of the table");
    Protection {
        encryption: Some((Encryption::named(encryption).unwrap(), len)),
        integrity: integrity.map(named),
    }
}

fn cbc() -> Protection {
    protection("aes-cbc", 16, Some("hmac-sha1"))
}

impl Nist {
    fn nonces(&self) -> Nonces<'_> {
        let [initiator, responder] = &self.nonces;
        Nonces {
            initiator,
            responder,
        }
    }

    fn keys(&self) -> IkeKeys {
        let nonces = self.nonces();
        IkeKeys::initial(Prf::HmacSha1, cbc(), &self.shared, nonces, self.spis).unwrap()
    }
}

fn encryption_key(suite: &Suite) -> &[u8] {
    suite.encryption().expect("a cipher").1.expose()
}

fn integrity_key(suite: &Suite) -> &[u8] {
    suite
        .integrity()
        .expect("an integrity algorithm")
        .1
        .expose()
}

#[test]
fn keys_of_an_ike_sa_are_cut_as_the_rfc_lists_them() {
    let nist = nist();
    let keys = nist.keys();
    let m = &nist.material;
    // SK_d | SK_ai | SK_ar | SK_ei | SK_er | SK_pi | SK_pr
    let expected_d = PrfKey::new(Prf::HmacSha1, &m[..20]);
    assert_eq!(keys.d.0.compute(&[b"x"]), expected_d.compute(&[b"x"]));
    assert_eq!(integrity_key(&keys.initiator), &m[20..40]);
    assert_eq!(integrity_key(&keys.responder), &m[40..60]);
    assert_eq!(encryption_key(&keys.initiator), &m[60..76]);
    assert_eq!(encryption_key(&keys.responder), &m[76..92]);
    assert_eq!(keys.pi.expose(), &m[92..112]);
    assert_eq!(keys.pr.expose(), &m[112..132]);
}

#[test]
fn keys_of_child_sas_are_the_initiators_first_and_encryption_before_integrity() {
    let nist = nist();
    let keys = nist.keys();
    let cases = [
        (None, &nist.child),
        (Some(nist.shared_new.as_slice()), &nist.child_with_exchange),
    ];
    for (shared, m) in cases {
        let child = keys.d.child(cbc(), shared, nist.nonces()).unwrap();
        assert_eq!(encryption_key(&child.initiator), &m[..16]);
        assert_eq!(integrity_key(&child.initiator), &m[16..36]);
        assert_eq!(encryption_key(&child.responder), &m[36..52]);
        assert_eq!(integrity_key(&child.responder), &m[52..72]);
    }
}

#[test]
fn the_salt_of_an_aead_cipher_is_the_end_of_its_key_and_nothing_is_made_for_integrity() {
    let nist = nist();
    let gcm = protection("aes-gcm-16", 20, None);
    let child = nist.keys().d.child(gcm, None, nist.nonces()).unwrap();
    assert_eq!(encryption_key(&child.initiator), &nist.child[..20]);
    assert_eq!(encryption_key(&child.responder), &nist.child[20..40]);
    // RFC 5282 7.1: SK_ai and SK_ar have no bytes.
    let nonces = nist.nonces();
    let keys = IkeKeys::initial(Prf::HmacSha1, gcm, &nist.shared, nonces, nist.spis).unwrap();
    assert_eq!(encryption_key(&keys.initiator), &nist.material[20..40]);
    assert_eq!(encryption_key(&keys.responder), &nist.material[40..60]);
    assert_eq!(keys.pi.expose(), &nist.material[60..80]);
    assert_eq!(keys.pr.expose(), &nist.material[80..100]);
}

#[test]
fn ah_takes_integrity_keys_alone() {
    let nist = nist();
    let ah = Protection {
        encryption: None,
        ..cbc()
    };
    let child = nist.keys().d.child(ah, None, nist.nonces()).unwrap();
    assert_eq!(integrity_key(&child.initiator), &nist.child[..20]);
    assert_eq!(integrity_key(&child.responder), &nist.child[20..40]);
    assert!(child.initiator.encryption().is_none());
}

/// RFC 4543 5.4.
#[test]
fn the_salt_of_gmac_in_ah_is_the_end_of_its_key() {
    let nist = nist();
    let gmac = Protection {
        encryption: None,
        integrity: Integrity::named("aes-256-gmac"),
    };
    let child = nist.keys().d.child(gmac, None, nist.nonces()).unwrap();
    assert_eq!(integrity_key(&child.initiator), &nist.child[..36]);
    assert_eq!(integrity_key(&child.responder), &nist.child[36..72]);
}

#[test]
fn a_rekeyed_ike_sa_begins_with_the_old_function_and_goes_on_with_the_new() {
    let nist = nist();
    let (nonces, spis) = (nist.nonces(), nist.spis);
    let rekeyed = nist
        .keys()
        .d
        .rekeyed(Prf::HmacSha512, cbc(), &nist.shared_new, nonces, spis);
    let skeyseed = PrfKey::new(Prf::HmacSha512, &nist.skeyseed_of_rekey);
    let seed = [
        nonces.initiator,
        nonces.responder,
        &spis.initiator,
        &spis.responder,
    ];
    let m = prf_plus(&skeyseed, &seed, 3 * 64 + 72);
    let keys = rekeyed.unwrap();
    assert_eq!(keys.prf(), Prf::HmacSha512);
    assert_eq!(integrity_key(&keys.initiator), &m[64..84]);
    assert_eq!(encryption_key(&keys.responder), &m[120..136]);
    assert_eq!(keys.pr.expose(), &m[200..264]);
}

#[test]
fn functions_of_aes_take_64_bits_of_each_nonce_and_others_all() {
    let nonces = Nonces {
        initiator: &[1; 40],
        responder: &[2; 32],
    };
    let key = |prf| key_of_skeyseed(prf, nonces).to_vec();
    let short = [[1; 8], [2; 8]].concat();
    assert_eq!(key(Prf::AesXcbc), short);
    assert_eq!(key(Prf::AesCmac), short);
    assert_eq!(key(Prf::HmacSha256).len(), 72);
}

#[test]
fn algorithms_that_do_not_go_together_are_an_error_and_no_panic() {
    let nist = nist();
    let odd = protection("aes-gcm-16", 20, Some("hmac-sha1"));
    assert!(nist.keys().d.child(odd, None, nist.nonces()).is_err());
    let odd = protection("aes-cbc", 17, Some("hmac-sha1"));
    assert!(nist.keys().d.child(odd, None, nist.nonces()).is_err());
}
