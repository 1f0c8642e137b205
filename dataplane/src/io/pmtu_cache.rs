//! Learnt path MTUs: from the kernel, which knows its devices and routes, and from ICMP messages that quote an outer
//! packet.
//!
//! The figures are outer MTUs, of whole IP packets. Code that limits inner packets polls [`PmtuCache::changes`] and
//! reads [`PmtuCache::mtu`] when it has changed.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// The learnt path MTUs; clones share them.
#[derive(Clone, Debug, Default)]
pub struct PmtuCache(Arc<Learnt>);

#[derive(Debug, Default)]
struct Learnt {
    mtus: Mutex<HashMap<IpAddr, (u32, Instant)>>,
    routes: Mutex<HashMap<IpAddr, u32>>,
    changes: AtomicU64,
}

/// The most paths that are kept: peers are few, and forged reports must not fill the memory.
const MAX_PATHS: usize = 4096;

/// RFC 1191 6.3, RFC 8201 4: how long a smaller MTU is kept before a larger one is tried again.
pub const MTU_TIMEOUT: Duration = Duration::from_secs(600);

/// RFC 791: every link carries this much; smaller values in reports are raised to it.
const MIN_MTU_V4_BYTES: u32 = 68;

/// RFC 8200 5: the smallest MTU of IPv6.
const MIN_MTU_V6_BYTES: u32 = 1280;

impl PmtuCache {
    /// The MTU towards `peer`, if one was learnt.
    pub fn mtu(&self, peer: IpAddr) -> Option<u32> {
        self.lock().get(&peer).map(|(mtu, _)| *mtu)
    }

    /// The MTU of the kernel's route towards `peer`, if it was set: an upper bound for sizes chosen here.
    pub fn route(&self, peer: IpAddr) -> Option<u32> {
        self.lock_routes().get(&peer).copied()
    }

    /// Sets the MTU of the kernel's route towards `peer`. It does not expire.
    pub fn set_route(&self, peer: IpAddr, mtu: u32) {
        if self.lock_routes().insert(peer, mtu) != Some(mtu) {
            self.0.changes.fetch_add(1, Ordering::Release);
        }
    }

    /// Grows with every change.
    pub fn changes(&self) -> u64 {
        self.0.changes.load(Ordering::Acquire)
    }

    /// All learnt MTUs, in no order.
    pub fn all(&self) -> Vec<(IpAddr, u32)> {
        self.lock()
            .iter()
            .map(|(&peer, &(mtu, _))| (peer, mtu))
            .collect()
    }

    /// Removes a path, so that a larger MTU can be found again.
    pub fn forget(&self, peer: IpAddr) {
        if self.lock().remove(&peer).is_some() {
            self.0.changes.fetch_add(1, Ordering::Release);
        }
    }

    /// Removes MTUs learnt `MTU_TIMEOUT` before `now`: the next large packet discovers the current MTU.
    pub fn forget_old(&self, now: Instant) {
        let mut mtus = self.lock();
        let before = mtus.len();
        mtus.retain(|_, (_, learnt)| now.saturating_duration_since(*learnt) < MTU_TIMEOUT);
        if mtus.len() < before {
            self.0.changes.fetch_add(1, Ordering::Release);
        }
    }

    /// Stores a path's MTU.
    pub fn learn(&self, peer: IpAddr, mtu: u32) {
        self.learn_at(peer, mtu, Instant::now());
    }

    /// Stores a path's MTU at a given time. RFC 8201 4: a value below the protocol's minimum counts as the minimum.
    pub fn learn_at(&self, peer: IpAddr, mtu: u32, now: Instant) {
        let mtu = mtu.max(if peer.is_ipv4() {
            MIN_MTU_V4_BYTES
        } else {
            MIN_MTU_V6_BYTES
        });
        let mut mtus = self.lock();
        if mtus.len() >= MAX_PATHS && !mtus.contains_key(&peer) {
            return;
        }
        let before = mtus.insert(peer, (mtu, now));
        if before.is_none_or(|(before, _)| before != mtu) {
            self.0.changes.fetch_add(1, Ordering::Release);
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, HashMap<IpAddr, (u32, Instant)>> {
        // A map of plain figures is whole after any panic.
        self.0.mtus.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn lock_routes(&self) -> std::sync::MutexGuard<'_, HashMap<IpAddr, u32>> {
        self.0.routes.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_is_counted_and_a_repetition_is_not() {
        let (paths, peer) = (PmtuCache::default(), "192.0.2.1".parse().unwrap());
        paths.learn(peer, 1400);
        paths.clone().learn(peer, 1400);
        assert_eq!((paths.mtu(peer), paths.changes()), (Some(1400), 1));
        paths.forget(peer);
        assert_eq!((paths.mtu(peer), paths.changes()), (None, 2));
    }

    #[test]
    fn what_was_learnt_ten_minutes_ago_is_forgotten_unless_it_was_learnt_again() {
        let (old, confirmed) = ("192.0.2.1".parse().unwrap(), "192.0.2.2".parse().unwrap());
        let (paths, start) = (PmtuCache::default(), Instant::now());
        let at = |seconds| start + Duration::from_secs(seconds);
        paths.learn_at(old, 1400, at(0));
        paths.learn_at(confirmed, 1400, at(0));
        paths.learn_at(confirmed, 1400, at(599));
        paths.forget_old(at(599));
        assert_eq!((paths.mtu(old), paths.changes()), (Some(1400), 2));
        paths.forget_old(at(600));
        assert_eq!((paths.mtu(old), paths.changes()), (None, 3));
        assert_eq!(paths.mtu(confirmed), Some(1400));
    }

    #[test]
    fn no_report_gets_below_the_minimum_and_forgeries_do_not_fill_the_memory() {
        let paths = PmtuCache::default();
        paths.learn("2001:db8::1".parse().unwrap(), 40);
        assert_eq!(paths.mtu("2001:db8::1".parse().unwrap()), Some(1280));
        for number in 0..10_000u32 {
            paths.learn(IpAddr::from(number.to_be_bytes()), 600);
        }
        assert_eq!(paths.all().len(), MAX_PATHS);
    }
}
