//! Joining fragments, within bounds.

use super::read::{Fragment, Key};
use crate::Dropped;
use crate::wire::ip::{Ip, v4, v6};
use std::collections::BTreeMap;

/// How much incomplete packets may take.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ReassemblyLimits {
    /// Bytes, bookkeeping included.
    pub bytes: usize,
    /// Pieces of one packet. 65535 bytes over a path of 576 are 118.
    pub pieces: usize,
    /// Seconds until an incomplete packet is given up (RFC 8200 4.5: 60).
    pub seconds: u64,
}

impl Default for ReassemblyLimits {
    fn default() -> Self {
        Self {
            bytes: 4 << 20,
            pieces: 128,
            seconds: 60,
        }
    }
}

/// What became of a packet that was offered.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Offered {
    /// It is whole and nothing was to be done.
    NotFragment,
    /// It is kept until the others come.
    Held,
    /// It was the last that was missing: here is the whole packet.
    Joined(Vec<u8>),
}

/// Keeps fragments until their packets are whole.
#[derive(Debug)]
pub struct Reassembler {
    limits: ReassemblyLimits,
    partial: BTreeMap<Key, Partial>,
    /// Keys by age: the number grows with each new packet.
    by_age: BTreeMap<u64, Key>,
    next_serial: u64,
    held_bytes: usize,
    given_up: u64,
}

/// Bytes charged for a packet, and for each piece, beside their content.
const OVERHEAD: usize = 128;

#[derive(Debug)]
struct Partial {
    serial: u64,
    added: u64,
    /// In order of offset, never overlapping.
    pieces: Vec<Piece>,
    /// Bytes of the whole payload, once the last fragment was seen.
    total: Option<usize>,
    /// The first fragment's headers, ready for the whole packet.
    headers: Vec<u8>,
    ecn: EcnSeen,
    /// RFC 5722: fragments overlapped; all further ones of this packet are dropped.
    poisoned: bool,
}

#[derive(Debug)]
struct Piece {
    offset: usize,
    bytes: Box<[u8]>,
}

impl Reassembler {
    /// An empty one.
    pub fn new(limits: ReassemblyLimits) -> Self {
        Self {
            limits,
            partial: BTreeMap::new(),
            by_age: BTreeMap::new(),
            next_serial: 0,
            held_bytes: 0,
            given_up: 0,
        }
    }

    /// Bytes that incomplete packets take now; never above [`ReassemblyLimits::bytes`] between calls.
    pub fn held_bytes(&self) -> usize {
        self.held_bytes
    }

    /// Packets given up so far: too old, or pushed out by newer ones. One whose own fragment was refused is reported by
    /// that error instead.
    pub fn given_up(&self) -> u64 {
        self.given_up
    }

    /// Takes a packet as it came from the wire. `now` is in seconds and never goes back.
    pub fn offer(&mut self, packet: &[u8], now: u64) -> Result<Offered, Dropped> {
        let Some(fragment) = Fragment::read(packet)? else {
            return Ok(Offered::NotFragment);
        };
        if fragment.offset == 0 && !fragment.more {
            // RFC 6946: an atomic fragment is processed alone, even if other fragments have its identification.
            return Ok(Offered::Joined(joined(
                &fragment.headers,
                &[fragment.bytes],
                0,
            )));
        }
        self.expire(now);
        self.keep(fragment, now)
    }

    /// Gives up what is too old; also done by [`Reassembler::offer`].
    pub fn expire(&mut self, now: u64) {
        while let Some((_, &key)) = self.by_age.first_key_value() {
            let added = self.partial.get(&key).map_or(0, |partial| partial.added);
            if now < added.saturating_add(self.limits.seconds) {
                return;
            }
            self.forget(&key);
            self.given_up += 1;
        }
    }

    fn keep(&mut self, fragment: Fragment<'_>, now: u64) -> Result<Offered, Dropped> {
        let key = fragment.key;
        let limits = self.limits;
        let partial = self.partial_for(key, now);
        let before = partial.cost();
        let verdict = partial.insert(fragment, limits.pieces);
        let (after, complete) = (partial.cost(), partial.is_complete());
        self.held_bytes = self.held_bytes + after - before;
        verdict?;
        if !complete {
            self.make_room(&key);
            // Its own packet may have been dropped to make room.
            return self
                .partial
                .contains_key(&key)
                .then_some(Offered::Held)
                .ok_or(Dropped::NoBuffer);
        }
        let whole = self.forget(&key).ok_or(Dropped::Malformed)?;
        whole.join().map(Offered::Joined)
    }

    fn partial_for(&mut self, key: Key, now: u64) -> &mut Partial {
        self.partial.entry(key).or_insert_with(|| {
            let partial = Partial::new(self.next_serial, now);
            self.by_age.insert(self.next_serial, key);
            self.next_serial += 1;
            self.held_bytes += partial.cost();
            partial
        })
    }

    fn make_room(&mut self, newest: &Key) {
        while self.held_bytes > self.limits.bytes
            && let Some((_, &oldest)) = self.by_age.first_key_value()
        {
            self.forget(&oldest);
            self.given_up += u64::from(oldest != *newest);
        }
    }

