//! ESP in UDP (RFC 3948): one socket per port and family, trains both ways.
//!
//! ```text
//!   Parcel: packet packet packet … ──► sendmmsg, UDP_SEGMENT ──►  one datagram each on the wire
//!   Arrival: the same run again    ◄── recvmmsg, UDP_GRO     ◄──  one datagram each on the wire
//! ```
//!
//! The socket is bound to the wildcard address and sends from the source that each parcel names, so gateways with many
//! addresses need no more sockets. The kernel's `UDP_ENCAP` is not used: it would hand the packets to a kernel ESP.
//!
//! RFC 3948 2.1 says that the UDP checksum over IPv4 should be zero. Such datagrams can neither be segmented by the
//! kernel nor coalesced by the receiver's (`udp_send_skb` and `udp_gro_receive_segment` refuse them), so we send a
//! checksum, which the same section obliges every receiver to take, unless [`UdpOptions::zero_checksum`] asks otherwise.

use super::ancillary::Note;
use super::messages::{Letter, Outbox, Received};
use super::receiving::Inlet;
use super::sending::send_all;
use super::socket::Socket;
use super::{
    Arrival, Family, Intake, Parcel, ProtectedSink, ProtectedSource, Refusal, Sent, SocketOptions,
    Wait, Waker,
};
use ipsec::tunnel::Outer;
use rustix::net::SocketType;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::ops::Range;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

#[cfg(test)]
mod tests;

/// How a UDP socket for ESP is to behave.
#[derive(Clone)]
pub struct UdpOptions {
    /// The local port: 4500 (RFC 3948).
    pub port: u16,
    /// Whether datagrams over IPv4 carry the checksum 0. It costs the trains of both ends.
    pub zero_checksum: bool,
    /// Whether trains are used at all.
    pub trains: bool,
    /// What every socket needs to know.
    pub socket: SocketOptions,
}

impl UdpOptions {
    /// Port 4500, checksums, trains.
    pub fn new(socket: SocketOptions) -> Self {
        Self {
            port: 4500,
            zero_checksum: false,
            trains: true,
            socket,
        }
    }
}

/// What a UDP socket is doing, for `status`; shared by its source and its sink.
#[derive(Debug, Default)]
pub struct UdpFacts {
    segments: AtomicBool,
    coalesces: AtomicBool,
    keepalives: AtomicU64,
    ike: AtomicU64,
}

impl UdpFacts {
    /// Whether the kernel segments our trains.
    pub fn segments(&self) -> bool {
        self.segments.load(Ordering::Relaxed)
    }

    /// Whether the kernel coalesces what arrives.
    pub fn coalesces(&self) -> bool {
        self.coalesces.load(Ordering::Relaxed)
    }

    /// Keepalives that came (RFC 3948 2.3).
    pub fn keepalives(&self) -> u64 {
        self.keepalives.load(Ordering::Relaxed)
    }

    /// IKE messages that came (RFC 3948 2.2).
    pub fn ike_messages(&self) -> u64 {
        self.ike.load(Ordering::Relaxed)
    }
}

/// Who gets the IKE messages that arrive on the ESP port, without their four zero bytes.
pub type IkeHandler = Box<dyn FnMut(&Outer, &[u8]) + Send>;

/// Opens the socket of one family; both families may use the same port.
pub fn open(family: Family, options: &UdpOptions) -> Result<(UdpSource, UdpSink), Refusal> {
    let socket = Socket::open(family, SocketType::DGRAM, None, &options.socket)?;
    bind(&socket, options.port)?;
    let facts = Arc::new(UdpFacts::default());
    set_up(&socket, options, &facts)?;
    let socket = Arc::new(socket);
    let port = bound_port(&socket)?;
    let reader = Reader {
        port,
        ike: None,
        facts: facts.clone(),
    };
    let sink = UdpSink {
        socket: socket.clone(),
        port,
        facts,
        outbox: Outbox::new(),
        spare: Outbox::new(),
        df: None,
    };
    Ok((
        UdpSource {
            inlet: Inlet::new(socket),
            reader,
        },
        sink,
    ))
}

