//! Which association's numbers are where in the file, and how far each may go.
//!
//! ```text
//!   commands ──► recall: found again, reserved, durable ──► published ──► follow
//!                                                                          │
//!   20 times a second: edges, lifetimes, and more numbers once half a block is used ◄──┘
//! ```
//!
//! INVARIANT: a number is used only when a record that reserves it is durable. Which reserved numbers were not used is
//! certain only when they cannot be used any more: at a stop, and when an association has been deleted and its last
//! packet is done.

use super::disk::Disk;
use super::header::Header;
use super::key_fingerprint::KeyFingerprint;
use super::record::Moment;
use super::store::{RecordIndex, Store};
use ipsec::database::Snapshot;
use ipsec::sa::{Sa, SaConfig, SaId, SaState, SavedCounters};
use std::collections::HashMap;
use std::io;
use std::sync::Arc;

/// Numbers that are reserved at a time: more than the packets that any link carries during one write.
const MAX_RESERVED_NUMBERS: u64 = 1 << 20;

/// The fewest that are reserved at a time, near the last number there is.
const MIN_RESERVED_NUMBERS: u64 = 1 << 12;

/// The file's records and the associations that they are about.
pub(super) struct Keeper<D> {
    store: Store<D>,
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
    /// Why nothing could be reserved, if so.
    pub trouble: Option<io::Error>,
}

impl<D: Disk> Keeper<D> {
    /// Follows no association yet.
    pub(super) fn new(store: Store<D>) -> Self {
        Self {
            store,
            followed: Vec::new(),
        }
    }

    /// The header of the file.
    pub(super) fn header(&self) -> &Header {
        self.store.header()
    }

    /// The salt for names in this file.
    pub(super) fn salt(&self) -> &[u8] {
        &self.store.header().salt
    }

    /// Whether keys of this name were used before.
    pub(super) fn knows(&self, name: &KeyFingerprint) -> bool {
        self.store.find(name).is_some()
    }