    fn forget(&mut self, key: &Key) -> Option<Partial> {
        let partial = self.partial.remove(key)?;
        self.by_age.remove(&partial.serial);
        self.held_bytes -= partial.cost();
        Some(partial)
    }
}

impl Partial {
    fn new(serial: u64, added: u64) -> Self {
        Self {
            serial,
            added,
            pieces: Vec::new(),
            total: None,
            headers: Vec::new(),
            ecn: EcnSeen::default(),
            poisoned: false,
        }
    }

    fn cost(&self) -> usize {
        let pieces = self.pieces.iter().map(|piece| OVERHEAD + piece.bytes.len());
        OVERHEAD + self.headers.len() + pieces.sum::<usize>()
    }

    fn insert(&mut self, fragment: Fragment<'_>, max_pieces: usize) -> Result<(), Dropped> {
        if self.poisoned {
            return Err(Dropped::Malformed);
        }
        let place = self
            .pieces
            .partition_point(|piece| piece.offset < fragment.offset);
        if self.repeats(place, &fragment) {
            // RFC 8200 4.5 lets an exact duplicate pass as such.
            return Ok(());
        }
        if !self.fits(place, &fragment) {
            self.poison();
            return Err(Dropped::Malformed);
        }
        if self.pieces.len() == max_pieces {
            self.poison();
            return Err(Dropped::NoBuffer);
        }
        self.ecn.see(fragment.traffic_class);
        if !fragment.more {
            self.total = Some(fragment.end());
        }
        if fragment.offset == 0 {
            self.headers = fragment.headers;
        }
        let bytes = fragment.bytes.into();
        self.pieces.insert(
            place,
            Piece {
                offset: fragment.offset,
                bytes,
            },
        );
        Ok(())
    }

    fn repeats(&self, place: usize, fragment: &Fragment<'_>) -> bool {
        self.pieces.get(place).is_some_and(|piece| {
            let same_end = fragment.more != (self.total == Some(fragment.end()));
            piece.offset == fragment.offset && *piece.bytes == *fragment.bytes && same_end
        })
    }

    /// Whether it overlaps no neighbour and agrees with the end, as far as that is known.
    fn fits(&self, place: usize, fragment: &Fragment<'_>) -> bool {
        let before = place
            .checked_sub(1)
            .and_then(|place| self.pieces.get(place));
        let furthest = self.pieces.last().map_or(0, Piece::end);
        before.is_none_or(|piece| piece.end() <= fragment.offset)
            && self
                .pieces
                .get(place)
                .is_none_or(|piece| fragment.end() <= piece.offset)
            && self
                .total
                .is_none_or(|total| fragment.more && fragment.end() <= total)
            && (fragment.more || furthest <= fragment.offset)
    }

    fn poison(&mut self) {
        self.poisoned = true;
        self.pieces = Vec::new();
        self.headers = Vec::new();
    }

    fn is_complete(&self) -> bool {
        let held: usize = self.pieces.iter().map(|piece| piece.bytes.len()).sum();
        self.total == Some(held) && !self.poisoned
    }

    fn join(self) -> Result<Vec<u8>, Dropped> {
        let ecn = self.ecn.whole()?;
        let pieces: Vec<&[u8]> = self.pieces.iter().map(|piece| &*piece.bytes).collect();
        let packet = joined(&self.headers, &pieces, ecn);
        // RFC 8200 4.5: fragments that are each of legal length may make a packet that is not.
        let says = Ip::new_checked(&packet)?.total_len();
        (says == packet.len())
            .then_some(packet)
            .ok_or(Dropped::Malformed)
    }
}

impl Piece {
    fn end(&self) -> usize {
        self.offset + self.bytes.len()
    }
}

/// The whole packet: headers with their lengths mended, then all pieces.
fn joined(headers: &[u8], pieces: &[&[u8]], ecn: u8) -> Vec<u8> {
    let mut packet = headers.to_vec();
    pieces
        .iter()
        .for_each(|piece| packet.extend_from_slice(piece));
    let total_len = packet.len();
    if packet.first().is_some_and(|first| first >> 4 == 4) {
        v4::set_fragment(&mut packet, headers.len(), total_len, 0, false);
    } else {
        v6::set_total_len(&mut packet, total_len);
    }
    if ecn != 0 {
        crate::tunnel::set_ecn(&mut packet, ecn);
    }
    packet
}

/// Which ECN fields the fragments of one packet had (RFC 3168 5.3).
#[derive(Clone, Copy, Default, Debug)]
struct EcnSeen {
    not_capable: bool,
    congested: bool,
}

impl EcnSeen {
    fn see(&mut self, traffic_class: u8) {
        self.not_capable |= traffic_class & 3 == 0;
        self.congested |= traffic_class & 3 == 3;
    }

    /// The field that the whole packet must get, 0 to leave it as the first fragment has it. A mark on one fragment
    /// while another's transport does not know ECN cannot be carried: the packet is dropped.
    fn whole(self) -> Result<u8, Dropped> {
        match (self.not_capable, self.congested) {
            (true, true) => Err(Dropped::Congested),
            (false, true) => Ok(3),
            _ => Ok(0),
        }
    }
}
