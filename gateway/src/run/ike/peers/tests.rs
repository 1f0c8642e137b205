use super::*;
use crate::failure::Failure;
use crate::handover::{PassedChild, PassedCounters, PassedReqids};
use crate::plane::{Plane, Recorder};
use crate::run::ike::brief_peers;
use crate::run::ike::states::States;
use crate::status::BriefState;
use ikev2::connection::{Child as Configured, ChildLifetime, LocalProof, RemoteProof, Traffic};
use ikev2::endpoint::{Outbound, PeerState, StateChange};
use ikev2::identity::{Identity, Pattern};
use ikev2::message::payload::{AddressRange, Protocol as IkeProtocol};
use ipsec::algorithm::Encryption;
use ipsec::command::{Answer, PolicyReport};
use ipsec::database::{Database, Decision, Snapshot};
use ipsec::packet::Outline;
use ipsec::policy::{Action, Level};
use ipsec::suite::{Secret, Suite};
use std::time::Instant;

fn range(first: &str, last: &str) -> Traffic {
    Traffic::of(AddressRange::new(first.parse().unwrap(), last.parse().unwrap()).unwrap())
}

fn local_traffic() -> Traffic {
    range("10.1.0.0", "10.1.255.255")
}

fn remote_traffic() -> Traffic {
    range("10.2.0.0", "10.2.255.255")
}

fn connection(name: &str) -> Connection {
    let identity = |text: &str| Identity::Fqdn(text.to_owned());
    let mut connection = Connection::new(
        name,
        (identity("a.example.org"), LocalProof::SharedSecret(1)),
        (
            Pattern::Exactly(identity("b.example.org")),
            RemoteProof::SharedSecret(1),
        ),
        true,
    );
    connection.local = vec!["192.0.2.1".parse().unwrap()];
    connection.remote = vec!["192.0.2.2".parse().unwrap()];
    connection.children = vec![Configured::new(
        name,
        vec![local_traffic()],
        vec![remote_traffic()],
        true,
    )];
    connection
}

fn suite(key: u8) -> Suite {
    let key = Secret::new(vec![key; 20]);
    let cipher = Encryption::named("aes-gcm-16").unwrap();
    Suite::new(Some((cipher, key)), None, None).unwrap()
}

fn child(id: u64, connection: &str) -> ChildSa {
    ChildSa {
        id: ChildId(id),
        connection: connection.to_owned(),
        child: connection.to_owned(),
        peer: "b.example.org".to_owned(),
        protocol: IkeProtocol::ESP,
        mode: ChildMode::Tunnel,
        inbound_spi: 0x1000 + id as u32,
        outbound_spi: 0x2000 + id as u32,
        inbound: suite(1),
        outbound: suite(2),
        extended_sequence_numbers: true,
        replay_window: 1024,
        local: "192.0.2.1".parse().unwrap(),
        remote: "192.0.2.2".parse().unwrap(),
        encapsulation: Some((4500, 61000)),
        sends_keepalives: true,
        local_traffic: vec![local_traffic()],
        remote_traffic: vec![remote_traffic()],
        lifetime: ChildLifetime::default(),
        outbound_state: Outbound::Active,
        replaces: None,
    }
}

/// Peers over a recorder.
#[derive(Default)]
struct Host {
    peers: Peers,
    plane: Recorder,
}

impl Host {
    fn apply(&mut self, change: Result<Change, Failure>) {
        let change = change.unwrap();
        self.plane.apply(&change.commands).unwrap();
        drop(self.peers.take_over(change));
    }

    fn close(&mut self, connection: &Connection) {
        let change = self.peers.close(connection, None);
        self.apply(change);
    }

    fn install(&mut self, child: &ChildSa) {
        let change = self.peers.install(child);
        self.apply(change);
    }

    fn use_outbound(&mut self, id: u64) {
        let change = self.peers.use_outbound(ChildId(id), |_| true);
        self.apply(change);
    }

    fn remove(&mut self, name: &str, id: u64) {
        let change = self.peers.remove(name, &[ChildId(id)], |_| true);
        self.apply(change);
    }

    fn policies(&mut self) -> Vec<PolicyReport> {
        match self.plane.apply(&[Command::DumpPolicies]).unwrap().pop() {
            Some(Answer::Policies(policies)) => policies,
            _ => panic!("another answer"),
        }
    }

