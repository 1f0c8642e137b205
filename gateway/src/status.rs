//! The status of a gateway: plain data for `--json`, and tables for people. Never a key.

mod drops;
mod table;

use crate::events::SaName;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// What is up and what it carries.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Status {
    /// What keeps protected traffic from passing in clear.
    #[serde(default)]
    pub barriers: Vec<BarrierStatus>,
    /// What other programs have taken away of it.
    #[serde(default)]
    pub restorations: Restorations,
    /// The gateway's version.
    pub version: String,
    /// Its process.
    pub pid: u32,
    /// Its user, by number and, where it has one, by name.
    #[serde(default)]
    pub user: String,
    /// What it may do beyond an ordinary user.
    #[serde(default)]
    pub capabilities: Vec<String>,
    /// Seconds since it started.
    pub uptime_seconds: u64,
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
    /// How many of them were asked for: `auto` or a number.
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
    /// What was asked for threads with nothing to do: `sleep`, `adaptive:µs` or `busy[:µs]`.
    #[serde(default)]
    pub wake: String,
    /// How the threads that carry packets stand among all others: `normal` or `realtime`.
    #[serde(default)]
    pub priority: String,
    /// Which way was asked for native ESP: `raw`, `packet`, `xdp` or `auto`; what came of it is told with the sockets.
    #[serde(default)]
    pub native_io: String,
    /// How batches are read and waited for, in words.
    #[serde(default)]
    pub polling: String,
    /// Whether rules go away with the gateway.
    pub fail_open: bool,
    /// Devices of associations with one of their own.
    #[serde(default)]
    pub interfaces: Vec<InterfaceStatus>,
    /// New keys that are on their way in.
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
    /// From the plaintext to the protected side.
    pub outbound: Traffic,
    /// From the protected to the plaintext side.
    pub inbound: Traffic,
    /// Every association.
    pub associations: Vec<SaStatus>,
    /// Every policy, in the order in which they are asked.
    pub policies: Vec<PolicyStatus>,
    /// Packets dropped by the engine, all reasons together.
    pub dropped: u64,
    /// Clear packets that the kernel dropped for us.
    pub clear_dropped: u64,
    /// The most memory the process has held, in bytes.
    pub peak_memory_bytes: u64,
    /// What one should know.
    pub warnings: Vec<String>,
}

/// A rekey under way.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub(crate) struct RekeyStatus {
    /// The file that has the new keys.
    pub file: String,
    /// Seconds since it began.
    pub seconds: u64,
    /// How far each peer is.
    pub peers: Vec<RekeyPeer>,
}

/// How far one peer is.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct RekeyPeer {
    /// Its address.
    pub peer: std::net::IpAddr,
    /// By which keys is sent to it, and what is waited for.
    pub state: String,
}

/// One thing that keeps protected traffic from passing in clear.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub(crate) struct BarrierStatus {
    /// Its name.
    pub name: String,
    /// Whether it stands in the kernel as it should, at this moment.
    pub holds: bool,
    /// What is wrong with it otherwise.
    pub faults: Vec<String>,
    /// What it does not see even where it holds.
    #[serde(default)]
    pub gaps: Option<String>,
}

/// What other programs have taken away of ours.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Restorations {
    /// How often something was put back.
    pub times: u64,
    /// How long ago that was last.
    pub seconds_ago: Option<u64>,
    /// What it was.
    pub last: Option<String>,
    /// What is missing and could not be put back.
    pub missing: Option<String>,
    /// Whether so much was taken away that it comes back once a second only.
    pub held_back: bool,
}

/// What went one way since the start.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Traffic {
    /// Packets delivered, segments counted singly.
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
    /// Processor time of a packet for what must be done in order, in nanoseconds; 0 until it was measured.
    pub serial_ns: f64,
    /// Processor time of a packet for what any thread may do, in nanoseconds; 0 until it was measured.
    pub transform_ns: f64,
    /// What waking a worker costs the reading thread, in nanoseconds; 0 until it was done.
    pub call_ns: f64,
    /// Why it works so.
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
    /// Where its packets come from, if that is another address or port than it says.
    #[serde(default)]
    pub moved_to: Option<std::net::SocketAddr>,
    /// The younger association that carries what this one could, if the two differ in algorithms or encapsulation.
    #[serde(default)]
    pub carried_by: Option<SaName>,
    /// Whether nothing is sent by it while a rekey is under way.
    #[serde(default)]
    pub stands_by: bool,
    /// The device that it serves, if policies do not use it.
    #[serde(default)]
    pub interface: Option<String>,
    /// The number that ties it to policies.
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
    /// Packets dropped on its account, by reason.
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
    /// Higher goes first.
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
    /// Clear packets that the kernel dropped for us: about to leave, to arrive, to pass.
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
