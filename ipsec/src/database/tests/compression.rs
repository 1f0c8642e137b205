//! IPComp in policies, and the association of a packet that names none.

use super::*;
use crate::suite::CompressionAlgorithm;

fn ipcomp(cpi: u32, mode: Mode) -> SaConfig {
    let id = SaId {
        protocol: Protocol::IpComp,
        ..id(cpi, GATEWAYS.1)
    };
    let suite = Suite::of_compression(CompressionAlgorithm::Deflate);
    SaConfig {
        mode,
        ..SaConfig::new(id, address(GATEWAYS.0), suite)
    }
}

fn templates(protocols: &[(Protocol, Mode)]) -> Policy {
    let each = |(protocol, mode): &(Protocol, Mode)| Template {
        protocol: *protocol,
        mode: *mode,
        ..template(Level::Require)
    };
    let action = Action::Protect(protocols.iter().map(each).collect());
    policy("10.1.0.0/16", "10.2.0.0/16", Upper::Any, action)
}

const IPCOMP: (Protocol, Mode) = (Protocol::IpComp, Mode::Tunnel);
const ESP: (Protocol, Mode) = (Protocol::Esp, Mode::Transport);

#[test]
fn compression_is_the_first_of_several_templates() {
    for (protocols, fits) in [
        (&[IPCOMP, ESP][..], true),
        (&[IPCOMP], false),
        (&[ESP, IPCOMP], false),
        (&[IPCOMP, IPCOMP, ESP], false),
    ] {
        let commands = [add_policy(templates(protocols))];
        let applied = apply(&mut Database::default(), &commands);
        assert_eq!(applied.is_ok(), fits, "{protocols:?}");
        if let Err(refused) = applied {
            assert!(refused.reason.contains("`ipcomp` has to be the first"));
        }
    }
}

#[test]
fn a_packet_without_its_ipcomp_header_satisfies_the_policy_and_one_without_esp_does_not() {
    let inbound = Policy {
        direction: Direction::In,
        ..templates(&[IPCOMP, ESP])
    };
    let esp = config(0x1001, GATEWAYS, Mode::Transport);
    let commands = [
        add(ipcomp(0x1000, Mode::Tunnel)),
        add(esp),
        add_policy(inbound),
    ];
    let snapshot = database(&commands).snapshot();
    let place = |protocol, spi| {
        let id = SaId {
            protocol,
            ..id(spi, GATEWAYS.1)
        };
        snapshot.find(&id).unwrap()
    };
    let (ipcomp, esp) = (
        place(Protocol::IpComp, 0x1000),
        place(Protocol::Esp, 0x1001),
    );
    let packet = site_packet();
    let allowed = |path: &[SaIndex]| snapshot.inbound(&packet, path).is_ok();
    assert!(allowed(&[esp, ipcomp]) && allowed(&[esp]));
    assert!(!allowed(&[]) && !allowed(&[ipcomp]) && !allowed(&[ipcomp, esp]));
}

#[test]
fn the_youngest_association_of_the_mode_serves_packets_that_name_none() {
    let commands = [
        add(ipcomp(0x1000, Mode::Tunnel)),
        add(ipcomp(0x1001, Mode::Any)),
        add(ipcomp(0x1002, Mode::Transport)),
    ];
    let snapshot = database(&commands).snapshot();
    let ends = (address(GATEWAYS.0), address(GATEWAYS.1));
    let cpi = |ends, in_tunnel| {
        let found = snapshot.compressing(ends, in_tunnel)?;
        Some(snapshot.sa(found).config.id.spi.get())
    };
    assert_eq!(cpi(ends, true), Some(0x1001));
    assert_eq!(cpi(ends, false), Some(0x1002));
    assert_eq!(cpi((ends.1, ends.0), true), None);
}

#[test]
fn a_cpi_to_come_is_one_that_may_be_negotiated() {
    let command = Command::GetSpi {
        source: address(GATEWAYS.0),
        destination: address(GATEWAYS.1),
        protocol: Protocol::IpComp,
        range: None,
    };
    let answers = apply(&mut Database::default(), &[command]).unwrap();
    let [Answer::Spi(cpi)] = &answers[..] else {
        panic!("{answers:?}")
    };
    assert!((256..=61_439).contains(&cpi.get()));
}

#[test]
fn packets_of_ipcomp_are_counted_beyond_32_bits() {
    assert_eq!(ipcomp(0x1000, Mode::Any).last_number(), u64::MAX);
}
