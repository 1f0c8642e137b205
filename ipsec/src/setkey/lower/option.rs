//! `-o name=value`: options that ipsec-tools does not have.

use super::Lower;
use crate::aggfrag::MAX_REORDER_WINDOW_PAYLOADS;
use crate::sa::{DontFragment, Dscp, Offload, OffloadKind};
use crate::setkey::ast::{At, NamedOption};
use crate::setkey::spelling::nearest;
use crate::setkey::{Problem, Span, shown};
use std::sync::Arc;

/// The options of a security association that `-o` knows, with what may stand behind the equals sign.
pub const SA_OPTIONS: [(&str, &str); 25] = [
    ("esn", "`yes` or `no`"),
    ("sequence", "the last sequence number that was used"),
    ("key", "`fresh`: these keys were never used"),
    ("soft-packets", "a number of packets"),
    ("hard-packets", "a number of packets"),
    ("soft-use", "a number of seconds since the first packet"),
    ("hard-use", "a number of seconds since the first packet"),
    ("df", "`copy`, `set` or `clear`"),
    ("dscp", "`copy` or a number up to 63"),
    ("ecn", "`yes` or `no`"),
    ("tfc", "a number of bytes up to 65535"),
    ("icv", "a number of bytes"),
    ("ah-align", "`4` (RFC 4302) or `8` (Linux peers over IPv4)"),
    ("encap", "`none`, `udp` or two ports as `4500,4500`"),
    (
        "interface",
        "a device name of 1 to 15 letters, digits, `.`, `-` or `_`",
    ),
    ("keepalive", "a number of seconds up to 65535"),
    ("aggfrag", "`yes` or `no`"),
    ("dont-frag", "`yes` or `no`"),
    ("aggfrag-size", "a number of bytes from 256 to 65535"),
    (
        "aggfrag-rate",
        "a number of packets each second up to 1000000",
    ),
    ("aggfrag-window", "a number of packets up to 1024"),
    ("aggfrag-wait", "a number of milliseconds up to 65535"),
    ("dummy", "a number of seconds up to 65535"),
    ("cpu", "the number of a processor, from 0 to 8191"),
    ("offload", "`crypto:DEVICE` or `packet:DEVICE`"),
];

/// The options of a policy that `-o` knows.
pub const POLICY_OPTIONS: [(&str, &str); 1] = [("spread", "a number of associations from 1 to 64")];

/// The most associations that one policy's flows are spread over: as many processors as one gateway is likely to face.
const MAX_SPREAD_ASSOCIATIONS: u8 = 64;

/// The largest number of a processor: Linux can have 8192 of them.
const MAX_CPU_NUMBER: u16 = 8191;

/// The options of one policy; `None` for those not given.
#[derive(Default)]
pub(super) struct PolicyOptions {
    pub spread: Option<At<u8>>,
}

impl PolicyOptions {
    pub fn read(options: &[At<NamedOption>]) -> Lower<Self> {
        let mut read = Self::default();
        for option in options {
            match &*option.node.name {
                "spread" => set(&mut read.spread, option, spread)?,
                name => return Err(unknown_of_policy(name, option.span)),
            }
        }
        Ok(read)
    }
}

/// The options of one association; `None` for those not given.
#[derive(Default)]
pub(super) struct Options {
    pub esn: Option<At<bool>>,
    pub sequence: Option<At<u64>>,
    pub key_is_fresh: Option<At<bool>>,
    pub soft_packets: Option<At<u64>>,
    pub hard_packets: Option<At<u64>>,
    pub soft_use: Option<At<u64>>,
    pub hard_use: Option<At<u64>>,
    pub df: Option<At<DontFragment>>,
    pub dscp: Option<At<Dscp>>,
    pub ecn: Option<At<bool>>,
    pub tfc: Option<At<u16>>,
    pub icv: Option<At<usize>>,
    pub ah_align8: Option<At<bool>>,
    pub encap: Option<At<Encap>>,
    pub interface: Option<At<Arc<str>>>,
    pub keepalive: Option<At<u16>>,
    pub aggfrag: Option<At<bool>>,
    pub dont_frag: Option<At<bool>>,
    pub aggfrag_size: Option<At<u16>>,
    pub aggfrag_rate: Option<At<u32>>,
    pub aggfrag_window: Option<At<u16>>,
    pub aggfrag_wait: Option<At<u16>>,
    pub dummy: Option<At<u16>>,
    pub cpu: Option<At<u16>>,
    pub offload: Option<At<Offload>>,
}

