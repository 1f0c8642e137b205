//! Native ESP past the kernel's IP layer: in through a packet ring, out through AF_XDP or a packet socket.
//!
//! ```text
//!   PacketSource  ◄── ring of frames, shared with the kernel ◄── device        no system call while packets are there
//!   PacketSink    ──► Ethernet and IP header, packet ──► AF_XDP or packet socket ──► device
//!                 └─► raw socket: no simple way, fragments, too big, and once in a while so that the kernel keeps
//!                     its neighbour fresh
//! ```
//!
//! A raw socket costs a route look-up, all of netfilter and a fresh buffer for each packet, on both sides, and wakes the
//! receiver for each. MEASURED: 1400-byte packets over veth, nanoseconds of processor time for each on both sides
//! together: raw to raw 3100, packet socket to ring 2000, AF_XDP to ring 1300 (2-core Xeon VM, Linux 6.18, under load).
//!
//! What the kernel would do for a raw socket is done here: fragments are joined (RFC 4303 3.4.1), the header's checksum is
//! looked at, the next hop is asked of a [`NextHops`]. What these packets do not meet any more: the host's own firewall,
//! traffic shaping, and on the way out a packet capture on the same host.

pub(super) mod exit;
mod filter;
pub(super) mod ring;
mod sink;
pub(super) mod source;
#[cfg(test)]
mod tests;

pub use filter::Claim;
pub use sink::{PacketFacts, PacketSink};
pub use source::{PacketSource, RingHandle};

pub(super) use ring::bind;

use super::Warn;
use exit::Exit;
use ring::Ring;
use std::fmt;
use std::io;
use std::net::IpAddr;
use std::str::FromStr;
use std::time::{Duration, Instant};

/// Which way native packets go.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum NativeIo {
    /// The fastest of the others that passes its trial.
    #[default]
    Auto,
    /// Raw sockets alone: all packets meet the host's firewall, shaping and captures.
    Raw,
    /// A packet ring inwards, a packet socket outwards.
    Packet,
    /// A packet ring inwards, AF_XDP outwards.
    Xdp,
}

impl FromStr for NativeIo {
    type Err = String;

    fn from_str(word: &str) -> Result<Self, String> {
        match word {
            "auto" => Ok(Self::Auto),
            "raw" => Ok(Self::Raw),
            "packet" => Ok(Self::Packet),
            "xdp" => Ok(Self::Xdp),
            _ => Err("raw, packet, xdp or auto is expected".to_owned()),
        }
    }
}

impl fmt::Display for NativeIo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Auto => "auto",
            Self::Raw => "raw",
            Self::Packet => "packet",
            Self::Xdp => "xdp",
        })
    }
}

/// The way to a peer over one link.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NextHop {
    /// Index of an Ethernet device.
    pub device: u32,
    /// The largest IP packet that device and route take.
    pub mtu: u32,
    /// The device's address.
    pub ours: [u8; 6],
    /// The neighbour's address.
    pub theirs: [u8; 6],
}

/// Who knows the kernel's routes and neighbours.
pub trait NextHops: Send {
    /// Whether a route, a link or a neighbour has changed since the last call: what was found before is not true any more.
    fn changed(&mut self) -> bool;

    /// The way, if the kernel has one of the simple kind just now: an Ethernet device without queueing of its own, and a
    /// neighbour whose address is known.
    fn find(&mut self, source: IpAddr, destination: IpAddr) -> Option<NextHop>;

    /// Whether packets to this destination are for this host just now, by its local table: an address, or any route there.
    fn is_ours(&mut self, destination: IpAddr) -> bool;
}

/// Bytes of an Ethernet header.
pub(super) const ETHERNET: usize = 14;

/// How long a packet of the trial may take over the loopback device; it is there at once.
const TRIAL: Duration = Duration::from_millis(200);

/// Tries the ways in question with a real packet over the loopback device, and says which is to be used. Less than was
/// hoped for is told to `warn`.
pub fn choose(wish: NativeIo, warn: &Warn) -> NativeIo {
    let order: &[NativeIo] = match wish {
        NativeIo::Auto => &[NativeIo::Xdp, NativeIo::Packet],
        NativeIo::Xdp => &[NativeIo::Xdp, NativeIo::Packet],
        NativeIo::Packet => &[NativeIo::Packet],
        NativeIo::Raw => &[],
    };
    for way in order {
        match try_out(*way) {
            Ok(()) => return *way,
            Err(why) => warn(&format!(
                "native ESP by `{way}` does not work here ({why}): doing without, slower"
            )),
        }
    }
    NativeIo::Raw
}

/// An ESP packet without content from 127.0.0.1 to itself: nobody can take it for anything.
fn try_out(way: NativeIo) -> io::Result<()> {
    const SIZE: u32 = 1500;
    let here = IpAddr::from([127, 0, 0, 1]);
    let device = device_index(c"lo")?;
    let mut ring = Ring::open(device, SIZE, &Claim::of([here]))?;
    let mut exit = Exit::open(way, device, SIZE)?;
    let packet = trial_packet(here);
    exit.send_one(&[0; ETHERNET - 2], &packet)?;
    let end = Instant::now() + TRIAL;
    while Instant::now() < end {
        let mut came = false;
        if ring.take(|bytes| {
            came = bytes == &packet[2..];
            true
        }) && came
        {
            return Ok(());
        }
    }
    Err(io::Error::other("a packet of the trial was lost"))
}

/// The end of an Ethernet header, and an IPv4 header alone.
fn trial_packet(here: IpAddr) -> [u8; 22] {
    let outer = ipsec::tunnel::Outer {
        source: here,
        destination: here,
        protocol: 50,
        ports: None,
        traffic_class: 0,
        dont_fragment: true,
        hop_limit: 1,
        written: 0,
    };
    let mut packet = [0; 22];
    packet[..2].copy_from_slice(&ethertype(here));
    outer.emit(0, 0, &mut packet[2..]);
    packet
}

pub(super) fn ethertype(address: IpAddr) -> [u8; 2] {
    let number = if address.is_ipv4() {
        libc::ETH_P_IP
    } else {
        libc::ETH_P_IPV6
    };
    (number as u16).to_be_bytes()
}

fn device_index(name: &std::ffi::CStr) -> io::Result<u32> {
    // SAFETY: the name ends with a zero byte and is only read.
    match unsafe { libc::if_nametoindex(name.as_ptr()) } {
        0 => Err(io::Error::last_os_error()),
        index => Ok(index),
    }
}
