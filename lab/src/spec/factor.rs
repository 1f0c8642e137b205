//! Every factor of a spec, one row each: its name, its values, and what it applies to. A factor that does not apply is
//! ignored, so that one list can serve plain IP and a tunnel alike.

use super::complaint::did_you_mean;
use super::diagnostic::Diagnostic;
use super::imix;
use super::kinds::ContenderKind::{self, Esplanade, KernelLibipsec, KernelXfrm, OpenVpn};
use super::kinds::LoadKind::{
    self, Connections, Frames, Iperf3, Iperf3Udp, LoadedRoundTrip, Netperf, NetperfRr, NetperfUdp,
    RoundTrip, Steady,
};
use super::tree::{self, Placed};
use crate::contender::{COMPRESSION_WORD, Combine};
use crate::suite::SUITES;

/// The values a factor takes.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Takes {
    /// A number in this range; `true` where fractions are allowed.
    Number(f64, f64, bool),
    /// A whole number up to this one, or one of these words.
    CountOr(f64, &'static [&'static str]),
    /// true or false.
    Flag,
    /// One of these words.
    Word(&'static [&'static str]),
    /// A suite.
    Suite,
    /// A list of processors, as `0-3,8`.
    Processors,
    /// A mix of frame sizes, as `aaaaaaaddddg`.
    Mix,
    /// The least, the usual and the largest number of bytes, as `4096/87380/174760`.
    Triple,
    /// Percentages in ascending order, as `50/90/99`.
    Percentages,
}

/// What a factor applies to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Scope {
    /// The testbed, so everything.
    Testbed,
    /// These contenders.
    Contenders(&'static [ContenderKind]),
    /// These loads.
    Loads(&'static [LoadKind]),
}

/// One factor.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Factor {
    /// Its dotted name, the unit last.
    pub name: &'static str,
    /// Its values.
    pub takes: Takes,
    /// What it applies to.
    pub scope: Scope,
}

const IPSEC: &[ContenderKind] = &[Esplanade, KernelXfrm];
const COMBINED: &[&str] = &[
    Combine::EspAuth.word(),
    Combine::EspAndAh.word(),
    Combine::EspAuthInAhMd5.word(),
];
const STREAMS: &[LoadKind] = &[Iperf3, Netperf, LoadedRoundTrip];
const SENT_AT_ONCE: &[LoadKind] = &[Iperf3, Netperf, NetperfRr, LoadedRoundTrip];
const WRITTEN: &[LoadKind] = &[Iperf3, Iperf3Udp, Netperf, NetperfUdp];
const PARALLEL: &[LoadKind] = &[Iperf3, Iperf3Udp];
const ASKED: &[LoadKind] = &[RoundTrip, LoadedRoundTrip, Connections, NetperfRr];
const FRAMES: &[LoadKind] = &[Frames, Steady];
const ONE_WAY: &[LoadKind] = &[
    Iperf3,
    Iperf3Udp,
    Netperf,
    NetperfUdp,
    LoadedRoundTrip,
    Frames,
    Steady,
];

const fn row(name: &'static str, takes: Takes, scope: Scope) -> Factor {
    Factor { name, takes, scope }
}

const fn numbers(low: f64, high: f64) -> Takes {
    Takes::Number(low, high, false)
}

const fn reals(low: f64, high: f64) -> Takes {
    Takes::Number(low, high, true)
}

