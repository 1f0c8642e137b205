//! Packets that include their IP headers: AH, whose ICV covers them, and ESP behind options or extension headers.
//!
//! They are sent through a socket of protocol 255, which takes the header as it is (`IP_HDRINCL`, `IPV6_HDRINCL`) and
//! never fragments: packets that are too big and may be fragmented are fragmented here, after protection (RFC 4302
//! 3.3.4, RFC 4303 3.3.4).

use crate::io::messages::{Message, SendBatch};
use crate::io::sending::{SocketSink, add_packets, bytes_of, send_all, send_bursts};
use crate::io::socket::Socket;
use crate::io::socket_sets::SelectiveSink;
use crate::io::{Burst, Family, OpenError, ProtectedSink, Sent, SocketOptions};
use ipsec::fragment::Cutter;
use rustix::net::{Protocol, SendFlags, SocketType};
use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher, Hasher};
use std::io;
use std::net::SocketAddr;
use std::num::NonZeroU32;

/// IPPROTO_RAW: the protocol of sockets that only send, headers included.
const RAW: u32 = 255;

/// Sends packets that include their IP headers.
pub struct HdrinclSink {
    socket: Socket,
    batch: SendBatch,
    /// For fragments of IPv6. RFC 7739: it starts at an unpredictable value.
    identification: u32,
    fragments: Vec<u8>,
}

/// Opens the socket of one family.
pub fn open_hdrincl(family: Family, options: &SocketOptions) -> Result<HdrinclSink, OpenError> {
    let protocol = NonZeroU32::new(RAW).map(Protocol::from_raw);
    let socket = Socket::open(family, SocketType::RAW, protocol, options)?;
    let start = RandomState::new().build_hasher().finish();
    Ok(HdrinclSink {
        socket,
        batch: SendBatch::new(),
        identification: start as u32,
        fragments: Vec::new(),
    })
}

impl SocketSink for HdrinclSink {
    fn add(&mut self, n: usize, bursts: &[Burst<'_>], sent: &mut Sent) {
        add_packets(self, |sink| &mut sink.batch, |_, _| {}, (n, bursts), sent);
    }

    fn flush(&mut self, bursts: &[Burst<'_>], sent: &mut Sent) {
        let Self {
            socket,
            batch,
            identification,
            fragments,
        } = self;
        let pieces = |_: usize, message: &Message| bytes_of(bursts, message);
        let rescue = |message: &Message, error: i32, sent: &mut Sent| {
            let burst = &bursts[message.burst];
            if error != libc::EMSGSIZE || burst.outer.dont_fragment {
                return false;
            }
            *identification = identification.wrapping_add(1);
            socket.drain_errors();
            let packet = &burst.bytes[message.range.clone()];
            let whole = cut(socket, burst, packet, *identification, fragments, sent);
            sent.packets += u64::from(whole);
            whole
        };
        send_all(socket, batch, bursts, sent, pieces, rescue);
    }
}

/// Sends `packet` in fragments; returns whether all of them were sent.
fn cut(
    socket: &Socket,
    burst: &Burst<'_>,
    packet: &[u8],
    identification: u32,
    fragments: &mut Vec<u8>,
    sent: &mut Sent,
) -> bool {
    let (source, destination) = (burst.outer.source, burst.outer.destination);
    let Some(mtu) = socket.learn_mtu(source, destination) else {
        return false;
    };
    let Ok(mut cutter) = Cutter::new(packet, mtu as usize, identification) else {
        return false;
    };
    let address = SocketAddr::new(destination, 0);
    let mut all = true;
    fragments.clear();
    while let Some(len) = cutter.next_into(fragments) {
        sent.calls += 1;
        let fragment = &fragments[fragments.len() - len..];
        all &= rustix::net::sendto(socket, fragment, SendFlags::empty(), &address).is_ok();
    }
    all
}

impl SelectiveSink for HdrinclSink {
    fn accepts(&self, burst: &Burst<'_>) -> bool {
        Family::of(burst.outer.destination) == self.socket.family
            && burst.outer.emitted_len > 0
            && burst.stride > 0
    }
}

impl ProtectedSink for HdrinclSink {
    fn deliver(&mut self, bursts: &[Burst<'_>]) -> io::Result<Sent> {
        Ok(send_bursts(self, bursts))
    }
}
