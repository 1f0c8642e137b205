//! What `setkey -D` and `setkey -DP` print, byte for byte the classic setkey output of ipsec-tools on Linux, which
//! scripts parse.
//!
//! Tabs begin the indented lines, a blank follows the second address and the state, a time that never was is twenty
//! blanks. What ipsec-tools has no field for (extended numbers, DSCP …) is not shown here.

use std::fmt::Write;
use std::net::IpAddr;

use zeroize::Zeroizing;

use super::protocol::{self, GRE, ICMP, ICMP6, MOBILITY};
use super::secret_text::SecretText;
use crate::command::{PolicyReport, SaReport};
use crate::policy::{Action, Direction, Level, Policy, Prefix, Template, Upper};
use crate::sa::{Mode, Phase, Protocol, Reqid, SaConfig};
use crate::suite::Secret;

mod time;

pub use time::local as local_time;

/// The largest identifier that files choose; those above are the gateway's own, and printed behind `#` instead of `:`.
const LARGEST_MANUAL_REQID: u32 = 0x3fff;

/// What a dump depends on besides the entries.
#[derive(Clone, Copy)]
pub struct DumpContext<'a> {
    /// Seconds since the Unix epoch.
    pub now: u64,
    /// How many seconds local time was ahead of universal time at a moment.
    pub utc_offset: &'a dyn Fn(u64) -> i64,
    /// The process that requests the dump.
    pub pid: u32,
    /// `-p`: ports are shown everywhere.
    pub ports: bool,
}

impl DumpContext<'_> {
    fn time(&self, seconds: u64) -> String {
        match seconds {
            0 => " ".repeat(20),
            _ => time::local(seconds, (self.utc_offset)(seconds)),
        }
    }
}

/// What `setkey -D` prints. It holds keys: zeroed when dropped.
pub fn dump_sas(sas: &[SaReport], context: &DumpContext<'_>) -> Zeroizing<Vec<u8>> {
    let mut out = SecretText::default();
    if sas.is_empty() {
        out.push(b"No SAD entries.\n");
    }
    for (index, sa) in sas.iter().enumerate() {
        head(&mut out, &sa.config, context.ports);
        keys(&mut out, &sa.config);
        state(&mut out, sa);
        times(&mut out, sa, context);
        let left = sas.len() - 1 - index;
        let _ = writeln!(out, "\tsadb_seq={left} pid={} refcnt=0", context.pid);
    }
    out.into_bytes()
}

/// What `setkey -DP` prints.
pub fn dump_policies(policies: &[PolicyReport], context: &DumpContext<'_>) -> String {
    if policies.is_empty() {
        return "No SPD entries.\n".to_owned();
    }
    let mut out = String::new();
    for (index, report) in policies.iter().enumerate() {
        let PolicyReport {
            policy,
            id,
            created,
            last_used,
        } = report;
        selector(&mut out, policy);
        decision(&mut out, policy, context.ports);
        let (created, last_used) = (context.time(*created), context.time(*last_used));
        let _ = writeln!(out, "\tcreated: {created}  lastused: {last_used}");
        let left = policies.len() - 1 - index;
        let _ = writeln!(out, "\tlifetime: 0(s) validtime: 0(s)");
        let _ = writeln!(
            out,
            "\tspid={id} seq={left} pid={}\n\trefcnt=1",
            context.pid
        );
    }
    out
}

/// One line for each association, as `setkey -lD` repeats it: state, protocol, SPI, ends, bytes.
pub fn dump_short(sas: &[SaReport]) -> String {
    let mut out = String::new();
    for sa in sas {
        let SaConfig { id, source, .. } = &*sa.config;
        let (phase, protocol) = (phase_word(sa.phase), protocol_word(&sa.config));
        let _ = writeln!(
            out,
            "{phase:<6} {protocol:<7} {} {source} -> {} {} bytes",
            id.spi, id.destination, sa.bytes
        );
    }
    out
}

fn head(out: &mut SecretText, config: &SaConfig, ports: bool) {
    let encapsulation = config.encapsulation;
    let source = port_behind(encapsulation.map(|udp| udp.source_port), ports);
    let destination = port_behind(encapsulation.map(|udp| udp.destination_port), ports);
    let _ = writeln!(
        out,
        "{}{source} {}{destination} ",
        config.source, config.id.destination
    );
    let (spi, Reqid(reqid)) = (config.id.spi.get(), config.reqid);
    let (protocol, mode) = (protocol_word(config), mode_word(config.mode));
    let _ = writeln!(
        out,
        "\t{protocol} mode={mode} spi={spi}({spi:#010x}) reqid={reqid}({reqid:#010x})"
    );
}

