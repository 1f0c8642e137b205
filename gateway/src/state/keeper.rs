//! Which association's numbers are where in the file, and how far each may go. Nothing here waits for a disk: what has
//! changed goes to the file of recent numbers at once, and to the disk by the committer.
//!
//! ```text
//!   commands ──► recall: found again, reserved ──► durable ──► allow_recalled ──► published ──► follow
//!                                                                                                │
//!   20 times a second: edges, lifetimes, and more numbers once half a block is used ◄────────────┘
//! ```
//!
//! INVARIANT: a number is used only when a record that reserves it is durable. Which reserved numbers were not used is
//! certain only when they cannot be used any more: at a stop, and when an association has been deleted and its last
//! packet is done.

use super::key_fingerprint::KeyFingerprint;
use super::recent::Recent;
use super::record::Moment;
use super::records::{Plan, RecordIndex, Records};
use ipsec::database::Snapshot;
use ipsec::sa::{Sa, SaConfig, SaId, SaState, SavedCounters};
use std::collections::HashMap;
use std::io;
use std::sync::Arc;

/// Numbers that are reserved at a time: more than the packets that any link carries during one write.
pub(super) const MAX_RESERVED_NUMBERS: u64 = 1 << 20;

/// The fewest that are reserved at a time, near the last number there is.
const MIN_RESERVED_NUMBERS: u64 = 1 << 12;

/// The file's records and the associations that they are about.
pub(super) struct Keeper {
    records: Records,
    recent: Option<Recent>,
    followed: Vec<Followed>,
}

struct Followed {
    id: SaId,
    state: Arc<SaState>,
    /// Its record; for a moment two, while an update changes its keys.
    places: Vec<RecordIndex>,
    /// The last number that the association can use.
    last: u64,
    /// Whether it is likely to send: its source is an address of this host.
    sends: bool,
    /// Whether it has left the databases, so that only packets in flight may hold it.
    is_gone: bool,
    /// What was written last.
    written: SavedCounters,
    /// Up to which number it may send.
    allowed: u64,
}

/// Where changed associations were found, until they are published.
#[derive(Default)]
pub(super) struct Recalled(HashMap<SaId, (RecordIndex, bool)>);

/// An association as it is about to be published.
pub(super) struct Changed<'a> {
    /// The association, not published yet.
    pub sa: &'a Arc<Sa>,
    /// Its name in the file.
    pub name: KeyFingerprint,
    /// Whether it is likely to send: its source is an address of this host.
    pub sends: bool,
}

/// The result of recalling.
pub(super) struct Outcome {
    /// To be followed once they are published.
    pub recalled: Recalled,
    /// Associations that continue with an earlier gateway's numbers, or with those from before they were deleted.
    pub resumed: Vec<SaId>,
}

impl Keeper {
    /// Follows no association yet. `recent`: the file of recent numbers.
    pub(super) fn new(records: Records, recent: Option<Recent>) -> Self {
        Self {
            records,
            recent,
            followed: Vec::new(),
        }
    }

    /// The records, for the committer.
    pub(super) fn records(&mut self) -> &mut Records {
        &mut self.records
    }

    /// Whether keys of this name were used before.
    pub(super) fn knows(&self, name: &KeyFingerprint) -> bool {
        self.records.find(name).is_some()
    }

