//! Where an IKE SA's messages go, and whether a NAT is in between (RFC 7296 2.23).

use crate::{
    connection::NAT_PORT,
    keys::IkeSpis,
    message::{
        Body, Payload,
        payload::{Notify, NotifyType},
    },
};
use aws_lc_rs::digest;
use std::net::{IpAddr, SocketAddr};

/// The addresses and ports of an IKE SA.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Path {
    pub local: SocketAddr,
    pub remote: SocketAddr,
    /// Whether a NAT is in front of this side.
    pub nat_local: bool,
    /// Whether a NAT is in front of the peer.
    pub nat_remote: bool,
    /// Whether ESP in UDP is used without a NAT too.
    pub is_forced: bool,
}

/// Where a datagram came from, and to which local address.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Origin {
    pub from: SocketAddr,
    pub to: SocketAddr,
}

/// The data of NAT_DETECTION_SOURCE_IP and NAT_DETECTION_DESTINATION_IP.
pub(crate) type DetectionHash = [u8; 20];

impl Path {
    /// Whether both are between the same two addresses, whatever the ports.
    pub fn is_between_same_hosts(&self, other: &Self) -> bool {
        let hosts = |path: &Self| (path.local.ip(), path.remote.ip());
        hosts(self) == hosts(other)
    }

    pub fn new(local: SocketAddr, remote: SocketAddr, is_forced: bool) -> Self {
        Self {
            local,
            remote,
            nat_local: false,
            nat_remote: false,
            is_forced,
        }
    }

    /// The ports of ESP in UDP, if that is used.
    pub fn encapsulation(&self) -> Option<(u16, u16)> {
        let is_used = self.nat_local || self.nat_remote || self.is_forced;
        is_used.then_some((self.local.port(), self.remote.port()))
    }

    /// RFC 7296 2.23: the side behind a NAT keeps its mapping open by keepalives. So does a side that is told to use
    /// ESP in UDP without one: there a firewall may be what forgets.
    pub fn sends_keepalives(&self) -> bool {
        self.nat_local || self.is_forced
    }

    /// RFC 7296 2.23: with a NAT in between, the initiator goes on from port 4500 to port 4500, unless it began there.
    pub fn float(&mut self) {
        if self.encapsulation().is_some() && self.local.port() != NAT_PORT {
            self.local.set_port(NAT_PORT);
            self.remote.set_port(NAT_PORT);
        }
    }

    /// The hashes that this side sends: of its own address and of the peer's. An own address that is unknown, or a NAT
    /// that is to be assumed, gives random bits, which match nothing.
    pub fn hashes(
        &self,
        spis: IkeSpis,
        random: &mut dyn FnMut(&mut [u8]),
    ) -> (DetectionHash, DetectionHash) {
        let destination = detection_hash(spis, self.remote);
        if self.is_forced || self.local.ip().is_unspecified() {
            let mut source = [0; 20];
            random(&mut source);
            return (source, destination);
        }
        (detection_hash(spis, self.local), destination)
    }

