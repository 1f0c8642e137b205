//! Receives ESP packets from datagrams; IKE messages and keepalives are separated.

use super::stats::UdpStats;
use crate::io::ancillary::ControlMessage;
use crate::io::messages::Received;
use crate::io::receiving::SocketReceiver;
use crate::io::socket::Socket;
use crate::io::socket_sets::PollableSource;
use crate::io::{Arrival, ProtectedSource, ReceiveBuffer, Wait, Waker};
use ipsec::tunnel::Outer;
use std::io;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::ops::Range;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Receives the IKE messages that arrive on the ESP port, without their four zero bytes.
pub type IkeHandler = Box<dyn FnMut(&Outer, &[u8]) + Send>;

/// Receives ESP packets from UDP datagrams.
pub struct UdpSource {
    receiver: SocketReceiver,
    reader: Reader,
}

impl UdpSource {
    pub(super) fn new(socket: Arc<Socket>, port: u16, stats: Arc<UdpStats>) -> Self {
        let reader = Reader {
            port,
            ike: None,
            stats,
        };
        Self {
            receiver: SocketReceiver::new(socket),
            reader,
        }
    }

    /// Lets `waker` end this source's sleep.
    pub fn woken_by(mut self, waker: Waker) -> Self {
        self.receiver.waker = Some(waker);
        self
    }

    /// Gives the IKE messages among the datagrams to `handler`; without one they are only counted.
    pub fn with_ike(mut self, handler: IkeHandler) -> Self {
        self.reader.ike = Some(handler);
        self
    }

    /// State and counters of the socket.
    pub fn stats(&self) -> Arc<UdpStats> {
        self.reader.stats.clone()
    }

    /// The local port.
    pub fn port(&self) -> u16 {
        self.reader.port
    }
}

impl ProtectedSource for UdpSource {
    fn fill(&mut self, buffer: &mut ReceiveBuffer<Arrival>, wait: Wait) -> io::Result<usize> {
        let reader = &mut self.reader;
        self.receiver.fill(buffer, wait, |buffer, range, received| {
            reader.enter(buffer, range, &received)
        })
    }
}

impl PollableSource for UdpSource {
    fn has_backlog(&self) -> bool {
        self.receiver.has_backlog()
    }
}

impl AsFd for UdpSource {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.receiver.socket.as_fd()
    }
}

/// Separates ESP from keepalives and IKE messages.
struct Reader {
    port: u16,
    ike: Option<IkeHandler>,
    stats: Arc<UdpStats>,
}

impl Reader {
    /// Enters the ESP packets of one receive: usually all of it as one item, several if there is something else among
    /// them.
    fn enter(
        &mut self,
        buffer: &mut ReceiveBuffer<Arrival>,
        range: Range<usize>,
        received: &Received<'_>,
    ) {
        let Some((outer, stride)) = self.describe(received, range.len()) else {
            return;
        };
        let mut run = range.start..range.start;
        while run.end < range.end {
            let packet = run.end..(run.end + stride).min(range.end);
            if self.take_other(&outer, &buffer.bytes[packet.clone()]) {
                push_run(buffer, run, Arrival { outer, stride });
                run = packet.end..packet.end;
            } else {
                run.end = packet.end;
            }
        }
        push_run(buffer, run, Arrival { outer, stride });
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
            // The kernel does not report it; nothing inbound depends on it.
            dont_fragment: false,
            hop_limit: 0,
            emitted_len: 0,
        };
        let mut stride = len;
        for note in received.control.parsed() {
            match note {
                ControlMessage::Destination(address) => outer.destination = address,
                ControlMessage::TrafficClass(class) => outer.traffic_class = class,
                ControlMessage::HopLimit(limit) => outer.hop_limit = limit,
                ControlMessage::Stride(bytes) if bytes > 0 => stride = bytes.min(len),
                ControlMessage::Stride(_) | ControlMessage::MtuReport { .. } => {}
            }
        }
        Some((outer, stride))
    }

    /// Handles a datagram that is not ESP; returns whether it was one.
    fn take_other(&mut self, outer: &Outer, packet: &[u8]) -> bool {
        match packet {
            // RFC 3948 2.3.
            [0xff] => self.stats.keepalives.fetch_add(1, Ordering::Relaxed),
            // RFC 3948 2.2.
            [0, 0, 0, 0, message @ ..] => {
                if let Some(handler) = &mut self.ike {
                    handler(outer, message);
                }
                self.stats.ike.fetch_add(1, Ordering::Relaxed)
            }
            _ => return false,
        };
        true
    }
}

fn push_run(buffer: &mut ReceiveBuffer<Arrival>, run: Range<usize>, arrival: Arrival) {
    if !run.is_empty() {
        let stride = arrival.stride.min(run.len());
        buffer.items.push((run, Arrival { stride, ..arrival }));
    }
}
