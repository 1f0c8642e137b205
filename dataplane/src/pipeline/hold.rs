//! Holding a reading thread still: it stops where all that it has read is committed, as soon as its source is empty or
//! at once, and goes on when the hold ends. Packets that arrive meanwhile wait in the source's queue.
//!
//! ```text
//!   another thread   hold ───────────────► held ─────────► drop
//!   reading thread   reads until its source is empty, commits, stays ... goes on
//! ```

use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Where a reading thread can be held: all that it has read is committed.
#[derive(Default)]
pub struct Safepoint {
    /// Read for each batch, where the lock would cost too much: 0, or a [`Moment`] and 1.
    asked: AtomicU8,
    state: Mutex<State>,
    changed: Condvar,
}

/// When a reading thread is to stay.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Moment {
    /// As soon as its source is empty. A source that is never empty is not held.
    SourceEmpty,
    /// After the batch that it is reading.
    BatchOver,
}

#[derive(Clone, Copy, PartialEq, Eq, Default)]
enum State {
    #[default]
    Runs,
    Asked,
    Stays,
    Ended,
}

/// As long as it lives, the thread stays.
pub struct Held(Arc<Safepoint>);

impl Safepoint {
    /// Asks the reading thread to stay, and waits until it does, at most for `limit`. `wake` ends the thread's sleep.
    pub fn hold(
        self: &Arc<Self>,
        moment: Moment,
        limit: Duration,
        wake: impl FnOnce(),
    ) -> Option<Held> {
        let mut state = self.state();
        if *state != State::Runs {
            return None;
        }
        *state = State::Asked;
        self.asked.store(1 + moment as u8, Ordering::SeqCst);
        wake();
        let waiting = |state: &mut State| *state == State::Asked;
        let waited = self.changed.wait_timeout_while(state, limit, waiting);
        let (mut state, _) = waited.unwrap_or_else(PoisonError::into_inner);
        if *state == State::Stays {
            return Some(Held(Arc::clone(self)));
        }
        self.go_on(&mut state);
        None
    }

    /// When the reading thread is to stay, if it is.
    pub fn asked(&self) -> Option<Moment> {
        match self.asked.load(Ordering::Relaxed) {
            0 => None,
            moment if moment == 1 + Moment::SourceEmpty as u8 => Some(Moment::SourceEmpty),
            _ => Some(Moment::BatchOver),
        }
    }

    /// The reading thread stays until the hold ends.
    pub fn stay(&self) {
        let mut state = self.state();
        if *state != State::Asked {
            return;
        }
        *state = State::Stays;
        self.changed.notify_all();
        let staying = |state: &mut State| *state == State::Stays;
        drop(self.changed.wait_while(state, staying));
    }

    /// The reading thread is about to end: it stays no more.
    pub fn end(&self) {
        *self.state() = State::Ended;
        self.changed.notify_all();
    }

    fn go_on(&self, state: &mut State) {
        self.asked.store(0, Ordering::SeqCst);
        if *state != State::Ended {
            *state = State::Runs;
        }
        self.changed.notify_all();
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // A state is written at once: a panic leaves none half-way.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.0.go_on(&mut self.0.state());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::thread;

    /// How long a test waits for a hold, at most.
    const MAX_HOLD_WAIT: Duration = Duration::from_secs(60);

    /// A thread that counts until it is asked to stay.
    fn counting(safepoint: &Arc<Safepoint>, count: &Arc<Mutex<u64>>) -> thread::JoinHandle<()> {
        let (safepoint, count) = (Arc::clone(safepoint), Arc::clone(count));
        thread::spawn(move || {
            while *safepoint.state() != State::Ended {
                *count.lock().unwrap() += 1;
                if safepoint.asked().is_some() {
                    safepoint.stay();
                }
                thread::yield_now();
            }
        })
    }

    #[test]
    fn a_thread_stays_as_long_as_it_is_held_and_goes_on_afterwards() {
        let (safepoint, count) = (Arc::<Safepoint>::default(), Arc::<Mutex<u64>>::default());
        let thread = counting(&safepoint, &count);
        for _ in 0..100 {
            let held = safepoint
                .hold(Moment::SourceEmpty, MAX_HOLD_WAIT, || ())
                .unwrap();
            let before = *count.lock().unwrap();
            thread::yield_now();
            assert_eq!(*count.lock().unwrap(), before);
            drop(held);
            while *count.lock().unwrap() == before {
                thread::yield_now();
            }
        }
        safepoint.end();
        thread.join().unwrap();
    }

    #[test]
    fn a_thread_that_never_finds_its_source_empty_is_not_held() {
        let safepoint = Arc::<Safepoint>::default();
        let limit = Duration::from_millis(1);
        let held = safepoint.hold(Moment::SourceEmpty, limit, || ());
        assert!(held.is_none());
        assert_eq!(safepoint.asked(), None);
        safepoint.stay();
    }

    #[test]
    fn the_thread_learns_at_which_moment_it_is_to_stay() {
        for moment in [Moment::SourceEmpty, Moment::BatchOver] {
            let safepoint = Arc::<Safepoint>::default();
            let mut seen = None;
            safepoint.hold(moment, Duration::ZERO, || seen = safepoint.asked());
            assert_eq!(seen, Some(moment));
        }
    }

    #[test]
    fn the_end_of_a_thread_ends_the_wait_for_it_and_its_stay() {
        let (safepoint, count) = (Arc::<Safepoint>::default(), Arc::<Mutex<u64>>::default());
        let thread = counting(&safepoint, &count);
        let held = safepoint
            .hold(Moment::SourceEmpty, MAX_HOLD_WAIT, || ())
            .unwrap();
        safepoint.end();
        thread.join().unwrap();
        drop(held);
        assert!(
            safepoint
                .hold(Moment::SourceEmpty, MAX_HOLD_WAIT, || ())
                .is_none()
        );
    }
}