    fn snapshot(&self) -> std::sync::Arc<Snapshot> {
        self.plane.snapshot()
    }

    /// The SPI by which a packet between the networks leaves.
    fn carrier(&self) -> Option<u32> {
        self.carrier_to([10, 2, 0, 1])
    }

    /// The same for a packet to an address.
    fn carrier_to(&self, to: [u8; 4]) -> Option<u32> {
        let packet = etherparse::PacketBuilder::ipv4([10, 1, 0, 1], to, 64).udp(1, 2);
        let mut octets = Vec::new();
        packet.write(&mut octets, b"data").unwrap();
        let outline = Outline::read(&octets).unwrap();
        let snapshot = self.snapshot();
        match snapshot.outbound(&outline) {
            Decision::Protect(path) => Some(snapshot.sa(path[0]).config.id.spi.get()),
            Decision::Acquire { .. } => None,
            _ => panic!("neither protected nor acquired"),
        }
    }
}

#[test]
fn networks_are_closed_before_any_key_exists_and_again_after_the_last_one() {
    let mut host = Host::default();
    host.close(&connection("office"));
    assert_eq!(host.policies().len(), 3);
    assert_eq!(host.carrier(), None);
    host.install(&child(1, "office"));
    assert_eq!(host.carrier(), Some(0x2001));
    host.remove("office", 1);
    assert_eq!(host.carrier(), None);
    let policies = host.policies();
    assert_eq!(policies.len(), 3);
    for told in &policies {
        let Action::Protect(templates) = &told.policy.action else {
            panic!("an open policy");
        };
        assert!(matches!(templates[0].level, Level::Unique(Some(_))));
    }
    let change = host.peers.open("office");
    host.apply(change);
    assert!(host.policies().is_empty());
    assert!(host.peers.all.is_empty() && host.peers.owners.is_empty());
}

#[test]
fn a_pair_becomes_two_associations_with_everything_that_was_negotiated() {
    let associations = Associations::of(&child(1, "office"), Reqid(7)).unwrap();
    let (inbound, outbound) = (&associations.inbound, &associations.outbound);
    assert_eq!(
        inbound.id.destination,
        "192.0.2.1".parse::<IpAddr>().unwrap()
    );
    assert_eq!(
        outbound.id.destination,
        "192.0.2.2".parse::<IpAddr>().unwrap()
    );
    assert_eq!(
        (inbound.source, outbound.source),
        (outbound.id.destination, inbound.id.destination)
    );
    assert_eq!(
        (inbound.id.spi.get(), outbound.id.spi.get()),
        (0x1001, 0x2001)
    );
    assert_eq!((&inbound.suite, &outbound.suite), (&suite(1), &suite(2)));
    let ports = |config: &SaConfig| {
        let udp = config.encapsulation.unwrap();
        (udp.source_port, udp.destination_port)
    };
    assert_eq!(
        (ports(inbound), ports(outbound)),
        ((61000, 4500), (4500, 61000))
    );
    for config in associations.both() {
        assert!(config.is_negotiated && config.key_is_fresh && config.esn && !config.is_standby);
        assert_eq!((config.replay_window, config.reqid), (1024, Reqid(7)));
        assert_eq!(config.lifetimes.hard.age, 4200);
        assert_eq!(config.lifetimes.soft.age, 0);
        assert_eq!(config.lifetimes.soft.packets, 0);
    }
    assert_eq!((inbound.keepalive, outbound.keepalive), (0, 20));
    let short = ChildSa {
        extended_sequence_numbers: false,
        sends_keepalives: false,
        ..child(1, "office")
    };
    let associations = Associations::of(&short, Reqid(7)).unwrap();
    assert_eq!(associations.outbound.keepalive, 0);
    assert_eq!(associations.outbound.lifetimes.soft.packets, 0xe000_0000);
    let zero = ChildSa {
        outbound_spi: 0,
        ..child(1, "office")
    };
    assert!(Associations::of(&zero, Reqid(7)).is_err());
}

/// A pair that replaces the first one, and carries nothing yet.
fn standby(id: u64) -> ChildSa {
    ChildSa {
        outbound_state: Outbound::Standby,
        replaces: Some(ChildId(1)),
        ..child(id, "office")
    }
}