fn port_behind(port: Option<u16>, always: bool) -> String {
    match port {
        Some(port) => format!("[{port}]"),
        None if always => "[0]".to_owned(),
        None => String::new(),
    }
}

/// An algorithm without a key has no line.
fn keys(out: &mut SecretText, config: &SaConfig) {
    if let Some(compression) = config.suite.compression() {
        let _ = writeln!(out, "\tC: {}", compression.name());
    }
    if let Some((row, secret)) = config.suite.encryption() {
        key(out, 'E', row.name, secret);
    }
    if let Some((row, secret)) = config.suite.integrity() {
        key(out, 'A', printed_name(row.name), secret);
    }
}

fn key(out: &mut SecretText, letter: char, name: &str, secret: &Secret) {
    if secret.expose().is_empty() {
        return;
    }
    let _ = write!(out, "\t{letter}: {name} ");
    for word in secret.expose().chunks(4) {
        out.push(b" ");
        out.push_hexadecimal(word);
    }
    out.push(b"\n");
}

/// ipsec-tools reads both spellings of SHA-2 and prints the short one.
fn printed_name(name: &str) -> &str {
    match name {
        "hmac-sha2-256" => "hmac-sha256",
        "hmac-sha2-384" => "hmac-sha384",
        "hmac-sha2-512" => "hmac-sha512",
        other => other,
    }
}

fn state(out: &mut SecretText, sa: &SaReport) {
    let (low, replay) = (sa.sequence as u32, sa.config.replay_window);
    let phase = phase_word(sa.phase);
    let _ = writeln!(
        out,
        "\tseq={low:#010x} replay={replay} flags=0x00000000 state={phase} "
    );
}

fn times(out: &mut SecretText, sa: &SaReport, context: &DumpContext<'_>) {
    let lifetimes = &sa.config.lifetimes;
    let (hard, soft) = (&lifetimes.hard, &lifetimes.soft);
    let (created, now) = (context.time(sa.created), context.time(context.now));
    let _ = writeln!(out, "\tcreated: {created}\tcurrent: {now}");
    let age = if sa.created == 0 {
        0
    } else {
        context.now.saturating_sub(sa.created)
    };
    let _ = writeln!(
        out,
        "\tdiff: {age}(s)\thard: {}(s)\tsoft: {}(s)",
        hard.age, soft.age
    );
    let last = context.time(sa.last_used);
    let _ = writeln!(
        out,
        "\tlast: {last}\thard: {}(s)\tsoft: {}(s)",
        hard.first_use, soft.first_use
    );
    let bytes = (sa.bytes, hard.bytes, soft.bytes);
    let _ = writeln!(
        out,
        "\tcurrent: {}(bytes)\thard: {}(bytes)\tsoft: {}(bytes)",
        bytes.0, bytes.1, bytes.2
    );
    let _ = writeln!(
        out,
        "\tallocated: {}\thard: {}\tsoft: {}",
        sa.packets, hard.packets, soft.packets
    );
}

fn protocol_word(config: &SaConfig) -> &'static str {
    match (config.id.protocol, config.encapsulation) {
        (Protocol::Esp, Some(_)) => "esp-udp",
        (Protocol::Esp, None) => "esp",
        (Protocol::Ah, _) => "ah",
        (Protocol::IpComp, _) => "ipcomp",
    }
}

fn mode_word(mode: Mode) -> &'static str {
    match mode {
        Mode::Any => "any",
        Mode::Transport => "transport",
        Mode::Tunnel => "tunnel",
    }
}

fn phase_word(phase: Phase) -> &'static str {
    match phase {
        Phase::Larval => "larval",
        Phase::Mature => "mature",
        Phase::Dying => "dying",
        Phase::Dead => "dead",
    }
}

