//! What a testbed shall be like.

use std::path::PathBuf;

use super::families::Families;

/// The interface towards the end hosts, on every host that has one.
pub const LAN: &str = "lan";
/// The interface between the gateways.
pub const WAN: &str = "wan";

/// How many hosts there are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Layout {
    /// Two end hosts, each behind a gateway.
    #[default]
    Gateways,
    /// Two end hosts that are their own gateways.
    Pair,
}

/// What a testbed shall be like.
#[derive(Debug, Clone, PartialEq)]
pub struct TopologySpec {
    /// Four hosts or two.
    pub layout: Layout,
    /// What is carried by what.
    pub families: Families,
    /// MTU of every link.
    pub mtu: u32,
    /// Segmentation and checksum offloads on the wire between the gateways.
    pub wire_offloads: bool,
    /// What the wire carries at most; `None`: what the machine can.
    pub shape: Option<Shape>,
    /// TCP of the end hosts.
    pub tcp: Tcp,
    /// How long receive coalescing may hold packets back on every link.
    pub gro_flush_timeout_ns: Option<u64>,
    /// How often a quiet interface is looked at before its interrupt is switched on again.
    pub napi_defer_hard_irqs: Option<u32>,
    /// How the gateways take packets in.
    pub receiving: Receiving,
    /// A box in the middle of the wire that delays, loses, doubles and reorders.
    pub impairment: Option<Impairment>,
    /// A router in the middle of the wire, beyond which packets must suddenly be smaller. Not beside an impairment.
    pub path: Option<PathMtuChange>,
    /// The processors on which programs of the gateways may run, as `0-3,8`.
    pub processors: Option<String>,
    /// What each gateway's processes may use of them, in processors; `None`: all there is.
    pub share: Option<f64>,
}

impl Default for TopologySpec {
    fn default() -> TopologySpec {
        TopologySpec {
            layout: Layout::Gateways,
            families: Families::default(),
            mtu: 1500,
            wire_offloads: true,
            shape: None,
            tcp: Tcp::default(),
            gro_flush_timeout_ns: None,
            napi_defer_hard_irqs: None,
            receiving: Receiving::default(),
            impairment: None,
            path: None,
            processors: None,
            share: None,
        }
    }
}

/// A link rate as a real link has it: frame check sequence, preamble and gap take their share.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Shape {
    /// The rate printed on the link.
    pub bits_per_second: f64,
    /// How much may go at once; `None`: two milliseconds' worth, within reason.
    pub burst_bytes: Option<u32>,
    /// How long a packet may wait; `None`: 50 ms.
    pub latency_ms: Option<f64>,
    /// Whether it stands in front of the tunnel, between gateways and end hosts, and not on the wire behind it.
    pub in_front: bool,
}

/// Options of TCP; `None`: the kernel's own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Tcp {
    /// RFC 7323 3.
    pub timestamps: Option<bool>,
    /// RFC 7323 2.
    pub window_scaling: Option<bool>,
    /// RFC 2018.
    pub sack: Option<bool>,
    /// The most a socket may buffer, each way.
    pub buffer_bytes: Option<u64>,
    /// The least, the usual and the largest size of a socket's buffer in bytes, each way.
    pub buffers: Option<[u32; 3]>,
}

/// How gateways take packets in; `None`: as the kernel does by itself.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Receiving {
    /// Looks for a local socket before it routes.
    pub early_demux: Option<bool>,
    /// Puts UDP that is only forwarded together into trains.
    pub udp_gro_forwarding: Option<bool>,
    /// Chains packets that belong together instead of joining them.
    pub gro_list: Option<bool>,
    /// The processors that flows are spread over (RPS), as `0-3,8`.
    pub steered_to: Option<String>,
}

/// What the box in the middle does to each frame, each way.
#[derive(Debug, Clone, PartialEq)]
pub struct Impairment {
    /// `esplanade-lab`, which is also the box.
    pub program: PathBuf,
    /// Every frame waits so long; a round trip takes twice that.
    pub delay_ms: f64,
    /// Share of frames that vanish.
    pub loss: f64,
    /// Share of frames that arrive twice.
    pub duplicate: f64,
    /// Share of frames that wait a little longer than those behind them.
    pub reorder: f64,
    /// Seed of its choices.
    pub seed: u64,
}

/// How a path narrows while it is used.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct PathMtuChange {
    /// What passes the router from then on.
    pub mtu: u32,
    /// Seconds after the load began.
    pub after_s: f64,
    /// Whether the router sends ICMP errors (RFC 1191 4); a silent one drops packets that are too large.
    pub answers: bool,
}
