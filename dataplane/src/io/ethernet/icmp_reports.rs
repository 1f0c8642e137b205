//! ICMP errors of this router: a rate limit, and a queue for those that enter the tunnel.

use crate::io::Waker;
use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// ICMP errors that enter the tunnel, and the rate limit of all ICMP errors (RFC 1812 4.3.2.8, RFC 4443 2.4 (f)).
#[derive(Default)]
pub(super) struct IcmpReports(Mutex<Queue>);

#[derive(Default)]
struct Queue {
    waiting: VecDeque<Vec<u8>>,
    waker: Option<Waker>,
    /// The start of the present second, and how many were granted in it.
    second: Option<(Instant, u32)>,
}

/// The most ICMP errors a second, of every kind together.
pub const MAX_ICMP_ERRORS_PER_SECOND: u32 = 200;

/// The most ICMP errors that wait for the source; further ones are dropped.
pub(super) const MAX_QUEUED_REPORTS: usize = 64;

impl IcmpReports {
    pub fn set_waker(&self, waker: Waker) {
        self.lock().waker = Some(waker);
    }

    /// Whether one more ICMP error may be sent.
    pub fn may_report(&self, now: Instant) -> bool {
        let mut queue = self.lock();
        let (start, granted) = match queue.second {
            Some((start, granted)) if now - start < Duration::from_secs(1) => (start, granted),
            _ => (now, 0),
        };
        queue.second = Some((start, granted.saturating_add(1)));
        granted < MAX_ICMP_ERRORS_PER_SECOND
    }

    /// Queues a packet for the source.
    pub fn send(&self, packet: Vec<u8>) {
        let mut queue = self.lock();
        if queue.waiting.len() < MAX_QUEUED_REPORTS {
            queue.waiting.push_back(packet);
            if let Some(waker) = &queue.waker {
                waker.wake();
            }
        }
    }

    pub fn next(&self) -> Option<Vec<u8>> {
        self.lock().waiting.pop_front()
    }

    fn lock(&self) -> MutexGuard<'_, Queue> {
        // A queue of whole packets is whole after any panic.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
