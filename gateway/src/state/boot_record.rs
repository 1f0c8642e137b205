//! Which state file the last gateway of this boot used, and how old that was: it shows a file that was set back.

use super::header::Header;
use super::keeper::Keeper;
use serde::{Deserialize, Serialize};
use std::fs::File;

/// Which state a gateway has used: noted where the next boot forgets it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct BootRecord {
    /// The file, by a part of its salt.
    pub(super) file: u64,
    /// How often it had been begun with.
    pub(super) generation: u64,
}

impl BootRecord {
    pub(super) fn of(keeper: &Keeper<File>) -> Self {
        Self::of_header(keeper.header())
    }

    pub(super) fn of_header(header: &Header) -> Self {
        let mut file = [0; 8];
        file.copy_from_slice(&header.salt[..8]);
        Self {
            file: u64::from_le_bytes(file),
            generation: header.generation,
        }
    }
}