#[test]
fn a_rekey_moves_the_outbound_traffic_on_request_and_back_if_the_new_pair_loses() {
    let mut host = Host::default();
    host.close(&connection("office"));
    host.install(&child(1, "office"));
    host.install(&standby(2));
    assert_eq!(host.carrier(), Some(0x2001));
    host.use_outbound(2);
    assert_eq!(host.carrier(), Some(0x2002));
    host.use_outbound(1);
    assert_eq!(host.carrier(), Some(0x2001));
    host.use_outbound(2);
    host.remove("office", 1);
    assert_eq!(host.carrier(), Some(0x2002));
    assert_eq!(host.snapshot().sas().count(), 2);
    assert_eq!(host.policies().len(), 3);
    assert_eq!(host.peers.children().count(), 1);
}

#[test]
fn a_pair_that_still_carries_when_it_is_removed_leaves_its_traffic_to_the_youngest_that_replaced_it()
 {
    let mut host = Host::default();
    host.close(&connection("office"));
    host.install(&child(1, "office"));
    for id in [2, 3] {
        host.install(&standby(id));
    }
    host.remove("office", 1);
    assert_eq!(host.carrier(), Some(0x2003));
    host.remove("office", 2);
    assert_eq!(host.carrier(), Some(0x2003));
    host.remove("office", 3);
    assert_eq!(host.carrier(), None);
    assert_eq!(host.snapshot().sas().count(), 0);
}

#[test]
fn of_two_pairs_that_replace_the_same_one_only_the_last_that_was_moved_to_carries() {
    let mut host = Host::default();
    host.close(&connection("office"));
    host.install(&child(1, "office"));
    for id in [2, 3] {
        host.install(&standby(id));
    }
    for (id, spi) in [(3, 0x2003), (2, 0x2002), (3, 0x2003)] {
        host.use_outbound(id);
        assert_eq!(host.carrier(), Some(spi));
        let snapshot = host.snapshot();
        let carrying = snapshot.sas().filter(|sa| {
            let config = &sa.config;
            config.id.destination == "192.0.2.2".parse::<IpAddr>().unwrap() && !config.is_standby
        });
        assert_eq!(carrying.count(), 1);
    }
}

#[test]
fn narrowed_traffic_opens_only_itself() {
    let mut host = Host::default();
    host.close(&connection("office"));
    let narrow = ChildSa {
        remote_traffic: vec![range("10.2.7.0", "10.2.7.255")],
        ..child(1, "office")
    };
    host.install(&narrow);
    assert_eq!(host.carrier(), None);
    assert_eq!(host.policies().len(), 6);
    host.remove("office", 1);
    assert_eq!(host.policies().len(), 3);
}

#[test]
fn a_peer_of_unknown_address_is_closed_and_opens_towards_the_address_it_came_from() {
    let mut host = Host::default();
    let mut anywhere = connection("office");
    (anywhere.local, anywhere.remote) = (Vec::new(), Vec::new());
    host.close(&anywhere);
    assert_eq!(host.carrier(), None);
    host.install(&child(1, "office"));
    assert_eq!(host.carrier(), Some(0x2001));
    host.remove("office", 1);
    assert_eq!(host.carrier(), None);
}

#[test]
fn two_peers_cannot_have_the_same_networks() {
    let mut host = Host::default();
    host.close(&connection("office"));
    let why = host.peers.close(&connection("branch"), None).err().unwrap();
    assert!(why.to_string().contains("belongs to peer office"), "{why}");
    let why = host.peers.install(&child(1, "branch")).err().unwrap();
    assert!(why.to_string().contains("belongs to peer office"), "{why}");
}

#[test]
fn a_change_of_one_peer_leaves_the_other_alone() {
    let mut host = Host::default();
    host.close(&connection("office"));
    host.install(&child(1, "office"));
    let mut branch = connection("branch");
    branch.children[0].remote = vec![range("10.3.0.0", "10.3.255.255")];
    let change = host.peers.close(&branch, None).unwrap();
    assert_eq!(change.commands.len(), 3, "{:?}", change.commands);
    assert!(
        change
            .commands
            .iter()
            .all(|command| matches!(command, Command::UpdatePolicy(_)))
    );
    host.apply(Ok(change));
    // The same again changes nothing.
    assert!(host.peers.close(&branch, None).unwrap().commands.is_empty());
    assert_eq!(host.carrier(), Some(0x2001));
}

