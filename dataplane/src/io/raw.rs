//! Native ESP and AH: raw sockets of protocol 50 and 51, wherever the kernel's own IPsec does not use the protocol.
//!
//! ```text
//!   Burst:   packet packet packet … ──► sendmmsg, one message each    IP header: by the kernel, or given (`hdrincl`)
//!   Arrival: headers and packet     ◄── recvmmsg                       fragments come reassembled
//! ```
//!
//! For ESP the kernel writes the IP header: it then also fragments where that is allowed, chooses identifications that
//! do not repeat, and reports a path's MTU. `IP_HDRINCL` loses all three; AH and rare headers need it nevertheless.
//!
//! An arrival includes its IP headers. Over IPv4 the kernel delivers them; over IPv6 it describes them in control
//! messages, from which they are rebuilt in front of the packet. The flow label is lost, which no ICV covers (RFC 4302
//! 3.3.3.1.2).
//!
//! While such a socket is open the kernel does not answer its packets with "protocol unreachable".

mod hdrincl;

pub use hdrincl::{HdrinclSink, open_hdrincl};

use super::ancillary::{ControlBuffer, ControlMessage};
use super::messages::{Received, SendBatch};
use super::packet::RingAddresses;
use super::receiving::SocketReceiver;
use super::sending::{OutOfBand, SocketSink, add_packets, bytes_of, send_all, send_bursts};
use super::socket::Socket;
use super::socket_sets::{PollableSource, SelectiveSink};
use super::{
    Arrival, Burst, Family, OpenError, OutOfBandSender, ProtectedSink, ProtectedSource,
    ReceiveBuffer, Sent, SocketOptions, Wait, Waker,
};
use ipsec::packet::Outline;
use ipsec::tunnel::Outer;
use ipsec::wire::ip::v6;
use rustix::net::{Protocol, SocketType};
use std::collections::BTreeSet;
use std::io;
use std::net::{IpAddr, Ipv6Addr};
use std::num::NonZeroU32;
use std::ops::Range;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

#[cfg(test)]
mod tests;

/// Which of the two protocols.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub enum NativeProtocol {
    /// Protocol 50.
    Esp,
    /// Protocol 51.
    Ah,
}

impl NativeProtocol {
    /// The number in IP headers.
    pub fn number(self) -> u8 {
        match self {
            Self::Esp => 50,
            Self::Ah => 51,
        }
    }
}

/// Opens the socket of one family and protocol.
pub fn open(
    family: Family,
    protocol: NativeProtocol,
    options: &SocketOptions,
) -> Result<(RawSource, RawSink), OpenError> {
    let number = NonZeroU32::new(protocol.number().into()).map(Protocol::from_raw);
    let socket = Socket::open(family, SocketType::RAW, number, options)?;
    let headroom = match family {
        Family::V4 => 0,
        Family::V6 => {
            ask_for_extension_headers(&socket)?;
            HEADROOM_BYTES
        }
    };
    let socket = Arc::new(socket);
    let source = RawSource {
        receiver: SocketReceiver::with_headroom(socket.clone(), headroom),
        reader: Reader {
            family,
            protocol,
            malformed: Arc::default(),
        },
    };
    let sink = RawSink {
        socket,
        protocol,
        batch: SendBatch::new(),
        df: None,
    };
    Ok((source, sink))
}

/// Room in front of each packet for IPv6's header and extension headers of any usual length.
pub(super) const HEADROOM_BYTES: usize = 512;

fn ask_for_extension_headers(socket: &Socket) -> Result<(), OpenError> {
    let names = [
        libc::IPV6_RECVHOPOPTS,
        libc::IPV6_RECVRTHDR,
        libc::IPV6_RECVDSTOPTS,
    ];
    names.into_iter().try_for_each(|name| {
        socket
            .set(libc::IPPROTO_IPV6, name, 1)
            .map_err(OpenError::during("ask for extension headers"))
    })
}

