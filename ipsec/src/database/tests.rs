use super::*;
use crate::Dropped;
use crate::algorithm::Encryption;
use crate::packet::{FragmentKind, Outline};
use crate::policy::{Action, Direction, Level, Policy, Prefix, Selector, Template, Upper};
use crate::sa::{
    LifetimeLimits, Lifetimes, Mode, Protocol, Reqid, Sa, SaConfig, SequenceNumber, Spi,
};
use crate::suite::{Secret, Suite};
use std::net::IpAddr;

const GATEWAYS: (&str, &str) = ("192.0.2.1", "192.0.2.2");

fn address(text: &str) -> IpAddr {
    text.parse().unwrap()
}

fn id(spi: u32, destination: &str) -> SaId {
    SaId {
        destination: address(destination),
        protocol: Protocol::Esp,
        spi: Spi::new(spi).unwrap(),
    }
}

fn config(spi: u32, (source, destination): (&str, &str), mode: Mode) -> SaConfig {
    let suite = Suite::new(
        Some((
            Encryption::named("aes-gcm-16").unwrap(),
            Secret::new(vec![1; 20]),
        )),
        None,
        None,
    );
    SaConfig {
        mode,
        ..SaConfig::new(id(spi, destination), address(source), suite.unwrap())
    }
}

fn tunnel(spi: u32) -> SaConfig {
    config(spi, GATEWAYS, Mode::Tunnel)
}

fn prefix(text: &str) -> Prefix {
    let (address, len) = text.split_once('/').unwrap();
    Prefix {
        address: address.parse().unwrap(),
        len: len.parse().unwrap(),
    }
}

fn policy(source: &str, destination: &str, upper: Upper, action: Action) -> Policy {
    let selector = Selector {
        source: prefix(source),
        destination: prefix(destination),
        upper,
    };
    Policy {
        selector,
        direction: Direction::Out,
        action,
        spread: 1,
        priority: 0,
        is_negotiated: false,
        device: None,
    }
}

fn template(level: Level) -> Template {
    let endpoints = Some((address(GATEWAYS.0), address(GATEWAYS.1)));
    Template {
        protocol: Protocol::Esp,
        mode: Mode::Tunnel,
        endpoints,
        level,
    }
}

fn protect(level: Level) -> Action {
    Action::Protect(vec![template(level)])
}

fn site_to_site(level: Level) -> Policy {
    policy("10.1.0.0/16", "10.2.0.0/16", Upper::Any, protect(level))
}

fn packet(source: &str, destination: &str, protocol: u8, ports: Option<(u16, u16)>) -> Outline {
    Outline {
        source: address(source),
        destination: address(destination),
        protocol,
        header_len: 20,
        transport_offset: 20,
        total_len: 60,
        ports,
        fragment: FragmentKind::Whole,
        traffic_class: 0,
        dont_fragment: false,
        hop_limit: 64,
    }
}

fn site_packet() -> Outline {
    packet("10.1.0.5", "10.2.0.9", 6, Some((40_000, 80)))
}

fn add(config: SaConfig) -> Command {
    Command::AddSa(Arc::new(config))
}

fn add_policy(policy: Policy) -> Command {
    Command::AddPolicy(Arc::new(policy))
}

fn apply(database: &mut Database, commands: &[Command]) -> Result<Vec<Answer>, Refused> {
    database.apply(commands, 1000, &mut || 0x1234_5678_9abc)
}

fn database(commands: &[Command]) -> Database {
    let mut database = Database::default();
    apply(&mut database, commands).unwrap();
    database
}

fn spis(answers: &[Answer]) -> Vec<u32> {
    let Some(Answer::Sas(reports)) = answers.last() else {
        panic!("no associations in {answers:?}")
    };
    reports
        .iter()
        .map(|report| report.config.id.spi.get())
        .collect()
}

fn chosen(database: &Database, packet: &Outline) -> Option<u32> {
    let snapshot = database.snapshot();
    match snapshot.outbound(packet) {
        Decision::Protect([index]) => Some(snapshot.sa(*index).config.id.spi.get()),
        _ => None,
    }
}

