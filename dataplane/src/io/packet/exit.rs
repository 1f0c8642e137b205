//! One device's way out: AF_XDP, or a packet socket that goes past the device's queueing.

use super::ring::bind;
use super::{ETHERNET, NativeIo, ethertype};
use crate::io::messages::{Letter, MOST, Outbox};
use crate::io::socket::set_option_to;
use crate::io::waker::poll_patiently;
use crate::io::xdp::Transmitter;
use crate::io::{Parcel, Sent};
use ipsec::tunnel::Outer;
use rustix::event::{PollFd, PollFlags};
use rustix::net::{AddressFamily, SocketFlags, SocketType, socket_with};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

/// How a packet's Ethernet header begins: to whom, from whom.
pub(in crate::io) type Ends = [u8; ETHERNET - 2];

/// A device's way out.
pub(in crate::io) enum Exit {
    Xdp(Box<Transmitter>),
    Packet(PacketExit),
}

impl Exit {
    /// Opens a device's way out, for IP packets of at most `mtu` bytes.
    pub fn open(way: NativeIo, device: u32, mtu: u32) -> io::Result<Self> {
        match way {
            NativeIo::Xdp => Transmitter::open(device, mtu as usize + ETHERNET)
                .map(|transmitter| Self::Xdp(Box::new(transmitter))),
            _ => PacketExit::open(device).map(Self::Packet),
        }
    }

    /// What it is.
    pub fn way(&self) -> NativeIo {
        match self {
            Self::Xdp(_) => NativeIo::Xdp,
            Self::Packet(_) => NativeIo::Packet,
        }
    }

    /// Sends all packets of all parcels. An error is the device's end, what could not be sent is counted.
    pub fn send(
        &mut self,
        ends: &Ends,
        parcels: &[Parcel<'_>],
        identification: &mut u16,
        sent: &mut Sent,
    ) -> io::Result<()> {
        match self {
            Self::Xdp(transmitter) => {
                for parcel in parcels {
                    for range in parcel.ranges() {
                        let header = Header::new(ends, &parcel.outer, range.len(), identification);
                        transmitter.push([header.bytes(), &parcel.bytes[range]], sent)?;
                    }
                }
                transmitter.flush(sent)
            }
            Self::Packet(exit) => exit.send(ends, parcels, identification, sent),
        }
    }

    /// Sends frames that stand ready. An error is the device's end, what could not be sent is counted.
    pub fn send_frames(&mut self, frames: &[Frame<'_>], sent: &mut Sent) -> io::Result<()> {
        match self {
            Self::Xdp(transmitter) => {
                for frame in frames {
                    transmitter.push([&frame.head, frame.rest], sent)?;
                }
                transmitter.flush(sent)
            }
            Self::Packet(exit) => exit.send_frames(frames, sent),
        }
    }

    /// Sends one packet: what stands behind the two addresses.
    pub fn send_one(&mut self, ends: &Ends, rest: &[u8]) -> io::Result<()> {
        let mut sent = Sent::default();
        match self {
            Self::Xdp(transmitter) => {
                transmitter.push([ends, rest], &mut sent)?;
                transmitter.flush(&mut sent)
            }
            Self::Packet(exit) => {
                let frame = [ends, rest].concat();
                rustix::net::send(&exit.socket, &frame, rustix::net::SendFlags::DONTWAIT)
                    .map(drop)
                    .map_err(io::Error::from)
            }
        }
    }
}

/// An Ethernet frame in two pieces: link header and the beginning of the IP header, which a router has changed, and the
/// rest as it lies.
#[derive(Clone, Copy)]
pub(in crate::io) struct Frame<'a> {
    pub head: [u8; ETHERNET + CHANGED],
    pub rest: &'a [u8],
}

/// As much of an IP header as a router may change: an IPv4 header without options.
pub(in crate::io) const CHANGED: usize = 20;

/// Ethernet and IP header of one packet.
struct Header {
    bytes: [u8; ETHERNET + 40],
    len: usize,
}

impl Header {
    fn new(ends: &Ends, outer: &Outer, payload: usize, identification: &mut u16) -> Self {
        let mut header = Self {
            bytes: [0; ETHERNET + 40],
            len: ETHERNET + outer.len(),
        };
        header.bytes[..ends.len()].copy_from_slice(ends);
        header.bytes[ends.len()..ETHERNET].copy_from_slice(&ethertype(outer.destination));
        // RFC 6864 4: without the don't-fragment bit it must not repeat soon.
        *identification = identification.wrapping_add(1);
        outer.emit(payload, *identification, &mut header.bytes[ETHERNET..]);
        header
    }

