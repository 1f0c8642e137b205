//! Which state file a gateway with this control socket used last, and the file's generation at that start: with it a
//! file that was restored from a backup is detected. `down` leaves the note where it is.

use super::header::Header;
use crate::control::Folder;
use crate::failure::Failure;
use serde::{Deserialize, Serialize};

/// The note's file, behind the name of the control socket.
const NOTE: &str = "numbers";

/// The state that a gateway has used.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(super) struct LastUsed {
    /// The file, by a part of its salt.
    pub(super) file: u64,
    /// The file's generation at the last start.
    pub(super) generation: u64,
}

impl LastUsed {
    pub(super) fn of(header: &Header) -> Self {
        let mut file = [0; 8];
        file.copy_from_slice(&header.salt[..8]);
        Self {
            file: u64::from_le_bytes(file),
            generation: header.generation,
        }
    }

    /// The note beside the control socket, if there is one.
    pub(super) fn load(beside: &Folder) -> Result<Option<Self>, Failure> {
        let Some(text) = beside.read(NOTE).map_err(Failure::new)? else {
            return Ok(None);
        };
        serde_json::from_slice(&text).map(Some).map_err(|error| {
            Failure::new(format!(
                "{}.{NOTE} is damaged ({error}), and nothing else shows whether the stored sequence numbers are the \
                 latest: remove it if they were not restored from a backup",
                beside.socket().display()
            ))
        })
    }

    /// Writes the note beside the control socket.
    pub(super) fn save(&self, beside: &Folder) -> Result<(), Failure> {
        let text = serde_json::to_vec(self).map_err(Failure::new)?;
        beside.write(NOTE, &text).map_err(Failure::new)
    }
}