#[test]
fn a_list_with_one_bad_command_changes_nothing() {
    let mut database = database(&[add(tunnel(0x1001))]);
    let list = [
        add(tunnel(0x1002)),
        add_policy(site_to_site(Level::Require)),
        add(tunnel(0x1001)),
        Command::DumpPolicies,
    ];
    let refused = apply(&mut database, &list).unwrap_err();
    assert_eq!(refused.index, 2);
    assert!(
        refused.reason.contains("delete it first"),
        "{}",
        refused.reason
    );
    assert_eq!(
        spis(&apply(&mut database, &[Command::DumpSas(None)]).unwrap()),
        [0x1001]
    );
    assert_eq!(
        apply(&mut database, &[Command::DumpPolicies]).unwrap(),
        [Answer::Policies(vec![])]
    );
    assert!(
        apply(&mut database, &[add_policy(site_to_site(Level::Require))]).is_ok(),
        "nothing of it is remembered"
    );
}

#[test]
fn an_update_keeps_the_state_and_a_new_association_does_not() {
    let mut database = database(&[
        add(tunnel(0x1001)),
        add_policy(site_to_site(Level::Require)),
    ]);
    let sent = |database: &Database| {
        let snapshot = database.snapshot();
        let sa = snapshot.sa(snapshot.find(&id(0x1001, GATEWAYS.1)).unwrap());
        sa.state.reserve(&sa.config, 1, 100, 1001).unwrap().0
    };
    assert_eq!(sent(&database), SequenceNumber(1));
    let stricter = SaConfig {
        replay_window: 128,
        ..tunnel(0x1001)
    };
    apply(&mut database, &[Command::UpdateSa(Arc::new(stricter))]).unwrap();
    assert_eq!(sent(&database), SequenceNumber(2));
    let delete = Command::DeleteSa {
        id: id(0x1001, GATEWAYS.1),
        source: address(GATEWAYS.0),
    };
    // The same keys at once, as a file with `flush` that is loaded again: a number must not be used twice.
    apply(&mut database, &[delete.clone(), add(tunnel(0x1001))]).unwrap();
    assert_eq!(sent(&database), SequenceNumber(3));
    let again = SaConfig {
        sequence: 9,
        ..tunnel(0x1001)
    };
    apply(&mut database, &[delete.clone(), add(again)]).unwrap();
    assert_eq!(sent(&database), SequenceNumber(10));
    let suite = Suite::new(
        Some((
            Encryption::named("aes-gcm-16").unwrap(),
            Secret::new(vec![2; 20]),
        )),
        None,
        None,
    );
    let other_keys = SaConfig {
        suite: suite.unwrap(),
        ..tunnel(0x1001)
    };
    apply(&mut database, &[delete.clone(), add(other_keys)]).unwrap();
    assert_eq!(sent(&database), SequenceNumber(1));
    apply(&mut database, std::slice::from_ref(&delete)).unwrap();
    assert!(
        apply(&mut database, &[delete])
            .unwrap_err()
            .reason
            .contains("there is no")
    );
}

#[test]
fn a_reserved_spi_is_free_and_waits_for_its_keys() {
    let mut database = database(&[add(tunnel(0x1001))]);
    let range = Some((Spi::new(0x1001).unwrap(), Spi::new(0x1002).unwrap()));
    let get_spi = Command::GetSpi {
        source: address(GATEWAYS.0),
        destination: address(GATEWAYS.1),
        protocol: Protocol::Esp,
        range,
    };
    let answer = apply(&mut database, std::slice::from_ref(&get_spi)).unwrap();
    assert_eq!(answer, [Answer::Spi(Spi::new(0x1002).unwrap())]);
    assert!(
        apply(&mut database, std::slice::from_ref(&get_spi))
            .unwrap_err()
            .reason
            .contains("in use")
    );
    apply(
        &mut database,
        &[Command::UpdateSa(Arc::new(tunnel(0x1002)))],
    )
    .unwrap();
    assert_eq!(
        spis(&apply(&mut database, &[Command::DumpSas(None)]).unwrap()),
        [0x1001, 0x1002]
    );
    database.tick(5000, |_, _| ());
    assert!(
        database.snapshot().find(&id(0x1002, GATEWAYS.1)).is_some(),
        "keyed ones are not forgotten"
    );
}