    /// Gives changed associations the stored numbers of their keys, and reserves numbers for them.
    pub(super) fn recall(&mut self, changed: &[Changed<'_>], moment: Moment) -> Outcome {
        let mut outcome = Outcome {
            recalled: Recalled::default(),
            resumed: Vec::new(),
            trouble: None,
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
        outcome.trouble = self.store.commit().err();
        for each in changed {
            self.allow_at_first(each);
        }
        outcome
    }

    fn place(&mut self, name: &KeyFingerprint, moment: Moment) -> RecordIndex {
        let known = self.store.find(name);
        let place = known.unwrap_or_else(|| self.store.add(*name, moment));
        self.store.set_in_use(place, true);
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
            let record = self.store.record(place);
            (record.reserved, record.edge)
        };
        followed.places.push(place);
        let end = block_end(used.max(followed.allowed), followed.last);
        for place in &followed.places {
            self.store
                .change(*place, |record| record.reserved = record.reserved.max(end));
        }
        followed.state.raise(&changed.sa.config, used, edge);
    }

    /// A new incarnation continues behind all numbers that the previous one may have used.
    fn resume(&mut self, place: RecordIndex, changed: &Changed<'_>, moment: Moment) {
        let config = &changed.sa.config;
        let kept = self.store.record(place).kept(moment);
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
        self.store.change(place, |record| {
            record.take(&start, moment);
            record.reserved = end;
        });
        changed.sa.state.allow_up_to(start.sent);
    }

    /// The numbers that a deleted association of this name has used; they are exact once no packet holds it.
    fn settle_before(&mut self, place: RecordIndex, moment: Moment) {
        let store = &mut self.store;
        self.followed.retain(|followed| {
            let is_it = followed.is_gone && followed.places.contains(&place);
            if is_it {
                let nobody_holds_it = Arc::strong_count(&followed.state) == 1;
                followed.close(store, moment, nobody_holds_it);
            }
            !is_it
        });
    }

    fn allow_at_first(&mut self, changed: &Changed<'_>) {
        let Some(number) = self.number_of(&changed.sa.state) else {
            let place = self.store.find(&changed.name);
            if let Some(place) = place.filter(|place| self.store.is_durable(*place)) {
                let end = self.store.record(place).reserved;
                changed.sa.state.allow_up_to(end);
            }
            return;
        };
        let followed = &mut self.followed[number];
        if followed.is_durable(&self.store) {
            followed.allow_what_is_durable(&self.store);
        } else {
            // The reservation belongs to the old keys alone, and the new ones may be in use in a moment.
            followed.allowed = followed.state.freeze_numbers();
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
                    mine.settle_on(place, &mut self.store, moment);
                    self.followed.push(mine);
                }
                (None, Some((place, sends))) => {
                    self.followed
                        .push(Followed::new(sa, place, sends, &self.store));
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

    /// Writes what has changed, and reserves more numbers where half of a block is used.
    pub(super) fn round(&mut self, moment: Moment) -> io::Result<()> {
        let mut closed = Vec::new();
        for (number, followed) in self.followed.iter_mut().enumerate() {
            if followed.is_gone && Arc::strong_count(&followed.state) == 1 {
                followed.close(&mut self.store, moment, true);
                closed.push(number);
            } else {
                followed.write(&mut self.store, moment);
            }
        }
        for number in closed.into_iter().rev() {
            let followed = self.followed.swap_remove(number);
            for place in followed.places {
                self.store.set_in_use(place, false);
            }
        }
        let outcome = self.store.commit();
        for followed in &mut self.followed {
            followed.allow_what_is_durable(&self.store);
        }
        outcome
    }

    /// The last write: no number is used any more.
    pub(super) fn finish(&mut self, moment: Moment) -> io::Result<()> {
        for followed in &self.followed {
            followed.close(&mut self.store, moment, true);
        }
        self.store.commit()
    }
}

impl Followed {
    fn new<D: Disk>(sa: &Sa, place: RecordIndex, sends: bool, store: &Store<D>) -> Self {
        let allowed = if store.is_durable(place) {
            store.record(place).reserved
        } else {
            sa.state.saved().sent
        };
        Self {
            id: sa.config.id,
            state: Arc::clone(&sa.state),
            places: vec![place],
            last: sa.config.last_number(),
            sends,
            is_gone: false,
            written: SavedCounters::default(),
            allowed,
        }
    }

    /// An update was published or given up: everything received under the other keys is stored in their record.
    fn settle_on<D: Disk>(
        &mut self,
        place: Option<RecordIndex>,
        store: &mut Store<D>,
        moment: Moment,
    ) {
        let keep = place.unwrap_or(self.places[0]);
        let kept = self.state.saved();
        for place in self.places.drain(..).filter(|place| *place != keep) {
            store.change(place, |record| record.take(&kept, moment));
            store.set_in_use(place, false);
        }
        self.places.push(keep);
    }

    fn write<D: Disk>(&mut self, store: &mut Store<D>, moment: Moment) {
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
            store.change(*place, |record| {
                record.take(&kept, moment);
                if wants {
                    record.reserved = record.reserved.max(end);
                }
            });
        }
    }

    fn is_durable<D: Disk>(&self, store: &Store<D>) -> bool {
        self.places.iter().all(|place| store.is_durable(*place))
    }

    /// All records of the association must be durable, or none of the reserved numbers may be used.
    fn allow_what_is_durable<D: Disk>(&mut self, store: &Store<D>) {
        if !self.is_durable(store) {
            return;
        }
        let ends = self
            .places
            .iter()
            .map(|place| store.record(*place).reserved);
        let end = ends.min().unwrap_or(0);
        if !self.is_gone && end > self.allowed {
            self.state.allow_up_to(end);
            self.allowed = end;
        }
    }

    /// The last write. Reserved numbers count as used, unless the association cannot use them any more.
    fn close<D: Disk>(&self, store: &mut Store<D>, moment: Moment, is_exact: bool) {
        let kept = self.state.saved();
        for place in &self.places {
            store.change(*place, |record| {
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
fn block_end(sent: u64, last: u64) -> u64 {
    let left = last.saturating_sub(sent);
    let block = (left / 2)
        .clamp(MIN_RESERVED_NUMBERS, MAX_RESERVED_NUMBERS)
        .min(left);
    sent + block
}

#[cfg(test)]
mod tests;
