//! What a gateway warns about.

use dataplane::io::Warn;
use std::sync::{Arc, Mutex, PoisonError};

/// How many warnings `status` keeps: the first ones of a gateway that runs for years, since these usually explain its
/// state.
const MAX_WARNINGS: usize = 100;

/// Warnings: written to standard error at once, and kept for `status`.
#[derive(Clone, Default)]
pub(super) struct Warnings(Arc<Mutex<Vec<String>>>);

impl Warnings {
    /// Prints a warning, and keeps it.
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

    /// The same, but a warning that is kept already is not repeated.
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