#[test]
fn an_update_that_takes_extended_numbers_away_is_refused_once_they_are_needed() {
    let extended = SaConfig {
        esn: true,
        replay_window: 64,
        sequence: u64::from(u32::MAX) - 2,
        ..tunnel(0x1001)
    };
    let short = SaConfig {
        esn: false,
        ..extended.clone()
    };
    let mut database = database(&[add(extended)]);
    let update = Command::UpdateSa(Arc::new(short));
    assert!(apply(&mut database, std::slice::from_ref(&update)).is_ok());
    let back = Command::UpdateSa(Arc::new(SaConfig {
        esn: true,
        ..snapshot_sa(&database).config.clone()
    }));
    apply(&mut database, &[back]).unwrap();
    let sa = snapshot_sa(&database);
    sa.state.reserve(&sa.config, 5, 100, 1001).unwrap();
    let refused = apply(&mut database, &[update]).unwrap_err();
    assert!(
        refused.reason.contains("4294967298") && refused.reason.contains("-o esn"),
        "{}",
        refused.reason
    );
    assert!(snapshot_sa(&database).config.esn, "nothing has changed");
}

/// The one association with this number.
fn snapshot_sa(database: &Database) -> Arc<Sa> {
    let sas = database.draft.sas();
    Arc::clone(sas.last().unwrap())
}

#[test]
fn flush_and_deleteall_take_what_they_name() {
    let other = config(0x2001, (GATEWAYS.1, GATEWAYS.0), Mode::Tunnel);
    let mut database = database(&[add(tunnel(0x1001)), add(tunnel(0x1002)), add(other)]);
    let delete_all = Command::DeleteAllSas {
        source: address(GATEWAYS.0),
        destination: address(GATEWAYS.1),
        protocol: Protocol::Esp,
    };
    apply(
        &mut database,
        &[Command::FlushSas(Some(Protocol::Ah)), delete_all],
    )
    .unwrap();
    assert_eq!(
        spis(&apply(&mut database, &[Command::DumpSas(None)]).unwrap()),
        [0x2001]
    );
    apply(&mut database, &[Command::FlushSas(None)]).unwrap();
    assert_eq!(database.snapshot().sas().count(), 0);
}

#[test]
fn the_youngest_association_that_is_not_dying_carries_the_traffic() {
    let soft = LifetimeLimits {
        packets: 1,
        ..LifetimeLimits::default()
    };
    let dying = SaConfig {
        lifetimes: Lifetimes {
            soft,
            ..Lifetimes::default()
        },
        ..tunnel(0x1002)
    };
    let mut database = database(&[
        add_policy(site_to_site(Level::Require)),
        add(tunnel(0x1001)),
        add(dying),
    ]);
    assert_eq!(chosen(&database, &site_packet()), Some(0x1002));
    let snapshot = database.snapshot();
    let sa = snapshot.sa(snapshot.find(&id(0x1002, GATEWAYS.1)).unwrap());
    sa.state.reserve(&sa.config, 1, 100, 1001).unwrap();
    assert_eq!(
        database.tick(1001, |_, _| ()),
        [(id(0x1002, GATEWAYS.1), LifetimeEvent::Soft)]
    );
    assert_eq!(chosen(&database, &site_packet()), Some(0x1001));
}

#[test]
fn a_dead_association_is_reported_removed_and_acquired_again() {
    let hard = LifetimeLimits {
        age: 60,
        ..LifetimeLimits::default()
    };
    let mortal = SaConfig {
        lifetimes: Lifetimes {
            hard,
            ..Lifetimes::default()
        },
        ..tunnel(0x1001)
    };
    let mut database = database(&[add_policy(site_to_site(Level::Require)), add(mortal)]);
    assert_eq!(database.tick(1059, |_, _| ()), []);
    assert_eq!(
        database.tick(1060, |_, _| ()),
        [(id(0x1001, GATEWAYS.1), LifetimeEvent::Hard)]
    );
    assert_eq!(
        database.snapshot().outbound(&site_packet()),
        Decision::Acquire { policy: 1 }
    );
    assert!(apply(&mut database, &[add(tunnel(0x1001))]).is_ok());
}

