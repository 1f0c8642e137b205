use super::*;
use crate::suite;

fn ipsec(name: &str) -> IpsecConfig {
    IpsecConfig {
        suite: suite::find(name).unwrap(),
        mode: Mode::Tunnel,
        encapsulation: Encapsulation::Udp,
        combine: Combine::EspAuth,
        compression: false,
        window: 1024,
        esn: false,
        associations: 1,
    }
}

fn keys(name: &str) -> Keys {
    let direction = |spi| Direction {
        spi,
        cipher: "ab".repeat(suite::find(name).unwrap().cipher_key),
        hash: "cd".repeat(suite::find(name).unwrap().hash_key),
        ah: "ef".repeat(MD5_KEY_BYTES),
    };
    Keys {
        to_right: direction(0x1001),
        to_left: direction(0x1002),
        idle: Vec::new(),
    }
}

#[test]
fn idle_associations_are_of_other_peers_and_have_no_policy() {
    let many = IpsecConfig {
        associations: 300,
        ..ipsec("aes-128-gcm")
    };
    let keys = Keys::fresh(&many, 0x1000).unwrap();
    let map = Addresses::default();
    let text = keys.text(&many, Side::Right, &map);
    let count = |word: &str| text.lines().filter(|line| line.contains(word)).count();
    assert_eq!(
        (count("add 192.0.2.2 198.18."), count("add 198.18.")),
        (299, 299)
    );
    assert_eq!((count("add 192.0.2."), count("spdadd")), (301, 2));
    let spis: std::collections::BTreeSet<&str> = text
        .lines()
        .filter_map(|line| line.split(' ').nth(4))
        .collect();
    assert!(spis.len() > 600, "every association has an SPI of its own");
    assert!(
        text.contains("add 198.18.1.43 192.0.2.2 esp-udp 0x100257 "),
        "{text}"
    );
}

#[test]
fn the_left_file_reads_as_a_person_would_write_it() {
    let text = keys("aes-128-cbc-sha1").text(
        &ipsec("aes-128-cbc-sha1"),
        Side::Left,
        &Addresses::default(),
    );
    let key = "ab".repeat(16);
    let hash = "cd".repeat(20);
    let expected = format!(
        "# The left gateway: 10.1.0.0/24 and 10.2.0.0/24 are connected through ESP in UDP, AES-128-CBC + SHA1.
# Start it with: esplanade run --setkey THIS_FILE
add 192.0.2.1 192.0.2.2 esp-udp 0x1001 -m tunnel -r 1024 -E aes-cbc 0x{key} -A hmac-sha1 0x{hash};
add 192.0.2.2 192.0.2.1 esp-udp 0x1002 -m tunnel -r 1024 -E aes-cbc 0x{key} -A hmac-sha1 0x{hash};
spdadd 10.1.0.0/24 10.2.0.0/24 any -P out ipsec esp/tunnel/192.0.2.1-192.0.2.2/require;
spdadd 10.2.0.0/24 10.1.0.0/24 any -P in ipsec esp/tunnel/192.0.2.2-192.0.2.1/require;
"
    );
    assert_eq!(text, expected);
}

#[test]
fn the_right_file_mirrors_the_policies_and_keeps_the_associations() {
    let keys = keys("null");
    let (left, right) = (
        keys.text(&ipsec("null"), Side::Left, &Addresses::default()),
        keys.text(&ipsec("null"), Side::Right, &Addresses::default()),
    );
    let lines = |text: &str, word: &str| -> Vec<String> {
        text.lines()
            .filter(|line| line.starts_with(word))
            .map(str::to_owned)
            .collect()
    };
    assert_eq!(lines(&left, "add"), lines(&right, "add"));
    assert!(left.contains("-E null;"));
    let swapped: Vec<String> = lines(&left, "spdadd")
        .iter()
        .map(|line| {
            if line.contains("-P out") {
                line.replace("-P out", "-P in")
            } else {
                line.replace("-P in", "-P out")
            }
        })
        .collect();
    assert_eq!(swapped, lines(&right, "spdadd"));
}

#[test]
fn fresh_keys_differ_and_fit() {
    let keys = Keys::fresh(&ipsec("aes-128-gcm"), 0x1000).unwrap();
    assert_eq!(keys.to_right.cipher.len(), 40);
    assert_ne!(keys.to_right.cipher, keys.to_left.cipher);
    assert_eq!((keys.to_right.spi, keys.to_left.spi), (0x1001, 0x1002));
}