#[test]
fn orphans_carry_on_until_a_new_pair_of_the_same_identity_takes_their_place() {
    let mut host = Host::default();
    host.close(&connection("office"));
    host.install(&child(1, "office"));
    host.peers.orphan();
    assert_eq!(host.carrier(), Some(0x2001));
    let stranger = ChildSa {
        peer: "c.example.org".to_owned(),
        ..child(2, "office")
    };
    assert!(host.peers.orphans_before(&stranger).is_empty());
    let next = child(2, "office");
    assert_eq!(host.peers.orphans_before(&next), [ChildId(1)]);
    host.install(&next);
    // The peer may not have the new pair yet: traffic moves when that is told.
    assert_eq!(host.carrier(), Some(0x2001));
    assert!(host.peers.stands_by(ChildId(2)));
    host.use_outbound(2);
    assert_eq!(host.carrier(), Some(0x2002));
    assert!(host.peers.stands_by(ChildId(1)));
    host.remove("office", 1);
    assert_eq!(host.carrier(), Some(0x2002));
}

/// The name and state of each peer of a summary, and why it is not up.
fn brief(host: &Host, states: &States) -> Vec<(String, BriefState, Option<String>)> {
    let peers = brief_peers(&["office", "branch"], states, &host.peers);
    let peers = peers.map(|peer| (peer.name.to_owned(), peer.state, peer.why));
    peers.collect()
}

#[test]
fn a_summary_joins_what_ike_has_told_with_what_is_installed() {
    let mut host = Host::default();
    host.close(&connection("office"));
    host.close(&Connection {
        children: Vec::new(),
        ..connection("branch")
    });
    let mut states = States::default();
    let is = |host: &Host, states: &States, number: usize| {
        let (name, state, why) = brief(host, states).swap_remove(number);
        assert_eq!(name, ["office", "branch"][number]);
        (state, why.unwrap_or_default())
    };
    let (state, why) = is(&host, &states, 0);
    assert_eq!(state, BriefState::Down);
    assert!(
        why.to_string().contains("has not reported its state"),
        "{why}"
    );
    let told = |connection: &str, state| StateChange {
        connection: connection.to_owned(),
        state,
    };
    let connecting = PeerState::Connecting {
        remote: "192.0.2.2:500".parse().unwrap(),
        step: "IKE_SA_INIT: no answer yet".to_owned(),
        last_failure: Some("no proposal fits".to_owned()),
    };
    let changes = vec![told("office", PeerState::Up), told("branch", connecting)];
    states.take(changes, Instant::now());
    assert_eq!(is(&host, &states, 0).0, BriefState::UpWithoutChild);
    let why = "IKE_SA_INIT: no answer yet, 192.0.2.2:500; the last attempt: no proposal fits";
    assert_eq!(
        is(&host, &states, 1),
        (BriefState::Connecting, why.to_owned())
    );
    host.install(&child(1, "office"));
    assert_eq!(is(&host, &states, 0), (BriefState::Up, String::new()));
    // The processes of key exchange are lost, and what they told with them.
    host.peers.orphan();
    assert_eq!(is(&host, &States::default(), 0).0, BriefState::Orphaned);
    assert_eq!(is(&host, &States::default(), 1).0, BriefState::Down);
}

#[test]
fn a_pair_of_another_identity_carries_traffic_at_once_though_there_is_an_orphan() {
    let mut host = Host::default();
    host.close(&connection("office"));
    host.install(&child(1, "office"));
    host.peers.orphan();
    let stranger = ChildSa {
        peer: "c.example.org".to_owned(),
        ..child(2, "office")
    };
    host.install(&stranger);
    assert_eq!(host.carrier(), Some(0x2002));
}

#[test]
fn a_pair_is_found_by_its_associations_and_by_its_number() {
    let mut host = Host::default();
    host.close(&connection("office"));
    host.install(&child(1, "office"));
    let snapshot = host.snapshot();
    let outbound = snapshot.sas().find(|sa| sa.config.id.spi.get() == 0x2001);
    let config = &outbound.unwrap().config;
    assert_eq!(host.peers.child_of(&config.id), Some(ChildId(1)));
    assert_eq!(host.peers.peer_of(ChildId(1)), Some("office"));
    let id = config.id;
    let closed = host.peers.closed.values().next().copied().unwrap();
    assert_ne!(config.reqid, closed);
    assert_eq!(host.peers.named(closed), Some(("office", "office")));
    host.remove("office", 1);
    assert_eq!(host.peers.child_of(&id), None);
    assert_eq!(host.peers.peer_of(ChildId(1)), None);
}

