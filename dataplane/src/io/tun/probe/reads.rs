//! The probe of trains that the kernel passes to the queue: each kind is sent into the device, as the kernel's own
//! stack does, and must be read from a queue unchanged.
//!
//! ```text
//!   packet socket, virtio header ──► device ──► queue ──► here: the same train, or its segments, or nothing
//! ```
//!
//! No address, route or rule is needed, and no part of the stack sees the packets. Where routes lead to a persistent
//! device already, other packets in the queues at this moment are lost, as they were while no process had the device
//! open.

use super::packets::{TCP_TRAIN, UDP_TRAIN, over_v4, over_v6, train};
use crate::io::packet::bind;
use crate::io::socket_option::set_option_to;
use crate::io::tun::source::TunSource;
use crate::io::waker::poll_for;
use crate::io::{MAX_ITEM_BYTES, PlaintextSource, ReceiveBuffer, Wait, virtio_header};
use crate::train::{Offload, Segmentation, TrainKinds};
use rustix::event::{PollFd, PollFlags};
use rustix::io::{Errno, dup};
use rustix::net::{AddressFamily, SocketFlags, SocketType, socket_with};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How long a packet may take; only a lost one is waited for.
const PROBE_TIMEOUT: Duration = Duration::from_secs(1);

/// What came out of the device.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Seen {
    Whole,
    Cut,
    Nothing,
}

/// The result of the probe.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Reads {
    /// Trains that arrive whole.
    pub whole: TrainKinds,
    /// Whether a train was lost in the device: then none must be enabled.
    pub lossy: bool,
}

/// Sends a train of every kind in `hoped` through the device of this index. An error means that nothing could be
/// probed.
pub(super) fn try_reads(queues: &[OwnedFd], index: u32, hoped: TrainKinds) -> io::Result<Reads> {
    let mut sockets = ProbeSockets::set_up(queues, index)?;
    if sockets.pass(&over_v4(17), Offload::default())? != Seen::Whole {
        return Err(io::Error::other("not even a single packet comes through"));
    }
    let mut lossy = false;
    let mut comes = |hoped: bool, packet: Vec<u8>, offload| -> io::Result<bool> {
        if !hoped {
            return Ok(false);
        }
        let seen = sockets.pass(&packet, offload)?;
        lossy |= seen == Seen::Nothing;
        Ok(seen == Seen::Whole)
    };
    let whole = TrainKinds {
        tcp_v4: comes(hoped.tcp_v4, over_v4(6), train(TCP_TRAIN, 20, 16))?,
        tcp_v6: comes(hoped.tcp_v6, over_v6(6), train(TCP_TRAIN, 40, 16))?,
        udp: comes(hoped.udp, over_v4(17), train(UDP_TRAIN, 20, 6))?
            & comes(hoped.udp, over_v6(17), train(UDP_TRAIN, 40, 6))?,
    };
    Ok(Reads { whole, lossy })
}

struct ProbeSockets {
    sources: Vec<TunSource>,
    v4: OwnedFd,
    v6: OwnedFd,
    buffer: ReceiveBuffer<Offload>,
}

impl ProbeSockets {
    fn set_up(queues: &[OwnedFd], index: u32) -> io::Result<Self> {
        let source = |queue: &OwnedFd| {
            Ok(TunSource {
                device: Arc::new(dup(queue)?),
                waker: None,
                link_local: true,
            })
        };
        Ok(Self {
            sources: queues.iter().map(source).collect::<io::Result<_>>()?,
            v4: injector(index, libc::ETH_P_IP)?,
            v6: injector(index, libc::ETH_P_IPV6)?,
            buffer: ReceiveBuffer::with_capacity(2 * MAX_ITEM_BYTES, 64),
        })
    }

    /// Sends one packet or train, and reads what arrives of it.
    fn pass(&mut self, packet: &[u8], offload: Offload) -> io::Result<Seen> {
        let head = virtio_header::write(&offload, packet).ok_or(io::ErrorKind::InvalidInput)?;
        let injector = match packet.first().map(|first| first >> 4) {
            Some(4) => &self.v4,
            _ => &self.v6,
        };
        match rustix::io::write(injector, &[&head, packet].concat()) {
            // With this error the kernel reports that the device's egress path dropped it.
            Err(Errno::NOBUFS) => return Ok(Seen::Nothing),
            written => written?,
        };
        let end = Instant::now() + PROBE_TIMEOUT;
        loop {
            for source in &mut self.sources {
                self.buffer.clear();
                source.fill(&mut self.buffer, Wait::Poll)?;
                for (range, found) in &self.buffer.items {
                    let seen = judge(
                        (packet, &offload),
                        (&self.buffer.bytes[range.clone()], found),
                    );
                    if let Some(seen) = seen {
                        return Ok(seen);
                    }
                }
            }
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(Seen::Nothing);
            }
            let watch = |source| PollFd::new(source, PollFlags::IN);
            let mut watched: Vec<_> = self.sources.iter().map(watch).collect();
            poll_for(&mut watched, left)?;
        }
    }
}

/// A socket that sends packets with virtio headers into the device.
fn injector(index: u32, protocol: i32) -> io::Result<OwnedFd> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = socket_with(AddressFamily::PACKET, SocketType::RAW, flags, None)?;
    set_option_to(
        socket.as_fd(),
        libc::SOL_PACKET,
        libc::PACKET_VNET_HDR,
        &1i32,
    )?;
    bind(socket.as_fd(), index, protocol as u16)?;
    Ok(socket)
}

/// How a packet that was read relates to the one that was sent; nothing if it is no part of it.
fn judge(sent: (&[u8], &Offload), read: (&[u8], &Offload)) -> Option<Seen> {
    if read.0 == sent.0 && read.1.segmentation == sent.1.segmentation {
        return Some(Seen::Whole);
    }
    let is_part = sent.1.segmentation != Segmentation::None && flow(read.0) == flow(sent.0);
    is_part.then_some(Seen::Cut)
}

/// Version, protocol and addresses.
fn flow(packet: &[u8]) -> Option<(u8, u8, &[u8])> {
    let version = packet.first()? >> 4;
    match version {
        4 => Some((version, *packet.get(9)?, packet.get(12..20)?)),
        _ => Some((version, *packet.get(6)?, packet.get(8..40)?)),
    }
}

#[cfg(test)]
mod tests;
