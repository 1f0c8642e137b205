//! Compares with the parser of ipsec-tools: for hundreds of random statements, the messages that it sends to a kernel
//! have the same meaning as the commands compiled here.

use ipsec::command::{Command, PolicyReport};
use ipsec::policy::{Selector, Upper};
use ipsec::sa::{Mode, Protocol, SaConfig, SaId};
use ipsec::setkey::{DumpContext, Forwarding, NoNames, compile, dump_policies};

/// Each command in the words of `generated.expected`; the numbers are PF_KEY's.
fn judged(command: &Command) -> String {
    match command {
        Command::AddSa(config) => added(config),
        Command::DeleteSa { id, source } => named(4, id, &source.to_string()),
        Command::GetSa { id, source } => named(5, id, &source.to_string()),
        Command::FlushSas(protocol) => format!("9/{} - -", protocol.map_or(0, number)),
        Command::DumpSas(protocol) => format!("10/{} - -", protocol.map_or(0, number)),
        Command::FlushPolicies => "19/0 - -".to_owned(),
        Command::DumpPolicies => "18/0 - -".to_owned(),
        Command::DeletePolicy { selector: of, .. } => format!("15/0 {}", selector(of)),
        Command::AddPolicy(policy) => {
            let report = PolicyReport {
                policy: policy.clone(),
                id: 1,
                created: 1,
                last_used: 1,
            };
            let context = DumpContext {
                now: 1,
                utc_offset: &|_| 0,
                pid: 1,
                ports: false,
            };
            let dump = dump_policies(&[report], &context);
            let words: Vec<_> = dump
                .lines()
                .skip(1)
                .take_while(|line| !line.starts_with("\tcreated"))
                .map(str::trim)
                .collect();
            format!(
                "14/0 {} {{{}}}",
                selector(&policy.selector),
                words.join(" ")
            )
        }
        other => panic!("none of these was written: {other:?}"),
    }
}

fn number(protocol: Protocol) -> u8 {
    match protocol {
        Protocol::Esp => 3,
        Protocol::Ah => 2,
        Protocol::IpComp => 9,
    }
}

fn named(kind: u8, id: &SaId, source: &str) -> String {
    format!(
        "{kind}/{} {source} {} spi={}",
        number(id.protocol),
        id.destination,
        id.spi.get()
    )
}

fn added(config: &SaConfig) -> String {
    let key = |bytes: &[u8]| match bytes {
        [] => "empty".to_owned(),
        _ => bytes.iter().map(|byte| format!("{byte:02x}")).collect(),
    };
    let mode = match config.mode {
        Mode::Any => 0,
        Mode::Transport => 1,
        Mode::Tunnel => 2,
    };
    let encryption = config
        .suite
        .encryption()
        .map_or("-".to_owned(), |(_, secret)| key(secret.expose()));
    let integrity = config
        .suite
        .integrity()
        .map_or("-".to_owned(), |(_, secret)| key(secret.expose()));
    let (hard, soft) = (&config.lifetimes.hard, &config.lifetimes.soft);
    let ports = config
        .encapsulation
        .map(|udp| format!(" udp={},{}", udp.source_port, udp.destination_port));
    format!(
        "{} replay={} mode={mode} reqid={} E={encryption} A={integrity} lh={} ls={} bh={} bs={}{}",
        named(3, &config.id, &config.source.to_string()),
        config.replay_window,
        config.reqid.0,
        hard.age,
        soft.age,
        hard.bytes,
        soft.bytes,
        ports.unwrap_or_default()
    )
}

fn selector(selector: &Selector) -> String {
    let (number, source, destination) = match selector.upper {
        Upper::Any => (255, 0, 0),
        Upper::Ports {
            source_port,
            destination_port,
        } => (255, source_port.unwrap_or(0), destination_port.unwrap_or(0)),
        Upper::Protocol {
            number,
            source_port,
            destination_port,
        } => (
            number,
            source_port.unwrap_or(0),
            destination_port.unwrap_or(0),
        ),
        Upper::Icmp { number, kind, code } => {
            (number, kind.unwrap_or(0).into(), code.unwrap_or(0).into())
        }
    };
    let (from, to) = (&selector.source, &selector.destination);
    format!(
        "{}/{}[{source}]{number} {}/{}[{destination}]{number}",
        from.address, from.len, to.address, to.len
    )
}

#[test]
fn every_statement_means_what_ipsec_tools_takes_it_to_mean() {
    let text = include_bytes!("../vectors/setkey/generated.setkey");
    let expected = include_str!("../vectors/setkey/generated.expected");
    let lowered = compile(text, Forwarding::AsWritten, &mut NoNames).unwrap();
    let ours: Vec<_> = lowered.commands.iter().map(judged).collect();
    let theirs: Vec<_> = expected.lines().collect();
    assert_eq!(theirs.len(), 240);
    assert_eq!(ours, theirs);
}
