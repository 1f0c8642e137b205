//! Packets whose headers are written already: AH, whose ICV covers them, and ESP behind options or extension headers.
//!
//! They leave through a socket of protocol "raw", which takes the header as it is (`IP_HDRINCL`, `IPV6_HDRINCL`) and
//! never fragments: what is too big and may be cut is cut here, after it was protected (RFC 4302 3.3.4, RFC 4303 3.3.4).

use super::super::messages::{Letter, Outbox};
use super::super::sending::{Posting, post, send_all};
use super::super::several::Addressed;
use super::super::socket::Socket;
use super::super::{Family, Parcel, ProtectedSink, Refusal, Sent, SocketOptions};
use ipsec::fragment::Cutter;
use rustix::net::{Protocol, SendFlags, SocketType};
use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher, Hasher};
use std::io;
use std::net::SocketAddr;
use std::num::NonZeroU32;

/// The protocol of sockets that only send, headers included.
const RAW: u32 = 255;

/// Sends packets that bring their headers.
pub struct WholeSink {
    socket: Socket,
    outbox: Outbox,
    /// For the fragments of IPv6. RFC 7739: nobody should guess where it starts.
    identification: u32,
    fragments: Vec<u8>,
}

/// Opens the socket of one family.
pub fn open_whole(family: Family, options: &SocketOptions) -> Result<WholeSink, Refusal> {
    let protocol = NonZeroU32::new(RAW).map(Protocol::from_raw);
    let socket = Socket::open(family, SocketType::RAW, protocol, options)?;
    let start = RandomState::new().build_hasher().finish();
    Ok(WholeSink {
        socket,
        outbox: Outbox::new(),
        identification: start as u32,
        fragments: Vec::new(),
    })
}

impl Posting for WholeSink {
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
        }
    }

    fn flush(&mut self, parcels: &[Parcel<'_>], sent: &mut Sent) {
        let Self {
            socket,
            outbox,
            identification,
            fragments,
        } = self;
        let pieces =
            |_: usize, letter: &Letter| [&parcels[letter.parcel].bytes[letter.range.clone()], &[]];
        let rescue = |letter: &Letter, error: i32, sent: &mut Sent| {
            let parcel = &parcels[letter.parcel];
            if error != libc::EMSGSIZE || parcel.outer.dont_fragment {
                return false;
            }
            *identification = identification.wrapping_add(1);
            socket.drain_errors();
            let packet = &parcel.bytes[letter.range.clone()];
            let whole = cut(socket, parcel, packet, *identification, fragments, sent);
            sent.packets += u64::from(whole);
            whole
        };
        send_all(socket, outbox, parcels, sent, pieces, rescue);
    }
}

/// Sends `packet` in fragments; says whether all of them went.
fn cut(
    socket: &Socket,
    parcel: &Parcel<'_>,
    packet: &[u8],
    identification: u32,
    fragments: &mut Vec<u8>,
    sent: &mut Sent,
) -> bool {
    let (source, destination) = (parcel.outer.source, parcel.outer.destination);
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

impl Addressed for WholeSink {
    fn fits(&self, parcel: &Parcel<'_>) -> bool {
        Family::of(parcel.outer.destination) == self.socket.family
            && parcel.outer.written > 0
            && parcel.stride > 0
    }
}

impl ProtectedSink for WholeSink {
    fn deliver(&mut self, parcels: &[Parcel<'_>]) -> io::Result<Sent> {
        Ok(post(self, parcels))
    }
}
