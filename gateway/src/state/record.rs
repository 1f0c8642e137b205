//! One association in the file: 128 bytes with a checksum, so that a record written in part is recognised.

use super::key_fingerprint::{FINGERPRINT_LEN, KeyFingerprint};
use ipsec::sa::SavedCounters;

/// Bytes of a record.
pub(super) const RECORD_LEN: usize = 128;

/// The stored state of one association.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct SaRecord {
    /// The association's name.
    pub name: KeyFingerprint,
    /// Counts the writes of this record: of two copies the one with the higher count is valid.
    pub generation: u64,
    /// No number above this one was sent.
    pub reserved: u64,
    /// The highest number received.
    pub edge: u64,
    /// Bytes carried.
    pub bytes: u64,
    /// Packets carried.
    pub packets: u64,
    /// Its age in seconds when this was written.
    pub age: u64,
    /// Its age when it was first used, plus 1; 0 for never.
    pub first_use: u64,
    /// Its age when it was last used, plus 1; 0 for never.
    pub last_use: u64,
    /// When it was added, in seconds since the Unix epoch.
    pub created: u64,
    /// Seconds between boot and this write; 0 once it is of an earlier boot.
    pub written: u64,
}

/// The time of a start or of a write.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Moment {
    /// Seconds since the Unix epoch, as lifetimes count them.
    pub now: u64,
    /// Seconds since boot.
    pub since_boot: u64,
}

impl SaRecord {
    /// The record of an association without one.
    pub(super) fn new(name: KeyFingerprint, moment: Moment) -> Self {
        Self {
            name,
            generation: 0,
            reserved: 0,
            edge: 0,
            bytes: 0,
            packets: 0,
            age: 0,
            first_use: 0,
            last_use: 0,
            created: moment.now,
            written: moment.since_boot,
        }
    }

    /// Takes over everything except the reserved numbers, which never decrease.
    pub(super) fn take(&mut self, kept: &SavedCounters, moment: Moment) {
        let since = |moment: u64| match moment {
            0 => 0,
            moment => moment.saturating_sub(kept.created) + 1,
        };
        self.reserved = self.reserved.max(kept.sent);
        self.edge = self.edge.max(kept.edge);
        self.bytes = kept.bytes;
        self.packets = kept.packets;
        self.age = moment.now.saturating_sub(kept.created);
        self.first_use = since(kept.first_used);
        self.last_use = since(kept.last_used);
        self.created = kept.created;
        self.written = moment.since_boot;
    }

    /// The state from which a new incarnation continues.
    pub(super) fn kept(&self, moment: Moment) -> SavedCounters {
        let created = moment.now.saturating_sub(self.age_at(moment));
        let at = |use_| match use_ {
            0 => 0,
            use_ => created + use_ - 1,
        };
        SavedCounters {
            sent: self.reserved,
            edge: self.edge,
            bytes: self.bytes,
            packets: self.packets,
            created,
            first_used: at(self.first_use),
            last_used: at(self.last_use),
        }
    }

    /// The clock may have been set since, so the age is the larger of two: by date, and the recorded age plus the
    /// system's uptime since the record was written.
    fn age_at(&self, moment: Moment) -> u64 {
        let passed = moment.since_boot.saturating_sub(self.written);
        let by_date = moment.now.saturating_sub(self.created);
        by_date.max(self.age.saturating_add(passed))
    }

    /// Serializes the record.
    pub(super) fn encode(&self) -> [u8; RECORD_LEN] {
        let mut bytes = [0; RECORD_LEN];
        bytes[..FINGERPRINT_LEN].copy_from_slice(&self.name);
        let (words, _) = bytes[FINGERPRINT_LEN..].as_chunks_mut::<8>();
        for (word, value) in words.iter_mut().zip(self.values()) {
            *word = value.to_le_bytes();
        }
        let sum = checksum(&bytes[..CHECKSUM_OFFSET]);
        bytes[CHECKSUM_OFFSET..].copy_from_slice(&sum.to_le_bytes());
        bytes
    }

    fn values(&self) -> [u64; 10] {
        [
            self.generation,
            self.reserved,
            self.edge,
            self.bytes,
            self.packets,
            self.age,
            self.first_use,
            self.last_use,
            self.created,
            self.written,
        ]
    }