/// The value of `encap`.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Encap {
    None,
    /// Source and destination port.
    Udp(u16, u16),
}

impl Options {
    pub fn read(options: &[At<NamedOption>]) -> Lower<Self> {
        let mut read = Self::default();
        for option in options {
            read.apply(option)?;
        }
        Ok(read)
    }

    fn apply(&mut self, option: &At<NamedOption>) -> Lower<()> {
        match &*option.node.name {
            "esn" => set(&mut self.esn, option, switch),
            "sequence" => set(&mut self.sequence, option, number),
            "key" => set(&mut self.key_is_fresh, option, fresh),
            "soft-packets" => set(&mut self.soft_packets, option, number),
            "hard-packets" => set(&mut self.hard_packets, option, number),
            "soft-use" => set(&mut self.soft_use, option, number),
            "hard-use" => set(&mut self.hard_use, option, number),
            "df" => set(&mut self.df, option, dont_fragment),
            "dscp" => set(&mut self.dscp, option, dscp),
            "ecn" => set(&mut self.ecn, option, switch),
            "tfc" => set(&mut self.tfc, option, number),
            "icv" => set(&mut self.icv, option, number),
            "ah-align" => set(&mut self.ah_align8, option, ah_align),
            "encap" => set(&mut self.encap, option, encap),
            "interface" => set(&mut self.interface, option, interface),
            "keepalive" => set(&mut self.keepalive, option, number),
            "aggfrag" => set(&mut self.aggfrag, option, switch),
            "dont-frag" => set(&mut self.dont_frag, option, switch),
            "aggfrag-size" => set(&mut self.aggfrag_size, option, packet_size),
            "aggfrag-rate" => set(&mut self.aggfrag_rate, option, rate),
            "aggfrag-window" => set(&mut self.aggfrag_window, option, window),
            "aggfrag-wait" => set(&mut self.aggfrag_wait, option, number),
            "dummy" => set(&mut self.dummy, option, number),
            "cpu" => set(&mut self.cpu, option, cpu),
            "offload" => set(&mut self.offload, option, offload),
            name => Err(unknown(name, option.span)),
        }
    }
}

/// Reads the value with `read`, which returns `None` for an invalid one.
fn set<T>(
    slot: &mut Option<At<T>>,
    option: &At<NamedOption>,
    read: fn(Option<&str>) -> Option<T>,
) -> Lower<()> {
    let name = &option.node.name;
    let value = read(option.node.value.as_deref()).ok_or_else(|| {
        let mut all = SA_OPTIONS.iter().chain(&POLICY_OPTIONS);
        let known = all.find(|(known, _)| known == name);
        let wanted = known.map_or("something else", |(_, wanted)| wanted);
        Problem::new(
            option.span,
            format!("option `{name}` cannot have this value"),
        )
        .advise(format!("it takes {wanted}"))
    })?;
    match slot.replace(At::new(value, option.span)) {
        None => Ok(()),
        Some(_) => {
            let problem = Problem::new(
                option.span,
                format!("option `{name}` was given before in the same statement"),
            );
            Err(problem.advise("remove one of the two"))
        }
    }
}

fn unknown(name: &str, span: Span) -> Problem {
    let problem = Problem::new(
        span,
        format!("`{}` is no option of a security association", shown(name)),
    );
    if POLICY_OPTIONS.iter().any(|&(known, _)| known == name) {
        return problem.advise("it belongs to a policy, before its `-P`");
    }
    let names = SA_OPTIONS.iter().map(|&(name, _)| name);
    match nearest(name, names.clone()) {
        Some(near) => problem.advise(format!("did you mean `{near}`?")),
        None => problem.advise(format!(
            "it is one of {}",
            names.collect::<Vec<_>>().join(", ")
        )),
    }
}

