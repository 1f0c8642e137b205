//! Which state file the last gateway of this boot used, and its generation: with it a file that was restored from a
//! backup is detected.

use super::header::Header;
use serde::{Deserialize, Serialize};

/// The state that a gateway has used; stored where it does not survive a reboot.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct BootRecord {
    /// The file, by a part of its salt.
    pub(super) file: u64,
    /// The file's generation at the last start.
    pub(super) generation: u64,
}

impl BootRecord {
    pub(super) fn of(header: &Header) -> Self {
        let mut file = [0; 8];
        file.copy_from_slice(&header.salt[..8]);
        Self {
            file: u64::from_le_bytes(file),
            generation: header.generation,
        }
    }
}