/// Every factor.
#[rustfmt::skip]
pub(super) const FACTORS: [Factor; 59] = [
    row("testbed",                Takes::Word(&["gateways", "pair"]), Scope::Testbed),
    row("families",               Takes::Word(&["4in4", "6in4", "4in6", "6in6"]), Scope::Testbed),
    row("mtu",                    numbers(1280.0, 65_535.0),    Scope::Testbed),
    row("offloads",               Takes::Flag,                  Scope::Testbed),
    row("link.rate_mbit",         reals(0.1, 1_000_000.0),      Scope::Testbed),
    row("link.burst_bytes",       numbers(3000.0, 1e8),         Scope::Testbed),
    row("link.latency_ms",        reals(0.05, 10_000.0),        Scope::Testbed),
    row("link.place",             Takes::Word(&["wire", "lan"]), Scope::Testbed),
    row("tcp.timestamps",         Takes::Flag,                  Scope::Testbed),
    row("tcp.window_scaling",     Takes::Flag,                  Scope::Testbed),
    row("tcp.sack",               Takes::Flag,                  Scope::Testbed),
    row("tcp.buffer_bytes",       numbers(4096.0, 1e9),         Scope::Testbed),
    row("tcp.buffers",            Takes::Triple,                Scope::Testbed),
    row("gro_flush_timeout_ns",   numbers(0.0, 1e9),            Scope::Testbed),
    row("napi_defer_hard_irqs",   numbers(0.0, 1000.0),         Scope::Testbed),
    row("ip_early_demux",         Takes::Flag,                  Scope::Testbed),
    row("rx_udp_gro_forwarding",  Takes::Flag,                  Scope::Testbed),
    row("rx_gro_list",            Takes::Flag,                  Scope::Testbed),
    row("rps_cpus",               Takes::Processors,            Scope::Testbed),
    row("impair.delay_ms",        reals(0.0, 10_000.0),         Scope::Testbed),
    row("impair.loss_percent",    reals(0.0, 100.0),            Scope::Testbed),
    row("impair.duplicate_percent", reals(0.0, 100.0),          Scope::Testbed),
    row("impair.reorder_percent", reals(0.0, 100.0),            Scope::Testbed),
    row("impair.seed",            numbers(0.0, 4_294_967_295.0), Scope::Testbed),
    row("path.mtu",               numbers(576.0, 65_535.0),     Scope::Testbed),
    row("path.after_s",           reals(0.0, 86_400.0),         Scope::Testbed),
    row("path.answers",           Takes::Flag,                  Scope::Testbed),
    row("cpus",                   Takes::Processors,            Scope::Testbed),
    row("share",                  reals(0.01, 64.0),            Scope::Testbed),
    row("suite",                  Takes::Suite,                 Scope::Contenders(&[Esplanade, KernelXfrm, KernelLibipsec, OpenVpn])),
    row("workers",                Takes::CountOr(1024.0, &["auto"]), Scope::Contenders(&[Esplanade])),
    row("batch",                  numbers(1.0, 4096.0),         Scope::Contenders(&[Esplanade])),
    row("poll_budget",            numbers(0.0, 1_000_000.0),    Scope::Contenders(&[Esplanade])),
    row("wake",                   Takes::Word(&["sleep", "adaptive", "busy"]), Scope::Contenders(&[Esplanade])),
    row("native_io",              Takes::Word(&["raw", "packet", "xdp", "auto"]), Scope::Contenders(&[Esplanade])),
    row("priority",               Takes::Word(&["normal", "realtime"]), Scope::Contenders(&[Esplanade])),
    row("plane",                  Takes::Word(&["user", "kernel"]), Scope::Contenders(&[Esplanade])),
    row("keying",                 Takes::Word(&["hand", "ike"]), Scope::Contenders(&[Esplanade])),
    row("rekey_ms",               numbers(300.0, 3_600_000.0),  Scope::Contenders(&[Esplanade])),
    row("encapsulation",          Takes::Word(&["udp", "native"]), Scope::Contenders(IPSEC)),
    row("mode",                   Takes::Word(&["tunnel", "transport"]), Scope::Contenders(IPSEC)),
    row("combine",                Takes::Word(COMBINED), Scope::Contenders(IPSEC)),
    row("compression",            Takes::Word(&["none", COMPRESSION_WORD]), Scope::Contenders(&[Esplanade])),
    row("window",                 numbers(0.0, 8192.0),         Scope::Contenders(IPSEC)),
    row("esn",                    Takes::Flag,                  Scope::Contenders(IPSEC)),
    row("sas",                    numbers(1.0, 60_000.0),       Scope::Contenders(IPSEC)),
    row("pcrypt",                 Takes::Flag,                  Scope::Contenders(&[KernelXfrm])),
    row("warm_up_megabytes",      numbers(0.0, 100_000.0),      Scope::Loads(STREAMS)),
    row("message_bytes",          numbers(1.0, 1_048_576.0),    Scope::Loads(WRITTEN)),
    row("nodelay",                Takes::Flag,                  Scope::Loads(SENT_AT_ONCE)),
    row("streams",                numbers(1.0, 128.0),          Scope::Loads(PARALLEL)),
    row("offered_mbit",           reals(0.001, 1_000_000.0),    Scope::Loads(&[Iperf3Udp])),
    row("request_bytes",          numbers(16.0, 65_000.0),      Scope::Loads(ASKED)),
    row("direction",              Takes::Word(&["forward", "reverse", "both"]), Scope::Loads(ONE_WAY)),
    row("frame_bytes",            numbers(64.0, 65_549.0),      Scope::Loads(FRAMES)),
    row("imix",                   Takes::Mix,                   Scope::Loads(FRAMES)),
    row("rate_pps",               reals(1.0, 1e7),              Scope::Loads(&[Steady])),
    row("search",                 Takes::Word(&["ndr", "pdr"]), Scope::Loads(&[Frames])),
    row("latency_at_percent",     Takes::Percentages,           Scope::Loads(&[Frames])),
];

/// The factor of this name.
pub(super) fn find(name: &str, at: std::ops::Range<usize>) -> Result<&'static Factor, Diagnostic> {
    FACTORS
        .iter()
        .find(|factor| factor.name == name)
        .ok_or_else(|| {
            let names: Vec<&str> = FACTORS.iter().map(|factor| factor.name).collect();
            Diagnostic {
                at,
                what: format!("unknown factor `{name}`"),
                advice: did_you_mean(name, &names),
            }
        })
}

