//! The end of key exchange, and what the next gateway takes over of it.

use super::KeyExchange;
use crate::config::ConfiguredPeer;
use crate::handover::{PassedChild, PassedCounters, PassedKeyExchange};
use crate::ike::message::FromIke;
use ipsec::sa::SaId;
use std::collections::{HashMap, HashSet};
use std::io;
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

impl KeyExchange {
    /// Takes messages until the one that `is_last`, or so long. What else comes is dropped.
    pub(crate) fn wait_for(&mut self, time: Duration, mut is_last: impl FnMut(&FromIke) -> bool) {
        let end = Instant::now() + time;
        while Instant::now() < end {
            match self.receive() {
                Ok(Some(message)) if is_last(&message) => return,
                Ok(Some(_)) => {}
                Ok(None) => std::thread::sleep(Duration::from_millis(5)),
                Err(_) => return,
            }
        }
    }

    /// Ends the processes without a word to the peers: what was negotiated carries on in the next gateway.
    pub(crate) fn part(&mut self) {
        self.link = None;
        self.peers.orphan();
    }

    /// The peers of these fingerprints about which the same is configured here, on the same plane.
    pub(crate) fn alike(&self, peers: Vec<(String, [u8; 32])>, by_kernel: bool) -> HashSet<String> {
        let theirs: HashMap<_, _> = peers.into_iter().collect();
        let is_alike = |peer: &&ConfiguredPeer| {
            let theirs = theirs.get(&peer.connection.name);
            theirs.is_some() && theirs == peer.fingerprint(by_kernel).as_ref()
        };
        let alike = self.configured.iter().filter(is_alike);
        alike.map(|peer| peer.connection.name.clone()).collect()
    }

    /// What the next gateway takes over of these peers, and the sockets. `counters`: those of an association that
    /// exists.
    pub(crate) fn pass(
        &self,
        is_carried: impl Fn(&str) -> bool,
        counters: impl Fn(&SaId) -> Option<PassedCounters>,
    ) -> io::Result<(PassedKeyExchange, Vec<OwnedFd>)> {
        let sockets = self.processes.share_sockets()?;
        let passed = PassedKeyExchange {
            sockets: sockets.len(),
            starts: self.earlier_starts + self.starts,
            children: self.peers.pass(&is_carried, counters),
            reqids: self.peers.pass_reqids(&is_carried),
            told: self.hooks.told(is_carried),
        };
        Ok((passed, sockets))
    }

    /// The pairs of the gateway before that this one takes over. What hooks were told then, they are not told again.
    pub(crate) fn take_inherited(&mut self) -> Vec<PassedChild> {
        let PassedKeyExchange { children, told, .. } = std::mem::take(&mut self.inherited);
        for (name, facts) in told {
            self.hooks.were_told(&name, facts);
        }
        children
    }
}
