use super::described::trial_text;
use super::*;
use dataplane::io::udp::OffloadState;
use ipsec::command::Command;
use ipsec::setkey::{Forwarding, NoNames, compile};

fn needs_of(text: &str, addresses: &[&str]) -> Vec<Need> {
    let text =
        format!("{text} -m tunnel -r 4 -E aes-gcm-16 0x000102030405060708090a0b0c0d0e0f10111213;");
    let lowered = compile(text.as_bytes(), Forwarding::WithIn, &mut NoNames).unwrap();
    let Command::AddSa(config) = &lowered.commands[0] else {
        panic!("another command");
    };
    let addresses: Vec<IpAddr> = addresses.iter().map(|text| text.parse().unwrap()).collect();
    of_association(config, &addresses)
}

#[test]
fn the_local_port_is_the_one_of_our_end() {
    let text = "add 192.0.2.1[4501] 192.0.2.2[4502] esp-udp 0x1001";
    let port = |port| Need::Udp { v6: false, port };
    assert_eq!(needs_of(text, &["192.0.2.1"]), [port(4501)]);
    assert_eq!(needs_of(text, &["192.0.2.2"]), [port(4502)]);
    assert_eq!(needs_of(text, &[]), [port(4502), port(4501)]);
}

#[test]
fn what_failed_its_trial_is_listed_before_what_passed() {
    let text = |segments, coalesces| {
        trial_text(&UdpProbe {
            segments,
            coalesces,
        })
    };
    assert_eq!(
        text(OffloadState::Proven, OffloadState::Failed),
        " (failed verification)"
    );
    assert_eq!(
        text(OffloadState::Absent, OffloadState::Proven),
        " (verified)"
    );
    let untried = text(OffloadState::Assumed, OffloadState::Assumed);
    assert!(untried.contains("not verified"), "{untried}");
    assert_eq!(text(OffloadState::Absent, OffloadState::Absent), "");
}

#[test]
fn native_esp_needs_a_socket_of_its_family() {
    let text = "add 2001:db8::1 2001:db8::2 esp 0x1001";
    assert_eq!(needs_of(text, &["2001:db8::1"]), [Need::Esp { v6: true }]);
}

#[test]
fn ah_is_sent_with_headers_of_our_own() {
    let text = "add 192.0.2.1 192.0.2.2 ah 0x1001 -m tunnel -A hmac-sha1 \
                0x000102030405060708090a0b0c0d0e0f10111213;";
    let lowered = compile(text.as_bytes(), Forwarding::WithIn, &mut NoNames).unwrap();
    let Command::AddSa(config) = &lowered.commands[0] else {
        panic!("another command");
    };
    let (ah, whole) = (Need::Ah { v6: false }, Need::Whole { v6: false });
    assert_eq!(of_association(config, &[]), [ah, whole]);
}