    /// Compares the peer's hashes with the addresses of its message. A peer that sends none knows nothing of NATs.
    pub fn detect(&mut self, spis: IkeSpis, payloads: &[Payload<'_>]) {
        let mut sources = hashes(payloads, NotifyType::NatDetectionSourceIp).peekable();
        let mut destinations = hashes(payloads, NotifyType::NatDetectionDestinationIp).peekable();
        if sources.peek().is_none() || destinations.peek().is_none() {
            return;
        }
        // A peer with several addresses sends the hash of each; one that matches is enough.
        let (remote, local) = (
            detection_hash(spis, self.remote),
            detection_hash(spis, self.local),
        );
        self.nat_remote = !sources.any(|hash| hash == remote);
        self.nat_local = !destinations.any(|hash| hash == local);
    }
}

fn hashes<'a>(payloads: &'a [Payload<'_>], kind: NotifyType) -> impl Iterator<Item = &'a [u8]> {
    payloads
        .iter()
        .filter_map(move |payload| match &payload.body {
            Body::Notify(Notify {
                kind: found, data, ..
            }) if *found == kind => Some(*data),
            _ => None,
        })
}

/// RFC 7296 2.23: SHA-1 over the SPIs in the order of the header, the address and the port.
fn detection_hash(spis: IkeSpis, address: SocketAddr) -> DetectionHash {
    let mut text = [spis.initiator, spis.responder].concat();
    match address.ip() {
        IpAddr::V4(ip) => text.extend(ip.octets()),
        IpAddr::V6(ip) => text.extend(ip.octets()),
    }
    text.extend(address.port().to_be_bytes());
    let digest = digest::digest(&digest::SHA1_FOR_LEGACY_USE_ONLY, &text);
    let mut hash = [0; 20];
    hash.copy_from_slice(digest.as_ref());
    hash
}

#[cfg(test)]
mod tests {
    use super::*;

    const SPIS: IkeSpis = IkeSpis {
        initiator: [1; 8],
        responder: [2; 8],
    };

    fn path() -> Path {
        let local = "192.0.2.1:500".parse().unwrap();
        Path::new(local, "198.51.100.7:500".parse().unwrap(), false)
    }

    fn swapped(path: Path) -> Path {
        Path::new(path.remote, path.local, false)
    }

    fn notified<'a>(hashes: &'a (DetectionHash, DetectionHash)) -> [Payload<'a>; 2] {
        let source = Notify::new(NotifyType::NatDetectionSourceIp, &hashes.0);
        let destination = Notify::new(NotifyType::NatDetectionDestinationIp, &hashes.1);
        [
            Body::Notify(source).into(),
            Body::Notify(destination).into(),
        ]
    }

    #[test]
    fn addresses_that_arrive_as_they_were_sent_show_no_nat() {
        let hashes = path().hashes(SPIS, &mut |_| panic!("no random bits are needed"));
        let mut other = swapped(path());
        other.detect(SPIS, &notified(&hashes));
        assert_eq!(other.encapsulation(), None);
    }

    #[test]
    fn a_changed_source_is_a_nat_in_front_of_the_peer_and_a_changed_destination_one_in_front_of_this_side()
     {
        let hashes = path().hashes(SPIS, &mut |_| {});
        let mut other = swapped(path());
        other.remote.set_port(1024);
        other.detect(SPIS, &notified(&hashes));
        assert_eq!((other.nat_remote, other.nat_local), (true, false));
        assert_eq!(other.encapsulation(), Some((500, 1024)));
        assert!(!other.sends_keepalives());

        let mut other = swapped(path());
        other.local = "10.0.0.1:500".parse().unwrap();
        other.detect(SPIS, &notified(&hashes));
        assert_eq!((other.nat_remote, other.nat_local), (false, true));
        other.float();
        assert_eq!(other.encapsulation(), Some((4500, 4500)));
        assert!(other.sends_keepalives());
    }

    #[test]
    fn a_forced_encapsulation_looks_like_a_nat_to_the_peer() {
        let mut forced = path();
        forced.is_forced = true;
        let hashes = forced.hashes(SPIS, &mut |bytes| bytes.fill(7));
        let mut other = swapped(path());
        other.detect(SPIS, &notified(&hashes));
        assert_eq!((other.nat_remote, other.nat_local), (true, false));
        assert_eq!(
            (forced.sends_keepalives(), other.sends_keepalives()),
            (true, false)
        );
    }

    #[test]
    fn a_peer_without_hashes_does_not_detect_nats() {
        let mut other = path();
        other.detect(SPIS, &[]);
        assert_eq!(other.encapsulation(), None);
    }

    #[test]
    fn the_hash_is_that_of_the_rfc() {
        // Computed by Python: hashlib.sha1(bytes([1]*8 + [2]*8 + [192,0,2,1] + [1,244])).
        let hash = detection_hash(SPIS, path().local);
        assert_eq!(hash[..4], HASH_HEAD);
    }

    const HASH_HEAD: [u8; 4] = [60, 167, 8, 12];
}