fn selector(out: &mut String, policy: &Policy) {
    let selector = &policy.selector;
    let number = match selector.upper {
        Upper::Any | Upper::Ports { .. } => 255,
        Upper::Protocol { number, .. } | Upper::Icmp { number, .. } => number,
    };
    let (source_port, destination_port) = selector.upper.ports();
    let has_ports = !matches!(number, ICMP | ICMP6 | MOBILITY | GRE);
    range(out, &selector.source, has_ports.then_some(source_port));
    range(
        out,
        &selector.destination,
        has_ports.then_some(destination_port),
    );
    match protocol::name(number) {
        Some(name) => out.push_str(name),
        None => drop(write!(out, "{number}")),
    }
    if let Upper::Icmp { kind, code, .. } = selector.upper
        && kind.or(code).is_some()
    {
        let _ = write!(out, " {},{}", kind.unwrap_or(0), code.unwrap_or(0));
    }
    out.push('\n');
}

/// `address/prefix[port] `, the prefix only where it is not the whole address.
fn range(out: &mut String, prefix: &Prefix, port: Option<Option<u16>>) {
    let full = if prefix.address.is_ipv4() { 32 } else { 128 };
    let _ = write!(out, "{}", prefix.address);
    if prefix.len != full {
        let _ = write!(out, "/{}", prefix.len);
    }
    match port {
        Some(Some(port)) => drop(write!(out, "[{port}] ")),
        Some(None) => out.push_str("[any] "),
        None => out.push(' '),
    }
}

fn decision(out: &mut String, policy: &Policy, ports: bool) {
    let direction = match policy.direction {
        Direction::In => "in",
        Direction::Out => "out",
        Direction::Fwd => "fwd",
    };
    let (action, templates) = match &policy.action {
        Action::Discard => ("discard", &[][..]),
        Action::Bypass => ("none", &[][..]),
        Action::Entrust => ("entrust", &[][..]),
        Action::Protect(templates) => ("ipsec", &templates[..]),
    };
    let _ = writeln!(out, "\t{direction} {}{action}", priority(policy.priority));
    for each in templates {
        template(out, each, ports);
    }
}

/// The `spdadd` statement that makes a policy of a file.
pub fn policy_statement(policy: &Policy) -> String {
    let (mut what, mut how) = (String::new(), String::new());
    selector(&mut what, policy);
    decision(&mut how, policy, false);
    let what = match policy.selector.upper {
        Upper::Icmp { code: None, .. } => what.trim_end().trim_end_matches(",0").to_owned(),
        Upper::Any | Upper::Ports { .. } => what.trim_end().replace(" 255", " any"),
        Upper::Icmp { .. } | Upper::Protocol { .. } => what.trim_end().to_owned(),
    };
    let what = what.replace("[any]", "");
    let spread = match policy.spread {
        ..=1 => String::new(),
        most => format!("-o spread={most} "),
    };
    let how: Vec<_> = how.split_whitespace().collect();
    let mut how = how.join(" ");
    if policy.priority == 0 {
        how = how.replacen(" prio def ", " ", 1);
    }
    format!("spdadd {what} {spread}-P {how};")
}

/// By the nearest of `high`, `def` and `low`; the very highest has no words.
fn priority(value: i64) -> String {
    const HIGH: i64 = 1 << 30;
    let (word, base) = match value {
        _ if value >= 1 << 31 => return String::new(),
        _ if value > HIGH / 2 => ("high", HIGH),
        _ if value > -HIGH / 2 => ("def", 0),
        _ => ("low", -HIGH),
    };
    match value - base {
        0 => format!("prio {word} "),
        offset if offset < 0 => format!("prio {word} - {} ", -offset),
        offset => format!("prio {word} + {offset} "),
    }
}

fn template(out: &mut String, template: &Template, ports: bool) {
    let protocol = match template.protocol {
        Protocol::Esp => "esp",
        Protocol::Ah => "ah",
        Protocol::IpComp => "ipcomp",
    };
    let end = |address: IpAddr| format!("{address}{}", port_behind(None, ports));
    let ends = template
        .endpoints
        .map(|(near, far)| format!("{}-{}", end(near), end(far)));
    let level = match template.level {
        Level::Use => "use".to_owned(),
        // The default is to require; the kernel's own dump does not distinguish them either.
        Level::Default | Level::Require => "require".to_owned(),
        Level::Unique(None) => "unique".to_owned(),
        Level::Unique(Some(Reqid(id))) if id > LARGEST_MANUAL_REQID => format!("unique#{id}"),
        Level::Unique(Some(Reqid(id))) => format!("unique:{id}"),
    };
    let mode = mode_word(template.mode);
    let _ = writeln!(
        out,
        "\t{protocol}/{mode}/{}/{level}",
        ends.unwrap_or_default()
    );
}
