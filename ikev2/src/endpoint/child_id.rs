//! The number of a pair of child SAs.

use serde::{Deserialize, Serialize};

/// A pair of child SAs: unique in the life of an endpoint.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub struct ChildId(pub u64);
