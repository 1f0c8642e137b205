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
use super::key_fingerprint::KeyFingerprint;
use super::record::{Moment, RECORD_LEN, SaRecord};
use std::collections::HashMap;
use std::io;

/// Records in one page.
const RECORDS_PER_GROUP: usize = PAGE / RECORD_LEN;

/// Bytes of a group with both of its copies.
const GROUP_BYTES: usize = 2 * PAGE;

/// The most keys that are stored: 16 MiB of file. When it is full, the key that has been unused for longest is
/// replaced.
pub(super) const MAX_RECORDS: usize = 1 << 16;

/// Where a record is.
pub(super) type RecordIndex = usize;

/// The records in memory and where they are kept.
pub(super) struct Store<D> {
    disk: D,
    header: Header,
    header_is_second: bool,
    slots: Vec<Slot>,
    places: HashMap<KeyFingerprint, RecordIndex>,
    /// The expected length of the file: a shorter file was truncated by another program.
    len: u64,
}

struct Slot {
    record: SaRecord,
    /// Whether the second copy is the younger one on the disk.
    second: bool,
    /// Whether this has not been written to the disk yet.
    dirty: bool,
    /// Whether an existing association uses this record.
    in_use: bool,
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
    pub(super) fn open(mut disk: D) -> Result<Self, BadStore> {
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
            slots: Vec::new(),
            places: HashMap::new(),
            len: (2 * PAGE) as u64,
        };
        let groups = bytes
            .get(2 * PAGE..)
            .unwrap_or_default()
            .chunks(GROUP_BYTES);
        for group in groups {
            store.read_group(group)?;
        }
        store.drop_empty_end();
        Ok(store)
    }

    fn read_group(&mut self, group: &[u8]) -> Result<(), BadStore> {
        // If the power failed while the file was growing, its end is missing and reads as zeroes.
        let mut whole = vec![0; GROUP_BYTES];
        whole[..group.len()].copy_from_slice(group);
        self.len += GROUP_BYTES as u64;
        let (records, _) = whole.as_chunks::<RECORD_LEN>();
        for number in 0..RECORDS_PER_GROUP {
            let slot = Slot::read(&records[number], &records[number + RECORDS_PER_GROUP])?;
            if slot.record.generation > 0 {
                self.places.insert(slot.record.name, self.slots.len());
            }
            self.slots.push(slot);
        }
        Ok(())
    }

    fn drop_empty_end(&mut self) {
        while self
            .slots
            .last()
            .is_some_and(|slot| slot.record.generation == 0)
        {
            self.slots.pop();
        }
    }

    /// The records were written before the last boot: the uptime counts from 0 again.
    pub(super) fn is_of_earlier_boot(&mut self) {
        for slot in &mut self.slots {
            slot.record.written = 0;
        }
    }

    /// The header of the file.
    pub(super) fn header(&self) -> &Header {
        &self.header
    }

    /// Where it is kept.
    pub(super) fn disk(&self) -> &D {
        &self.disk
    }

    /// The index of the record of a name.
    pub(super) fn find(&self, name: &KeyFingerprint) -> Option<RecordIndex> {
        self.places.get(name).copied()
    }

    /// A record.
    pub(super) fn record(&self, place: RecordIndex) -> &SaRecord {
        &self.slots[place].record
    }

    /// Changes a record; [`Store::commit`] writes it.
    pub(super) fn change(&mut self, place: RecordIndex, change: impl FnOnce(&mut SaRecord)) {
        let slot = &mut self.slots[place];
        change(&mut slot.record);
        slot.dirty = true;
    }

    /// Adds a record for an association without one. Nothing is written yet.
    pub(super) fn add(&mut self, name: KeyFingerprint, moment: Moment) -> RecordIndex {
        let record = SaRecord::new(name, moment);
        let place = if self.slots.len() < MAX_RECORDS {
            None
        } else {
            self.longest_unused()
        };
        let place = match place {
            Some(place) => {
                let slot = &mut self.slots[place];
                self.places.remove(&slot.record.name);
                let generation = slot.record.generation;
                slot.record = SaRecord {
                    generation,
                    ..record
                };
                place
            }
            None => {
                self.slots.push(Slot::new(record));
                self.slots.len() - 1
            }
        };
        self.slots[place].dirty = true;
        self.places.insert(name, place);
        place
    }

    fn longest_unused(&self) -> Option<RecordIndex> {
        let unused = self
            .slots
            .iter()
            .enumerate()
            .filter(|(_, slot)| !slot.in_use);
        let oldest = unused.min_by_key(|(_, slot)| slot.record.created + slot.record.age);
        oldest.map(|(place, _)| place)
    }

    /// Sets whether an existing association uses a record.
    pub(super) fn set_in_use(&mut self, place: RecordIndex, in_use: bool) {
        self.slots[place].in_use = in_use;
    }

    /// Whether the disk has the present content of a record.
    pub(super) fn is_durable(&self, place: RecordIndex) -> bool {
        !self.slots[place].dirty
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

    /// Writes what has changed, and returns once it would survive a power failure. If the disk is full, the records
    /// that already have room in the file are still written.
    pub(super) fn commit(&mut self) -> io::Result<()> {
        if self.slots.iter().all(|slot| !slot.dirty) {
            return Ok(());
        }
        if self.disk.len()? < self.len {
            self.mend()?;
        }
        let grown = self.grow();
        let room = ((self.len as usize).saturating_sub(2 * PAGE) / GROUP_BYTES) * RECORDS_PER_GROUP;
        let dirty: Vec<_> = (0..self.slots.len().min(room))
            .filter(|place| self.slots[*place].dirty)
            .collect();
        for run in runs(&dirty, |place| self.slots[place].second) {
            self.write(run)?;
        }
        self.disk.sync()?;
        for place in dirty {
            let slot = &mut self.slots[place];
            slot.record.generation += 1;
            (slot.second, slot.dirty) = (!slot.second, false);
        }
        grown
    }

    /// Adjacent records are written by one call.
    fn write(&mut self, run: &[RecordIndex]) -> io::Result<()> {
        let Some(&first) = run.first() else {
            return Ok(());
        };
        let mut bytes = Vec::with_capacity(run.len() * RECORD_LEN);
        for place in run {
            let record = &self.slots[*place].record;
            let next = SaRecord {
                generation: record.generation + 1,
                ..*record
            };
            bytes.extend_from_slice(&next.encode());
        }
        let second = !self.slots[first].second;
        self.disk.write_at(offset(first, second), &bytes)
    }

    /// The file is extended before any of its new records is used, so that a full disk does not affect associations in
    /// use.
    fn grow(&mut self) -> io::Result<()> {
        let groups = self.slots.len().div_ceil(RECORDS_PER_GROUP);
        let wanted = (2 * PAGE + groups * GROUP_BYTES) as u64;
        while self.len < wanted {
            self.disk.write_at(self.len, &[0; GROUP_BYTES])?;
            self.len += GROUP_BYTES as u64;
        }
        Ok(())
    }

    /// Another program has truncated the file: everything is written again.
    fn mend(&mut self) -> io::Result<()> {
        let header = self.header.encode();
        self.disk.write_at(0, &header)?;
        self.disk.write_at(PAGE as u64, &header)?;
        self.len = (2 * PAGE) as u64;
        for slot in &mut self.slots {
            slot.dirty |= slot.record.generation > 0;
        }
        Ok(())
    }
}

