//! ICMP errors of this router: at most so many a second, and a queue for those that go into the tunnel.

use crate::io::Waker;
use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Reports of ours that enter the tunnel, and how many of any kind there may be (RFC 1812 4.3.2.8, RFC 4443 2.4 (f)).
#[derive(Default)]
pub(super) struct IcmpReports(Mutex<Queue>);

#[derive(Default)]
struct Queue {
    waiting: VecDeque<Vec<u8>>,
    waker: Option<Waker>,
    /// The present second's beginning, and what was granted in it.
    second: Option<(Instant, u32)>,
}

/// So many reports a second are sent, of every kind together.
pub const MAX_ICMP_ERRORS_PER_SECOND: u32 = 200;

/// More of them do not wait.
pub(super) const MAX_QUEUED_REPORTS: usize = 64;

impl IcmpReports {
    pub fn set_waker(&self, waker: Waker) {
        self.lock().waker = Some(waker);
    }

    /// Whether one more report may be sent.
    pub fn may_report(&self, now: Instant) -> bool {
        let mut queue = self.lock();
        let (start, granted) = match queue.second {
            Some((start, granted)) if now - start < Duration::from_secs(1) => (start, granted),
            _ => (now, 0),
        };
        queue.second = Some((start, granted.saturating_add(1)));
        granted < MAX_ICMP_ERRORS_PER_SECOND
    }

    /// The source reads this packet next.
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