    fn bytes(&self) -> &[u8] {
        &self.bytes[..self.len]
    }
}

/// A packet socket for sending alone.
pub(in crate::io) struct PacketExit {
    socket: OwnedFd,
    outbox: Outbox,
    /// One for each message in the outbox.
    headers: Vec<Header>,
}

/// A packet socket that sends past the device's queueing, and receives nothing.
pub(in crate::io) fn open_socket(device: u32) -> io::Result<OwnedFd> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = socket_with(AddressFamily::PACKET, SocketType::RAW, flags, None)?;
    bind(socket.as_fd(), device, 0)?;
    set_option_to(
        socket.as_fd(),
        libc::SOL_PACKET,
        libc::PACKET_QDISC_BYPASS,
        &1i32,
    )?;
    // A smaller buffer works too.
    let _ = set_option_to(
        socket.as_fd(),
        libc::SOL_SOCKET,
        libc::SO_SNDBUFFORCE,
        &BUFFER,
    );
    Ok(socket)
}

/// How long a full device is waited for before a packet is given up.
const PATIENCE: Duration = Duration::from_millis(100);

/// The send buffer, as raw sockets have it.
const BUFFER: i32 = 4 << 20;

impl PacketExit {
    fn open(device: u32) -> io::Result<Self> {
        Ok(Self {
            socket: open_socket(device)?,
            outbox: Outbox::new(),
            headers: Vec::new(),
        })
    }

    fn send(
        &mut self,
        ends: &Ends,
        parcels: &[Parcel<'_>],
        identification: &mut u16,
        sent: &mut Sent,
    ) -> io::Result<()> {
        for (n, parcel) in parcels.iter().enumerate() {
            for range in parcel.ranges() {
                if self.outbox.is_full() {
                    self.flush(parcels, sent)?;
                }
                let header = Header::new(ends, &parcel.outer, range.len(), identification);
                self.headers.push(header);
                self.outbox.add_unaddressed((n, range, 1, false));
            }
        }
        self.flush(parcels, sent)
    }

    fn send_frames(&mut self, frames: &[Frame<'_>], sent: &mut Sent) -> io::Result<()> {
        for chunk in frames.chunks(MOST) {
            for (n, frame) in chunk.iter().enumerate() {
                self.outbox
                    .add_unaddressed((n, 0..frame.rest.len(), 1, false));
            }
            let Self { socket, outbox, .. } = self;
            let pieces = |place: usize, _: &Letter| [&chunk[place].head[..], chunk[place].rest];
            let outcome = flush_all(socket, outbox, pieces, sent);
            self.outbox.clear();
            outcome?;
        }
        Ok(())
    }

    fn flush(&mut self, parcels: &[Parcel<'_>], sent: &mut Sent) -> io::Result<()> {
        let Self {
            socket,
            outbox,
            headers,
        } = self;
        let pieces = |place: usize, letter: &Letter| {
            let bytes = &parcels[letter.parcel].bytes[letter.range.clone()];
            [headers.get(place).map_or(&[][..], Header::bytes), bytes]
        };
        let outcome = flush_all(socket, outbox, pieces, sent);
        self.outbox.clear();
        self.headers.clear();
        outcome
    }
}

/// Sends all letters; what cannot go now is counted and passed over.
fn flush_all<'a>(
    socket: &OwnedFd,
    outbox: &mut Outbox,
    pieces: impl Fn(usize, &Letter) -> [&'a [u8]; 2] + Copy,
    sent: &mut Sent,
) -> io::Result<()> {
    let (mut next, total) = (0, outbox.letters().len());
    while next < total {
        sent.calls += 1;
        match outbox.send(socket.as_fd(), next, pieces) {
            Ok(count) => {
                sent.packets += count as u64;
                next += count;
            }
            Err(error) => match error.raw_os_error() {
                Some(libc::EINTR) => {}
                Some(libc::EAGAIN) if has_room(socket)? => {}
                Some(libc::EAGAIN | libc::ENOBUFS | libc::ENOMEM) => {
                    sent.no_buffer += 1;
                    next += 1;
                }
                Some(libc::EMSGSIZE) => {
                    sent.too_big += 1;
                    next += 1;
                }
                _ => {
                    sent.failed += (total - next) as u64;
                    return Err(error);
                }
            },
        }
    }
    Ok(())
}

pub(in crate::io) fn has_room(socket: &OwnedFd) -> io::Result<bool> {
    let mut watched = [PollFd::new(socket, PollFlags::OUT)];
    poll_patiently(&mut watched, PATIENCE)?;
    Ok(watched[0].revents().contains(PollFlags::OUT))
}
