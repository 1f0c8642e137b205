//! The records in memory: which are not on the disk yet, and which numbers the disk reserves.
//!
//! ```text
//!   change ──► record ──► plan: a copy of what has changed ──► written and synced, without a lock ──► is_durable
//!     ▲                                                                                              │
//!     └────── may change again at any time; then it is written again by the next plan ◄──────────────┘
//! ```

use super::key_fingerprint::KeyFingerprint;
use super::record::{Moment, RECORD_LEN, SaRecord};
use std::collections::HashMap;

/// The most keys that are stored: 16 MiB of file. When it is full, the key that has been unused for longest is
/// replaced.
pub(super) const MAX_RECORDS: usize = 1 << 16;

/// Where a record is.
pub(super) type RecordIndex = usize;

/// All records, by index and by name.
#[derive(Default)]
pub(super) struct Records {
    slots: Vec<Slot>,
    places: HashMap<KeyFingerprint, RecordIndex>,
}

pub(super) struct Slot {
    pub(super) record: SaRecord,
    /// Whether the second copy is the younger one on the disk.
    pub(super) second: bool,
    /// Counts the changes.
    version: u64,
    /// The version that the disk has.
    durable: u64,
    /// The version that the file of recent numbers has.
    recent: u64,
    /// Up to which number the disk reserves, for the present name.
    ///
    /// INVARIANT: never beyond what the record reserves, which the disk may have in its place at any time.
    reserved: u64,
    /// Whether an existing association uses this record.
    in_use: bool,
}

/// What a commit writes: each record as it was when the commit began.
#[derive(Default)]
pub(super) struct Plan(pub(super) Vec<Planned>);

/// One record of a plan.
pub(super) struct Planned {
    pub(super) place: RecordIndex,
    /// With the generation of this write.
    pub(super) record: SaRecord,
    /// Whether it is written to the second copy.
    pub(super) second: bool,
    version: u64,
}

impl Records {
    /// Adds the next record of the file.
    pub(super) fn push(&mut self, slot: Slot) {
        if slot.record.generation > 0 {
            self.places.insert(slot.record.name, self.slots.len());
        }
        self.slots.push(slot);
    }

    /// How many there are, with those that were never used.
    pub(super) fn count(&self) -> usize {
        self.slots.len()
    }

    /// Removes records that were never used from the end.
    pub(super) fn drop_empty_end(&mut self) {
        let is_empty = |slot: &Slot| slot.record.generation == 0;
        while self.slots.last().is_some_and(is_empty) {
            self.slots.pop();
        }
    }

    /// The records were written before the last boot: the uptime counts from 0 again.
    pub(super) fn are_of_earlier_boot(&mut self) {
        for slot in &mut self.slots {
            slot.record.written = 0;
        }
    }

    /// The index of the record of a name.
    pub(super) fn find(&self, name: &KeyFingerprint) -> Option<RecordIndex> {
        self.places.get(name).copied()
    }

    /// A record.
    pub(super) fn record(&self, place: RecordIndex) -> &SaRecord {
        &self.slots[place].record
    }

    /// Changes a record in memory.
    pub(super) fn change(&mut self, place: RecordIndex, change: impl FnOnce(&mut SaRecord)) {
        let slot = &mut self.slots[place];
        change(&mut slot.record);
        slot.has_changed();
    }

