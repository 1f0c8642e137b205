//! Requests sent, until they are answered or given up.

use super::{Datagrams, MAX_WINDOW, by_id::ById};
use std::time::Duration;

/// When a request is sent again: the pause doubles each time (RFC 7296 2.4 requires it to grow).
#[derive(Clone, Copy, PartialEq, Eq, Debug, serde::Serialize, serde::Deserialize)]
pub struct Schedule {
    /// The pause in front of the first repetition.
    pub first: Duration,
    /// No pause is longer.
    pub longest: Duration,
    /// How often a request is sent again before the peer is given up. One pause later it is.
    pub repetitions: u32,
}

impl Default for Schedule {
    /// 0.5 s, 1 s, 2 s … 16 s, 16 s: given up after 63.5 s.
    fn default() -> Self {
        Self {
            first: Duration::from_millis(500),
            longest: Duration::from_secs(16),
            repetitions: 7,
        }
    }
}

impl Schedule {
    /// The pause behind so many repetitions.
    fn pause(&self, repetitions: u32) -> Duration {
        let factor = 1u32.checked_shl(repetitions).unwrap_or(u32::MAX);
        self.first.saturating_mul(factor).min(self.longest)
    }
}

/// The requests of one direction.
pub struct Requests {
    pub(super) next_id: Option<u32>,
    window: u32,
    schedule: Schedule,
    unanswered: ById<Unanswered>,
}

struct Unanswered {
    datagrams: Datagrams,
    repetitions: u32,
    next_at: Duration,
}

/// What is to be done now.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Due<'a> {
    /// Send these again, byte for byte (RFC 7296 2.1).
    Repeat(&'a [Vec<u8>]),
    /// The request with this ID stays without an answer: the IKE SA has failed (RFC 7296 2.4).
    GivenUp(u32),
}

impl Requests {
    /// Of a new IKE SA, with a window of 1.
    pub fn new(schedule: Schedule) -> Self {
        Self {
            next_id: Some(0),
            window: 1,
            schedule,
            unanswered: ById::default(),
        }
    }

    /// The peer's SET_WINDOW_SIZE (RFC 7296 2.3): so many requests may be unanswered. The window never shrinks.
    pub fn widen(&mut self, window: u32) {
        self.window = window.clamp(self.window, MAX_WINDOW);
    }

    /// The ID for the next request, if one may be sent: not while the window is full, and never again behind the last
    /// ID, when the IKE SA has to be closed or rekeyed (RFC 7296 2.2).
    pub fn next_id(&self) -> Option<u32> {
        let id = self.next_id?;
        // RFC 7296 2.3: from the oldest that is unanswered.
        let oldest = self.unanswered.ids().next().unwrap_or(id);
        (id - oldest < self.window).then_some(id)
    }

    /// The request with the ID that [`Self::next_id`] gave was sent as these datagrams.
    pub fn sent(&mut self, datagrams: Datagrams, now: Duration) {
        let Some(id) = self.next_id() else { return };
        let next_at = now + self.schedule.pause(0);
        self.unanswered.insert(
            id,
            Unanswered {
                datagrams,
                repetitions: 0,
                next_at,
            },
        );
        self.next_id = id.checked_add(1);
    }

    /// Whether an authentic response with this ID answers a request that waits for it; then the request is done. Any
    /// other is ignored (RFC 7296 2.1).
    pub fn answered(&mut self, id: u32) -> bool {
        self.unanswered.remove(id).is_some()
    }

    /// Whether a response with this ID is waited for: others need not be decrypted.
    pub fn awaits(&self, id: u32) -> bool {
        self.unanswered.get(id).is_some()
    }

    /// When there is something to do.
    pub fn next_at(&self) -> Option<Duration> {
        self.unanswered
            .values()
            .map(|request| request.next_at)
            .min()
    }

    /// What is to be done at `now`; called again until it returns `None`.
    pub fn due(&mut self, now: Duration) -> Option<Due<'_>> {
        let (id, request) = self.unanswered.find(|request| request.next_at <= now)?;
        if request.repetitions == self.schedule.repetitions {
            self.unanswered.remove(id);
            return Some(Due::GivenUp(id));
        }
        let request = self.unanswered.get_mut(id)?;
        request.repetitions += 1;
        request.next_at = now + self.schedule.pause(request.repetitions);
        Some(Due::Repeat(&request.datagrams))
    }
}