    /// Reads one, if it is whole.
    pub(super) fn decode(bytes: &[u8; RECORD_LEN]) -> Option<Self> {
        let word = |at: usize| {
            let mut word = [0; 8];
            word.copy_from_slice(&bytes[at..at + 8]);
            u64::from_le_bytes(word)
        };
        if word(CHECKSUM_OFFSET) != checksum(&bytes[..CHECKSUM_OFFSET]) {
            return None;
        }
        let mut name = [0; FINGERPRINT_LEN];
        name.copy_from_slice(&bytes[..FINGERPRINT_LEN]);
        let value = |number: usize| word(FINGERPRINT_LEN + 8 * number);
        Some(Self {
            name,
            generation: value(0),
            reserved: value(1),
            edge: value(2),
            bytes: value(3),
            packets: value(4),
            age: value(5),
            first_use: value(6),
            last_use: value(7),
            created: value(8),
            written: value(9),
        })
    }
}

/// The offset of the checksum.
const CHECKSUM_OFFSET: usize = RECORD_LEN - 8;

/// FNV-1a of 64 bits detects records written in part. It does not protect against a process that may write the file,
/// which can do harm without a wrong checksum. A record of zeroes has a wrong one.
pub(super) fn checksum(bytes: &[u8]) -> u64 {
    let step = |sum: u64, byte: &u8| (sum ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3);
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, step)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record() -> SaRecord {
        SaRecord {
            generation: 3,
            reserved: 1 << 20,
            edge: 77,
            ..SaRecord::new([7; FINGERPRINT_LEN], moment(1_800_000_000, 400))
        }
    }

    fn moment(now: u64, since_boot: u64) -> Moment {
        Moment { now, since_boot }
    }

    #[test]
    fn a_record_is_read_as_it_was_written_and_known_when_it_was_not_whole() {
        let bytes = record().encode();
        assert_eq!(SaRecord::decode(&bytes), Some(record()));
        assert_eq!(SaRecord::decode(&[0; RECORD_LEN]), None);
        for place in 0..RECORD_LEN {
            let mut torn = bytes;
            torn[place] ^= 1;
            assert_eq!(SaRecord::decode(&torn), None, "{place}");
        }
    }

    #[test]
    fn lifetimes_continue_in_the_same_boot_whatever_the_date_is() {
        let kept = SavedCounters {
            created: 1_800_000_000,
            first_used: 1_800_000_010,
            last_used: 1_800_000_050,
            ..SavedCounters::default()
        };
        let mut record = record();
        record.take(&kept, moment(1_800_000_060, 500));
        // A minute later the clock has been set back by an hour.
        let resumed = record.kept(moment(1_799_996_520, 560));
        assert_eq!(resumed.created, 1_799_996_520 - 120);
        assert_eq!(resumed.first_used, resumed.created + 10);
        assert_eq!(resumed.last_used, resumed.created + 50);
    }

    #[test]
    fn a_machine_without_a_clock_counts_at_least_the_time_that_it_was_up() {
        let mut record = record();
        let kept = SavedCounters {
            created: 1_800_000_000,
            ..SavedCounters::default()
        };
        record.take(&kept, moment(1_800_000_060, 500));
        // Of an earlier boot.
        record.written = 0;
        let age = |moment: Moment| moment.now - record.kept(moment).created;
        assert_eq!(age(moment(30, 30)), 30, "there is no more before 1970");
        assert_eq!(age(moment(1_700_000_000, 30)), 90);
        assert_eq!(age(moment(1_800_000_300, 30)), 300);
    }

    #[test]
    fn one_that_was_never_seen_has_no_age() {
        let new = moment(1_800_000_000, 5000);
        let record = SaRecord::new([7; FINGERPRINT_LEN], new);
        assert_eq!(record.kept(new).created, new.now);
        assert_eq!(record.kept(moment(new.now + 3, 5003)).created, new.now);
    }

    #[test]
    fn what_is_reserved_and_the_edge_never_fall() {
        let mut record = record();
        record.take(&SavedCounters::default(), moment(1_800_000_060, 1));
        assert_eq!((record.reserved, record.edge), (1 << 20, 77));
    }
}
