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
        [named("vpn0", 1), named("vpn1", 2)]
    );
}

fn kept(name: &str, follows_policies: bool) -> KeptInterface {
    KeptInterface {
        name: name.into(),
        follows_policies,
    }
}

fn between(source: &str, destination: &str) -> Selector {
    policy(source, destination, Upper::Any, Action::Discard).selector
}

/// An association in each direction for packets between 10.1.0.0/16 and `theirs`.
fn negotiated(first: u32, name: &str, theirs: &str, number: u32) -> [Command; 2] {
    let one = |spi, ends, selector| {
        Command::AddSa(Arc::new(SaConfig {
            selectors: [selector].into(),
            reqid: Reqid(number),
            ..device(spi, ends, name)
        }))
    };
    [
        one(first, GATEWAYS, between("10.1.0.0/16", theirs)),
        one(first + 1, BACK, between(theirs, "10.1.0.0/16")),
    ]
}

fn policy_into(name: &str, number: u32, direction: Direction, selector: Selector) -> Command {
    let unknown = Template {
        endpoints: Some((address("0.0.0.0"), address("0.0.0.0"))),
        ..template(Level::Unique(Some(Reqid(number))))
    };
    add_policy(Policy {
        selector,
        direction,
        device: Some(name.into()),
        ..policy(
            "10.1.0.0/16",
            "10.2.0.0/16",
            Upper::Any,
            Action::Protect(vec![unknown]),
        )
    })
}

fn sent_by(snapshot: &Snapshot, interface: u32, packet: &Outline) -> Result<u32, Dropped> {
    match snapshot.outbound_via(interface, packet) {
        Decision::Protect(&[index]) => Ok(snapshot.sa(index).config.id.spi.get()),
        Decision::Acquire { .. } => Err(Dropped::Acquire),
        Decision::Drop(reason) => Err(reason),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_device_that_is_kept_is_there_without_associations_and_drops() {
    let mut database = Database::default();
    assert!(database.keep_interfaces(&[kept("ike-a", false)]));
    assert!(!database.keep_interfaces(&[kept("ike-a", false)]));
    let snapshot = database.snapshot();
    let [only] = snapshot.interfaces() else {
        panic!("not one device");
    };
    assert!(only.is_kept && only.outbound_sa.is_none());
    let sent = sent_by(&snapshot, only.number, &site_packet());
    assert_eq!(sent, Err(Dropped::Acquire));
    assert!(database.keep_interfaces(&[]));
    assert!(database.snapshot().interfaces().is_empty());
}

#[test]
fn nothing_passes_a_device_that_its_associations_were_not_negotiated_for() {
    let mut database = Database::default();
    database.keep_interfaces(&[kept("ike-a", false)]);
    let wide = negotiated(1, "ike-a", "10.2.0.0/16", 1);
    let narrow = negotiated(3, "ike-a", "10.2.7.0/24", 2);
    apply(&mut database, &[wide, narrow].concat()).unwrap();
    database.set_local_addresses(&[address(GATEWAYS.0)]);
    let snapshot = database.snapshot();
    let number = snapshot.interfaces()[0].number;
    let to = |there: &str| packet("10.1.0.5", there, 17, Some((1, 2)));
    assert_eq!(sent_by(&snapshot, number, &to("10.2.0.9")), Ok(1));
    assert_eq!(sent_by(&snapshot, number, &to("10.2.7.9")), Ok(3));
    let outside = sent_by(&snapshot, number, &to("10.3.0.9"));
    assert_eq!(outside, Err(Dropped::Acquire));
    let through = [snapshot.find(&id(2, GATEWAYS.0)).unwrap()];
    let from = |there: &str| packet(there, "10.1.0.5", 17, Some((1, 2)));
    assert_eq!(
        snapshot.inbound(&from("10.2.0.9"), &through),
        Ok(Allowed::Both)
    );
    assert_eq!(
        snapshot.inbound(&from("10.3.0.9"), &through),
        Err(Dropped::PolicyMismatch)
    );
}

#[test]
fn policies_that_lead_into_a_device_are_satisfied_by_its_associations_alone() {
    let mut database = Database::default();
    database.keep_interfaces(&[kept("ike-a", true), kept("ike-b", true)]);
    let (there, back) = (
        between("10.1.0.0/16", "10.2.0.0/16"),
        between("10.2.0.0/16", "10.1.0.0/16"),
    );
    let policies = [
        policy_into("ike-a", 1, Direction::Out, there),
        policy_into("ike-a", 1, Direction::In, back),
        policy_into("ike-a", 1, Direction::Fwd, back),
    ];
    let other = negotiated(5, "ike-b", "10.2.0.0/16", 2).to_vec();
    apply(&mut database, &[policies.to_vec(), other].concat()).unwrap();
    database.set_local_addresses(&[address(GATEWAYS.0)]);
    let closed = database.snapshot();
    let numbers: Vec<_> = closed.interfaces().iter().map(|one| one.number).collect();
    // The policy is that of the first device, which has no association yet, whichever device the packet is routed into.
    for number in [0, numbers[0], numbers[1]] {
        let sent = sent_by(&closed, number, &site_packet());
        assert_eq!(sent, Err(Dropped::Acquire));
    }
    let reply = packet("10.2.0.9", "10.1.0.5", 6, Some((80, 40_000)));
    let by_other = [closed.find(&id(6, GATEWAYS.0)).unwrap()];
    assert_eq!(
        closed.inbound(&reply, &by_other),
        Err(Dropped::PolicyMismatch)
    );
    let [leaves, arrives] = negotiated(1, "ike-a", "10.2.0.0/16", 1);
    apply(&mut database, &[arrives, leaves]).unwrap();
    let open = database.snapshot();
    for number in [0, numbers[0], numbers[1]] {
        assert_eq!(sent_by(&open, number, &site_packet()), Ok(1));
    }
    let by_its_own = [open.find(&id(2, GATEWAYS.0)).unwrap()];
    assert_eq!(open.inbound(&reply, &by_its_own), Ok(Allowed::Both));
    assert_eq!(open.interface_of(by_its_own[0]), numbers[0]);
    let explained = open.explain(&reply, &Surroundings::default());
    assert_eq!(explained.path, by_its_own);
}