fn bind(socket: &Socket, port: u16) -> Result<(), Refusal> {
    let any: IpAddr = match socket.family {
        Family::V4 => Ipv4Addr::UNSPECIFIED.into(),
        Family::V6 => Ipv6Addr::UNSPECIFIED.into(),
    };
    rustix::net::bind(socket, &SocketAddr::new(any, port)).map_err(|error| match error {
        rustix::io::Errno::ADDRINUSE => Refusal::PortTaken { port },
        other => Refusal::from(format!("bind UDP port {port}"), other.into()),
    })
}

fn bound_port(socket: &Socket) -> Result<u16, Refusal> {
    let address = rustix::net::getsockname(socket).map_err(Refusal::during("read the UDP port"))?;
    SocketAddr::try_from(address)
        .map(|address| address.port())
        .map_err(Refusal::during("read the UDP port"))
}

fn set_up(socket: &Socket, options: &UdpOptions, facts: &UdpFacts) -> Result<(), Refusal> {
    let zero = options.zero_checksum && socket.family == Family::V4;
    if zero {
        socket
            .set(libc::SOL_SOCKET, libc::SO_NO_CHECK, 1)
            .map_err(Refusal::during("send without UDP checksum"))?;
    }
    if socket.family == Family::V6 {
        // RFC 6935 5: a peer may send the checksum 0 over IPv6 as well. Old kernels without the option drop it.
        let _ = socket.set(libc::SOL_UDP, libc::UDP_NO_CHECK6_RX, 1);
    }
    // Setting the option to 0 changes nothing; that it is known tells that the kernel can segment.
    let segments =
        options.trains && !zero && socket.set(libc::SOL_UDP, libc::UDP_SEGMENT, 0).is_ok();
    let coalesces = options.trains && socket.set(libc::SOL_UDP, libc::UDP_GRO, 1).is_ok();
    facts.segments.store(segments, Ordering::Relaxed);
    facts.coalesces.store(coalesces, Ordering::Relaxed);
    if options.trains && !zero && !segments {
        (options.socket.warn)(
            "this kernel has no UDP segmentation: ESP in UDP goes packet by packet, slowly",
        );
    }
    if options.trains && !coalesces {
        (options.socket.warn)(
            "this kernel has no UDP GRO: ESP in UDP comes packet by packet, slowly",
        );
    }
    Ok(())
}

/// Receives ESP packets from UDP datagrams.
pub struct UdpSource {
    inlet: Inlet,
    reader: Reader,
}

impl UdpSource {
    /// Lets `waker` end this source's sleep.
    pub fn woken_by(mut self, waker: Waker) -> Self {
        self.inlet.waker = Some(waker);
        self
    }

    /// Gives the IKE messages among the datagrams to `handler`; without one they are only counted.
    pub fn with_ike(mut self, handler: IkeHandler) -> Self {
        self.reader.ike = Some(handler);
        self
    }

    /// What the socket is doing.
    pub fn facts(&self) -> Arc<UdpFacts> {
        self.reader.facts.clone()
    }

    /// The local port.
    pub fn port(&self) -> u16 {
        self.reader.port
    }
}

impl ProtectedSource for UdpSource {
    fn fill(&mut self, intake: &mut Intake<Arrival>, wait: Wait) -> io::Result<usize> {
        let reader = &mut self.reader;
        self.inlet.fill(intake, wait, |intake, range, received| {
            reader.enter(intake, range, &received)
        })
    }
}

impl AsFd for UdpSource {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.inlet.socket.as_fd()
    }
}

/// Tells ESP from keepalives and IKE.
struct Reader {
    port: u16,
    ike: Option<IkeHandler>,
    facts: Arc<UdpFacts>,
}

impl Reader {
    /// Enters the ESP packets of one receive: usually all of it as one item, several if something else is among them.
    fn enter(
        &mut self,
        intake: &mut Intake<Arrival>,
        range: Range<usize>,
        received: &Received<'_>,
    ) {
        let Some((outer, stride)) = self.describe(received, range.len()) else {
            return;
        };
        let mut run = range.start..range.start;
        while run.end < range.end {
            let packet = run.end..(run.end + stride).min(range.end);
            if self.set_aside(&outer, &intake.bytes[packet.clone()]) {
                push_run(intake, run, Arrival { outer, stride });
                run = packet.end..packet.end;
            } else {
                run.end = packet.end;
            }
        }
        push_run(intake, run, Arrival { outer, stride });
    }

