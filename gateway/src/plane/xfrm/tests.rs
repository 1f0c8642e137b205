use super::*;
use crate::routes::{DEFAULT_MARK, Site};
use ipsec::algorithm::{Encryption, Integrity};
use ipsec::sa::{Protocol, SaConfig, SaId};
use ipsec::setkey::{Forwarding, NoNames, compile};
use netlink_packet_core::{NetlinkDeserializable, NetlinkHeader, NetlinkSerializable};
use netlink_packet_xfrm::{XFRM_STATE_ALIGN4, XfrmAttrs};
use std::sync::Arc;

/// A message as the kernel would read it: serialized and parsed.
fn through_bytes(message: XfrmMessage) -> XfrmMessage {
    let mut bytes = vec![0; NetlinkSerializable::buffer_len(&message)];
    message.serialize(&mut bytes);
    let mut header = NetlinkHeader::default();
    header.message_type = NetlinkSerializable::message_type(&message);
    XfrmMessage::deserialize(&header, &bytes).unwrap()
}

fn commands(text: &str) -> Vec<Command> {
    compile(text.as_bytes(), Forwarding::AsWritten, &mut NoNames)
        .unwrap()
        .commands
}

fn read_back(config: &SaConfig) -> Arc<SaConfig> {
    let written = XfrmMessage::AddSa(association::emit(config));
    match xfrm_state(&ZeroizingMessage::new(through_bytes(written))) {
        Some(XfrmState::Sa(report)) => report.config,
        _ => panic!("not understood: {config:?}"),
    }
}

fn keys(len: usize) -> String {
    let digits: String = (1..=len).map(|byte| format!("{byte:02x}")).collect();
    if len == 0 {
        String::new()
    } else {
        format!("0x{digits}")
    }
}

/// Every algorithm with every key length, ESP and AH.
fn every_suite() -> Vec<String> {
    let mut suites = Vec::new();
    for row in Encryption::all().filter(|row| !row.xfrm.is_empty()) {
        for len in row.key_lens {
            let cipher = format!("esp 0x1001 -m tunnel -r 64 -E {} {}", row.name, keys(*len));
            match row.icv_len {
                0 => suites.push(format!("{cipher} -A hmac-sha1 {}", keys(20))),
                _ => suites.push(cipher),
            }
        }
    }
    for row in Integrity::all().filter(|row| !row.xfrm.is_empty()) {
        let mac = format!("-A {} {}", row.name, keys(row.key_len));
        suites.push(format!("esp 0x1001 -m transport -r 64 -E null {mac}"));
        suites.push(format!("ah 0x1001 -m transport -r 64 {mac}"));
    }
    suites
}

#[test]
fn a_suite_that_the_kernel_does_not_have_is_refused_by_name() {
    for (suite, name) in [
        (
            format!("esp 0x1001 -o key=fresh -E aes-gcm-16-iiv {}", keys(20)),
            "aes-gcm-16-iiv",
        ),
        (
            format!("ah 0x1001 -A aes-192-gmac {}", keys(28)),
            "aes-192-gmac",
        ),
    ] {
        let commands = commands(&format!("add 192.0.2.1 192.0.2.2 {suite};"));
        let [Command::AddSa(config)] = &commands[..] else {
            panic!("{suite}");
        };
        let refused = association::check_supported(config).unwrap_err().0;
        assert!(
            refused.starts_with(&format!("the kernel does not support {name};")),
            "{refused}"
        );
    }
}

#[test]
fn every_suite_reads_back_as_it_was_written() {
    for suite in every_suite() {
        let commands = commands(&format!("add 192.0.2.1 192.0.2.2 {suite};"));
        let [Command::AddSa(config)] = &commands[..] else {
            panic!("{suite}");
        };
        assert_eq!(read_back(config), *config, "{suite}");
        assert_eq!(association::check_supported(config), Ok(()));
    }
}

#[test]
fn every_extension_reads_back_as_it_was_written() {
    for extensions in [
        "-m tunnel",
        "-m transport -r 32",
        "-m tunnel -r 33",
        "-m tunnel -r 4096 -o esn=yes",
        "-m tunnel -u 100 -r 1",
        "-m tunnel -lh 300 -ls 200 -bh 1000 -bs 500",
        "-m tunnel -o hard-packets=10 -o soft-packets=9 -o hard-use=8 -o soft-use=7",
        "-m tunnel -o ecn=no -o df=clear -o dscp=0",
        "-m tunnel -o tfc=1200",
        "-m tunnel -o encap=4500,4501",
        "-m transport -o icv=16",
    ] {
        for ends in ["192.0.2.1 192.0.2.2", "2001:db8::1 2001:db8::2"] {
            let text = format!(
                "add {ends} esp 0x1001 {extensions} -E aes-cbc {} -A hmac-sha2-256 {};",
                keys(16),
                keys(32)
            );
            let commands = commands(&text);
            let [Command::AddSa(config)] = &commands[..] else {
                panic!("{text}");
            };
            assert_eq!(read_back(config), *config, "{text}");
        }
    }
}

