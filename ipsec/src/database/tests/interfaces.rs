//! Devices with associations of their own.

use super::*;

fn device(spi: u32, ends: (&str, &str), name: &str) -> SaConfig {
    SaConfig {
        interface: Some(name.into()),
        ..config(spi, ends, Mode::Tunnel)
    }
}

const BACK: (&str, &str) = (GATEWAYS.1, GATEWAYS.0);

#[test]
fn what_is_routed_into_a_device_leaves_through_its_youngest_association_from_here() {
    let mut database = Database::default();
    let add = |config| Command::AddSa(Arc::new(config));
    let commands = [
        add(device(1, GATEWAYS, "vpn0")),
        add(device(2, BACK, "vpn0")),
        add(device(3, GATEWAYS, "vpn0")),
        add(device(4, ("192.0.2.1", "192.0.2.9"), "vpn1")),
        add(device(5, ("192.0.2.8", "192.0.2.9"), "vpn2")),
    ];
    database.apply(&commands, 0, &mut || 0).unwrap();
    assert!(database.set_local_addresses(&[address(GATEWAYS.0)]));
    assert!(!database.set_local_addresses(&[address(GATEWAYS.0)]));
    let snapshot = database.snapshot();
    let outbound_sa = |name: &str| {
        let known = snapshot.interfaces().iter();
        let interface = known.clone().find(|known| &*known.name == name).unwrap();
        match snapshot.outbound_via(interface.number, &packet("10.1.0.5", "10.2.0.5", 17, None)) {
            Decision::Protect(&[index]) => Some(snapshot.sa(index).config.id.spi.get()),
            Decision::Drop(Dropped::Acquire) => None,
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(
        (
            outbound_sa("vpn0"),
            outbound_sa("vpn1"),
            outbound_sa("vpn2")
        ),
        (Some(3), Some(4), None)
    );
}

#[test]
fn policies_and_devices_do_not_share_associations() {
    let mut database = Database::default();
    let commands = [
        Command::AddSa(Arc::new(device(1, GATEWAYS, "vpn0"))),
        Command::AddPolicy(Arc::new(site_to_site(Level::Require))),
    ];
    database.apply(&commands, 0, &mut || 0).unwrap();
    let snapshot = database.snapshot();
    let inside = packet("10.1.0.5", "10.2.0.5", 17, None);
    assert!(matches!(
        snapshot.outbound(&inside),
        Decision::Acquire { .. }
    ));
    // What comes through a device's association needs no policy.
    let through = snapshot.find(&id(1, GATEWAYS.1)).unwrap();
    assert_eq!(snapshot.inbound(&inside, &[through]), Ok(Allowed::Both));
    assert_ne!(snapshot.interface_of(through), 0);
}

#[test]
fn a_device_keeps_its_number_while_others_come_and_go() {
    let mut database = Database::default();
    let mut apply = |commands: &[Command]| {
        database.apply(commands, 0, &mut || 0).unwrap();
        let snapshot = database.snapshot();
        let number = |known: &Interface| (known.name.to_string(), known.number);
        snapshot.interfaces().iter().map(number).collect::<Vec<_>>()
    };
    let add = |spi, name| Command::AddSa(Arc::new(device(spi, GATEWAYS, name)));
    let named = |name: &str, number| (name.to_owned(), number);
    assert_eq!(apply(&[add(1, "vpn0")]), [named("vpn0", 1)]);
    assert_eq!(
        apply(&[Command::FlushSas(None), add(2, "vpn1")]),
        [named("vpn1", 2)]
    );
    assert_eq!(
        apply(&[add(3, "vpn0")]),
        [named("vpn1", 2), named("vpn0", 1)]
    );
}
