//! Native ESP and AH: raw sockets of protocol 50 and 51, everywhere where nobody owns the protocol in the kernel.
//!
//! ```text
//!   Parcel:  packet packet packet … ──► sendmmsg, one message each     the kernel writes the IP header, or `whole` sends ours
//!   Arrival: headers and packet     ◄── recvmmsg                       fragments come reassembled
//! ```
//!
//! For ESP the kernel writes the IP header: it then also fragments where that is allowed, chooses identifications that do
//! not repeat, and tells a path's MTU. `IP_HDRINCL` gives up all three; AH and rare headers need it nevertheless.
//!
//! An arrival brings its headers. Over IPv4 the kernel hands them over; over IPv6 it tells of them by control messages,
//! and they are put together again in front of the packet. The flow label is lost, which no ICV covers (RFC 4302 3.3.3.1.2).
//!
//! A packet that arrives while such a socket is open is not answered with "protocol unreachable" by the kernel.

mod whole;

pub use whole::{WholeSink, open_whole};

use super::ancillary::{Control, Note};
use super::messages::{Letter, Outbox, Received};
use super::packet::Claim;
use super::receiving::Inlet;
use super::sending::{Posting, Single, post, send_all};
use super::several::{Addressed, Waitable};
use super::socket::Socket;
use super::{
    Arrival, Aside, Family, Intake, Parcel, ProtectedSink, ProtectedSource, Refusal, Sent,
    SocketOptions, Wait, Waker,
};
use ipsec::packet::Outline;
use ipsec::tunnel::Outer;
use ipsec::wire::ip::v6;
use rustix::net::{Protocol, SocketType};
use std::collections::BTreeSet;
use std::io;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::num::NonZeroU32;
use std::ops::Range;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

#[cfg(test)]
mod tests;

/// Which of the two protocols.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub enum Native {
    /// Protocol 50.
    Esp,
    /// Protocol 51.
    Ah,
}

impl Native {
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
    protocol: Native,
    options: &SocketOptions,
) -> Result<(RawSource, RawSink), Refusal> {
    let number = NonZeroU32::new(protocol.number().into()).map(Protocol::from_raw);
    let socket = Socket::open(family, SocketType::RAW, number, options)?;
    let headroom = match family {
        Family::V4 => 0,
        Family::V6 => {
            ask_for_extension_headers(&socket)?;
            HEADROOM
        }
    };
    let socket = Arc::new(socket);
    let source = RawSource {
        inlet: Inlet::with_headroom(socket.clone(), headroom),
        reader: Reader {
            family,
            protocol,
            malformed: Arc::default(),
        },
    };
    let sink = RawSink {
        socket,
        protocol,
        outbox: Outbox::new(),
        df: None,
    };
    Ok((source, sink))
}

/// Room in front of each packet for IPv6's header and the extension headers of a packet that anybody would send.
pub(super) const HEADROOM: usize = 512;

fn ask_for_extension_headers(socket: &Socket) -> Result<(), Refusal> {
    let names = [
        libc::IPV6_RECVHOPOPTS,
        libc::IPV6_RECVRTHDR,
        libc::IPV6_RECVDSTOPTS,
    ];
    names.into_iter().try_for_each(|name| {
        socket
            .set(libc::IPPROTO_IPV6, name, 1)
            .map_err(Refusal::during("ask for extension headers"))
    })
}

/// Receives native packets.
pub struct RawSource {
    inlet: Inlet,
    reader: Reader,
}

impl RawSource {
    /// Lets `waker` end this source's sleep.
    pub fn woken_by(mut self, waker: Waker) -> Self {
        self.inlet.waker = Some(waker);
        self
    }

    /// For those who look after it while it is at work.
    pub fn handle(&self) -> RawHandle {
        RawHandle(self.inlet.socket.clone())
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
    /// From now on the socket leaves what the claim covers to rings on these devices.
    pub fn leave_to_rings(&self, devices: &BTreeSet<u32>, claim: &Claim) -> io::Result<()> {
        let is_v4 = self.0.family == Family::V4;
        claim.for_raw(devices, is_v4).attach(self.0.as_fd())
    }
}

impl ProtectedSource for RawSource {
    fn fill(&mut self, intake: &mut Intake<Arrival>, wait: Wait) -> io::Result<usize> {
        let reader = &self.reader;
        self.inlet.fill(intake, wait, |intake, range, received| {
            reader.enter(intake, range, &received)
        })
    }
}

impl Waitable for RawSource {
    fn has_backlog(&self) -> bool {
        self.inlet.has_backlog()
    }
}

impl AsFd for RawSource {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.inlet.socket.as_fd()
    }
}

/// Makes arrivals of packets and what the kernel says about them.
pub(super) struct Reader {
    pub family: Family,
    pub protocol: Native,
    pub malformed: Arc<AtomicU64>,
}

