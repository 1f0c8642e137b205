//! How large packets to each peer may be, looked up once per train.

use crate::io::Paths;
use std::net::IpAddr;

/// One thread's view of what the sockets have learnt, with the last answer kept.
pub struct PathMtus {
    paths: Paths,
    default: usize,
    changes: u64,
    last: Option<(IpAddr, usize)>,
}

impl PathMtus {
    /// What `paths` knows, and `default` bytes towards everybody else.
    pub fn new(paths: Paths, default: usize) -> Self {
        Self {
            changes: paths.changes(),
            paths,
            default,
            last: None,
        }
    }

    /// The largest outer IP packet towards `peer`.
    pub fn mtu(&mut self, peer: IpAddr) -> usize {
        let changes = self.paths.changes();
        match self.last {
            Some((known, mtu)) if known == peer && changes == self.changes => mtu,
            _ => self.look_up(peer, changes),
        }
    }

    fn look_up(&mut self, peer: IpAddr, changes: u64) -> usize {
        let learnt = self.paths.mtu(peer).map_or(usize::MAX, |mtu| mtu as usize);
        let mtu = learnt.min(self.default);
        self.changes = changes;
        self.last = Some((peer, mtu));
        mtu
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_learnt_is_seen_at_the_next_look_and_the_default_is_never_exceeded() {
        let (peer, other) = ("192.0.2.1".parse().unwrap(), "192.0.2.2".parse().unwrap());
        let paths = Paths::default();
        let mut mtus = PathMtus::new(paths.clone(), 1500);
        assert_eq!(mtus.mtu(peer), 1500);
        paths.learn(peer, 1400);
        assert_eq!((mtus.mtu(peer), mtus.mtu(other)), (1400, 1500));
        paths.learn(peer, 9000);
        assert_eq!(mtus.mtu(peer), 1500);
    }
}
