//! How large packets to each peer may be, looked up once per train.

use crate::io::PmtuCache;
use std::net::IpAddr;

/// One thread's view of the path MTUs that the sockets have learnt, with the last answer cached.
pub struct PathMtus {
    paths: PmtuCache,
    default: usize,
    changes: u64,
    last: Option<(IpAddr, Sizes)>,
}

/// What is known towards one peer.
#[derive(Clone, Copy)]
struct Sizes {
    mtu: usize,
    choice: usize,
}

impl PathMtus {
    /// The MTUs that `paths` knows, and `default` bytes towards all other peers.
    pub fn new(paths: PmtuCache, default: usize) -> Self {
        Self {
            changes: paths.changes(),
            paths,
            default,
            last: None,
        }
    }

    /// The largest outer IP packet towards `peer`.
    pub fn mtu(&mut self, peer: IpAddr) -> usize {
        self.sizes(peer).mtu
    }

    /// The largest one to make where this gateway chooses the size: limited by the kernel's route too, so that no
    /// packet has to be lost before the limit is known.
    pub fn choice(&mut self, peer: IpAddr) -> usize {
        self.sizes(peer).choice
    }

    fn sizes(&mut self, peer: IpAddr) -> Sizes {
        let changes = self.paths.changes();
        match self.last {
            Some((known, sizes)) if known == peer && changes == self.changes => sizes,
            _ => self.look_up(peer, changes),
        }
    }

    fn look_up(&mut self, peer: IpAddr, changes: u64) -> Sizes {
        // Nothing was learnt yet: no peer has to be looked up.
        if changes == 0 {
            let (mtu, choice) = (self.default, self.default);
            return Sizes { mtu, choice };
        }
        let bytes = |mtu: Option<u32>| mtu.map_or(usize::MAX, |mtu| mtu as usize);
        let mtu = bytes(self.paths.mtu(peer)).min(self.default);
        let choice = bytes(self.paths.route(peer)).min(mtu);
        let sizes = Sizes { mtu, choice };
        self.changes = changes;
        self.last = Some((peer, sizes));
        sizes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_learnt_is_seen_at_the_next_look_and_the_default_is_never_exceeded() {
        let (peer, other) = ("192.0.2.1".parse().unwrap(), "192.0.2.2".parse().unwrap());
        let paths = PmtuCache::default();
        let mut mtus = PathMtus::new(paths.clone(), 1500);
        assert_eq!(mtus.mtu(peer), 1500);
        paths.learn(peer, 1400);
        assert_eq!((mtus.mtu(peer), mtus.mtu(other)), (1400, 1500));
        paths.learn(peer, 9000);
        assert_eq!(mtus.mtu(peer), 1500);
    }

    #[test]
    fn a_route_limits_what_is_chosen_and_not_what_is_possible() {
        let peer = "192.0.2.1".parse().unwrap();
        let paths = PmtuCache::default();
        let mut mtus = PathMtus::new(paths.clone(), 65_535);
        assert_eq!(mtus.choice(peer), 65_535);
        paths.set_route(peer, 1500);
        assert_eq!((mtus.mtu(peer), mtus.choice(peer)), (65_535, 1500));
        paths.learn(peer, 1400);
        assert_eq!((mtus.mtu(peer), mtus.choice(peer)), (1400, 1400));
        paths.forget(peer);
        assert_eq!(mtus.choice(peer), 1500);
    }
}
