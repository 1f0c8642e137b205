//! The drop rules: a table of our own in the language of `nft`, replaced as a whole in one transaction.
//!
//! ```text
//!   leaving    postrouting   by the TUN device or marked as ours: pass; else policy by policy: protected -> drop
//!   arriving   input         from the TUN device, or ESP, AH, ESP in UDP: pass; else protected -> drop
//!   passing    forward       the same for traffic to be forwarded
//!   rerouting  output        sends packets of unbound local sockets, whose source address came late, to our table
//!   marking    prerouting    the same for forwarded packets where a policy asks what a routing rule cannot
//!   clamping   forward       lets TCP know what fits (MSS)
//!   forwarded  prerouting    without a TUN device: what the ring on the inner device takes, the kernel does not see
//! ```
//!
//! The kernel needs no rule to keep silent about native ESP: while our raw socket is open it takes each packet as wanted
//! and sends no "protocol unreachable". What packet rings take is dropped behind them by [`rings`].

pub mod rings;

use super::Site;
use super::plan::{Entry, Family, Plan, Verdict};
use ipsec::policy::Upper;
use std::fmt::Write as _;
use std::io::{self, Write as _};
use std::process::{Command, Stdio};

/// Names of the counters in the table: clear packets that were about to leave, to arrive or to pass.
pub const COUNTERS: [&str; 3] = ["clear_leaving", "clear_arriving", "clear_passing"];

/// The transaction that makes the table enforce `plan`, whatever it held before.
pub fn script(site: &Site, plan: &Plan) -> String {
    let mut script = Script::new(site);
    script.leaving(plan);
    script.arriving(plan);
    script.passing(plan);
    if let Some(device) = site.forward() {
        script.forwarded(device, plan);
    }
    if let Some(tun) = site.tun() {
        script.rerouting(tun, plan);
        script.marking(tun, plan);
        script.clamping(tun);
    }
    script.text
}

/// The transaction that takes the table away, whether or not it exists.
pub fn removal(site: &Site) -> String {
    let table = site.firewall_table();
    format!("add table inet {table}\ndelete table inet {table}\n")
}

/// Hands a transaction to `nft`, which does all of it or nothing.
pub fn apply(script: &str) -> io::Result<()> {
    let mut child = Command::new("nft")
        .args(["-f", "-"])
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(missing)?;
    if let Some(mut input) = child.stdin.take() {
        // An early end of nft shows in its status and message below.
        let _ = input.write_all(script.as_bytes());
    }
    let output = child.wait_with_output()?;
    if output.status.success() {
        return Ok(());
    }
    let complaint = String::from_utf8_lossy(&output.stderr);
    Err(io::Error::other(format!(
        "nft refused the drop rules: {}",
        complaint.lines().next().unwrap_or("no reason given").trim()
    )))
}

/// The table as the kernel has it, without counts; none if it is not there.
pub fn listing(site: &Site) -> io::Result<Option<String>> {
    let table = site.firewall_table();
    let output = Command::new("nft")
        .args(["--stateless", "list", "table", "inet", &table])
        .stderr(Stdio::null())
        .output()
        .map_err(missing)?;
    let there = output.status.success();
    Ok(there.then(|| String::from_utf8_lossy(&output.stdout).into_owned()))
}

/// Packets and bytes of each of [`COUNTERS`], as far as they can be read.
pub fn counters(site: &Site) -> Vec<(&'static str, u64, u64)> {
    let table = site.firewall_table();
    let listing = Command::new("nft")
        .args(["-j", "list", "counters", "table", "inet", &table])
        .stderr(Stdio::null())
        .output();
    let Ok(output) = listing else {
        return Vec::new();
    };
    let json: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap_or_default();
    let entries = json["nftables"].as_array().cloned().unwrap_or_default();
    let find = |name: &str| {
        entries
            .iter()
            .map(|entry| &entry["counter"])
            .find(|counter| counter["name"] == *name)
            .map(|counter| (counter["packets"].as_u64(), counter["bytes"].as_u64()))
    };
    COUNTERS
        .into_iter()
        .filter_map(|name| match find(name)? {
            (Some(packets), Some(bytes)) => Some((name, packets, bytes)),
            _ => None,
        })
        .collect()
}

fn missing(error: io::Error) -> io::Error {
    if error.kind() != io::ErrorKind::NotFound {
        return error;
    }
    io::Error::new(
        io::ErrorKind::NotFound,
        "`nft` is missing, and without drop rules protected traffic could pass in clear: install the package \
         `nftables` (apt-get install nftables)",
    )
}

/// Grows the transaction chain by chain.
struct Script<'a> {
    site: &'a Site,
    table: String,
    text: String,
}

impl<'a> Script<'a> {
    fn new(site: &'a Site) -> Self {
        let table = site.firewall_table();
        let mut text = format!("add table inet {table}\n");
        for counter in COUNTERS {
            let _ = writeln!(text, "add counter inet {table} {counter}");
        }
        Self { site, table, text }
    }