    /// Gives changed associations the stored numbers of their keys, and reserves numbers for them. They may be used
    /// once the records are durable and [`Keeper::allow_recalled`] was called.
    pub(super) fn recall(&mut self, changed: &[Changed<'_>], moment: Moment) -> Outcome {
        let mut outcome = Outcome {
            recalled: Recalled::default(),
            resumed: Vec::new(),
        };
        for each in changed {
            let (id, known) = (each.sa.config.id, self.knows(&each.name));
            let place = self.place(&each.name, moment);
            self.settle_before(place, moment);
            match self.number_of(&each.sa.state) {
                Some(number) => self.change_keys(number, place, each),
                None => self.resume(place, each, moment),
            }
            if known {
                outcome.resumed.push(id);
            }
            outcome.recalled.0.insert(id, (place, each.sends));
        }
        outcome
    }

    /// Allows recalled associations the numbers that the disk reserves for them.
    pub(super) fn allow_recalled(&mut self, changed: &[Changed<'_>]) {
        for each in changed {
            self.allow_at_first(each);
        }
    }

    fn place(&mut self, name: &KeyFingerprint, moment: Moment) -> RecordIndex {
        let known = self.records.find(name);
        let place = known.unwrap_or_else(|| self.records.add(*name, moment));
        self.records.set_in_use(place, true);
        place
    }

    fn number_of(&self, state: &Arc<SaState>) -> Option<usize> {
        let is_it = |followed: &Followed| Arc::ptr_eq(&followed.state, state);
        self.followed.iter().position(is_it)
    }

    /// An update with other keys continues with the association's current numbers, and never below those that the new
    /// keys have used. Until it is published either key may be in use, so both records reserve the numbers.
    fn change_keys(&mut self, number: usize, place: RecordIndex, changed: &Changed<'_>) {
        let followed = &mut self.followed[number];
        followed.last = changed.sa.config.last_number();
        if followed.places.contains(&place) {
            return;
        }
        let (used, edge) = {
            let record = self.records.record(place);
            (record.reserved, record.edge)
        };
        followed.places.push(place);
        let end = block_end(used.max(followed.allowed), followed.last);
        for place in &followed.places {
            self.records
                .change(*place, |record| record.reserved = record.reserved.max(end));
        }
        followed.state.raise(&changed.sa.config, used, edge);
    }

    /// A new incarnation continues behind all numbers that the previous one may have used.
    fn resume(&mut self, place: RecordIndex, changed: &Changed<'_>, moment: Moment) {
        let config = &changed.sa.config;
        let kept = self.records.record(place).kept(moment);
        let own = config.sequence;
        let start = SavedCounters {
            sent: kept.sent.max(own),
            edge: kept.edge.max(own),
            ..kept
        };
        changed.sa.state.resume(config, &start);
        let end = if changed.sends {
            block_end(start.sent, config.last_number())
        } else {
            start.sent
        };
        // The first packet needs a record in the file, and an association that only receives is looked up at the next
        // start.
        self.records.change(place, |record| {
            record.take(&start, moment);
            record.reserved = end;
        });
        changed.sa.state.allow_up_to(start.sent);
    }

    /// The numbers that a deleted association of this name has used; they are exact once no packet holds it.
    fn settle_before(&mut self, place: RecordIndex, moment: Moment) {
        let records = &mut self.records;
        self.followed.retain(|followed| {
            let is_it = followed.is_gone && followed.places.contains(&place);
            if is_it {
                let is_unused = Arc::strong_count(&followed.state) == 1;
                followed.close(records, moment, is_unused);
            }
            !is_it
        });
    }

    fn allow_at_first(&mut self, changed: &Changed<'_>) {
        let Some(number) = self.number_of(&changed.sa.state) else {
            if let Some(place) = self.records.find(&changed.name) {
                let end = self.records.reserved_on_disk(place);
                if end > changed.sa.state.saved().sent {
                    changed.sa.state.allow_up_to(end);
                }
            }
            return;
        };
        let followed = &mut self.followed[number];
        if followed.reserved_on_disk(&self.records) < followed.allowed {
            // The reservation belongs to the old keys alone, and the new ones may be in use in a moment.
            followed.allowed = followed.state.freeze_numbers();
        } else {
            followed.allow_what_is_durable(&self.records);
        }
    }

    /// From now on these associations are followed, and all others count as deleted. After a change that was given up,
    /// nothing is recalled.
    pub(super) fn follow(&mut self, snapshot: &Snapshot, recalled: &Recalled, moment: Moment) {
        let mut known: HashMap<SaId, Vec<Followed>> = HashMap::new();
        for followed in self.followed.drain(..) {
            known.entry(followed.id).or_default().push(followed);
        }
        for sa in snapshot.sas() {
            let same = |followed: &Followed| Arc::ptr_eq(&followed.state, &sa.state);
            let mine = known.get_mut(&sa.config.id).and_then(|list| {
                let number = list.iter().position(same)?;
                Some(list.swap_remove(number))
            });
            let found = recalled.0.get(&sa.config.id).copied();
            match (mine, found) {
                (Some(mut mine), found) => {
                    let place = found.map(|(place, _)| place);
                    mine.settle_on(place, &mut self.records, moment);
                    self.followed.push(mine);
                }
                (None, Some((place, sends))) => {
                    let mut new = Followed::new(sa, place, sends);
                    new.allow_what_is_durable(&self.records);
                    self.followed.push(new);
                }
                // Never recalled: it has no record.
                (None, None) => {}
            }
        }
        for mut followed in known.into_values().flatten() {
            followed.is_gone = true;
            self.followed.push(followed);
        }
    }

    /// Takes over what has changed, and reserves more numbers where half of a block is used.
    pub(super) fn round(&mut self, moment: Moment) {
        let mut closed = Vec::new();
        for (number, followed) in self.followed.iter_mut().enumerate() {
            if followed.is_gone && Arc::strong_count(&followed.state) == 1 {
                followed.close(&mut self.records, moment, true);
                closed.push(number);
            } else {
                followed.write(&mut self.records, moment);
            }
        }
        for number in closed.into_iter().rev() {
            let followed = self.followed.swap_remove(number);
            for place in followed.places {
                self.records.set_in_use(place, false);
            }
        }
    }

    /// Writes what has changed to the file of recent numbers.
    pub(super) fn write_recent(&mut self) -> io::Result<()> {
        match &mut self.recent {
            Some(recent) => recent.write(&mut self.records),
            None => Ok(()),
        }
    }

    /// A plan would survive a power failure now: its numbers may be used.
    pub(super) fn is_durable(&mut self, plan: &Plan) {
        self.records.is_durable(plan);
        for followed in &mut self.followed {
            followed.allow_what_is_durable(&self.records);
        }
    }

    /// No number is used any more.
    pub(super) fn finish(&mut self, moment: Moment) {
        for followed in &self.followed {
            followed.close(&mut self.records, moment, true);
        }
    }
}

impl Followed {
    fn new(sa: &Sa, place: RecordIndex, sends: bool) -> Self {
        Self {
            id: sa.config.id,
            state: Arc::clone(&sa.state),
            places: vec![place],
            last: sa.config.last_number(),
            sends,
            is_gone: false,
            written: SavedCounters::default(),
            allowed: sa.state.saved().sent,
        }
    }

    /// An update was published or given up: everything received under the other keys is stored in their record.
    fn settle_on(&mut self, place: Option<RecordIndex>, records: &mut Records, moment: Moment) {
        let keep = place.unwrap_or(self.places[0]);
        let kept = self.state.saved();
        for place in self.places.drain(..).filter(|place| *place != keep) {
            records.change(place, |record| record.take(&kept, moment));
            records.set_in_use(place, false);
        }
        self.places.push(keep);
    }

    fn write(&mut self, records: &mut Records, moment: Moment) {
        let (kept, short) = self.state.saved_and_shortage();
        let left = self.allowed.saturating_sub(kept.sent);
        let end = block_end(kept.sent, self.last);
        let wants = !self.is_gone && (short || self.sends && left < (end - kept.sent) / 2);
        self.sends |= short;
        if kept == self.written && !wants {
            return;
        }
        self.written = kept;
        for place in &self.places {
            records.change(*place, |record| {
                record.take(&kept, moment);
                if wants {
                    record.reserved = record.reserved.max(end);
                }
            });
        }
    }

    /// Up to which number the disk reserves in all records of the association.
    fn reserved_on_disk(&self, records: &Records) -> u64 {
        let ends = self
            .places
            .iter()
            .map(|place| records.reserved_on_disk(*place));
        ends.min().unwrap_or(0)
    }

    fn allow_what_is_durable(&mut self, records: &Records) {
        let end = self.reserved_on_disk(records);
        if !self.is_gone && end > self.allowed {
            self.state.allow_up_to(end);
            self.allowed = end;
        }
    }

    /// The last write. Reserved numbers count as used, unless the association cannot use them any more.
    fn close(&self, records: &mut Records, moment: Moment, is_exact: bool) {
        let kept = self.state.saved();
        for place in &self.places {
            records.change(*place, |record| {
                record.take(&kept, moment);
                if is_exact {
                    record.reserved = kept.sent;
                }
            });
        }
    }
}

/// Whether keys without a record may be used. Where the sequence number is the nonce, it must never have been used
/// before with the key, and only the configuration can declare that (a fresh key, or a sequence number to start from).
pub(super) fn may_begin(config: &SaConfig) -> bool {
    !config.has_implicit_iv() || config.key_is_fresh || config.sequence > 0
}

/// The end of the block that begins behind `sent`.
pub(super) fn block_end(sent: u64, last: u64) -> u64 {
    let left = last.saturating_sub(sent);
    let block = (left / 2)
        .clamp(MIN_RESERVED_NUMBERS, MAX_RESERVED_NUMBERS)
        .min(left);
    sent + block
}
