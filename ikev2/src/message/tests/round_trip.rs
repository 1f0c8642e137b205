//! Any payloads, printed and read again.

use super::super::payload::*;
use super::super::*;
use proptest::prelude::*;

#[path = "../../../../fuzz/bodies/ike_message.rs"]
mod ike_message;

/// Bytes that payloads under test borrow.
static BYTES: [u8; 300] = [0x5a; 300];

fn bytes(lens: std::ops::Range<usize>) -> impl Strategy<Value = &'static [u8]> {
    lens.prop_map(|len| &BYTES[..len])
}

fn proposals() -> impl Strategy<Value = Vec<Proposal<'static>>> {
    let attributes = prop_oneof![
        Just(Attributes::None),
        any::<u16>().prop_map(Attributes::KeyLength)
    ];
    let transform = (1u8..13, any::<u16>(), attributes);
    let transform = transform.prop_map(|(kind, id, attributes)| Transform {
        kind: TransformType(kind),
        id,
        attributes,
    });
    let transforms = prop::collection::vec(transform, 1..6);
    prop::collection::vec(transforms, 1..5).prop_map(|sets| {
        let numbered = (1..).zip(sets);
        let proposal = |(number, transforms)| Proposal {
            number,
            protocol: Protocol::ESP,
            spi: &BYTES[..4],
            transforms,
        };
        numbered.map(proposal).collect()
    })
}

fn selectors() -> impl Strategy<Value = Vec<TrafficSelector<'static>>> {
    let range = (
        any::<u8>(),
        any::<[u16; 2]>(),
        any::<[u32; 2]>(),
        any::<bool>(),
    );
    let selector = range.prop_map(|(protocol, mut ports, mut ends, v6)| {
        ports.sort_unstable();
        ends.sort_unstable();
        let ports = Ports::new(ports[0], ports[1]).unwrap();
        let [first, last] = ends.map(|end| {
            if v6 {
                std::net::Ipv6Addr::from(u128::from(end) << 64).into()
            } else {
                std::net::Ipv4Addr::from(end).into()
            }
        });
        let addresses = AddressRange::new(first, last).unwrap();
        TrafficSelector::Range {
            protocol,
            ports,
            addresses,
        }
    });
    prop::collection::vec(selector, 1..5)
}

fn body() -> impl Strategy<Value = Body<'static>> {
    let named = |kind, data| Identification {
        kind,
        reserved: [0; 3],
        data,
    };
    prop_oneof![
        proposals()
            .prop_map(|proposals| Body::SecurityAssociation(SecurityAssociation { proposals })),
        (any::<u16>(), bytes(0..300))
            .prop_map(|(group, public)| Body::KeyExchange(KeyExchange { group, public })),
        bytes(0..90).prop_map(move |data| Body::IdentificationInitiator(named(
            IdentificationType::KEY_ID,
            data
        ))),
        Just(Body::IdentificationResponder(named(
            IdentificationType::IPV4_ADDRESS,
            &BYTES[..4]
        ))),
        bytes(16..257).prop_map(Body::Nonce),
        (100u16..20_000, bytes(0..9)).prop_map(|(number, data)| {
            let (protocol, spi) = (Protocol::ESP, &BYTES[..4]);
            // Numbers below 100 and the first of 16384 and more have data of fixed lengths.
            let kind = NotifyType::from_number(if number > 16_300 { 20_000 } else { number });
            Body::Notify(Notify {
                protocol,
                spi,
                kind,
                data,
            })
        }),
        Just(Body::Delete(Delete::IKE_SA)),
        Just(Body::Delete(Delete::children(
            Protocol::ESP,
            &[[1; 4], [2; 4]]
        ))),
        selectors().prop_map(Body::TrafficSelectorsInitiator),
        selectors().prop_map(Body::TrafficSelectorsResponder),
        bytes(0..20).prop_map(|value| {
            let attributes = vec![(ConfigurationAttribute::INTERNAL_IP4_DNS, value); 2];
            Body::Configuration(Configuration {
                kind: ConfigurationKind::REPLY,
                attributes,
            })
        }),
        bytes(0..300).prop_map(Body::Eap),
    ]
}

proptest! {
    #[test]
    fn any_payloads_are_read_as_they_were_printed(
        bodies in prop::collection::vec((body(), any::<bool>()), 0..12),
    ) {
        let payload = |(body, critical)| Payload { critical, body };
        let payloads: Vec<_> = bodies.into_iter().map(payload).collect();
        let mut printed = Vec::new();
        print(&payloads, &mut printed).unwrap();
        prop_assert_eq!(parse_decrypted(payload::first(&payloads), &printed).unwrap(), payloads);
    }

    #[test]
    fn any_bytes_are_read_or_refused(data in prop::collection::vec(any::<u8>(), 0..200)) {
        ike_message::check(&data);
    }
}