    /// The TUN device before another name, if there is one.
    fn tun_and(&self) -> String {
        let tun = self.site.tun();
        tun.map(|tun| format!("\"{tun}\", ")).unwrap_or_default()
    }

    /// Opens a chain and empties it; both take effect with the rules that follow.
    fn chain(&mut self, name: &str, kind: &str, hook: &str, priority: i32) {
        let table = &self.table;
        let _ = writeln!(
            self.text,
            "add chain inet {table} {name} {{ type {kind} hook {hook} priority {priority}; policy accept; }}\n\
             flush chain inet {table} {name}"
        );
    }

    fn rule(&mut self, chain: &str, rule: &str) {
        let _ = writeln!(self.text, "add rule inet {} {chain} {rule}", self.table);
    }

    /// Before source translation (100), after everything that may still change an address or mark.
    fn leaving(&mut self, plan: &Plan) {
        self.chain("leaving", "filter", "postrouting", -10);
        let mark = self.site.outside_mark();
        self.rule(
            "leaving",
            &format!("oifname {{ {}\"lo\" }} accept", self.tun_and()),
        );
        self.rule(
            "leaving",
            &format!("meta mark & {mark:#x} == {mark:#x} accept"),
        );
        self.neighbours("leaving");
        self.entries("leaving", COUNTERS[0], &plan.leaving);
    }

    fn arriving(&mut self, plan: &Plan) {
        self.chain("arriving", "filter", "input", -160);
        self.rule(
            "arriving",
            &format!("iifname {{ {}\"lo\" }} accept", self.tun_and()),
        );
        self.rule("arriving", "meta l4proto { 50, 51 } accept");
        // IPv6 joins fragments behind this hook; all of one packet name the same header.
        self.rule("arriving", "frag nexthdr { 50, 51 } accept");
        if !plan.udp_ports.is_empty() {
            let ports: Vec<_> = plan.udp_ports.iter().map(u16::to_string).collect();
            self.rule(
                "arriving",
                &format!("udp dport {{ {} }} accept", ports.join(", ")),
            );
            // IPv6 meets this hook before it is reassembled. A later fragment tells no port, and is worth nothing
            // without the first one, which does.
            self.rule(
                "arriving",
                "meta nfproto ipv6 frag frag-off != 0 meta l4proto 17 accept",
            );
        }
        self.path_mtu(plan);
        self.neighbours("arriving");
        self.entries("arriving", COUNTERS[1], &plan.arriving);
    }

    fn passing(&mut self, plan: &Plan) {
        self.chain("passing", "filter", "forward", -160);
        if let Some(tun) = self.site.tun() {
            self.rule("passing", &format!("iifname \"{tun}\" accept"));
        }
        self.entries("passing", COUNTERS[2], &plan.passing);
    }

    /// The kernel sees a copy of each packet that the ring on this device takes: the same policies that make it ours make
    /// the copy worthless, before connection tracking, routing or an answer. It stays when the gateway is gone.
    fn forwarded(&mut self, device: &str, plan: &Plan) {
        self.chain("forwarded", "filter", "prerouting", -300);
        self.rule("forwarded", &format!("iifname != \"{device}\" accept"));
        self.rule("forwarded", "meta pkttype != host accept");
        self.neighbours("forwarded");
        for entry in &plan.leaving {
            // What this host is asked for stays its own, whatever policy says of the address.
            let end = match entry.verdict {
                Verdict::Bypass => "accept",
                Verdict::Protect | Verdict::Discard => {
                    "fib daddr type != { local, broadcast, multicast } drop"
                }
            };
            for condition in conditions(entry) {
                self.rule("forwarded", &format!("{condition} {end}"));
            }
        }
    }

    /// RFC 4301 8.2.1: "too big" about our own outer packets must reach us, even where policy protects the router's
    /// address. The bytes behind the 8 of ICMP are the outer packet's header: its protocol, then its source port.
    fn path_mtu(&mut self, plan: &Plan) {
        let v4 = "icmp type destination-unreachable icmp code 4";
        let v6 = "icmpv6 type packet-too-big";
        for (kind, protocol, port) in [(v4, 136, 224), (v6, 112, 384)] {
            self.rule("arriving", &format!("{kind} @th,{protocol},8 50 accept"));
            self.rule("arriving", &format!("{kind} @th,{protocol},8 51 accept"));
            for udp in &plan.udp_ports {
                self.rule(
                    "arriving",
                    &format!("{kind} @th,{protocol},8 17 @th,{port},16 {udp} accept"),
                );
            }
        }
    }

    /// Neighbour discovery is IPv6's ARP: it never leaves the link, and the outer path cannot work without it.
    fn neighbours(&mut self, chain: &str) {
        self.rule(
            chain,
            "icmpv6 type { 133, 134, 135, 136, 137 } ip6 hoplimit 255 accept",
        );
    }

    fn entries(&mut self, chain: &str, counter: &str, entries: &[Entry]) {
        for entry in entries {
            let end = match entry.verdict {
                Verdict::Bypass => "accept".to_owned(),
                Verdict::Protect | Verdict::Discard => format!("counter name {counter} drop"),
            };
            for condition in conditions(entry) {
                self.rule(chain, &format!("{condition} {end}"));
            }
        }
    }

