//! Requests received, and the answer to each for as long as the peer may repeat the request.

use super::{Datagrams, MAX_WINDOW, by_id::ById};

/// The answers of one direction. What is kept is bounded by the window: one answer for each ID in it.
pub struct Responses {
    /// The lowest ID that has not come yet.
    pub(super) next_id: u64,
    window: u32,
    /// `None` while the request is worked on.
    answers: ById<Option<Datagrams>>,
}

/// What an authentic request is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Received<'a> {
    /// It comes for the first time: it is to be processed and answered.
    New,
    /// It was answered: the same bytes again, and nothing else (RFC 7296 2.1). Of a request in fragments the first one
    /// alone causes this (RFC 7383 2.6.1).
    Again(&'a [Vec<u8>]),
    /// It is being processed.
    InProgress,
    /// The peer has had its answer, or could not have sent it yet: ignored, INVALID_MESSAGE_ID at most (RFC 7296 2.3).
    OutsideWindow,
}

impl Responses {
    /// Of a new IKE SA. `window` is the one sent to the peer in SET_WINDOW_SIZE, else 1.
    pub fn new(window: u32) -> Self {
        Self {
            next_id: 0,
            window: window.clamp(1, MAX_WINDOW),
            answers: ById::default(),
        }
    }

    /// SET_WINDOW_SIZE was sent: the peer may have so many requests unanswered (RFC 7296 2.3). It never shrinks.
    pub fn widen(&mut self, window: u32) {
        self.window = window.clamp(self.window, MAX_WINDOW);
    }

    /// What an authentic request with this ID is. A new one counts as being worked on from here.
    pub fn receive(&mut self, id: u32) -> Received<'_> {
        if self.answers.get(id).is_none() {
            let window = self.next_id..self.next_id + u64::from(self.window);
            if !window.contains(&u64::from(id)) {
                return Received::OutsideWindow;
            }
            self.begin(id);
            return Received::New;
        }
        match self.answers.get(id) {
            Some(Some(datagrams)) => Received::Again(datagrams),
            _ => Received::InProgress,
        }
    }

    /// The same, but a new one does not count as being worked on: a part of it has come.
    pub fn peek(&self, id: u32) -> Received<'_> {
        let window = self.next_id..self.next_id + u64::from(self.window);
        match self.answers.get(id) {
            Some(Some(datagrams)) => Received::Again(datagrams),
            Some(None) => Received::InProgress,
            None if window.contains(&u64::from(id)) => Received::New,
            None => Received::OutsideWindow,
        }
    }

    fn begin(&mut self, id: u32) {
        let is_known = |next| self.answers.get(next).is_some() || next == id;
        while u32::try_from(self.next_id).is_ok_and(is_known) {
            self.next_id += 1;
        }
        // RFC 7296 2.3: an answer is kept until a request comes that is a window later: the peer has sent that one
        // because it had the answer.
        let newest = self.answers.ids().next_back().unwrap_or(id).max(id);
        let window = self.window;
        self.answers.retain(|id| newest - id < window);
        self.answers.insert(id, None);
    }

    /// The answer to the request with this ID, which is being worked on.
    pub fn answer(&mut self, id: u32, datagrams: Datagrams) {
        if let Some(answer @ None) = self.answers.get_mut(id) {
            *answer = Some(datagrams);
        }
    }

    /// Bytes of answers that are kept.
    pub fn kept_bytes(&self) -> usize {
        let datagrams = self.answers.values().flatten().flatten();
        datagrams.map(Vec::len).sum()
    }
}
