//! Which plane carries the packets, as `esplanade plane` shows it.

use serde::{Deserialize, Serialize};

/// The plane, and whether it has just changed.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub(crate) struct PlaneStatus {
    /// `user` or `kernel`.
    pub plane: String,
    /// Why.
    pub reason: String,
    /// Whether this request has moved the gateway.
    pub moved: bool,
    /// Associations that it carries.
    pub associations: u64,
}

impl PlaneStatus {
    /// As text.
    pub(crate) fn text(&self) -> String {
        let Self {
            plane,
            reason,
            moved,
            associations,
        } = self;
        if *moved {
            format!("plane {plane}: {associations} associations moved\n")
        } else {
            format!("plane {plane}: {reason}\n")
        }
    }
}
