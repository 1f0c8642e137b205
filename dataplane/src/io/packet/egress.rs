//! One device's egress: AF_XDP, or a packet socket that bypasses the qdisc.

use super::ethernet_header::{ETHERNET_HEADER_BYTES, LinkAddresses, ethertype};
use super::native_io::NativeIo;
use super::ring::bind;
use crate::io::messages::{MAX_MESSAGES, Message, SendBatch};
use crate::io::socket_option::set_option_to;
use crate::io::waker::poll_for;
use crate::io::xdp::Transmitter;
use crate::io::{Burst, Sent};
use ipsec::tunnel::Outer;
use rustix::event::{PollFd, PollFlags};
use rustix::net::{AddressFamily, SocketFlags, SocketType, socket_with};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

/// One device's egress.
pub(in crate::io) enum Egress {
    Xdp(Box<Transmitter>),
    Packet(PacketEgress),
}

impl Egress {
    /// Opens a device's egress, for IP packets of at most `mtu` bytes.
    pub fn open(native_io: NativeIo, device: u32, mtu: u32) -> io::Result<Self> {
        match native_io {
            NativeIo::Xdp => Transmitter::open(device, mtu as usize + ETHERNET_HEADER_BYTES)
                .map(|transmitter| Self::Xdp(Box::new(transmitter))),
            _ => PacketEgress::open(device).map(Self::Packet),
        }
    }

    /// Its kind.
    pub fn native_io(&self) -> NativeIo {
        match self {
            Self::Xdp(_) => NativeIo::Xdp,
            Self::Packet(_) => NativeIo::Packet,
        }
    }

    /// Sends all packets of all bursts. Packets that cannot be sent are counted; an error means that the device is
    /// unusable.
    pub fn send(
        &mut self,
        addresses: &LinkAddresses,
        bursts: &[Burst<'_>],
        identification: &mut u16,
        sent: &mut Sent,
    ) -> io::Result<()> {
        match self {
            Self::Xdp(transmitter) => {
                for burst in bursts {
                    for range in burst.ranges() {
                        let header =
                            Header::new(addresses, &burst.outer, range.len(), identification);
                        transmitter.push([header.bytes(), &burst.bytes[range]], sent)?;
                    }
                }
                transmitter.flush(sent)
            }
            Self::Packet(egress) => egress.send(addresses, bursts, identification, sent),
        }
    }

    /// Sends complete frames. Packets that cannot be sent are counted; an error means that the device is unusable.
    pub fn send_frames(&mut self, frames: &[OutgoingFrame<'_>], sent: &mut Sent) -> io::Result<()> {
        match self {
            Self::Xdp(transmitter) => {
                for frame in frames {
                    transmitter.push([&frame.head, frame.rest], sent)?;
                }
                transmitter.flush(sent)
            }
            Self::Packet(egress) => egress.send_frames(frames, sent),
        }
    }

    /// Sends one packet: what follows the two MAC addresses.
    pub fn send_one(&mut self, addresses: &LinkAddresses, rest: &[u8]) -> io::Result<()> {
        let mut sent = Sent::default();
        match self {
            Self::Xdp(transmitter) => {
                transmitter.push([addresses, rest], &mut sent)?;
                transmitter.flush(&mut sent)
            }
            Self::Packet(egress) => {
                let frame = [addresses, rest].concat();
                rustix::net::send(&egress.socket, &frame, rustix::net::SendFlags::DONTWAIT)
                    .map(drop)
                    .map_err(io::Error::from)
            }
        }
    }
}

/// An Ethernet frame in two pieces: the link header with the start of the IP header, which forwarding rewrites, and the
/// rest in place.
#[derive(Clone, Copy)]
pub(in crate::io) struct OutgoingFrame<'a> {
    pub head: [u8; ETHERNET_HEADER_BYTES + REWRITTEN_BYTES],
    pub rest: &'a [u8],
}

/// Bytes of an IP header that forwarding may change: an IPv4 header without options.
pub(in crate::io) const REWRITTEN_BYTES: usize = 20;

/// Ethernet and IP header of one packet.
struct Header {
    bytes: [u8; ETHERNET_HEADER_BYTES + 40],
    len: usize,
}

impl Header {
    fn new(
        addresses: &LinkAddresses,
        outer: &Outer,
        payload: usize,
        identification: &mut u16,
    ) -> Self {
        let mut header = Self {
            bytes: [0; ETHERNET_HEADER_BYTES + 40],
            len: ETHERNET_HEADER_BYTES + outer.len(),
        };
        header.bytes[..addresses.len()].copy_from_slice(addresses);
        header.bytes[addresses.len()..ETHERNET_HEADER_BYTES]
            .copy_from_slice(&ethertype(outer.destination));
        // RFC 6864 4: without the don't-fragment bit it must not repeat soon.
        *identification = identification.wrapping_add(1);
        outer.emit(
            payload,
            *identification,
            &mut header.bytes[ETHERNET_HEADER_BYTES..],
        );
        header
    }