#[test]
fn a_bundle_is_esp_inside_ah_on_its_own_protocol() {
    let bundle = IpsecConfig {
        combine: Combine::EspAndAh,
        encapsulation: Encapsulation::Native,
        ..ipsec("3des-sha1")
    };
    let text = keys("3des-sha1").text(&bundle, Side::Left, &Addresses::default());
    let (key, hash) = ("ab".repeat(24), "cd".repeat(20));
    for line in [
        format!("add 192.0.2.1 192.0.2.2 esp 0x1001 -m tunnel -r 1024 -E 3des-cbc 0x{key};"),
        format!("add 192.0.2.1 192.0.2.2 ah 0x1081 -m transport -r 1024 -A hmac-sha1 0x{hash};"),
        "ipsec esp/tunnel/192.0.2.1-192.0.2.2/require ah/transport//require;".into(),
    ] {
        assert!(text.contains(&line), "{line} is not in {text}");
    }
}

#[test]
fn the_bundle_of_roy_s_listing_is_authenticated_by_esp_and_by_ah_with_keys_of_their_own() {
    let printed = IpsecConfig {
        combine: Combine::EspAuthInAhMd5,
        encapsulation: Encapsulation::Native,
        mode: Mode::Transport,
        ..ipsec("3des-sha1")
    };
    let map = Addresses::of(crate::testbed::Layout::Pair, Default::default());
    let text = keys("3des-sha1").text(&printed, Side::Left, &map);
    let (cipher, hash, ah) = ("ab".repeat(24), "cd".repeat(20), "ef".repeat(16));
    for line in [
        format!("esp 0x1001 -m transport -r 1024 -E 3des-cbc 0x{cipher} -A hmac-sha1 0x{hash};"),
        format!("ah 0x1081 -m transport -r 1024 -A hmac-md5 0x{ah};"),
        "-P out ipsec esp/transport//require ah/transport//require;".into(),
    ] {
        assert!(text.contains(&line), "{line} is not in {text}");
    }
    let fresh = Keys::fresh(&printed, 0x1000).unwrap().to_right;
    assert_eq!((fresh.hash.len(), fresh.ah.len()), (40, 32));
}

#[test]
fn what_is_compressed_is_a_tunnel_of_ipcomp_inside_esp_in_transport_mode() {
    let compressed = IpsecConfig {
        compression: true,
        ..ipsec("aes-128-gcm")
    };
    let text = keys("aes-128-gcm").text(&compressed, Side::Left, &Addresses::default());
    for line in [
        "add 192.0.2.1 192.0.2.2 ipcomp 0x1041 -m tunnel -C deflate;",
        "add 192.0.2.1 192.0.2.2 esp-udp 0x1001 -m transport -r 1024 -E aes-gcm-16 0x",
        "-P out ipsec ipcomp/tunnel/192.0.2.1-192.0.2.2/require esp/transport//require;",
    ] {
        assert!(text.contains(line), "{line} is not in {text}");
    }
}

#[test]
fn two_hosts_alone_protect_each_other_in_transport_mode() {
    let transport = IpsecConfig {
        mode: Mode::Transport,
        ..ipsec("aes-128-gcm")
    };
    let map = Addresses::of(crate::testbed::Layout::Pair, Default::default());
    let text = keys("aes-128-gcm").text(&transport, Side::Left, &map);
    assert!(text.contains(" 0x1001 -m transport -r 1024 "), "{text}");
    let policy = "spdadd 192.0.2.1/32 192.0.2.2/32 any -P out ipsec esp/transport//require;";
    assert!(text.contains(policy), "{text}");
}

#[test]
fn ah_alone_has_no_cipher() {
    let alone = IpsecConfig {
        encapsulation: Encapsulation::Native,
        ..ipsec("ah-md5")
    };
    let text = keys("ah-md5").text(&alone, Side::Right, &Addresses::default());
    assert!(
        text.contains(" ah 0x1001 -m tunnel -r 1024 -A hmac-md5 0x"),
        "{text}"
    );
    assert!(
        text.contains("ah/tunnel/192.0.2.1-192.0.2.2/require"),
        "{text}"
    );
}
