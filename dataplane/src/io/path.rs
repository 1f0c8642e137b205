//! What the sockets have learnt about the MTU of paths: from the kernel, which knows its devices and routes, and from
//! routers' ICMP messages that quote a packet of ours.
//!
//! The figures are outer MTUs, of whole IP packets. Whoever sizes the inner packets looks at [`Paths::changes`] once in a
//! while and reads [`Paths::mtu`] when it moved.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// The learnt path MTUs; clones share them.
#[derive(Clone, Debug, Default)]
pub struct Paths(Arc<Learnt>);

#[derive(Debug, Default)]
struct Learnt {
    mtus: Mutex<HashMap<IpAddr, u32>>,
    changes: AtomicU64,
}

/// The most paths that are remembered: peers are few, and forged reports must not fill the memory.
const MOST: usize = 4096;

/// RFC 791: every link carries this much; no report may ask for less.
const LEAST_V4: u32 = 68;

/// RFC 8200 5: the smallest MTU of IPv6.
const LEAST_V6: u32 = 1280;

impl Paths {
    /// The MTU towards `peer`, if it was ever learnt.
    pub fn mtu(&self, peer: IpAddr) -> Option<u32> {
        self.lock().get(&peer).copied()
    }

    /// How often anything changed.
    pub fn changes(&self) -> u64 {
        self.0.changes.load(Ordering::Acquire)
    }

    /// All that was learnt, in no order.
    pub fn all(&self) -> Vec<(IpAddr, u32)> {
        self.lock()
            .iter()
            .map(|(&peer, &mtu)| (peer, mtu))
            .collect()
    }

    /// Forgets a path, so that a larger MTU may be found again.
    pub fn forget(&self, peer: IpAddr) {
        if self.lock().remove(&peer).is_some() {
            self.0.changes.fetch_add(1, Ordering::Release);
        }
    }

    /// Takes note of a path's MTU. RFC 8201 4: what would be below the protocol's minimum counts as the minimum.
    pub fn learn(&self, peer: IpAddr, mtu: u32) {
        let mtu = mtu.max(if peer.is_ipv4() { LEAST_V4 } else { LEAST_V6 });
        let mut mtus = self.lock();
        if mtus.len() >= MOST && !mtus.contains_key(&peer) {
            return;
        }
        if mtus.insert(peer, mtu) != Some(mtu) {
            self.0.changes.fetch_add(1, Ordering::Release);
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, HashMap<IpAddr, u32>> {
        // A map of plain figures is whole after any panic.
        self.0.mtus.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_is_counted_and_a_repetition_is_not() {
        let (paths, peer) = (Paths::default(), "192.0.2.1".parse().unwrap());
        paths.learn(peer, 1400);
        paths.clone().learn(peer, 1400);
        assert_eq!((paths.mtu(peer), paths.changes()), (Some(1400), 1));
        paths.forget(peer);
        assert_eq!((paths.mtu(peer), paths.changes()), (None, 2));
    }

    #[test]
    fn no_report_gets_below_the_minimum_and_forgeries_do_not_fill_the_memory() {
        let paths = Paths::default();
        paths.learn("2001:db8::1".parse().unwrap(), 40);
        assert_eq!(paths.mtu("2001:db8::1".parse().unwrap()), Some(1280));
        for number in 0..10_000u32 {
            paths.learn(IpAddr::from(number.to_be_bytes()), 600);
        }
        assert_eq!(paths.all().len(), MOST);
    }
}