#[test]
fn what_the_plane_refuses_is_taken_back_with_all_that_followed() {
    let mut host = Host::default();
    host.close(&connection("office"));
    host.install(&child(1, "office"));
    let standby = standby(2);
    let mut replaced = Vec::new();
    let change = host.peers.install(&standby).unwrap();
    replaced.push(host.peers.take_over(change));
    assert_eq!(host.peers.on_standby().collect::<Vec<_>>(), [&ChildId(2)]);
    let change = host
        .peers
        .remove("office", &[ChildId(1)], |_| true)
        .unwrap();
    replaced.push(host.peers.take_over(change));
    assert!(host.peers.child(ChildId(1)).is_none());
    host.peers.take_back(replaced);
    assert!(host.peers.child(ChildId(1)).is_some() && host.peers.child(ChildId(2)).is_none());
    assert_eq!(host.peers.on_standby().count(), 0);
    assert_eq!(host.peers.owners.len(), 3);
    assert_eq!(host.peers.by_association.len(), 2);
    // The same commands as in front of it lead on from here.
    host.install(&standby);
    host.use_outbound(2);
    assert_eq!(host.carrier(), Some(0x2002));
    assert_eq!(host.peers.on_standby().collect::<Vec<_>>(), [&ChildId(1)]);
}

#[test]
fn a_peer_that_moved_keeps_its_keys_and_its_sequence_numbers() {
    let mut host = Host::default();
    host.close(&connection("office"));
    host.install(&child(1, "office"));
    let to_port: SocketAddr = "192.0.2.2:62000".parse().unwrap();
    let change = host
        .peers
        .move_to("office", &[ChildId(1)], to_port, |_| Some(9));
    let change = change.unwrap();
    assert!(
        change
            .commands
            .iter()
            .all(|command| matches!(command, Command::UpdateSa(_)))
    );
    host.apply(Ok(change));
    let to_address: SocketAddr = "198.51.100.9:4500".parse().unwrap();
    let change = host
        .peers
        .move_to("office", &[ChildId(1)], to_address, |_| Some(9));
    host.apply(change);
    assert_eq!(host.carrier(), Some(0x2001));
    let snapshot = host.snapshot();
    assert_eq!(snapshot.sas().count(), 2);
    for sa in snapshot.sas() {
        let ends = [sa.config.source, sa.config.id.destination];
        assert!(ends.contains(&to_address.ip()), "{ends:?}");
        assert_eq!(sa.state.usage().sequence, 9);
    }
}

fn device(name: &str, by_networks: bool) -> Option<PeerDevice> {
    Some(PeerDevice {
        name: name.into(),
        by_networks,
    })
}

#[test]
fn the_associations_of_a_peer_with_a_device_serve_the_policies_of_its_closed_networks() {
    let mut host = Host::default();
    let change = host
        .peers
        .close(&connection("office"), device("ike-office", true));
    host.apply(change);
    let policies = host.policies();
    assert_eq!(policies.len(), 3);
    let name = Some("ike-office");
    assert!(
        policies
            .iter()
            .all(|told| told.policy.device.as_deref() == name)
    );
    let narrow = ChildSa {
        remote_traffic: vec![range("10.2.7.0", "10.2.7.255")],
        ..child(1, "office")
    };
    host.install(&narrow);
    assert_eq!(host.policies().len(), 3);
    let snapshot = host.snapshot();
    let configs: Vec<_> = snapshot.sas().map(|sa| &sa.config).collect();
    assert_eq!(configs.len(), 2);
    for config in configs {
        assert_eq!(config.interface.as_deref(), name);
        assert_eq!(config.selectors.len(), 1);
        let number = host.peers.named(config.reqid);
        assert_eq!(number, Some(("office", "office")));
    }
}