#[test]
fn ah_is_padded_as_its_option_says_over_ipv4_alone() {
    for (ends, option, pads_to_4) in [
        ("192.0.2.1 192.0.2.2", "", true),
        ("192.0.2.1 192.0.2.2", "-o ah-align=8", false),
        ("2001:db8::1 2001:db8::2", "", false),
    ] {
        let text = format!(
            "add {ends} ah 0x1001 -m transport {option} -A hmac-sha2-256 {};",
            keys(32)
        );
        let [Command::AddSa(config)] = &commands(&text)[..] else {
            panic!("{text}");
        };
        let flags = association::emit(config).user_sa_info.flags;
        assert_eq!(flags & XFRM_STATE_ALIGN4 != 0, pads_to_4, "{text}");
        assert_eq!(read_back(config), *config, "{text}");
    }
}

#[test]
fn transport_mode_falls_back_to_packets_of_its_own_family_and_tunnel_mode_does_not() {
    for (mode, has_fallback) in [("transport", true), ("tunnel", false)] {
        let text = format!(
            "add 192.0.2.1 192.0.2.2 esp 0x1001 -m {mode} -E aes-gcm-16 {};",
            keys(20)
        );
        let [Command::AddSa(config)] = &commands(&text)[..] else {
            panic!("{text}");
        };
        let first = ZeroizingMessage::new(XfrmMessage::AddSa(association::emit(config)));
        let second = first.in_own_family();
        assert_eq!(second.is_some(), has_fallback, "{text}");
        let again = second.and_then(|second| second.in_own_family());
        assert!(again.is_none(), "{text}");
    }
}

#[test]
fn a_gateway_accepts_what_was_not_compressed_and_nothing_that_was_not_sealed() {
    for (direction, optional) in [("out", [0, 0]), ("in", [1, 0]), ("fwd", [1, 0])] {
        let text = format!(
            "spdadd 10.1.0.0/24 10.2.0.0/24 any -P {direction} ipsec \
             ipcomp/tunnel/192.0.2.1-192.0.2.2/require esp/transport//require;"
        );
        let [Command::AddPolicy(policy)] = &commands(&text)[..] else {
            panic!("{text}");
        };
        let message = policy::emit_enforced(policy);
        let [XfrmAttrs::Template(templates)] = &message.nlas[..] else {
            panic!("{text}");
        };
        let levels: Vec<_> = templates.iter().map(|each| each.optional).collect();
        assert_eq!(levels, optional, "{text}");
    }
}

#[test]
fn every_policy_reads_back_as_it_was_written() {
    for policy in [
        "10.1.0.0/24 10.2.0.0/24 any -P out ipsec esp/tunnel/192.0.2.1-192.0.2.2/require",
        "10.1.0.0/24[53] 10.2.0.0/24 udp -P in discard",
        "10.1.0.0/24 10.2.0.0/24[80] any -P fwd none",
        "10.1.0.1 10.2.0.1 icmp 8,5 -P out prio high + 7 none",
        "::/0 ::/0 icmp6 -P in prio low - 2 discard",
        "fd00:1::/64 fd00:2::/64 89 -P out ipsec esp/tunnel/192.0.2.1-192.0.2.2/unique:7",
        "192.0.2.1 192.0.2.2 tcp -P in ipsec esp/transport//use ah/transport//require",
        "192.0.2.1 192.0.2.2 any -P out ipsec esp/transport/192.0.2.1-192.0.2.2/require ah/tunnel/192.0.2.1-192.0.2.9/require",
    ] {
        let commands = commands(&format!("spdadd {policy};"));
        let [Command::AddPolicy(written)] = &commands[..] else {
            panic!("{policy}");
        };
        assert_eq!(policy::check_supported(written), Ok(()));
        let message = through_bytes(XfrmMessage::AddPolicy(policy::emit(written)));
        let XfrmMessage::AddPolicy(message) = message else {
            panic!("{policy}");
        };
        assert_eq!(
            policy::parse(&message).unwrap().policy,
            *written,
            "{policy}"
        );
    }
}

