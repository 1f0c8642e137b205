use super::*;
use crate::contender::DEFAULT_REPLAY_WINDOW;
use crate::suite;
use crate::testbed::{Families, Layout};

fn xfrm(suite: &str, esn: bool) -> KernelXfrm {
    let ipsec = IpsecConfig {
        suite: suite::find(suite).unwrap(),
        mode: Mode::Tunnel,
        encapsulation: Encapsulation::Udp,
        combine: Combine::EspAuth,
        compression: false,
        window: DEFAULT_REPLAY_WINDOW,
        esn,
        associations: 1,
    };
    KernelXfrm::new(ipsec, false, Path::new("lab"), 0).unwrap()
}

#[test]
fn an_association_of_two_families_has_the_flag_for_it() {
    let batch = |words: &str, esn| {
        let map = Addresses::of(Layout::Gateways, Families::read(words).unwrap());
        xfrm("aes-128-gcm", esn).batch(Side::Left, &map)
    };
    let mixed = batch("4in6", true);
    assert!(
        mixed.contains("src 2001:db8::1 dst 2001:db8::2 proto esp "),
        "{mixed}"
    );
    assert!(mixed.contains(" flag esn af-unspec aead "), "{mixed}");
    assert!(mixed.contains(" encap espinudp 4500 4500 ::\n"), "{mixed}");
    assert!(
        mixed.contains("policy add src 10.1.0.0/24 dst 10.2.0.0/24 dir out tmpl src 2001:db8::1 "),
        "{mixed}"
    );
    assert!(!batch("6in6", false).contains("flag"));
}

#[test]
fn each_layer_of_a_bundle_has_its_own_hash() {
    let mut printed = xfrm("3des-sha1", false);
    printed.ipsec.combine = Combine::EspAuthInAhMd5;
    printed.ipsec.encapsulation = Encapsulation::Native;
    let printed = KernelXfrm::new(printed.ipsec, false, Path::new("lab"), 0).unwrap();
    let batch = printed.batch(Side::Left, &Addresses::default());
    for words in [
        "enc cbc(des3_ede) 0x",
        " auth-trunc hmac(sha1) 0x",
        " auth-trunc hmac(md5) 0x",
    ] {
        assert!(batch.contains(words), "{words} is not in {batch}");
    }
    assert!(
        batch.contains(" tmpl proto ah reqid 1 mode transport"),
        "{batch}"
    );
}

#[test]
fn pcrypt_wraps_what_esp_asks_for() {
    let of = |suite: &str| xfrm(suite, false).algorithm();
    assert_eq!(of("aes-128-gcm"), "rfc4106(gcm(aes))");
    assert_eq!(of("aes-192-cbc-sha1"), "authenc(hmac(sha1),cbc(aes))");
    assert_eq!(of("aes-128-cbc"), "authenc(digest_null,cbc(aes))");
}