/// Receives native packets.
pub struct RawSource {
    receiver: SocketReceiver,
    reader: Reader,
}

impl RawSource {
    /// Lets `waker` end this source's sleep.
    pub fn woken_by(mut self, waker: Waker) -> Self {
        self.receiver.waker = Some(waker);
        self
    }

    /// A handle to control it while it is in use.
    pub fn handle(&self) -> RawHandle {
        RawHandle(self.receiver.socket.clone())
    }

    /// How many packets had IP headers that could not be read.
    pub fn malformed(&self) -> Arc<AtomicU64> {
        self.reader.malformed.clone()
    }
}

/// A hand on a raw socket that is at work.
#[derive(Clone)]
pub struct RawHandle(Arc<Socket>);

impl RawHandle {
    /// From now on the socket ignores ESP to these addresses on these devices, which rings receive.
    pub fn exclude_ring_packets(
        &self,
        devices: &BTreeSet<u32>,
        addresses: &RingAddresses,
    ) -> io::Result<()> {
        let is_v4 = self.0.family == Family::V4;
        addresses.for_raw(devices, is_v4).attach(self.0.as_fd())
    }
}

impl ProtectedSource for RawSource {
    fn fill(&mut self, buffer: &mut ReceiveBuffer<Arrival>, wait: Wait) -> io::Result<usize> {
        let reader = &self.reader;
        self.receiver.fill(buffer, wait, |buffer, range, received| {
            reader.enter(buffer, range, &received)
        })
    }
}

impl PollableSource for RawSource {
    fn has_backlog(&self) -> bool {
        self.receiver.has_backlog()
    }
}

impl AsFd for RawSource {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.receiver.socket.as_fd()
    }
}

/// Makes arrivals from packets and their control messages.
pub(super) struct Reader {
    pub family: Family,
    pub protocol: NativeProtocol,
    pub malformed: Arc<AtomicU64>,
}

impl Reader {
    pub fn enter(
        &self,
        buffer: &mut ReceiveBuffer<Arrival>,
        range: Range<usize>,
        received: &Received<'_>,
    ) {
        let described = match self.family {
            Family::V4 => read_v4(&buffer.bytes[range.clone()], range),
            Family::V6 => self
                .describe_v6(received)
                .and_then(|outer| write_v6(outer, received.control, &mut buffer.bytes, range)),
        };
        match described {
            Some((outer, range)) if range.len() > usize::from(outer.emitted_len) => {
                let stride = range.len();
                buffer.items.push((range, Arrival { outer, stride }));
            }
            _ => {
                self.malformed.fetch_add(1, Ordering::Relaxed);
            }
        }
    }

    /// The outer header's fields, as the kernel reports them.
    fn describe_v6(&self, received: &Received<'_>) -> Option<Outer> {
        let (source, _) = received.peer.read()?;
        let mut outer = Outer {
            source,
            destination: IpAddr::V6(Ipv6Addr::UNSPECIFIED),
            protocol: self.protocol.number(),
            ports: None,
            traffic_class: 0,
            dont_fragment: true,
            hop_limit: 0,
            emitted_len: 0,
        };
        for note in received.control.parsed() {
            match note {
                ControlMessage::Destination(address) => outer.destination = address,
                ControlMessage::TrafficClass(class) => outer.traffic_class = class,
                ControlMessage::HopLimit(limit) => outer.hop_limit = limit,
                ControlMessage::Stride(_) | ControlMessage::MtuReport { .. } => {}
            }
        }
        Some(outer)
    }
}

/// The whole packet with its header, as it came.
fn read_v4(packet: &[u8], range: Range<usize>) -> Option<(Outer, Range<usize>)> {
    let (outer, inside) = Outer::payload(packet).ok()?;
    let written = inside.start as u16;
    Some((
        Outer {
            emitted_len: written,
            ..outer
        },
        range.start..range.start + inside.end,
    ))
}