    fn describe(&self, received: &Received<'_>, len: usize) -> Option<(Outer, usize)> {
        let (source, source_port) = received.peer.read()?;
        let unknown = if source.is_ipv4() {
            Ipv4Addr::UNSPECIFIED.into()
        } else {
            Ipv6Addr::UNSPECIFIED.into()
        };
        let mut outer = Outer {
            source,
            destination: unknown,
            protocol: 17,
            ports: Some((source_port, self.port)),
            traffic_class: 0,
            // The kernel does not say; nothing inbound depends on it.
            dont_fragment: false,
            hop_limit: 0,
        };
        let mut stride = len;
        for note in received.control.notes() {
            match note {
                Note::Destination(address) => outer.destination = address,
                Note::TrafficClass(class) => outer.traffic_class = class,
                Note::HopLimit(limit) => outer.hop_limit = limit,
                Note::Stride(bytes) if bytes > 0 => stride = bytes.min(len),
                Note::Stride(_) | Note::MtuReport(_) => {}
            }
        }
        Some((outer, stride))
    }

    /// Counts what is not ESP, and says so.
    fn set_aside(&mut self, outer: &Outer, packet: &[u8]) -> bool {
        match packet {
            // RFC 3948 2.3.
            [0xff] => self.facts.keepalives.fetch_add(1, Ordering::Relaxed),
            // RFC 3948 2.2.
            [0, 0, 0, 0, message @ ..] => {
                if let Some(handler) = &mut self.ike {
                    handler(outer, message);
                }
                self.facts.ike.fetch_add(1, Ordering::Relaxed)
            }
            _ => return false,
        };
        true
    }
}

fn push_run(intake: &mut Intake<Arrival>, run: Range<usize>, arrival: Arrival) {
    if !run.is_empty() {
        let stride = arrival.stride.min(run.len());
        intake.items.push((run, Arrival { stride, ..arrival }));
    }
}

/// Sends ESP packets in UDP datagrams.
pub struct UdpSink {
    socket: Arc<Socket>,
    port: u16,
    facts: Arc<UdpFacts>,
    outbox: Outbox,
    /// For the packets of a train that was refused as a whole.
    spare: Outbox,
    /// How the socket's don't-fragment setting stands.
    df: Option<bool>,
}

/// The most bytes of one train: an IPv4 packet of 65 535 bytes less its IP and UDP header.
const MOST_BYTES: usize = 65_507;

/// The most datagrams of one train that every kernel with UDP_SEGMENT takes.
const MOST_PACKETS: usize = 64;

impl UdpSink {
    /// What the socket is doing.
    pub fn facts(&self) -> Arc<UdpFacts> {
        self.facts.clone()
    }

    /// The family of addresses that it sends to.
    pub fn family(&self) -> Family {
        self.socket.family
    }

    /// The port that it sends from.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Whether this socket can send the parcel at all.
    fn fits(&self, parcel: &Parcel<'_>) -> bool {
        Family::of(parcel.outer.destination) == self.socket.family
            && parcel
                .outer
                .ports
                .is_some_and(|(source, _)| source == self.port)
            && parcel.stride > 0
    }