#[test]
fn a_unique_policy_uses_its_own_number_and_others_use_none() {
    let numbered = SaConfig {
        reqid: Reqid(7),
        ..tunnel(0x1007)
    };
    let unique = policy(
        "10.7.0.0/16",
        "10.2.0.0/16",
        Upper::Any,
        protect(Level::Unique(Some(Reqid(7)))),
    );
    let plain = site_to_site(Level::Require);
    let database = database(&[
        add(tunnel(0x1001)),
        add(numbered),
        add_policy(unique),
        add_policy(plain),
    ]);
    assert_eq!(
        chosen(&database, &packet("10.7.0.1", "10.2.0.1", 17, None)),
        Some(0x1007)
    );
    assert_eq!(chosen(&database, &site_packet()), Some(0x1001));
}

#[test]
fn use_passes_in_clear_without_an_association_and_require_does_not() {
    let mut database = database(&[add_policy(site_to_site(Level::Use))]);
    assert_eq!(
        database.snapshot().outbound(&site_packet()),
        Decision::Bypass
    );
    apply(
        &mut database,
        &[Command::UpdatePolicy(Arc::new(site_to_site(
            Level::Require,
        )))],
    )
    .unwrap();
    assert!(matches!(
        database.snapshot().outbound(&site_packet()),
        Decision::Acquire { .. }
    ));
    assert_eq!(
        database
            .snapshot()
            .outbound(&packet("10.1.0.1", "8.8.8.8", 6, None)),
        Decision::Drop(Dropped::NoPolicy)
    );
}

#[test]
fn priority_goes_before_age_and_age_before_nothing() {
    let web = Upper::Protocol {
        number: 6,
        source_port: None,
        destination_port: Some(80),
    };
    let first = site_to_site(Level::Require);
    let exception = policy("10.1.0.0/16", "10.2.0.0/24", web, Action::Bypass);
    let urgent = Policy {
        priority: 5,
        ..exception.clone()
    };
    let database = database(&[
        add(tunnel(0x1001)),
        add_policy(first),
        add_policy(exception),
    ]);
    assert_eq!(chosen(&database, &site_packet()), Some(0x1001));
    let database = self::database(&[
        add(tunnel(0x1001)),
        add_policy(site_to_site(Level::Require)),
        add_policy(urgent),
    ]);
    assert_eq!(
        database.snapshot().outbound(&site_packet()),
        Decision::Bypass
    );
    assert_eq!(
        chosen(
            &database,
            &packet("10.1.0.5", "10.2.0.9", 6, Some((1, 443)))
        ),
        Some(0x1001)
    );
    assert_eq!(
        chosen(&database, &packet("10.1.0.5", "10.2.1.9", 6, Some((1, 80)))),
        Some(0x1001),
        "other prefix"
    );
}

#[test]
fn a_later_fragment_never_slips_past_a_policy_with_ports() {
    let web = Upper::Protocol {
        number: 6,
        source_port: None,
        destination_port: Some(80),
    };
    let guarded = policy("10.1.0.0/16", "10.2.0.0/16", web, protect(Level::Require));
    let rest = policy("10.1.0.0/16", "10.2.0.0/16", Upper::Any, Action::Bypass);
    let database = database(&[add(tunnel(0x1001)), add_policy(guarded), add_policy(rest)]);
    let later = Outline {
        ports: None,
        fragment: FragmentKind::Later,
        ..site_packet()
    };
    assert_eq!(
        database.snapshot().outbound(&later),
        Decision::Drop(Dropped::Fragment)
    );
    let udp = Outline {
        protocol: 17,
        ..later
    };
    assert_eq!(
        database.snapshot().outbound(&udp),
        Decision::Bypass,
        "its protocol is known to be another"
    );
}