#[test]
fn without_routes_two_peers_may_have_the_same_networks() {
    let mut host = Host::default();
    for name in ["office", "branch"] {
        let change = host.peers.close(&connection(name), device(name, false));
        host.apply(change);
    }
    assert!(host.policies().is_empty());
    let (source, destination) = ("10.1.0.1".parse().unwrap(), "10.2.0.1".parse().unwrap());
    assert_eq!(host.peers.with_device("branch"), Some("branch"));
    let child = |source, destination| host.peers.child_for("branch", source, destination);
    assert_eq!(child(source, destination), Some("branch"));
    assert_eq!(child(destination, source), None);
}

#[test]
fn a_change_of_mode_keeps_the_associations() {
    let mut host = Host::default();
    host.close(&connection("office"));
    host.install(&child(1, "office"));
    let carrier = host.carrier();
    assert_eq!(carrier, Some(0x2001));
    let change = host
        .peers
        .close(&connection("office"), device("ike-office", true));
    host.apply(change);
    let interfaces = |host: &Host| -> Vec<Option<String>> {
        let snapshot = host.snapshot();
        let each = snapshot.sas().map(|sa| sa.config.interface.as_deref());
        each.map(|name| name.map(str::to_owned)).collect()
    };
    let name = Some("ike-office".to_owned());
    assert_eq!(interfaces(&host), vec![name.clone(), name]);
    host.close(&connection("office"));
    assert_eq!(interfaces(&host), vec![None, None]);
    assert_eq!(host.carrier(), carrier);
}

/// Two pairs of one child, each for one half of the peer's networks.
fn two_halves(host: &mut Host) -> [ChildSa; 2] {
    let halves = [("10.2.0.0", "10.2.127.255"), ("10.2.128.0", "10.2.255.255")];
    let pairs = [1, 2].map(|id| ChildSa {
        remote_traffic: vec![range(halves[id - 1].0, halves[id - 1].1)],
        ..child(id as u64, "office")
    });
    pairs.iter().for_each(|pair| host.install(pair));
    pairs
}

#[test]
fn a_rekey_of_one_pair_leaves_the_pair_of_other_networks_alone() {
    for device in [None, device("ike-office", true)] {
        let mut database = Database::default();
        database.set_local_addresses(&["192.0.2.1".parse().unwrap()]);
        let mut host = Host {
            plane: Recorder::over(database),
            ..Host::default()
        };
        let change = host.peers.close(&connection("office"), device);
        host.apply(change);
        let [first, _] = two_halves(&mut host);
        let carriers = |host: &Host| [[10, 2, 0, 1], [10, 2, 200, 1]].map(|to| host.carrier_to(to));
        assert_eq!(carriers(&host), [Some(0x2001), Some(0x2002)]);
        host.install(&ChildSa {
            remote_traffic: first.remote_traffic,
            ..standby(3)
        });
        host.use_outbound(3);
        assert_eq!(carriers(&host), [Some(0x2003), Some(0x2002)]);
    }
}

#[test]
fn pairs_of_other_networks_have_policies_of_their_own_after_a_change_of_mode() {
    let mut host = Host::default();
    let change = host
        .peers
        .close(&connection("office"), device("ike-office", true));
    host.apply(change);
    two_halves(&mut host);
    host.close(&connection("office"));
    let carriers = [[10, 2, 0, 1], [10, 2, 200, 1]].map(|to| host.carrier_to(to));
    assert_eq!(carriers, [Some(0x2001), Some(0x2002)]);
}

#[test]
fn an_association_that_was_deleted_by_hand_does_not_keep_traffic_from_moving() {
    let mut host = Host::default();
    host.close(&connection("office"));
    host.install(&child(1, "office"));
    host.install(&standby(2));
    let old = |id: &SaId| id.spi.get() == 0x2001;
    let snapshot = host.snapshot();
    let config = snapshot.sas().find(|sa| old(&sa.config.id)).unwrap();
    let (id, source) = (config.config.id, config.config.source);
    host.plane
        .apply(&[Command::DeleteSa { id, source }])
        .unwrap();
    let change = host.peers.use_outbound(ChildId(2), |id| !old(id));
    host.apply(change);
    assert_eq!(host.carrier(), Some(0x2002));
}