impl Reader {
    pub fn enter(
        &self,
        intake: &mut Intake<Arrival>,
        range: Range<usize>,
        received: &Received<'_>,
    ) {
        let described = match self.family {
            Family::V4 => read_v4(&intake.bytes[range.clone()], range),
            Family::V6 => self
                .describe_v6(received)
                .and_then(|outer| write_v6(outer, received.control, &mut intake.bytes, range)),
        };
        match described {
            Some((outer, range)) if range.len() > usize::from(outer.written) => {
                let stride = range.len();
                intake.items.push((range, Arrival { outer, stride }));
            }
            _ => {
                self.malformed.fetch_add(1, Ordering::Relaxed);
            }
        }
    }

    /// Without the header, but with what the kernel says about it.
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
            written: 0,
        };
        for note in received.control.notes() {
            match note {
                Note::Destination(address) => outer.destination = address,
                Note::TrafficClass(class) => outer.traffic_class = class,
                Note::HopLimit(limit) => outer.hop_limit = limit,
                Note::Stride(_) | Note::MtuReport { .. } => {}
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
        Outer { written, ..outer },
        range.start..range.start + inside.end,
    ))
}

/// Puts the headers together in front of the packet at `range`. RFC 8200 4.1: each names the next, so those that the
/// kernel hands over need nothing but their order; what does not lead to the packet was not all.
fn write_v6(
    outer: Outer,
    control: &Control,
    bytes: &mut [u8],
    range: Range<usize>,
) -> Option<(Outer, Range<usize>)> {
    let extensions_len: usize = control.extensions().map(|(_, header)| header.len()).sum();
    let headers_len = v6::HEADER_LEN + extensions_len;
    let start = range.start.checked_sub(headers_len)?;
    if headers_len > HEADROOM {
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
    whole.then_some((Outer { written, ..outer }, start..range.end))
}

fn leads_to(packet: &[u8], protocol: u8, headers_len: usize) -> bool {
    Outline::read(packet)
        .is_ok_and(|outline| (outline.protocol, outline.header_len) == (protocol, headers_len))
}

/// Sends native packets.
pub struct RawSink {
    socket: Arc<Socket>,
    protocol: Native,
    outbox: Outbox,
    /// How the socket's don't-fragment setting stands.
    df: Option<bool>,
}

impl RawSink {
    /// The family of addresses that it sends to.
    pub fn family(&self) -> Family {
        self.socket.family
    }

    /// The protocol that it sends.
    pub fn protocol(&self) -> Native {
        self.protocol
    }

    /// Sends single packets from the same socket.
    pub fn aside(&self) -> impl Aside + use<> {
        Single(Self {
            socket: self.socket.clone(),
            outbox: Outbox::new(),
            ..*self
        })
    }
}

impl Posting for RawSink {
    fn prepare(&mut self, parcel: &Parcel<'_>, parcels: &[Parcel<'_>], sent: &mut Sent) {
        let on = parcel.outer.dont_fragment;
        if self.df != Some(on) {
            self.flush(parcels, sent);
            sent.calls += 1;
            self.df = self.socket.set_dont_fragment(on).is_ok().then_some(on);
        }
    }

    fn add(&mut self, n: usize, parcels: &[Parcel<'_>], sent: &mut Sent) {
        let parcel = &parcels[n];
        for range in parcel.ranges() {
            if self.outbox.is_full() {
                self.flush(parcels, sent);
            }
            // A raw socket's address has no port.
            let address = SocketAddr::new(parcel.outer.destination, 0);
            let control = self.outbox.add((n, range, 1, false), address);
            control.put_source(parcel.outer.source);
            let outer = &parcel.outer;
            control.put_header(
                outer.destination.is_ipv6(),
                outer.traffic_class,
                outer.hop_limit,
            );
        }
    }

    fn flush(&mut self, parcels: &[Parcel<'_>], sent: &mut Sent) {
        let pieces =
            |_: usize, letter: &Letter| [&parcels[letter.parcel].bytes[letter.range.clone()], &[]];
        send_all(
            &self.socket,
            &mut self.outbox,
            parcels,
            sent,
            pieces,
            |_, _, _| false,
        );
    }
}

impl Addressed for RawSink {
    fn fits(&self, parcel: &Parcel<'_>) -> bool {
        Family::of(parcel.outer.destination) == self.socket.family
            && parcel.outer.protocol == self.protocol.number()
            && parcel.outer.ports.is_none()
            && parcel.outer.written == 0
            && parcel.stride > 0
    }
}

impl ProtectedSink for RawSink {
    fn deliver(&mut self, parcels: &[Parcel<'_>]) -> io::Result<Sent> {
        Ok(post(self, parcels))
    }
}
