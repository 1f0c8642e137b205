//! What a gateway warns about.

use dataplane::io::Warn;
use std::sync::{Arc, Mutex, PoisonError};

/// How many warnings `status` keeps: a gateway runs for years, and the first ones say what is wrong with it.
const MAX_WARNINGS: usize = 100;

/// Warnings: told on standard error at once, and kept for `status`.
#[derive(Clone, Default)]
pub(super) struct Warnings(Arc<Mutex<Vec<String>>>);

impl Warnings {
    /// Tells, and keeps.
    pub(super) fn warn(&self) -> Warn {
        let kept = Arc::clone(&self.0);
        Arc::new(move |text: &str| {
            eprintln!("esplanade: warning: {text}");
            let mut kept = kept.lock().unwrap_or_else(PoisonError::into_inner);
            if kept.len() < MAX_WARNINGS && !kept.iter().any(|known| known == text) {
                kept.push(text.to_owned());
            }
        })
    }

    /// The same, but what is known already is not told again.
    pub(super) fn warn_once(&self) -> Warn {
        let (known, warn) = (self.clone(), self.warn());
        Arc::new(move |text: &str| {
            if !known.list().iter().any(|known| known == text) {
                warn(text);
            }
        })
    }

    /// Those that were kept.
    pub(super) fn list(&self) -> Vec<String> {
        self.0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }
}