#[test]
fn icmp_types_and_bare_ports_select() {
    let echo = Upper::Icmp {
        number: 1,
        kind: Some(8),
        code: None,
    };
    let dns = Upper::Ports {
        source_port: None,
        destination_port: Some(53),
    };
    let database = database(&[
        add_policy(policy("0.0.0.0/0", "0.0.0.0/0", echo, Action::Discard)),
        add_policy(policy("0.0.0.0/0", "0.0.0.0/0", dns, Action::Bypass)),
    ]);
    let decide = |protocol, ports| {
        let snapshot = database.snapshot();
        match snapshot.outbound(&packet("1.1.1.1", "2.2.2.2", protocol, ports)) {
            Decision::Bypass => "bypass",
            Decision::Drop(reason) => reason.name(),
            _ => "other",
        }
    };
    assert_eq!(decide(1, Some((8, 0))), "policy-discard");
    assert_eq!(
        decide(1, Some((0, 53))),
        "no-policy",
        "an ICMP code is no port"
    );
    assert_eq!(decide(17, Some((9, 53))), "bypass");
    assert_eq!(decide(6, Some((9, 53))), "bypass");
    assert_eq!(decide(6, Some((53, 9))), "no-policy");
}

#[test]
fn inbound_demands_exactly_the_path_that_policy_names() {
    let inbound = Policy {
        direction: Direction::In,
        ..site_to_site(Level::Require)
    };
    let other = config(0x2001, ("192.0.2.9", GATEWAYS.1), Mode::Tunnel);
    let database = database(&[add(tunnel(0x1001)), add(other), add_policy(inbound)]);
    let snapshot = database.snapshot();
    let right = snapshot.find(&id(0x1001, GATEWAYS.1)).unwrap();
    let wrong = snapshot.find(&id(0x2001, GATEWAYS.1)).unwrap();
    let allowed = snapshot.inbound(&site_packet(), &[right]);
    assert_eq!(
        allowed,
        Ok(Allowed::In),
        "nothing says that it may be forwarded"
    );
    assert_eq!(
        snapshot.inbound(&site_packet(), &[wrong]),
        Err(Dropped::PolicyMismatch)
    );
    assert_eq!(
        snapshot.inbound(&site_packet(), &[]),
        Err(Dropped::PolicyMismatch),
        "in clear"
    );
    assert_eq!(
        snapshot.inbound(&site_packet(), &[right, right]),
        Err(Dropped::PolicyMismatch),
        "one too many"
    );
    let stranger = packet("10.9.0.1", "10.2.0.1", 6, None);
    assert_eq!(
        snapshot.inbound(&stranger, &[right]),
        Err(Dropped::NoPolicy)
    );
}

#[test]
fn a_transport_bundle_is_found_by_the_hosts_of_the_packet() {
    let hosts = ("10.0.0.1", "10.0.0.2");
    let encrypt = config(0x3001, hosts, Mode::Transport);
    let authenticate = config(0x3002, hosts, Mode::Any);
    let transport = |reqid| Template {
        protocol: Protocol::Esp,
        mode: Mode::Transport,
        endpoints: None,
        level: Level::Unique(Some(Reqid(reqid))),
    };
    let bundle = Action::Protect(vec![transport(1), transport(2)]);
    let database = database(&[
        add(SaConfig {
            reqid: Reqid(1),
            ..encrypt
        }),
        add(SaConfig {
            reqid: Reqid(2),
            ..authenticate
        }),
        add_policy(policy("10.0.0.0/24", "10.0.0.0/24", Upper::Any, bundle)),
    ]);
    let snapshot = database.snapshot();
    let Decision::Protect(path) = snapshot.outbound(&packet(hosts.0, hosts.1, 6, None)) else {
        panic!()
    };
    let spis: Vec<_> = path
        .iter()
        .map(|index| snapshot.sa(*index).config.id.spi.get())
        .collect();
    assert_eq!(spis, [0x3001, 0x3002], "innermost first");
    let elsewhere = packet("10.0.0.1", "10.0.0.3", 6, None);
    assert!(matches!(
        snapshot.outbound(&elsewhere),
        Decision::Acquire { .. }
    ));
}