#[test]
fn a_passed_pair_carries_as_an_orphan_until_a_new_one_takes_its_place() {
    let mut before = Host::default();
    before.close(&connection("office"));
    before.install(&child(1, "office"));
    let old = before.snapshot();
    for sa in old.sas() {
        sa.state.reserve(&sa.config, 5, 10, 1).unwrap();
    }
    let counters = |id: &SaId| {
        let place = old.find(id)?;
        Some(PassedCounters::of(&old.sa(place).state))
    };
    assert!(before.peers.pass(|_| false, counters).is_empty());
    let passed = before.peers.pass(|name| name == "office", counters);
    let text = serde_json::to_string(&passed).unwrap();
    let passed: Vec<PassedChild> = serde_json::from_str(&text).unwrap();
    assert_eq!(passed.len(), 1);

    let mut after = Host {
        peers: Peers::after(&before.peers.pass_reqids(|_| true)),
        ..Host::default()
    };
    // What is new in the file comes first, and takes no number of before.
    after.close(&Connection {
        children: Vec::new(),
        ..connection("another")
    });
    after.close(&connection("office"));
    let change = after.peers.adopt(&passed[0]);
    after.apply(change);
    let (was, is) = (
        before.peers.child(ChildId(1)),
        after.peers.child(ChildId(1)),
    );
    let (was, is) = (was.unwrap(), is.unwrap());
    assert!(is.is_orphaned && is.pairs == was.pairs && is.identity == was.identity);
    for (was, is) in was
        .associations
        .both()
        .into_iter()
        .zip(is.associations.both())
    {
        assert_eq!(was, is);
    }
    let new = after.snapshot();
    for (id, counters) in [
        (is.associations.inbound.id, &passed[0].inbound),
        (is.associations.outbound.id, &passed[0].outbound),
    ] {
        let sa = new.sa(new.find(&id).unwrap());
        counters.resume(sa);
        assert_eq!(PassedCounters::of(&sa.state), *counters);
        assert_eq!(counters.sent, 5);
    }
    assert_eq!(after.carrier(), Some(0x2001));
    let next = child(2, "office");
    assert_eq!(after.peers.orphans_before(&next), [ChildId(1)]);
    after.install(&next);
    assert_eq!(
        after.carrier(),
        Some(0x2001),
        "the peer may not have the new pair yet"
    );
    after.use_outbound(2);
    assert_eq!(after.carrier(), Some(0x2002));
}

/// The numbers of closed networks and of pairs, by name.
fn reqids(host: &Host) -> BTreeMap<String, Vec<u32>> {
    let mut all = BTreeMap::<_, Vec<u32>>::new();
    for (name, peer) in &host.peers.all {
        let closed = peer.networks.iter().map(|network| network.closed.reqid.0);
        let open = peer.children.values().map(|child| child.protection.reqid.0);
        all.insert(name.clone(), closed.chain(open).collect());
    }
    all
}

fn other_networks(name: &str) -> Connection {
    let mut connection = connection(name);
    connection.children = vec![Configured::new(
        name,
        vec![local_traffic()],
        vec![range("10.3.0.0", "10.3.255.255")],
        true,
    )];
    connection
}

#[test]
fn numbers_of_policies_go_on_where_peers_do_and_are_given_to_no_others() {
    let mut before = Host::default();
    before.close(&connection("office"));
    before.close(&other_networks("site"));
    before.install(&child(1, "office"));
    let old = reqids(&before);

    let is_carried = |name: &str| name == "site";
    let mut after = Host {
        peers: Peers::after(&before.peers.pass_reqids(is_carried)),
        ..Host::default()
    };
    after.close(&connection("office"));
    after.close(&other_networks("site"));
    let new = reqids(&after);
    assert_eq!(new["site"], old["site"]);
    let used: Vec<_> = old.values().flatten().collect();
    assert!(
        new["office"].iter().all(|number| !used.contains(&number)),
        "{new:?} after {old:?}: associations of the peer that changed may still be in the kernel"
    );
}

#[test]
fn numbers_that_no_policy_of_a_peer_has_are_not_taken_over() {
    let mut passed = PassedReqids {
        last: 7,
        closed: vec![("office".to_owned(), "office".to_owned(), 5)],
    };
    let number = |passed: &PassedReqids| {
        let mut host = Host {
            peers: Peers::after(passed),
            ..Host::default()
        };
        host.close(&connection("office"));
        reqids(&host)["office"][0]
    };
    assert_eq!(number(&passed), FIRST_REQID + 1);
    passed.last = u32::MAX;
    assert_eq!(number(&passed), FIRST_REQID + 1);
}
