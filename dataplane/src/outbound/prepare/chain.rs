//! Builds the SA chain of a flow once for all its packets: which headers each layer adds, and the MTU that remains
//! inside.

use crate::outbound::chain::{ChainLayer, ChainRange, LayerMode, MAX_NESTED_SAS};
use ipsec::Dropped;
use ipsec::database::{SaIndex, Snapshot};
use ipsec::packet::{FragmentKind, Outline};
use ipsec::pmtu;
use ipsec::sa::{Mode, Protocol, SaConfig};
use ipsec::transport::UnprotectedHeaders;
use ipsec::tunnel::Outer;
use ipsec::wire::ip::number;
use std::net::IpAddr;

/// What the SA chain of a flow amounts to.
#[derive(Clone, Copy, Debug)]
pub(super) struct Chain {
    /// The outermost header of the packets.
    pub outer: Outer,
    /// The largest packet that fits.
    pub inner_mtu: usize,
}

/// Appends the layers for the SAs of `path`, innermost first, to `layers`; `path_mtu` is the path MTU to an address.
pub(super) fn build(
    snapshot: &Snapshot,
    path: &[SaIndex],
    packet: &[u8],
    outline: &Outline,
    layers: &mut Vec<ChainLayer>,
    path_mtu: impl FnOnce(IpAddr) -> usize,
) -> Result<Chain, Dropped> {
    if path.len() > MAX_NESTED_SAS {
        return Err(Dropped::Unsupported);
    }
    let start = layers.len();
    let mut builder = Builder {
        current: *outline,
        outside: None,
    };
    for (index, sa) in path.iter().enumerate() {
        let config = &snapshot.sa(*sa).config;
        // Only the outermost SA may use UDP encapsulation: the receiver looks for ESP and AH inside.
        if config.encapsulation.is_some() && index + 1 < path.len() {
            return Err(Dropped::Unsupported);
        }
        let mode = builder.add(config, packet)?;
        layers.push(ChainLayer { sa: *sa, mode });
    }
    let new = &layers[start..];
    let outer = outermost_header(snapshot, new, &builder.current)?;
    let inwards = new
        .iter()
        .rev()
        .map(|layer| (&snapshot.sa(layer.sa).config, outside_len(&layer.mode)));
    let inner_mtu = pmtu::bundle_mtu(inwards, path_mtu(outer.destination));
    Ok(Chain { outer, inner_mtu })
}

fn outside_len(mode: &LayerMode) -> Option<usize> {
    match mode {
        LayerMode::Tunnel { .. } => None,
        LayerMode::Transport(outside) => Some(outside.len),
    }
}

/// The packet after the layers so far.
struct Builder {
    current: Outline,
    /// Its IP headers, once a layer was added behind them.
    outside: Option<UnprotectedHeaders>,
}

impl Builder {
    fn add(&mut self, config: &SaConfig, packet: &[u8]) -> Result<LayerMode, Dropped> {
        let carried = match config.encapsulation {
            Some(_) => number::UDP,
            None => config.id.protocol.number(),
        };
        if is_tunnel(config, &self.current) {
            let inside = if self.current.source.is_ipv4() {
                number::IPV4
            } else {
                number::IPV6
            };
            let outer = Outer::around(config, &self.current);
            self.outside = Some(UnprotectedHeaders::plain(
                outer.destination.is_ipv6(),
                carried,
            ));
            self.current = outline_of(&outer);
            return Ok(LayerMode::Tunnel { outer, inside });
        }
        // RFC 4301 4.1: transport mode is for whole packets.
        if self.current.fragment != FragmentKind::Whole {
            return Err(Dropped::Fragment);
        }
        let outside = match self.outside {
            Some(outside) => outside,
            None => checked(config, packet)?,
        };
        self.outside = Some(UnprotectedHeaders {
            next: carried,
            ..outside
        });
        Ok(LayerMode::Transport(outside))
    }
}

