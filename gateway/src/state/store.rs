//! The file: a header and records, each in two copies that are written in turn, so that a power failure during a write
//! leaves the previous copy.
//!
//! ```text
//!   header │ header │ 32 records │ the same 32 │ 32 records │ the same 32 │ …        each part 4096 bytes
//!     one      two     copy one      copy two
//! ```
//!
//! INVARIANT: a copy is overwritten only once the other one, younger, has been synced.

use super::disk::Disk;
use super::header::{BadHeader, Header, PAGE};
use super::record::RECORD_LEN;
use super::records::{MAX_RECORDS, Plan, Planned, RecordIndex, Records, Slot};
use std::io;

/// Records in one page.
const RECORDS_PER_GROUP: usize = PAGE / RECORD_LEN;

/// Bytes of a group with both of its copies.
const GROUP_BYTES: usize = 2 * PAGE;

/// The file of the records.
pub(super) struct Store<D> {
    disk: D,
    header: Header,
    header_is_second: bool,
    /// The expected length of the file: a shorter file was truncated by another program.
    len: u64,
}

/// Why a file is not a valid store.
#[derive(Debug)]
pub(super) enum BadStore {
    /// Not a state file, or damaged.
    Header(BadHeader),
    /// Both copies of a record are damaged.
    SaRecord,
    /// The system refused.
    Io(io::Error),
}

impl From<io::Error> for BadStore {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

impl<D: Disk> Store<D> {
    /// The bytes of a file without records.
    pub(super) fn empty(header: &Header) -> Vec<u8> {
        let mut bytes = header.encode();
        bytes.resize(2 * PAGE, 0);
        bytes
    }

    /// Reads all of it.
    pub(super) fn open(mut disk: D) -> Result<(Self, Records), BadStore> {
        // What a killed process has written is in the file, but may not be on the disk yet.
        disk.sync()?;
        let len = disk.len()?;
        let mut bytes = vec![0; usize::try_from(len).unwrap_or(0).min(largest())];
        let read = disk.read_at(0, &mut bytes)?;
        bytes.truncate(read);
        let (header, header_is_second) = Header::read(&bytes).map_err(BadStore::Header)?;
        let mut store = Self {
            disk,
            header,
            header_is_second,
            len: (2 * PAGE) as u64,
        };
        let groups = bytes
            .get(2 * PAGE..)
            .unwrap_or_default()
            .chunks(GROUP_BYTES);
        let mut records = Records::default();
        for group in groups {
            store.read_group(group, &mut records)?;
        }
        records.drop_empty_end();
        Ok((store, records))
    }

    fn read_group(&mut self, group: &[u8], into: &mut Records) -> Result<(), BadStore> {
        // If the power failed while the file was growing, its end is missing and reads as zeroes.
        let mut whole = vec![0; GROUP_BYTES];
        whole[..group.len()].copy_from_slice(group);
        self.len += GROUP_BYTES as u64;
        let (records, _) = whole.as_chunks::<RECORD_LEN>();
        for number in 0..RECORDS_PER_GROUP {
            let slot = Slot::read(&records[number], &records[number + RECORDS_PER_GROUP]);
            into.push(slot.ok_or(BadStore::SaRecord)?);
        }
        Ok(())
    }

    /// The header of the file.
    pub(super) fn header(&self) -> &Header {
        &self.header
    }

    /// Where it is kept.
    pub(super) fn disk(&self) -> &D {
        &self.disk
    }

    /// Writes the header with a higher generation.
    pub(super) fn begin(&mut self, change: impl FnOnce(&mut Header)) -> io::Result<()> {
        let mut header = self.header.clone();
        header.generation += 1;
        change(&mut header);
        let second = !self.header_is_second;
        self.disk
            .write_at(if second { PAGE as u64 } else { 0 }, &header.encode())?;
        self.disk.sync()?;
        (self.header, self.header_is_second) = (header, second);
        Ok(())
    }

    /// Writes what the file lacks, where no other thread changes the records.
    pub(super) fn commit(&mut self, records: &mut Records) -> io::Result<()> {
        if !records.are_changed() {
            return Ok(());
        }
        let grown = self.grow(records.count());
        let plan = records.plan(self.room());
        self.write(&plan)?;
        records.is_durable(&plan);
        grown
    }

    /// Whether another program has truncated the file.
    pub(super) fn is_cut(&self) -> io::Result<bool> {
        Ok(self.disk.len()? < self.len)
    }

    /// Begins the file again, without records.
    pub(super) fn mend(&mut self) -> io::Result<()> {
        let header = self.header.encode();
        self.disk.write_at(0, &header)?;
        self.disk.write_at(PAGE as u64, &header)?;
        self.len = (2 * PAGE) as u64;
        Ok(())
    }

    /// Extends the file for so many records, before any of its new records is used, so that a full disk does not affect
    /// associations in use.
    pub(super) fn grow(&mut self, records: usize) -> io::Result<()> {
        let groups = records.div_ceil(RECORDS_PER_GROUP);
        let wanted = (2 * PAGE + groups * GROUP_BYTES) as u64;
        while self.len < wanted {
            self.disk.write_at(self.len, &[0; GROUP_BYTES])?;
            self.len += GROUP_BYTES as u64;
        }
        Ok(())
    }

    /// For how many records there is room.
    pub(super) fn room(&self) -> usize {
        ((self.len as usize).saturating_sub(2 * PAGE) / GROUP_BYTES) * RECORDS_PER_GROUP
    }

    /// Writes a plan, and returns once it would survive a power failure.
    pub(super) fn write(&mut self, plan: &Plan) -> io::Result<()> {
        for run in plan.0.chunk_by(are_adjacent) {
            self.write_run(run)?;
        }
        self.disk.sync()
    }

    /// Adjacent records are written by one call.
    fn write_run(&mut self, run: &[Planned]) -> io::Result<()> {
        let Some(first) = run.first() else {
            return Ok(());
        };
        let mut bytes = Vec::with_capacity(run.len() * RECORD_LEN);
        for planned in run {
            bytes.extend_from_slice(&planned.record.encode());
        }
        self.disk
            .write_at(offset(first.place, first.second), &bytes)
    }
}

fn largest() -> usize {
    2 * PAGE + MAX_RECORDS.div_ceil(RECORDS_PER_GROUP) * GROUP_BYTES
}

fn offset(place: RecordIndex, second: bool) -> u64 {
    let (group, number) = (place / RECORDS_PER_GROUP, place % RECORDS_PER_GROUP);
    let copy = if second { PAGE } else { 0 };
    (2 * PAGE + group * GROUP_BYTES + copy + number * RECORD_LEN) as u64
}

/// Whether two records are beside each other in the same copy.
fn are_adjacent(a: &Planned, b: &Planned) -> bool {
    a.place + 1 == b.place
        && a.place / RECORDS_PER_GROUP == b.place / RECORDS_PER_GROUP
        && a.second == b.second
}

#[cfg(test)]
mod tests;