    /// Adds a record for an association without one.
    pub(super) fn add(&mut self, name: KeyFingerprint, moment: Moment) -> RecordIndex {
        let record = SaRecord::new(name, moment);
        let replaced = if self.slots.len() < MAX_RECORDS {
            None
        } else {
            self.longest_unused()
        };
        let place = match replaced {
            Some(place) => {
                self.places.remove(&self.slots[place].record.name);
                place
            }
            None => {
                self.slots.push(Slot::new(record));
                self.slots.len() - 1
            }
        };
        let slot = &mut self.slots[place];
        slot.record = SaRecord {
            generation: slot.record.generation,
            ..record
        };
        slot.reserved = 0;
        slot.version += 1;
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

    /// Up to which number the disk reserves for a record; 0 if the disk does not have it.
    pub(super) fn reserved_on_disk(&self, place: RecordIndex) -> u64 {
        self.slots[place].reserved
    }

    /// Whether the disk lacks anything.
    pub(super) fn are_changed(&self) -> bool {
        self.slots.iter().any(|slot| slot.version != slot.durable)
    }

    /// The disk has lost all of them.
    pub(super) fn are_lost(&mut self) {
        for slot in &mut self.slots {
            slot.reserved = 0;
            if slot.record.generation > 0 {
                slot.version += 1;
            }
        }
    }

    /// What the disk lacks of the first `count` records.
    pub(super) fn plan(&self, count: usize) -> Plan {
        let slots = self.slots.iter().take(count).enumerate();
        let changed = slots.filter(|(_, slot)| slot.version != slot.durable);
        let planned = changed.map(|(place, slot)| Planned {
            place,
            record: slot.next(),
            second: !slot.second,
            version: slot.version,
        });
        Plan(planned.collect())
    }

    /// A plan would survive a power failure now.
    pub(super) fn is_durable(&mut self, plan: &Plan) {
        for planned in &plan.0 {
            let slot = &mut self.slots[planned.place];
            slot.record.generation = planned.record.generation;
            (slot.second, slot.durable) = (planned.second, planned.version);
            if slot.record.name == planned.record.name {
                slot.reserved = planned.record.reserved.min(slot.record.reserved);
            }
        }
    }

    /// What the file of recent numbers lacks; it counts as written.
    pub(super) fn take_recent(&mut self) -> Vec<(RecordIndex, SaRecord)> {
        let slots = self.slots.iter_mut().enumerate();
        let changed = slots.filter(|(_, slot)| slot.version != slot.recent);
        let taken = changed.map(|(place, slot)| {
            slot.recent = slot.version;
            (place, slot.next())
        });
        taken.collect()
    }

    /// The file of recent numbers may lack any of them.
    pub(super) fn recent_is_lost(&mut self) {
        for slot in self.slots.iter_mut().filter(|slot| slot.version > 0) {
            slot.recent = slot.version - 1;
        }
    }

    /// A record of the file of recent numbers, which may be younger than what the disk has or was about to be written.
    pub(super) fn merge(&mut self, recent: &SaRecord) {
        let known = self.find(&recent.name);
        let place = known.unwrap_or_else(|| self.add(recent.name, Moment::default()));
        let slot = &mut self.slots[place];
        let before = slot.record;
        if known.is_some() && recent.generation < before.generation {
            return;
        }
        slot.record = *recent;
        slot.record.generation = recent.generation.max(before.generation);
        if known.is_some() && recent.generation == before.generation {
            slot.record.reserved = recent.reserved.max(before.reserved);
            slot.record.edge = recent.edge.max(before.edge);
        }
        slot.has_changed();
    }
}

impl Slot {
    fn new(record: SaRecord) -> Self {
        Self {
            reserved: record.reserved,
            record,
            second: true,
            version: 0,
            durable: 0,
            recent: 0,
            in_use: false,
        }
    }

    /// As the file has it: a damaged or missing copy leaves the other one. `None`: both are damaged.
    pub(super) fn read(first: &[u8; RECORD_LEN], second: &[u8; RECORD_LEN]) -> Option<Self> {
        let empty = [0; RECORD_LEN];
        match (SaRecord::decode(first), SaRecord::decode(second)) {
            (Some(first), Some(second)) if first.generation > second.generation => {
                Some(Self::of(first, false))
            }
            (_, Some(second)) => Some(Self::of(second, true)),
            (Some(first), None) => Some(Self::of(first, false)),
            // Its first write was incomplete: it was never in use.
            (None, None) if *first == empty || *second == empty => Some(Self::new(SaRecord::new(
                KeyFingerprint::default(),
                Moment::default(),
            ))),
            (None, None) => None,
        }
    }

    fn of(record: SaRecord, second: bool) -> Self {
        Self {
            second,
            ..Self::new(record)
        }
    }

    /// The disk lacks the record as it is now. One that was closed exactly reserves less than before.
    fn has_changed(&mut self) {
        self.reserved = self.reserved.min(self.record.reserved);
        self.version += 1;
    }

    /// The record with the generation of its next write.
    fn next(&self) -> SaRecord {
        SaRecord {
            generation: self.record.generation + 1,
            ..self.record
        }
    }
}