fn unknown_of_policy(name: &str, span: Span) -> Problem {
    let problem = Problem::new(span, format!("`{}` is no option of a policy", shown(name)));
    let names = POLICY_OPTIONS.iter().map(|&(name, _)| name);
    match nearest(name, names) {
        Some(near) => problem.advise(format!("did you mean `{near}`?")),
        None if SA_OPTIONS.iter().any(|&(known, _)| known == name) => {
            problem.advise("it belongs to security associations")
        }
        None => problem.advise("the only one is `spread`"),
    }
}

/// A bare name means yes.
fn switch(value: Option<&str>) -> Option<bool> {
    match value {
        None | Some("yes") => Some(true),
        Some("no") => Some(false),
        Some(_) => None,
    }
}

/// There is no value for used keys: without the option all keys count as used.
fn fresh(value: Option<&str>) -> Option<bool> {
    (value? == "fresh").then_some(true)
}

fn number<T: std::str::FromStr>(value: Option<&str>) -> Option<T> {
    let digits = value.filter(|value| value.bytes().all(|byte| byte.is_ascii_digit()))?;
    digits.parse().ok()
}

/// What leaves room for headers and something inside.
fn packet_size(value: Option<&str>) -> Option<u16> {
    number(value).filter(|size| *size >= 256)
}

fn spread(value: Option<&str>) -> Option<u8> {
    number(value).filter(|count| (1..=MAX_SPREAD_ASSOCIATIONS).contains(count))
}

fn rate(value: Option<&str>) -> Option<u32> {
    number(value).filter(|rate| *rate <= 1_000_000)
}

fn window(value: Option<&str>) -> Option<u16> {
    number(value).filter(|window| *window <= MAX_REORDER_WINDOW_PAYLOADS)
}

fn dont_fragment(value: Option<&str>) -> Option<DontFragment> {
    match value? {
        "copy" => Some(DontFragment::Copy),
        "set" => Some(DontFragment::Set),
        "clear" => Some(DontFragment::Clear),
        _ => None,
    }
}

fn dscp(value: Option<&str>) -> Option<Dscp> {
    match value {
        Some("copy") => Some(Dscp::Copy),
        _ => number(value)
            .filter(|&field: &u8| field < 64)
            .map(Dscp::Set),
    }
}

/// What the kernel accepts as a name, without characters that need quoting in a shell or an nftables rule.
fn interface(value: Option<&str>) -> Option<Arc<str>> {
    let fits = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_');
    value
        .filter(|name| (1..=15).contains(&name.len()) && name.chars().all(fits))
        .filter(|name| !name.starts_with(['.', '-']))
        .map(Arc::from)
}

fn cpu(value: Option<&str>) -> Option<u16> {
    number(value).filter(|number| *number <= MAX_CPU_NUMBER)
}

fn offload(value: Option<&str>) -> Option<Offload> {
    let (kind, device) = value?.split_once(':')?;
    let kind = match kind {
        "crypto" => OffloadKind::Crypto,
        "packet" => OffloadKind::Packet,
        _ => return None,
    };
    let device = interface(Some(device))?;
    Some(Offload { kind, device })
}

/// Whether it is 8.
fn ah_align(value: Option<&str>) -> Option<bool> {
    match value? {
        "4" => Some(false),
        "8" => Some(true),
        _ => None,
    }
}

fn encap(value: Option<&str>) -> Option<Encap> {
    match value? {
        "none" => Some(Encap::None),
        "udp" => Some(Encap::Udp(4500, 4500)),
        ports => {
            let (source, destination) = ports.split_once(',')?;
            let port = |digits| number(Some(digits)).filter(|&port: &u16| port > 0);
            Some(Encap::Udp(port(source)?, port(destination)?))
        }
    }
}
