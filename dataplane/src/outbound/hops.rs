//! What a bundle does to the packets of one flow, layer by layer: decided once for a run of packets.
//!
//! ```text
//!   packet ──► hop 0, innermost ──► hop 1 ──► … ──► the packet that leaves
//!              transport: its headers stay outside     tunnel: a new header around all of it
//! ```

use super::plan::is_tunnel;
use ipsec::Dropped;
use ipsec::database::{SaIndex, Snapshot};
use ipsec::packet::{FragmentKind, Outline};
use ipsec::pmtu;
use ipsec::sa::{Protocol, SaConfig};
use ipsec::transport::Outside;
use ipsec::tunnel::Outer;
use ipsec::wire::ip::number;
use std::ops::Range;

/// The most associations that one packet goes through.
pub const MAX_NESTED_SAS: usize = 4;

/// One layer of a flow.
#[derive(Clone, Copy, Debug)]
pub(super) struct Hop {
    pub sa: SaIndex,
    pub wrap: Wrap,
}

/// What becomes of the headers.
#[derive(Clone, Copy, Debug)]
pub(super) enum Wrap {
    /// The packet goes whole behind this header.
    Tunnel {
        outer: Outer,
        /// What it is: IPv4 or IPv6.
        inside: u8,
    },
    /// These headers stay outside.
    Transport(Outside),
}

impl Wrap {
    /// Bytes at the start of the packet that stay outside.
    pub fn outside(&self) -> usize {
        match self {
            Self::Tunnel { .. } => 0,
            Self::Transport(outside) => outside.len,
        }
    }

    /// What the layer's own header names as next.
    pub fn next_header(&self) -> u8 {
        match self {
            Self::Tunnel { inside, .. } => *inside,
            Self::Transport(outside) => outside.next,
        }
    }

    /// Bytes of IP headers, and of UDP's if there is one, before the layer's own.
    pub fn headers_len(&self, config: &SaConfig) -> usize {
        match self {
            Self::Tunnel { outer, .. } => outer.len(),
            Self::Transport(outside) => outside.len + config.encapsulation_len(),
        }
    }
}

/// The hops of one flow, and what they come to.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bundle {
    /// The header that the packets leave with.
    pub outer: Outer,
    /// The largest packet that fits.
    pub inner_mtu: usize,
}

/// Appends the hops of `path`, innermost first, to `hops`; `path_mtu` tells how large packets to an address may be.
pub(super) fn lay(
    snapshot: &Snapshot,
    path: &[SaIndex],
    packet: &[u8],
    outline: &Outline,
    hops: &mut Vec<Hop>,
    path_mtu: impl FnOnce(std::net::IpAddr) -> usize,
) -> Result<Bundle, Dropped> {
    if path.len() > MAX_NESTED_SAS {
        return Err(Dropped::Unsupported);
    }
    let start = hops.len();
    let mut walk = Walk {
        current: *outline,
        outside: None,
    };
    for (place, sa) in path.iter().enumerate() {
        let config = &snapshot.sa(*sa).config;
        // The outermost alone may be in UDP: who opened a packet looks for ESP and AH behind it.
        if config.encapsulation.is_some() && place + 1 < path.len() {
            return Err(Dropped::Unsupported);
        }
        let wrap = walk.step(config, packet)?;
        hops.push(Hop { sa: *sa, wrap });
    }
    let new = &hops[start..];
    let outer = departing(snapshot, new, &walk.current)?;
    let layers = new
        .iter()
        .rev()
        .map(|hop| (&snapshot.sa(hop.sa).config, outside_of(&hop.wrap)));
    let inner_mtu = pmtu::bundle_mtu(layers, path_mtu(outer.destination));
    Ok(Bundle { outer, inner_mtu })
}

fn outside_of(wrap: &Wrap) -> Option<usize> {
    match wrap {
        Wrap::Tunnel { .. } => None,
        Wrap::Transport(outside) => Some(outside.len),
    }
}

/// The packet as it is after the layers so far.
struct Walk {
    current: Outline,
    /// Its headers, once something stands behind them that was not there before.
    outside: Option<Outside>,
}

impl Walk {
    fn step(&mut self, config: &SaConfig, packet: &[u8]) -> Result<Wrap, Dropped> {
        let carried = match config.encapsulation {
            Some(_) => number::UDP,
            None => config.id.protocol.number(),
        };
        if is_tunnel(config, &self.current) {
            let inside = match self.current.source.is_ipv4() {
                true => number::IPV4,
                false => number::IPV6,
            };
            let outer = Outer::around(config, &self.current);
            self.outside = Some(Outside::plain(outer.destination.is_ipv6(), carried));
            self.current = seen_from_outside(&outer);
            return Ok(Wrap::Tunnel { outer, inside });
        }
        // RFC 4301 4.1: transport mode is for whole packets.
        if self.current.fragment != FragmentKind::Whole {
            return Err(Dropped::Fragment);
        }
        let outside = match self.outside {
            Some(outside) => outside,
            None => checked(config, packet)?,
        };
        self.outside = Some(Outside {
            next: carried,
            ..outside
        });
        Ok(Wrap::Transport(outside))
    }
}

