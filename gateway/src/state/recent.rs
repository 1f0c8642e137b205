//! The numbers of the last moments, in a file beside the control socket: it is written 20 times a second and never
//! synced, so a slow disk delays no write. A killed process loses nothing of it; a power failure loses all of it.
//!
//! ```text
//!   header │ record │ record │ …       128 bytes each, at the places that they have in memory
//! ```

use super::disk::Disk;
use super::last_used::LastUsed;
use super::record::{RECORD_LEN, SaRecord, checksum};
use super::records::{MAX_RECORDS, RecordIndex, Records};
use std::io;

/// What the file begins with.
const MAGIC: &[u8; 16] = b"esplanade recent";

/// The file.
pub(super) struct Recent(Box<dyn Disk>);

impl Recent {
    /// The bytes of a file without records, beside this state.
    pub(super) fn empty(state: &LastUsed) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(RECORD_LEN);
        bytes.extend_from_slice(MAGIC);
        bytes.extend_from_slice(&state.file.to_le_bytes());
        bytes.extend_from_slice(&state.generation.to_le_bytes());
        bytes.resize(RECORD_LEN - 8, 0);
        let sum = checksum(&bytes);
        bytes.extend_from_slice(&sum.to_le_bytes());
        bytes
    }

    /// A file that begins with [`Recent::empty`].
    pub(super) fn new(disk: impl Disk + 'static) -> Self {
        Self(Box::new(disk))
    }

    /// Adds to the records what a killed process had not written to the state. The file of another state, or of another
    /// start with it, is passed over.
    pub(super) fn read(disk: &impl Disk, state: &LastUsed, into: &mut Records) -> io::Result<()> {
        let len = usize::try_from(disk.len()?).unwrap_or(usize::MAX);
        let mut bytes = vec![0; len.min((1 + MAX_RECORDS) * RECORD_LEN)];
        let read = disk.read_at(0, &mut bytes)?;
        let (pieces, _) = bytes[..read].as_chunks::<RECORD_LEN>();
        let Some((header, records)) = pieces.split_first() else {
            return Ok(());
        };
        if header[..] == Self::empty(state)[..] {
            // A record that was written in part has a wrong checksum; the state has the one before.
            for record in records.iter().filter_map(SaRecord::decode) {
                into.merge(&record);
            }
        }
        Ok(())
    }

    /// Writes what has changed. The next start would find nothing of a file that another program has removed.
    pub(super) fn write(&mut self, records: &mut Records) -> io::Result<()> {
        self.0.len()?;
        let changed = records.take_recent();
        let mut outcome = Ok(());
        for run in changed.chunk_by(|(a, _), (b, _)| a + 1 == *b) {
            let bytes: Vec<u8> = run.iter().flat_map(|(_, record)| record.encode()).collect();
            let at = run.first().map_or(0, |(place, _)| offset(*place));
            outcome = outcome.and(self.0.write_at(at, &bytes));
        }
        if outcome.is_err() {
            records.recent_is_lost();
        }
        outcome
    }
}

fn offset(place: RecordIndex) -> u64 {
    ((1 + place) * RECORD_LEN) as u64
}