    /// A local socket without a bound address gets its source address only after the routing rules were asked; asking
    /// again with a mark leads it where it belongs. Bypassed traffic that a coarser rule led astray goes back.
    fn rerouting(&mut self, tun: &str, plan: &Plan) {
        self.chain("rerouting", "route", "output", -150);
        let mark = self.site.outside_mark();
        self.rule("rerouting", "oifname \"lo\" accept");
        self.rule(
            "rerouting",
            &format!("meta mark & {mark:#x} == {mark:#x} accept"),
        );
        self.neighbours("rerouting");
        self.marks("rerouting", tun, &plan.leaving, true);
    }

    fn marking(&mut self, tun: &str, plan: &Plan) {
        self.chain("marking", "filter", "prerouting", -150);
        if plan.needs_marks() {
            self.rule(
                "marking",
                "fib daddr type { local, broadcast, multicast } accept",
            );
            self.marks("marking", tun, &plan.leaving, false);
        }
    }

    fn marks(&mut self, chain: &str, tun: &str, entries: &[Entry], routed: bool) {
        let inside = self.site.inside_mark();
        let outside = self.site.outside_mark();
        for entry in entries {
            let (astray, end) = match entry.verdict {
                Verdict::Protect => (
                    format!("oifname != \"{tun}\" "),
                    format!("meta mark set meta mark or {inside:#x} accept"),
                ),
                Verdict::Bypass => (
                    format!("oifname \"{tun}\" "),
                    format!("meta mark set meta mark or {outside:#x} accept"),
                ),
                Verdict::Discard => (String::new(), "drop".to_owned()),
            };
            for condition in conditions(entry) {
                if routed && !astray.is_empty() {
                    self.rule(chain, &format!("{astray}{condition} {end}"));
                    self.rule(chain, &format!("{condition} accept"));
                } else {
                    self.rule(chain, &format!("{condition} {end}"));
                }
            }
        }
    }

    /// `rt mtu` is the smaller of the two ways' limits, and nft never raises an MSS.
    fn clamping(&mut self, tun: &str) {
        self.chain("clamping", "filter", "forward", -150);
        for way in ["iifname", "oifname"] {
            self.rule(
                "clamping",
                &format!(
                    "{way} \"{tun}\" tcp flags & (syn|rst) == syn tcp option maxseg size set rt mtu"
                ),
            );
        }
    }
}

/// The conditions any of which brings a packet under the entry; none for a selector that no packet can match.
fn conditions(entry: &Entry) -> Vec<String> {
    let Some(family) = entry.family() else {
        return Vec::new();
    };
    let addresses = addresses(entry, family);
    let mut conditions = vec![format!("{addresses}{}", upper(entry.selector.upper))];
    // RFC 4301 7: a later fragment carries no ports. What might belong to protected traffic is not let out.
    if entry.asks_ports() && entry.verdict != Verdict::Bypass {
        let later = match family {
            Family::V4 => "ip frag-off & 0x1fff != 0",
            Family::V6 => "frag frag-off != 0",
        };
        conditions.push(format!(
            "{addresses} {later}{}",
            protocol(entry.selector.upper)
        ));
    }
    conditions
}

fn addresses(entry: &Entry, family: Family) -> String {
    let (word, proto) = match family {
        Family::V4 => ("ip", "ipv4"),
        Family::V6 => ("ip6", "ipv6"),
    };
    let mut text = format!("meta nfproto {proto}");
    for (side, prefix) in [
        ("saddr", entry.selector.source),
        ("daddr", entry.selector.destination),
    ] {
        if prefix.len > 0 {
            let _ = write!(text, " {word} {side} {}/{}", prefix.address, prefix.len);
        }
    }
    text
}

fn protocol(upper: Upper) -> String {
    match upper {
        Upper::Any => String::new(),
        Upper::Protocol { number, .. } | Upper::Icmp { number, .. } => {
            format!(" meta l4proto {number}")
        }
        Upper::Ports { .. } => " meta l4proto { 6, 17, 33, 132, 136 }".to_owned(),
    }
}

fn upper(upper: Upper) -> String {
    let mut text = protocol(upper);
    let facts = match upper {
        Upper::Any => [("", None), ("", None)],
        Upper::Protocol {
            source_port,
            destination_port,
            ..
        }
        | Upper::Ports {
            source_port,
            destination_port,
        } => [("th sport", source_port), ("th dport", destination_port)],
        Upper::Icmp { number, kind, code } => {
            let words = if number == 1 {
                ["icmp type", "icmp code"]
            } else {
                ["icmpv6 type", "icmpv6 code"]
            };
            [
                (words[0], kind.map(u16::from)),
                (words[1], code.map(u16::from)),
            ]
        }
    };
    for (word, value) in facts {
        if let Some(value) = value {
            let _ = write!(text, " {word} {value}");
        }
    }
    text
}

#[cfg(test)]
mod tests;