#[test]
fn what_the_kernel_has_no_word_for_is_refused_with_the_reason() {
    let sa = |extensions: &str, suite: &str| {
        format!("add 192.0.2.1 192.0.2.2 esp 0x1001 {extensions} {suite};")
    };
    let gcm = &format!("-E aes-gcm-16 {}", keys(20));
    for (text, reason) in [
        (sa("-m tunnel -r 8192", gcm), "4096 packets"),
        (sa("-m tunnel -o df=set", gcm), "DF bit"),
        (sa("-m tunnel -o dscp=46", gcm), "DSCP"),
        (sa("-m transport -o tfc=100", gcm), "-m tunnel"),
        (
            sa(
                "-m tunnel -r 64",
                &format!("-E aes-gcm-16-iiv {}", keys(20)),
            ),
            "does not support aes-gcm-16-iiv",
        ),
        (
            "spdadd 10.1.0.0/24 10.2.0.0/24 any -P out ipsec esp/tunnel/192.0.2.1-192.0.2.2/use;"
                .to_owned(),
            "does not support `use`",
        ),
        (
            "spdadd 10.1.0.0/24 10.2.0.0/24 any -o spread=4 -P out ipsec esp/tunnel/192.0.2.1-192.0.2.2/require;"
                .to_owned(),
            "remove `-o spread`",
        ),
    ] {
        let said = match &commands(&text)[..] {
            [Command::AddSa(config)] => association::check_supported(config),
            [Command::AddPolicy(policy)] => policy::check_supported(policy),
            _ => panic!("{text}"),
        };
        assert!(
            said.as_ref().is_err_and(|why| why.0.contains(reason)),
            "{text}: {said:?}"
        );
    }
}

#[test]
fn a_living_association_takes_new_lifetimes_and_no_new_keys() {
    let config = |extensions: &str, key: &str| match &commands(&format!(
        "add 192.0.2.1 192.0.2.2 esp 0x1001 -m tunnel -r 64 {extensions} -E aes-gcm-16 {key};"
    ))[..]
    {
        [Command::AddSa(config)] => (**config).clone(),
        _ => panic!(),
    };
    let old = config("", &keys(20));
    assert_eq!(
        association::check_update(&old, &config("-lh 60", &keys(20))),
        Ok(())
    );
    assert!(association::check_update(&old, &config("", &keys(28))).is_err());
    assert!(association::check_update(&old, &config("-u 9", &keys(20))).is_err());
}

#[test]
fn a_kernel_without_xfrm_is_an_error_with_its_remedy() {
    let refusal = Refusal::of(libc::EPROTONOSUPPORT).to_string();
    assert!(
        refusal.contains("modprobe") && refusal.contains("esplanade run"),
        "{refusal}"
    );
    if let Err(reason) = XfrmPlane::open() {
        assert_eq!(reason.to_string(), refusal);
    }
}

#[test]
fn a_kernel_without_the_association_owns_nothing() {
    // A kernel without IPsec refuses the socket.
    if let Ok(mut plane) = XfrmPlane::open() {
        let id = SaId {
            destination: "192.0.2.77".parse().unwrap(),
            protocol: Protocol::Esp,
            spi: ipsec::sa::Spi::new(0x7777_0001).unwrap(),
        };
        let site = Site::new("esp0", None, DEFAULT_MARK).unwrap();
        assert!(!plane.has_anothers(&id, &site));
    }
}

fn written(text: &str) -> netlink_packet_xfrm::policy::ModifyMessage {
    let [Command::AddPolicy(policy)] = &commands(text)[..] else {
        panic!("{text}");
    };
    policy::emit_enforced(policy)
}

#[test]
fn a_policy_that_an_earlier_gateway_has_left_is_the_same_but_for_its_index_and_what_it_has_carried()
{
    const TEXT: &str = "spdadd 10.1.0.0/24 10.2.0.0/24 any -P out ipsec \
                        esp/tunnel/192.0.2.1-192.0.2.2/unique:77;";
    let wanted = written(TEXT);
    let mut kernels = wanted.clone();
    kernels.user_policy_info.index = 0xe600_0001;
    kernels.user_policy_info.lifetime_cur.add_time = 7;
    kernels.nlas.push(XfrmAttrs::PolicyType(Default::default()));
    let XfrmMessage::AddPolicy(found) = through_bytes(XfrmMessage::AddPolicy(kernels)) else {
        panic!("another message");
    };
    assert!(policy::is_the_same(&found, &wanted));
    for (what, with) in [
        ("unique:77", "unique:78"),
        ("192.0.2.2", "192.0.2.3"),
        ("ipsec", "prio def+1 ipsec"),
    ] {
        assert!(
            !policy::is_the_same(&found, &written(&TEXT.replace(what, with))),
            "{with}"
        );
    }
    let mut marked = found.clone();
    marked.nlas.push(XfrmAttrs::IfId(7));
    assert!(!policy::is_the_same(&marked, &wanted));
}