/// Rebuilds the headers in front of the packet at `range`. RFC 8200 4.1: each names the next, so those that the kernel
/// delivers need only their order; headers that do not lead to the packet are incomplete.
fn write_v6(
    outer: Outer,
    control: &ControlBuffer,
    bytes: &mut [u8],
    range: Range<usize>,
) -> Option<(Outer, Range<usize>)> {
    let extensions_len: usize = control.extensions().map(|(_, header)| header.len()).sum();
    let headers_len = v6::HEADER_LEN + extensions_len;
    let start = range.start.checked_sub(headers_len)?;
    if headers_len > HEADROOM_BYTES {
        return None;
    }
    let first = control.extensions().next().map(|(kind, _)| kind);
    let fixed = Outer {
        protocol: first.unwrap_or(outer.protocol),
        ..outer
    };
    let packet = bytes.get_mut(start..range.end)?;
    fixed.emit(extensions_len + range.len(), 0, packet);
    let mut at = v6::HEADER_LEN;
    for (_, header) in control.extensions() {
        packet
            .get_mut(at..at + header.len())?
            .copy_from_slice(header);
        at += header.len();
    }
    let whole = first.is_none() || leads_to(packet, outer.protocol, headers_len);
    let written = headers_len as u16;
    whole.then_some((
        Outer {
            emitted_len: written,
            ..outer
        },
        start..range.end,
    ))
}

fn leads_to(packet: &[u8], protocol: u8, headers_len: usize) -> bool {
    Outline::read(packet)
        .is_ok_and(|outline| (outline.protocol, outline.header_len) == (protocol, headers_len))
}

/// Sends native packets.
pub struct RawSink {
    socket: Arc<Socket>,
    protocol: NativeProtocol,
    batch: SendBatch,
    /// The socket's present don't-fragment setting.
    df: Option<bool>,
}

impl RawSink {
    /// The family of addresses that it sends to.
    pub fn family(&self) -> Family {
        self.socket.family
    }

    /// The protocol that it sends.
    pub fn protocol(&self) -> NativeProtocol {
        self.protocol
    }

    /// Sends single packets from the same socket.
    pub fn out_of_band_sender(&self) -> impl OutOfBandSender + use<> {
        OutOfBand(Self {
            socket: self.socket.clone(),
            batch: SendBatch::new(),
            ..*self
        })
    }
}

impl SocketSink for RawSink {
    fn prepare(&mut self, burst: &Burst<'_>, bursts: &[Burst<'_>], sent: &mut Sent) {
        let on = burst.outer.dont_fragment;
        if self.df != Some(on) {
            self.flush(bursts, sent);
            sent.calls += 1;
            self.df = self.socket.set_dont_fragment(on).is_ok().then_some(on);
        }
    }

    fn add(&mut self, n: usize, bursts: &[Burst<'_>], sent: &mut Sent) {
        let describe = |control: &mut ControlBuffer, outer: &Outer| {
            control.put_header(
                outer.destination.is_ipv6(),
                outer.traffic_class,
                outer.hop_limit,
            );
        };
        add_packets(self, |sink| &mut sink.batch, describe, (n, bursts), sent);
    }

    fn flush(&mut self, bursts: &[Burst<'_>], sent: &mut Sent) {
        send_all(
            &self.socket,
            &mut self.batch,
            bursts,
            sent,
            |_, message| bytes_of(bursts, message),
            |_, _, _| false,
        );
    }
}

impl SelectiveSink for RawSink {
    fn accepts(&self, burst: &Burst<'_>) -> bool {
        Family::of(burst.outer.destination) == self.socket.family
            && burst.outer.protocol == self.protocol.number()
            && burst.outer.ports.is_none()
            && burst.outer.emitted_len == 0
            && burst.stride > 0
    }
}

impl ProtectedSink for RawSink {
    fn deliver(&mut self, bursts: &[Burst<'_>]) -> io::Result<Sent> {
        Ok(send_bursts(self, bursts))
    }
}
