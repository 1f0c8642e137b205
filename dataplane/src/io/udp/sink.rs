//! The sending end: parcels as datagrams, the kernel cutting the trains.

use super::super::messages::{Letter, Outbox};
use super::super::sending::{Posting, Single, post, send_all};
use super::super::several::Addressed;
use super::super::socket::Socket;
use super::super::{Aside, Family, Parcel, ProtectedSink, Sent};
use super::UdpFacts;
use std::io;
use std::net::SocketAddr;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering;

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
    pub(super) fn new(socket: Arc<Socket>, port: u16, facts: Arc<UdpFacts>) -> Self {
        Self {
            socket,
            port,
            facts,
            outbox: Outbox::new(),
            spare: Outbox::new(),
            df: None,
        }
    }

    /// What the socket is doing.
    pub fn facts(&self) -> Arc<UdpFacts> {
        self.facts.clone()
    }

    /// Sends single datagrams from the same port.
    pub fn aside(&self) -> impl Aside + use<> {
        let (socket, facts) = (self.socket.clone(), self.facts.clone());
        Single(Self::new(socket, self.port, facts))
    }

    /// The family of addresses that it sends to.
    pub fn family(&self) -> Family {
        self.socket.family
    }

    /// The port that it sends from.
    pub fn port(&self) -> u16 {
        self.port
    }
}

impl Posting for UdpSink {
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
            |_, letter| pieces(parcels, letter),
            rescue,
        );
    }
}

impl Addressed for UdpSink {
    fn fits(&self, parcel: &Parcel<'_>) -> bool {
        Family::of(parcel.outer.destination) == self.socket.family
            && parcel
                .outer
                .ports
                .is_some_and(|(source, _)| source == self.port)
            && parcel.stride > 0
    }
}

impl ProtectedSink for UdpSink {
    fn deliver(&mut self, parcels: &[Parcel<'_>]) -> io::Result<Sent> {
        Ok(post(self, parcels))
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
        |_, letter| pieces(parcels, letter),
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