impl Slot {
    fn new(record: SaRecord) -> Self {
        Self {
            record,
            second: true,
            dirty: false,
            in_use: false,
        }
    }

    fn read(first: &[u8; RECORD_LEN], second: &[u8; RECORD_LEN]) -> Result<Self, BadStore> {
        let empty = [0; RECORD_LEN];
        match (SaRecord::decode(first), SaRecord::decode(second)) {
            (Some(first), Some(second)) if first.generation > second.generation => {
                Ok(Self::of(first, false))
            }
            (_, Some(second)) => Ok(Self::of(second, true)),
            (Some(first), None) => Ok(Self::of(first, false)),
            // Its first write was incomplete: it was never in use.
            (None, None) if *first == empty || *second == empty => Ok(Self::new(SaRecord::new(
                KeyFingerprint::default(),
                Moment::default(),
            ))),
            (None, None) => Err(BadStore::SaRecord),
        }
    }

    fn of(record: SaRecord, second: bool) -> Self {
        Self {
            second,
            ..Self::new(record)
        }
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

/// Splits record indices into runs that are adjacent in one copy.
fn runs(places: &[RecordIndex], second: impl Fn(RecordIndex) -> bool) -> Vec<&[RecordIndex]> {
    let apart = |a: &RecordIndex, b: &RecordIndex| {
        a + 1 == *b && a / RECORDS_PER_GROUP == b / RECORDS_PER_GROUP && second(*a) == second(*b)
    };
    places.chunk_by(apart).collect()
}

#[cfg(test)]
mod tests;
