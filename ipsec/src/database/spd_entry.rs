//! One policy of the SPD and what is known of its use.

use crate::command::PolicyReport;
use crate::policy::{Action, Policy, Template};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// One policy and what is known of its use.
pub(super) struct SpdEntry {
    pub(super) policy: Arc<Policy>,
    pub(super) id: u32,
    created: u64,
    /// Under a snapshot that is no longer the present one.
    used: AtomicBool,
    last_used: AtomicU64,
}

impl SpdEntry {
    pub(super) fn new(policy: Arc<Policy>, id: u32, now: u64) -> Self {
        Self {
            policy,
            id,
            created: now,
            used: AtomicBool::new(false),
            last_used: AtomicU64::new(0),
        }
    }

    /// Notes that it has decided about a packet; [`SpdEntry::take_used`] knows when.
    pub(super) fn mark_used(&self) {
        self.used.store(true, Ordering::Relaxed);
    }

    /// Notes that it has decided about a packet by now.
    pub(super) fn note_used(&self, now: u64) {
        self.last_used.store(now, Ordering::Relaxed);
    }

    /// Turns the note of its use into a time.
    pub(super) fn take_used(&self, now: u64) {
        if self.used.load(Ordering::Relaxed) && self.used.swap(false, Ordering::Relaxed) {
            self.note_used(now);
        }
    }

    pub(super) fn templates(&self) -> &[Template] {
        match &self.policy.action {
            Action::Protect(templates) => templates,
            Action::Discard | Action::Bypass | Action::Entrust => &[],
        }
    }

    pub(super) fn report(&self) -> PolicyReport {
        PolicyReport {
            policy: Arc::clone(&self.policy),
            id: self.id,
            created: self.created,
            last_used: self.last_used.load(Ordering::Relaxed),
        }
    }
}