    fn bytes(&self) -> &[u8] {
        &self.bytes[..self.len]
    }
}

/// A packet socket for sending alone.
pub(in crate::io) struct PacketEgress {
    socket: OwnedFd,
    batch: SendBatch,
    /// One for each message in the batch.
    headers: Vec<Header>,
}

/// Opens a packet socket that bypasses the device's qdisc and receives nothing.
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
        &SEND_BUFFER_BYTES,
    );
    Ok(socket)
}

/// How long to wait for room in a full device before a packet is dropped.
const SEND_ROOM_TIMEOUT: Duration = Duration::from_millis(100);

/// The send buffer, as large as that of raw sockets.
const SEND_BUFFER_BYTES: i32 = 4 << 20;

impl PacketEgress {
    fn open(device: u32) -> io::Result<Self> {
        Ok(Self {
            socket: open_socket(device)?,
            batch: SendBatch::new(),
            headers: Vec::new(),
        })
    }

    fn send(
        &mut self,
        addresses: &LinkAddresses,
        bursts: &[Burst<'_>],
        identification: &mut u16,
        sent: &mut Sent,
    ) -> io::Result<()> {
        for (n, burst) in bursts.iter().enumerate() {
            for range in burst.ranges() {
                if self.batch.is_full() {
                    self.flush(bursts, sent)?;
                }
                let header = Header::new(addresses, &burst.outer, range.len(), identification);
                self.headers.push(header);
                self.batch.add_unaddressed((n, range, 1, false));
            }
        }
        self.flush(bursts, sent)
    }

    fn send_frames(&mut self, frames: &[OutgoingFrame<'_>], sent: &mut Sent) -> io::Result<()> {
        for chunk in frames.chunks(MAX_MESSAGES) {
            for (n, frame) in chunk.iter().enumerate() {
                self.batch
                    .add_unaddressed((n, 0..frame.rest.len(), 1, false));
            }
            let Self { socket, batch, .. } = self;
            let pieces = |place: usize, _: &Message| [&chunk[place].head[..], chunk[place].rest];
            let outcome = send_all(socket, batch, pieces, sent);
            self.batch.clear();
            outcome?;
        }
        Ok(())
    }

    fn flush(&mut self, bursts: &[Burst<'_>], sent: &mut Sent) -> io::Result<()> {
        let Self {
            socket,
            batch,
            headers,
        } = self;
        let pieces = |place: usize, message: &Message| {
            let bytes = &bursts[message.burst].bytes[message.range.clone()];
            [headers.get(place).map_or(&[][..], Header::bytes), bytes]
        };
        let outcome = send_all(socket, batch, pieces, sent);
        self.batch.clear();
        self.headers.clear();
        outcome
    }
}

/// Sends all messages; those that cannot be sent are counted and skipped.
fn send_all<'a>(
    socket: &OwnedFd,
    batch: &mut SendBatch,
    pieces: impl Fn(usize, &Message) -> [&'a [u8]; 2] + Copy,
    sent: &mut Sent,
) -> io::Result<()> {
    let (mut next, total) = (0, batch.messages().len());
    while next < total {
        sent.calls += 1;
        match batch.send(socket.as_fd(), next, pieces) {
            Ok(count) => {
                sent.packets += count as u64;
                next += count;
            }
            Err(error) => match error.raw_os_error() {
                Some(libc::EINTR) => {}
                Some(libc::EAGAIN) if wait_for_room(socket)? => {}
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

pub(in crate::io) fn wait_for_room(socket: &OwnedFd) -> io::Result<bool> {
    let mut watched = [PollFd::new(socket, PollFlags::OUT)];
    poll_for(&mut watched, SEND_ROOM_TIMEOUT)?;
    Ok(watched[0].revents().contains(PollFlags::OUT))
}