/// The headers of a packet as it came, if AH can sign them: unknown options are neither mutable nor immutable.
fn checked(config: &SaConfig, packet: &[u8]) -> Result<UnprotectedHeaders, Dropped> {
    let outside = UnprotectedHeaders::of(packet)?;
    let is_v6 = packet.first().is_some_and(|first| first >> 4 == 6);
    if config.id.protocol == Protocol::Ah && !outside.is_plain(is_v6) {
        let mut headers = packet.get(..outside.len).unwrap_or_default().to_vec();
        outside.rename(&mut headers, number::AH, outside.len, 1);
        ipsec::ah::clear_mutable(&mut headers)?;
    }
    Ok(outside)
}

/// The outline of a packet with this header, for the next layer.
pub(super) fn outline_of(outer: &Outer) -> Outline {
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

/// The outermost header, and whether it is written here or by the socket. AH covers it, and a socket cannot send
/// options, so these are written here (RFC 4302 3.3.3.1.1); a plain tunnel's is left to the socket, which can send
/// trains.
fn outermost_header(
    snapshot: &Snapshot,
    layers: &[ChainLayer],
    current: &Outline,
) -> Result<Outer, Dropped> {
    let last = layers.last().ok_or(Dropped::NoPolicy)?;
    let config = &snapshot.sa(last.sa).config;
    let written = last.mode.headers_len(config) as u16;
    let outside = match last.mode {
        LayerMode::Tunnel { outer, .. } if config.id.protocol == Protocol::Esp => return Ok(outer),
        LayerMode::Tunnel { outer, .. } => {
            return Ok(Outer {
                emitted_len: written,
                ..outer
            });
        }
        LayerMode::Transport(outside) => outside,
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
        return Ok(Outer {
            emitted_len: written,
            ..outer
        });
    }
    match (outside.is_plain(is_v6), is_v6) {
        // The receiver's UDP socket keeps neither the identification nor the options that AH inside covers.
        (true, false) if is_signed(snapshot, layers) => Err(Dropped::Unsupported),
        (true, _) => Ok(outer),
        (false, false) => Ok(Outer {
            emitted_len: written,
            ..outer
        }),
        // RFC 8200 8.1: a checksum of zero would be needed here, and receivers refuse it over IPv6.
        (false, true) => Err(Dropped::Unsupported),
    }
}

/// Whether an AH layer is behind the same IP header as the last layer, and so signs that header.
fn is_signed(snapshot: &Snapshot, layers: &[ChainLayer]) -> bool {
    let same_header = layers
        .iter()
        .rev()
        .take_while(|layer| matches!(layer.mode, LayerMode::Transport(_)));
    let of_sa = |layer: &ChainLayer| snapshot.sa(layer.sa).config.id.protocol;
    same_header
        .map(of_sa)
        .any(|protocol| protocol == Protocol::Ah)
}

/// Appends a copy of a chain whose new headers have DF clear.
pub(super) fn allow_fragments(layers: &mut Vec<ChainLayer>, range: ChainRange) -> ChainRange {
    let start = layers.len();
    layers.extend_from_within(range.indices());
    for layer in &mut layers[start..] {
        if let LayerMode::Tunnel { outer, .. } = &mut layer.mode {
            outer.dont_fragment = false;
        }
    }
    ChainRange::new(start..layers.len())
}

/// Appends a copy of a chain for packets whose headers name `next`.
pub(super) fn rename(layers: &mut Vec<ChainLayer>, range: ChainRange, next: u8) -> ChainRange {
    let start = layers.len();
    layers.extend_from_within(range.indices());
    if let Some(ChainLayer {
        mode: LayerMode::Transport(outside),
        ..
    }) = layers.get_mut(start)
    {
        outside.next = next;
    }
    ChainRange::new(start..layers.len())
}

/// Whether packets go through an SA in tunnel mode. In setkey's mode `any` a packet between the SA's own two addresses
/// goes in transport mode, every other one in tunnel mode.
pub(super) fn is_tunnel(config: &SaConfig, outline: &Outline) -> bool {
    let ends = (config.source, config.id.destination);
    match config.mode {
        Mode::Tunnel => true,
        Mode::Transport => false,
        Mode::Any => ends != (outline.source, outline.destination),
    }
}