#[test]
fn one_that_stands_by_sends_nothing_until_it_is_updated_and_receives_all_the_same() {
    let by = |spi: u32, is_standby| SaConfig {
        is_standby,
        ..tunnel(spi)
    };
    let mut database = database(&[
        add(by(0x1001, false)),
        add(by(0x1002, true)),
        add_policy(site_to_site(Level::Require)),
    ]);
    let sends = |database: &Database| {
        let snapshot = database.snapshot();
        match snapshot.outbound(&site_packet()) {
            Decision::Protect([only]) => Some(snapshot.sa(*only).config.id.spi.get()),
            _ => None,
        }
    };
    assert_eq!(sends(&database), Some(0x1001));
    assert!(database.snapshot().find(&by(0x1002, true).id).is_some());
    let update = |config| Command::UpdateSa(Arc::new(config));
    apply(&mut database, &[update(by(0x1002, false))]).unwrap();
    assert_eq!(sends(&database), Some(0x1002));
    apply(
        &mut database,
        &[update(by(0x1002, true)), update(by(0x1001, true))],
    )
    .unwrap();
    assert_eq!(sends(&database), None, "nothing passes for want of another");
}

#[test]
fn the_use_of_a_policy_is_shown_after_the_next_tick() {
    let mut database = database(&[add_policy(site_to_site(Level::Require))]);
    let last_used =
        |database: &mut Database| match &apply(database, &[Command::DumpPolicies]).unwrap()[..] {
            [Answer::Policies(reports)] => reports[0].last_used,
            _ => panic!(),
        };
    assert_eq!(last_used(&mut database), 0);
    let _ = database.snapshot().outbound(&site_packet());
    database.tick(2000, |_, _| ());
    assert_eq!(last_used(&mut database), 2000);
    database.tick(3000, |_, _| ());
    assert_eq!(last_used(&mut database), 2000);
}

#[test]
fn sixty_thousand_policies_are_asked_by_their_shapes() {
    let network = |number: u32| format!("10.{}.{}.0/24", number >> 8, number & 255);
    let commands: Vec<_> = (0..60_000)
        .map(|number| {
            add_policy(policy(
                "172.16.0.0/12",
                &network(number),
                Upper::Any,
                Action::Discard,
            ))
        })
        .collect();
    let database = database(&commands);
    let snapshot = database.snapshot();
    let decide = |destination| snapshot.outbound(&packet("172.16.0.1", destination, 6, None));
    assert_eq!(
        decide("10.234.95.1"),
        Decision::Drop(Dropped::PolicyDiscard)
    );
    assert_eq!(decide("10.234.96.1"), Decision::Drop(Dropped::NoPolicy));
}

#[test]
fn explain_names_the_policy_the_association_and_what_is_missing() {
    let mut database = database(&[add_policy(site_to_site(Level::Require))]);
    let explanation = database
        .snapshot()
        .explain(&site_packet(), &Surroundings::default());
    assert_eq!(explanation.outcome, Outcome::Dropped(Dropped::Acquire));
    assert_eq!(
        explanation.findings,
        [Finding::NoAssociation, Finding::NoWayBack]
    );
    let back = Policy {
        direction: Direction::In,
        ..policy("10.2.0.0/16", "10.1.0.0/16", Upper::Any, Action::Bypass)
    };
    apply(&mut database, &[add(tunnel(0x1001)), add_policy(back)]).unwrap();
    let explanation = database
        .snapshot()
        .explain(&site_packet(), &Surroundings::default());
    assert_eq!(
        (explanation.outcome, explanation.path.len()),
        (Outcome::Protected, 1)
    );
    assert_eq!(explanation.findings, []);
    assert_eq!(explanation.policy.unwrap().0, 1);
}

mod changes;
mod compression;
mod directions;
mod interfaces;
mod paths;
mod shadowed;
