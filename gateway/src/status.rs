//! The status of a gateway: plain data for `--json`, and tables for people. Never a key.

mod drops;
mod explained;
mod peers;
mod plane;
mod summary;
mod table;
mod traits;
mod units;

pub(crate) use explained::{Correction, DecidingPolicy, Explained, FindingStatus, SaOnPath};
pub(crate) use peers::{ChildStatus, HookStatus, IkeSaStatus, PeerStatus};
pub(crate) use plane::PlaneStatus;
pub(crate) use summary::{BriefPeer, BriefState, Summary, is_summary};
pub(crate) use table::{Parts, peers_table};
pub(crate) use traits::{AggfragStatus, OffloadStatus, SaTraits};

use crate::events::SaName;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The gateway's settings, state and traffic.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Status {
    /// What keeps protected traffic from passing unencrypted.
    #[serde(default)]
    pub barriers: Vec<BarrierStatus>,
    /// What other programs have removed of these.
    #[serde(default)]
    pub restorations: Restorations,
    /// The gateway's version.
    pub version: String,
    /// Its process.
    pub pid: u32,
    /// Its user, by number and, where it has one, by name.
    #[serde(default)]
    pub user: String,
    /// Its capabilities.
    #[serde(default)]
    pub capabilities: Vec<String>,
    /// Seconds since it started.
    pub uptime_seconds: u64,
    /// Which plane seals and opens: `user` or `kernel`.
    #[serde(default)]
    pub plane: String,
    /// Why it was chosen.
    #[serde(default)]
    pub plane_reason: String,
    /// The TUN device; empty if there is none.
    pub tun: String,
    /// The Ethernet device that is forwarded for without a TUN device.
    #[serde(default)]
    pub forward: Option<String>,
    /// The control socket.
    pub control: String,
    /// The routing table.
    pub table: u32,
    /// The mark on packets that must not enter the tunnel.
    pub mark: u32,
    /// Threads that transform at the moment beside the two that read; 0 is inline.
    pub workers: usize,
    /// How many of them were requested: `auto` or a number.
    #[serde(default)]
    pub workers_asked: String,
    /// How each direction works, and why.
    #[serde(default)]
    pub lanes: Vec<LaneStatus>,
    /// Packets (or GSO super-packets) read at a time.
    #[serde(default)]
    pub batch: u16,
    /// Batches after which a reading thread yields the CPU; 0: never.
    #[serde(default)]
    pub poll_budget: u32,
    /// The requested mode of idle threads: `sleep`, `adaptive:µs` or `busy[:µs]`.
    #[serde(default)]
    pub wake: String,
    /// The scheduling class of the threads that carry packets: `normal` or `realtime`.
    #[serde(default)]
    pub priority: String,
    /// The requested I/O for native ESP: `raw`, `packet`, `xdp` or `auto`; the result is shown with the sockets.
    #[serde(default)]
    pub native_io: String,
    /// How batches are read and waited for, as text.
    #[serde(default)]
    pub polling: String,
    /// Whether the rules are removed when the gateway stops.
    pub fail_open: bool,
    /// Devices of associations with one of their own.
    #[serde(default)]
    pub interfaces: Vec<InterfaceStatus>,
    /// The peers of IKE.
    #[serde(default)]
    pub peers: Vec<PeerStatus>,
    /// The processes of IKE; none without a configuration that has peers.
    #[serde(default)]
    pub ike: Option<IkeStatus>,
    /// The rekey under way, if any.
    #[serde(default)]
    pub rekey: Option<RekeyStatus>,
    /// Outer path MTUs that were learnt in the last ten minutes.
    #[serde(default)]
    pub paths: Vec<PathStatus>,
    /// Where sequence numbers are kept across restarts, or why they are not.
    #[serde(default)]
    pub numbers: String,
    /// Sockets and what they can do.
    pub sockets: Vec<String>,
    /// What start-up probes of offloads found.
    pub offloads: Vec<String>,
    /// Traffic from the plaintext to the protected side.
    pub outbound: Traffic,
    /// Traffic from the protected to the plaintext side.
    pub inbound: Traffic,
    /// Every association.
    pub associations: Vec<SaStatus>,
    /// Every policy, in the order in which they are matched.
    pub policies: Vec<PolicyStatus>,
    /// Packets dropped by the engine, all reasons together.
    pub dropped: u64,
    /// Unencrypted packets that the gateway's rules in the kernel dropped.
    pub clear_dropped: u64,
    /// The most memory the process has held, in bytes.
    pub peak_memory_bytes: u64,
    /// Warnings.
    pub warnings: Vec<String>,
}

/// The processes of IKE.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub(crate) struct IkeStatus {
    /// Whether they run.
    pub runs: bool,
    /// How often they were started.
    pub starts: u64,
    /// What is wrong with them.
    #[serde(default)]
    pub trouble: Option<String>,
    /// What is wrong with all hooks of peers.
    #[serde(default)]
    pub hook_trouble: Option<String>,
    /// The folder that keys are written to.
    #[serde(default)]
    pub key_log: Option<String>,
}

/// A rekey under way.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub(crate) struct RekeyStatus {
    /// The file that has the new keys.
    pub file: String,
    /// Seconds since it began.
    pub seconds: u64,
    /// The progress of each peer.
    pub peers: Vec<RekeyPeer>,
}

/// The progress of one peer.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct RekeyPeer {
    /// Its address.
    pub peer: std::net::IpAddr,
    /// Which keys are used for sending to it, and what the rekey waits for.
    pub state: String,
}

