//! Native ESP and AH: raw sockets of protocol 50 and 51, everywhere where nobody owns the protocol in the kernel.
//!
//! ```text
//!   Parcel:  packet packet packet … ──► sendmmsg, one message each     the kernel writes the IP header (AH over IPv4: we do)
//!   Arrival: one packet             ◄── recvmmsg                       fragments come reassembled
//! ```
//!
//! For ESP the kernel writes the IP header: it then also fragments where that is allowed, chooses identifications that do
//! not repeat, and tells a path's MTU. `IP_HDRINCL` gives up all three. AH over IPv4 needs it nevertheless, because its ICV
//! covers the identification (RFC 4302 3.3.3.1.1.1), which thus has to be known before: see [`ah_identification`].
//!
//! A packet that arrives while such a socket is open is not answered with "protocol unreachable" by the kernel.

use super::ancillary::Note;
use super::messages::{Letter, Outbox, Received};
use super::packet::Claim;
use super::receiving::Inlet;
use super::sending::send_all;
use super::several::{Addressed, Waitable};
use super::socket::Socket;
use super::{
    Arrival, Family, Intake, Parcel, ProtectedSink, ProtectedSource, Refusal, Sent, SocketOptions,
    Wait, Waker,
};
use ipsec::tunnel::Outer;
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
    let own_header = family == Family::V4 && protocol == Native::Ah;
    if own_header {
        socket
            .set(libc::IPPROTO_IP, libc::IP_HDRINCL, 1)
            .map_err(Refusal::during("write IP headers for AH"))?;
    }
    let socket = Arc::new(socket);
    let source = RawSource {
        inlet: Inlet::new(socket.clone()),
        reader: Reader {
            family,
            protocol,
            malformed: Arc::default(),
        },
    };
    let sink = RawSink {
        socket,
        protocol,
        own_header,
        outbox: Outbox::new(),
        headers: Vec::new(),
        df: None,
    };
    Ok((source, sink))
}

/// The identification of an IPv4 packet with AH of this sequence number: never 0, which the kernel would replace, and
/// the same for who computes the ICV and who sends.
pub fn ah_identification(sequence: u32) -> u16 {
    (sequence % 0xffff) as u16 + 1
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

struct Reader {
    family: Family,
    protocol: Native,
    malformed: Arc<AtomicU64>,
}

impl Reader {
    fn enter(&self, intake: &mut Intake<Arrival>, range: Range<usize>, received: &Received<'_>) {
        let described = match self.family {
            // The whole packet with its header.
            Family::V4 => {
                Outer::payload(&intake.bytes[range.clone()])
                    .ok()
                    .map(|(outer, inside)| {
                        (outer, range.start + inside.start..range.start + inside.end)
                    })
            }
            Family::V6 => self.describe_v6(received).map(|outer| (outer, range)),
        };
        match described {
            Some((outer, range)) if !range.is_empty() => {
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

/// Bytes of an IPv4 header without options.
const HEADER: usize = 20;

/// Sends native packets.
pub struct RawSink {
    socket: Arc<Socket>,
    protocol: Native,
    /// Whether we write the IP header.
    own_header: bool,
    outbox: Outbox,
    /// Headers that we wrote, one for each message in the outbox.
    headers: Vec<[u8; HEADER]>,
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

    fn add(&mut self, n: usize, parcels: &[Parcel<'_>], sent: &mut Sent) {
        let parcel = &parcels[n];
        for start in (0..parcel.bytes.len()).step_by(parcel.stride) {
            if self.outbox.is_full() {
                self.flush(parcels, sent);
            }
            let range = start..(start + parcel.stride).min(parcel.bytes.len());
            if self.own_header {
                self.headers
                    .push(header_for(&parcel.outer, &parcel.bytes[range.clone()]));
            }
            // A raw socket's address has no port.
            let address = SocketAddr::new(parcel.outer.destination, 0);
            let control = self.outbox.add((n, range, 1, false), address);
            control.put_source(parcel.outer.source);
            if !self.own_header {
                let outer = &parcel.outer;
                control.put_header(
                    outer.destination.is_ipv6(),
                    outer.traffic_class,
                    outer.hop_limit,
                );
            }
        }
    }

    fn flush(&mut self, parcels: &[Parcel<'_>], sent: &mut Sent) {
        let headers = &self.headers;
        let pieces = |place: usize, letter: &Letter| {
            let header: &[u8] = headers.get(place).map_or(&[], |header| header);
            [header, &parcels[letter.parcel].bytes[letter.range.clone()]]
        };
        send_all(
            &self.socket,
            &mut self.outbox,
            parcels,
            sent,
            pieces,
            |_, _, _| false,
        );
        self.headers.clear();
    }

    fn set_dont_fragment(&mut self, on: bool, parcels: &[Parcel<'_>], sent: &mut Sent) {
        if self.df != Some(on) {
            self.flush(parcels, sent);
            sent.calls += 1;
            self.df = self.socket.set_dont_fragment(on).is_ok().then_some(on);
        }
    }
}

impl Addressed for RawSink {
    fn fits(&self, parcel: &Parcel<'_>) -> bool {
        Family::of(parcel.outer.destination) == self.socket.family
            && parcel.outer.protocol == self.protocol.number()
            && parcel.outer.ports.is_none()
            && parcel.stride > 0
    }
}

impl ProtectedSink for RawSink {
    fn deliver(&mut self, parcels: &[Parcel<'_>]) -> io::Result<Sent> {
        let mut sent = Sent::default();
        for (n, parcel) in parcels.iter().enumerate() {
            if self.fits(parcel) {
                self.set_dont_fragment(parcel.outer.dont_fragment, parcels, &mut sent);
                self.add(n, parcels, &mut sent);
            } else {
                sent.failed += parcel.packets();
            }
        }
        self.flush(parcels, &mut sent);
        Ok(sent)
    }
}

/// The IPv4 header of one AH packet. RFC 4302 2.5: the sequence number is its third word.
fn header_for(outer: &Outer, packet: &[u8]) -> [u8; HEADER] {
    let sequence = packet.get(8..).and_then(|rest| rest.first_chunk());
    let identification = ah_identification(sequence.map_or(0, |bytes| u32::from_be_bytes(*bytes)));
    let mut header = [0; HEADER];
    outer.emit(packet.len(), identification, &mut header);
    header
}
