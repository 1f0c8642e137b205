//! An association in use.

use super::{SaConfig, SaState};
use multibuffer::{Key, prefetch};
use std::sync::Arc;

/// An association in use: configuration, expanded key and shared state. With many associations none is in a cache when
/// its packet comes, so what a packet needs lies in two places and not in a chain of them.
pub struct Sa {
    /// The configuration.
    pub config: SaConfig,
    /// The expanded key; zeroed with the last snapshot that holds it.
    pub key: Key,
    /// What outlives snapshots.
    pub state: Arc<SaState>,
}

impl Sa {
    /// A new association, added at `now`; `counter_start` is random (see [`SaState::new`]).
    pub fn new(config: SaConfig, now: u64, counter_start: u64) -> Self {
        let state = Arc::new(SaState::new(&config, now, counter_start));
        Self::with_state(config, state)
    }

    /// The association of `config` that goes on from `state`.
    pub fn with_state(config: SaConfig, state: Arc<SaState>) -> Self {
        Self {
            key: config.suite.expand(),
            config,
            state,
        }
    }
}

impl Sa {
    /// Whether it can still carry packets: no hard limit was reached.
    pub(crate) fn is_alive(&self) -> bool {
        !self.state.is_dead()
    }

    /// Prefetches what is looked at once a second; the state lies elsewhere.
    pub(crate) fn fetch_for_aging(&self) {
        prefetch(&self.config.id);
        prefetch(&self.config.lifetimes);
        prefetch(&self.config.keepalive);
        prefetch(&self.state);
    }

    /// Prefetches what every packet needs of the configuration. The state lies elsewhere, and the ciphers prefetch the
    /// rest of the key.
    pub(crate) fn fetch(&self) {
        let config = &self.config;
        prefetch(&config.id);
        prefetch(&config.mode);
        prefetch(&config.suite);
        prefetch(&self.state);
        self.key.prefetch();
    }
}