    fn add(&mut self, n: usize, parcels: &[Parcel<'_>], sent: &mut Sent) {
        let parcel = &parcels[n];
        let packets = if self.facts.segments() {
            packets_per_message(parcel.stride)
        } else {
            1
        };
        let mut start = 0;
        while start < parcel.bytes.len() {
            if self.outbox.is_full() {
                self.flush(parcels, sent);
            }
            let end = (start + packets * parcel.stride).min(parcel.bytes.len());
            put(&mut self.outbox, n, parcel, start..end);
            start = end;
        }
    }

    fn flush(&mut self, parcels: &[Parcel<'_>], sent: &mut Sent) {
        let Self {
            socket,
            facts,
            outbox,
            spare,
            ..
        } = self;
        let rescue = |letter: &Letter, error: i32, sent: &mut Sent| {
            if !letter.segmented || !matches!(error, libc::EMSGSIZE | libc::EINVAL | libc::EIO) {
                return false;
            }
            send_singly(socket, spare, parcels, letter, sent);
            judge_segmentation(socket, facts, &parcels[letter.parcel], error, letter, sent);
            true
        };
        send_all(
            socket,
            outbox,
            parcels,
            sent,
            |letter| pieces(parcels, letter),
            rescue,
        );
    }

    fn set_dont_fragment(&mut self, on: bool, parcels: &[Parcel<'_>], sent: &mut Sent) {
        if self.df != Some(on) {
            self.flush(parcels, sent);
            sent.calls += 1;
            self.df = self.socket.set_dont_fragment(on).is_ok().then_some(on);
        }
    }
}

impl ProtectedSink for UdpSink {
    fn deliver(&mut self, parcels: &[Parcel<'_>]) -> io::Result<Sent> {
        let mut sent = Sent::default();
        for (n, parcel) in parcels.iter().enumerate() {
            if self.fits(parcel) {
                self.set_dont_fragment(parcel.outer.dont_fragment, parcels, &mut sent);
                self.add(n, parcels, &mut sent);
            } else {
                sent.failed += parcel.bytes.len().div_ceil(parcel.stride.max(1)) as u64;
            }
        }
        self.flush(parcels, &mut sent);
        Ok(sent)
    }
}

fn packets_per_message(stride: usize) -> usize {
    (MOST_BYTES / stride).clamp(1, MOST_PACKETS)
}

fn pieces<'a>(parcels: &[Parcel<'a>], letter: &Letter) -> [&'a [u8]; 2] {
    [&parcels[letter.parcel].bytes[letter.range.clone()], &[]]
}

/// Puts these bytes of parcel `n` into the outbox, as one message.
fn put(outbox: &mut Outbox, n: usize, parcel: &Parcel<'_>, range: Range<usize>) {
    let packets = range.len().div_ceil(parcel.stride) as u64;
    let outer = &parcel.outer;
    let port = outer.ports.map_or(0, |(_, destination)| destination);
    let segmented = packets > 1;
    let control = outbox.add(
        (n, range, packets, segmented),
        SocketAddr::new(outer.destination, port),
    );
    control.put_source(outer.source);
    control.put_header(
        outer.destination.is_ipv6(),
        outer.traffic_class,
        outer.hop_limit,
    );
    if segmented {
        control.put_segment(parcel.stride as u16);
    }
}

/// Sends the packets of a train one by one. Each that is too big or has no route is refused for itself.
fn send_singly(
    socket: &Socket,
    spare: &mut Outbox,
    parcels: &[Parcel<'_>],
    letter: &Letter,
    sent: &mut Sent,
) {
    let parcel = &parcels[letter.parcel];
    for start in letter.range.clone().step_by(parcel.stride) {
        put(
            spare,
            letter.parcel,
            parcel,
            start..(start + parcel.stride).min(letter.range.end),
        );
    }
    send_all(
        socket,
        spare,
        parcels,
        sent,
        |letter| pieces(parcels, letter),
        |_, _, _| false,
    );
}

/// After a train was refused and its packets were tried one by one: if those went although the train did not, the
/// fault is segmentation's (a device without checksums, an old driver), and it is switched off. Packets that are larger
/// than the path but may be fragmented are no such case: the kernel cannot do both.
fn judge_segmentation(
    socket: &Socket,
    facts: &UdpFacts,
    parcel: &Parcel<'_>,
    error: i32,
    letter: &Letter,
    sent: &Sent,
) {
    let headers = if socket.family == Family::V4 { 28 } else { 48 };
    let fits = || {
        let mtu = socket.learn_mtu(parcel.outer.source, parcel.outer.destination);
        mtu.is_none_or(|mtu| parcel.stride + headers <= mtu as usize)
    };
    let went = sent.packets >= letter.packets && sent.too_big == 0 && sent.failed == 0;
    if error != libc::EMSGSIZE && went && fits() && facts.segments.swap(false, Ordering::Relaxed) {
        (socket.options.warn)(&format!(
            "UDP segmentation does not work here ({}): ESP in UDP goes packet by packet from now on, slowly",
            io::Error::from_raw_os_error(error)
        ));
    }
}