/// One barrier that keeps protected traffic from passing unencrypted.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub(crate) struct BarrierStatus {
    /// Its name.
    pub name: String,
    /// Whether it is complete in the kernel at this moment.
    pub holds: bool,
    /// What is wrong with it otherwise.
    pub faults: Vec<String>,
    /// Which traffic it does not cover even when it is complete.
    #[serde(default)]
    pub gaps: Option<String>,
}

/// What other programs have removed of the gateway's rules, filters and devices.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Restorations {
    /// How often something was restored.
    pub times: u64,
    /// How long ago that was last.
    pub seconds_ago: Option<u64>,
    /// What it was.
    pub last: Option<String>,
    /// What is missing and could not be restored.
    pub missing: Option<String>,
    /// Whether so much was removed that restoration is limited to once a second.
    pub held_back: bool,
}

/// The traffic of one direction since the start.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Traffic {
    /// Packets delivered; segments are counted one by one.
    pub packets: u64,
    /// Their bytes, as inner packets.
    pub bytes: u64,
    /// Batches they came in.
    pub batches: u64,
    /// System calls that sent them.
    pub calls: u64,
    /// Packets dropped.
    pub dropped: u64,
    /// Packets in the last full second.
    pub packets_per_second: u64,
    /// Bits in the last full second.
    pub bits_per_second: u64,
}

/// How one direction works.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub(crate) struct LaneStatus {
    /// `outbound` or `inbound`.
    pub direction: String,
    /// `inline` or `workers`.
    pub mode: String,
    /// How many workers take part.
    pub workers: usize,
    /// The share of the last tenth of a second in which its reading thread had something to do: 0 to 1.
    pub busy: f64,
    /// Processor time per packet of serial work, in nanoseconds; 0 until it was measured.
    pub serial_ns: f64,
    /// Processor time per packet of work that any thread may do, in nanoseconds; 0 until it was measured.
    pub transform_ns: f64,
    /// What it costs the reading thread to wake a worker, in nanoseconds; 0 until it was measured.
    pub call_ns: f64,
    /// The reason for this mode.
    pub why: String,
}

/// What fits through the path to a peer.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct PathStatus {
    /// The peer.
    pub peer: std::net::IpAddr,
    /// Bytes of the largest outer packet.
    pub mtu: u32,
}

/// The device of associations with one of their own.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct InterfaceStatus {
    /// Its name.
    pub name: String,
    /// Its MTU.
    pub mtu: u32,
    /// Whether there is an association through which its traffic leaves; without one it is dropped.
    pub leads_out: bool,
}

/// One association.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct SaStatus {
    /// Its name.
    #[serde(flatten)]
    pub name: SaName,
    /// `tunnel`, `transport` or `any`.
    pub mode: String,
    /// Algorithms, as setkey names them.
    pub suite: String,
    /// UDP ports of encapsulation, source and destination.
    pub encapsulation: Option<(u16, u16)>,
    /// What options and the kernel make of it.
    #[serde(flatten)]
    pub traits: SaTraits,
    /// The source of its packets, if that is an address or port other than the configured one.
    #[serde(default)]
    pub moved_to: Option<std::net::SocketAddr>,
    /// The younger association that carries what this one could, if the two differ in algorithms or encapsulation.
    #[serde(default)]
    pub carried_by: Option<SaName>,
    /// Whether it is on standby: nothing is sent with it while a rekey is under way.
    #[serde(default)]
    pub stands_by: bool,
    /// The device that it serves, if policies do not use it.
    #[serde(default)]
    pub interface: Option<String>,
    /// The request ID that ties it to policies.
    pub reqid: u32,
    /// `larval`, `mature`, `dying` or `dead`.
    pub phase: String,
    /// Extended sequence numbers.
    pub esn: bool,
    /// Packets of its replay window, 0 for no check.
    pub replay_window: u32,
    /// The highest sequence number sent or received.
    pub sequence: u64,
    /// Packets carried.
    pub packets: u64,
    /// Bytes carried.
    pub bytes: u64,
    /// Seconds since the Unix epoch.
    pub created: u64,
    /// Seconds since the Unix epoch, 0 for never.
    pub last_used: u64,
    /// Packets dropped for this association, by reason.
    pub drops: BTreeMap<String, u64>,
    /// The largest packet its tunnel takes.
    pub mtu: Option<u32>,
}

/// One policy.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct PolicyStatus {
    /// Its number.
    pub id: u32,
    /// `in`, `out` or `fwd`.
    pub direction: String,
    /// Which packets, as setkey writes it.
    pub selector: String,
    /// `discard`, `none`, or what protects.
    pub action: String,
    /// Over how many associations flows are spread at most; 1 where they are not.
    pub spread: u8,
    /// Higher values take precedence.
    pub priority: i64,
    /// Seconds since the Unix epoch.
    pub created: u64,
    /// Seconds since the Unix epoch, 0 for never.
    pub last_used: u64,
}

/// Why packets were dropped.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Drops {
    /// By the engine, all reasons together.
    pub total: u64,
    /// By reason; those that are not 0.
    pub reasons: BTreeMap<String, u64>,
    /// By association and reason.
    pub associations: Vec<SaDrops>,
    /// Unencrypted packets that the gateway's rules in the kernel dropped: on output, input and forwarding.
    pub clear: BTreeMap<String, u64>,
}

/// The drops of one association.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct SaDrops {
    /// Its name.
    #[serde(flatten)]
    pub name: SaName,
    /// By reason; those that are not 0.
    pub reasons: BTreeMap<String, u64>,
}
