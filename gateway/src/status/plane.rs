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
    /// The longest time that packets have waited in the TUN device during that move, in microseconds: on the way to the
    /// user plane.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub longest_wait_us: Option<u64>,
}

impl PlaneStatus {
    /// As text.
    pub(crate) fn text(&self) -> String {
        let Self {
            plane,
            reason,
            moved,
            associations,
            longest_wait_us,
        } = self;
        if !*moved {
            return format!("plane {plane}: {reason}\n");
        }
        let waited = longest_wait_us.map(|micros| {
            let millis = micros as f64 / 1e3;
            format!("; packets waited {millis:.1} ms at most")
        });
        let waited = waited.unwrap_or_default();
        format!("plane {plane}: {associations} associations moved{waited}\n")
    }
}
