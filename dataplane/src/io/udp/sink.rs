//! Sends bursts as datagrams, segmented by the kernel.

use super::stats::UdpStats;
use crate::io::messages::{Message, SendBatch};
use crate::io::sending::{OutOfBand, SocketSink, bytes_of, send_all, send_bursts};
use crate::io::socket::Socket;
use crate::io::socket_sets::SelectiveSink;
use crate::io::{Burst, Family, OutOfBandSender, ProtectedSink, Sent};
use std::io;
use std::net::SocketAddr;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Sends ESP packets in UDP datagrams.
pub struct UdpSink {
    socket: Arc<Socket>,
    port: u16,
    stats: Arc<UdpStats>,
    batch: SendBatch,
    /// For the packets of a message that was refused as a whole.
    single_packets: SendBatch,
    /// The socket's present don't-fragment setting.
    df: Option<bool>,
}

/// The most bytes of one message: an IPv4 packet of 65 535 bytes less its IP and UDP header.
const MAX_DATAGRAM_BYTES: usize = 65_507;

/// The most datagrams of one message that every kernel with UDP_SEGMENT takes.
const MAX_GSO_SEGMENTS: usize = 64;

impl UdpSink {
    pub(super) fn new(socket: Arc<Socket>, port: u16, stats: Arc<UdpStats>) -> Self {
        Self {
            socket,
            port,
            stats,
            batch: SendBatch::new(),
            single_packets: SendBatch::new(),
            df: None,
        }
    }

    /// State and counters of the socket.
    pub fn stats(&self) -> Arc<UdpStats> {
        self.stats.clone()
    }

    /// Sends single datagrams from the same port.
    pub fn out_of_band_sender(&self) -> impl OutOfBandSender + use<> {
        let (socket, stats) = (self.socket.clone(), self.stats.clone());
        OutOfBand(Self::new(socket, self.port, stats))
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

impl SocketSink for UdpSink {
    fn prepare(&mut self, burst: &Burst<'_>, bursts: &[Burst<'_>], sent: &mut Sent) {
        let on = burst.outer.dont_fragment;
        if self.df != Some(on) {
            self.flush(bursts, sent);
            sent.calls += 1;
            self.df = self.socket.set_dont_fragment(on).is_ok().then_some(on);
        }
    }

    fn add(&mut self, n: usize, bursts: &[Burst<'_>], sent: &mut Sent) {
        let burst = &bursts[n];
        let packets = if self.stats.segments() {
            packets_per_message(burst.stride)
        } else {
            1
        };
        let mut start = 0;
        while start < burst.bytes.len() {
            if self.batch.is_full() {
                self.flush(bursts, sent);
            }
            let end = (start + packets * burst.stride).min(burst.bytes.len());
            put(&mut self.batch, n, burst, start..end);
            start = end;
        }
    }

    fn flush(&mut self, bursts: &[Burst<'_>], sent: &mut Sent) {
        let Self {
            socket,
            stats,
            batch,
            single_packets,
            ..
        } = self;
        let rescue = |message: &Message, error: i32, sent: &mut Sent| {
            if !message.segmented || !matches!(error, libc::EMSGSIZE | libc::EINVAL | libc::EIO) {
                return false;
            }
            send_singly(socket, single_packets, bursts, message, sent);
            check_segmentation(socket, stats, &bursts[message.burst], error, message, sent);
            true
        };
        send_all(
            socket,
            batch,
            bursts,
            sent,
            |_, message| bytes_of(bursts, message),
            rescue,
        );
    }
}

impl SelectiveSink for UdpSink {
    fn accepts(&self, burst: &Burst<'_>) -> bool {
        Family::of(burst.outer.destination) == self.socket.family
            && burst
                .outer
                .ports
                .is_some_and(|(source, _)| source == self.port)
            && burst.stride > 0
    }
}

impl ProtectedSink for UdpSink {
    fn deliver(&mut self, bursts: &[Burst<'_>]) -> io::Result<Sent> {
        Ok(send_bursts(self, bursts))
    }
}

fn packets_per_message(stride: usize) -> usize {
    (MAX_DATAGRAM_BYTES / stride).clamp(1, MAX_GSO_SEGMENTS)
}

/// Puts these bytes of burst `n` into the batch, as one message.
fn put(batch: &mut SendBatch, n: usize, burst: &Burst<'_>, range: Range<usize>) {
    let packets = range.len().div_ceil(burst.stride) as u64;
    let outer = &burst.outer;
    let port = outer.ports.map_or(0, |(_, destination)| destination);
    let segmented = packets > 1;
    let control = batch.add(
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
        control.put_segment(burst.stride as u16);
    }
}

/// Sends the packets of a message one by one. Each that is too big or has no route is refused on its own.
fn send_singly(
    socket: &Socket,
    single_packets: &mut SendBatch,
    bursts: &[Burst<'_>],
    message: &Message,
    sent: &mut Sent,
) {
    let burst = &bursts[message.burst];
    for start in message.range.clone().step_by(burst.stride) {
        put(
            single_packets,
            message.burst,
            burst,
            start..(start + burst.stride).min(message.range.end),
        );
    }
    send_all(
        socket,
        single_packets,
        bursts,
        sent,
        |_, message| bytes_of(bursts, message),
        |_, _, _| false,
    );
}

/// After a segmented message was refused and its packets were sent one by one: if those were sent although the message
/// was not, segmentation does not work (a device without checksum offload, an old driver), and it is switched off.
/// Packets that are larger than the path's MTU but may be fragmented do not count: the kernel cannot do both.
fn check_segmentation(
    socket: &Socket,
    stats: &UdpStats,
    burst: &Burst<'_>,
    error: i32,
    message: &Message,
    sent: &Sent,
) {
    let headers = if socket.family == Family::V4 { 28 } else { 48 };
    let fits = || {
        let mtu = socket.learn_mtu(burst.outer.source, burst.outer.destination);
        mtu.is_none_or(|mtu| burst.stride + headers <= mtu as usize)
    };
    let went = sent.packets >= message.packets && sent.too_big == 0 && sent.failed == 0;
    if error != libc::EMSGSIZE && went && fits() && stats.segments.swap(false, Ordering::Relaxed) {
        (socket.options.warn)(&format!(
            "UDP segmentation does not work here ({}): from now on ESP in UDP is sent packet by packet (slower)",
            io::Error::from_raw_os_error(error)
        ));
    }
}