/// The numbers of `4096/87380/174760`.
pub(super) fn sizes(text: &str) -> Option<[u32; 3]> {
    let numbers: Result<Vec<u32>, _> = text.split('/').map(str::parse).collect();
    numbers.ok()?.try_into().ok()
}

/// The numbers of `50/90/99`, if each is from 1 to 100 and larger than the one before.
pub(super) fn percentages(text: &str) -> Option<Vec<u32>> {
    let numbers: Result<Vec<u32>, _> = text.split('/').map(str::parse).collect();
    let numbers = numbers.ok()?;
    let possible = numbers.iter().all(|number| (1..=100).contains(number));
    (possible && numbers.is_sorted_by(|one, next| one < next)).then_some(numbers)
}

impl Factor {
    /// Whether it applies to a case of this contender and load.
    pub(super) fn applies_to(&self, contender: ContenderKind, load: LoadKind) -> bool {
        match self.scope {
            Scope::Testbed => true,
            Scope::Contenders(names) => names.contains(&contender),
            Scope::Loads(names) => names.contains(&load),
        }
    }

    /// The value as a record keeps it.
    pub(super) fn value(&self, written: Placed<'_>) -> Result<String, Diagnostic> {
        match self.takes {
            Takes::Number(low, high, fractions) => self.number(written, low, high, fractions),
            Takes::CountOr(most, words) => {
                if written.get_ref().is_str() {
                    self.word(written, words)
                } else {
                    self.number(written, 0.0, most, false)
                }
            }
            Takes::Flag => match written.get_ref().as_bool() {
                Some(flag) => Ok(flag.to_string()),
                None => Err(tree::wrong_type(written, "true or false is expected here")),
            },
            Takes::Word(words) => self.word(written, words),
            Takes::Suite => self.word(written, &SUITES.map(|suite| suite.name)),
            Takes::Processors => self.processors(written),
            Takes::Triple => self.triple(written),
            Takes::Percentages => self.percentages(written),
            Takes::Mix => self.mix(written),
        }
    }

    fn number(
        &self,
        written: Placed<'_>,
        low: f64,
        high: f64,
        fractions: bool,
    ) -> Result<String, Diagnostic> {
        let number = if fractions {
            tree::real(written)?
        } else {
            tree::integer(written)? as f64
        };
        if (low..=high).contains(&number) {
            return Ok(number.to_string());
        }
        Err(Diagnostic {
            at: written.span(),
            what: format!("`{}` cannot be {number}", self.name),
            advice: format!("a number from {low} to {high}"),
        })
    }

    fn word(&self, written: Placed<'_>, words: &[&str]) -> Result<String, Diagnostic> {
        let word = tree::text(written)?;
        if words.contains(&word) {
            return Ok(word.to_owned());
        }
        Err(Diagnostic {
            at: written.span(),
            what: format!("unknown {} `{word}`", self.name),
            advice: did_you_mean(word, words),
        })
    }

    fn triple(&self, written: Placed<'_>) -> Result<String, Diagnostic> {
        let text = tree::text(written)?;
        match sizes(text) {
            Some([least, usual, most]) if (1..=usual).contains(&least) && usual <= most => {
                Ok(text.to_owned())
            }
            _ => Err(Diagnostic {
                at: written.span(),
                what: format!("`{text}` is not the least, the usual and the largest size"),
                advice: "three numbers of bytes in ascending order, such as \"4096/87380/174760\""
                    .into(),
            }),
        }
    }

    fn percentages(&self, written: Placed<'_>) -> Result<String, Diagnostic> {
        let text = tree::text(written)?;
        match percentages(text) {
            Some(_) => Ok(text.to_owned()),
            None => Err(Diagnostic {
                at: written.span(),
                what: format!("`{text}` is not a list of percentages"),
                advice: "numbers from 1 to 100 in ascending order, such as \"50/90/99\"".into(),
            }),
        }
    }

    fn mix(&self, written: Placed<'_>) -> Result<String, Diagnostic> {
        let genome = tree::text(written)?;
        match imix::wrong(genome) {
            None => Ok(genome.to_owned()),
            Some(what) => Err(Diagnostic {
                at: written.span(),
                what,
                advice: imix::advice(),
            }),
        }
    }

    fn processors(&self, written: Placed<'_>) -> Result<String, Diagnostic> {
        let list = tree::text(written)?;
        let number = |text: &str| text.parse::<u16>().is_ok();
        let fits = |part: &str| match part.split_once('-') {
            Some((first, last)) => number(first) && number(last),
            None => number(part),
        };
        if list.split(',').all(fits) {
            return Ok(list.to_owned());
        }
        Err(Diagnostic {
            at: written.span(),
            what: format!("`{list}` is not a list of processors"),
            advice: "numbers and ranges, such as \"0-3,8\"".into(),
        })
    }
}