/// The headers of a packet as it came, if AH can sign them: rare ones may hold options that nobody can tell apart.
fn checked(config: &SaConfig, packet: &[u8]) -> Result<Outside, Dropped> {
    let outside = Outside::of(packet)?;
    let is_v6 = packet.first().is_some_and(|first| first >> 4 == 6);
    if config.id.protocol == Protocol::Ah && !outside.is_plain(is_v6) {
        let mut headers = packet.get(..outside.len).unwrap_or_default().to_vec();
        outside.rename(&mut headers, number::AH, outside.len, 1);
        ipsec::ah::clear_mutable(&mut headers)?;
    }
    Ok(outside)
}

/// What a packet with this header says about itself to the next layer.
fn seen_from_outside(outer: &Outer) -> Outline {
    Outline {
        source: outer.source,
        destination: outer.destination,
        protocol: outer.protocol,
        header_len: outer.ip_len(),
        transport_offset: outer.ip_len(),
        total_len: 0,
        ports: None,
        fragment: FragmentKind::Whole,
        traffic_class: outer.traffic_class,
        dont_fragment: outer.dont_fragment,
        hop_limit: outer.hop_limit,
    }
}

/// The header of the packets that leave, and whether it is written here or by whoever sends. AH covers it, and options
/// have no other way out, so these are written here (RFC 4302 3.3.3.1.1); a plain tunnel's is left to the socket, which
/// knows how to send trains.
fn departing(snapshot: &Snapshot, hops: &[Hop], current: &Outline) -> Result<Outer, Dropped> {
    let last = hops.last().ok_or(Dropped::NoPolicy)?;
    let config = &snapshot.sa(last.sa).config;
    let written = last.wrap.headers_len(config) as u16;
    let outside = match last.wrap {
        Wrap::Tunnel { outer, .. } if config.id.protocol == Protocol::Esp => return Ok(outer),
        Wrap::Tunnel { outer, .. } => return Ok(Outer { written, ..outer }),
        Wrap::Transport(outside) => outside,
    };
    let is_v6 = current.destination.is_ipv6();
    let outer = Outer {
        source: current.source,
        destination: current.destination,
        traffic_class: current.traffic_class,
        dont_fragment: current.dont_fragment,
        hop_limit: current.hop_limit,
        ..Outer::around(config, current)
    };
    if config.encapsulation.is_none() {
        return Ok(Outer { written, ..outer });
    }
    match (outside.is_plain(is_v6), is_v6) {
        // The receiver's UDP socket keeps neither the identification nor the options that AH inside covers.
        (true, false) if signs_this_header(snapshot, hops) => Err(Dropped::Unsupported),
        (true, _) => Ok(outer),
        (false, false) => Ok(Outer { written, ..outer }),
        // RFC 8200 8.1: a checksum of zero would be needed here, and receivers refuse it over IPv6.
        (false, true) => Err(Dropped::Unsupported),
    }
}

/// Whether AH stands behind the same IP header as the last layer.
fn signs_this_header(snapshot: &Snapshot, hops: &[Hop]) -> bool {
    let same_header = hops
        .iter()
        .rev()
        .take_while(|hop| matches!(hop.wrap, Wrap::Transport(_)));
    let of_sa = |hop: &Hop| snapshot.sa(hop.sa).config.id.protocol;
    same_header
        .map(of_sa)
        .any(|protocol| protocol == Protocol::Ah)
}

/// Appends the same layers for packets that may be cut on their way: no new header forbids it.
pub(super) fn allowing_fragments(hops: &mut Vec<Hop>, range: HopRange) -> HopRange {
    let start = hops.len();
    hops.extend_from_within(range.places());
    for hop in &mut hops[start..] {
        if let Wrap::Tunnel { outer, .. } = &mut hop.wrap {
            outer.dont_fragment = false;
        }
    }
    HopRange::new(start..hops.len())
}

/// Where the hops of one flow lie among those of a batch.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct HopRange {
    start: u32,
    count: u32,
}

impl HopRange {
    pub fn new(range: Range<usize>) -> Self {
        Self {
            start: range.start as u32,
            count: range.len() as u32,
        }
    }

    pub fn is_empty(self) -> bool {
        self.count == 0
    }

    pub fn of(self, hops: &[Hop]) -> &[Hop] {
        &hops[self.places()]
    }

    fn places(self) -> Range<usize> {
        self.start as usize..(self.start + self.count) as usize
    }
}
