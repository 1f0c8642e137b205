use super::super::disk::Disk;
use super::super::header::SALT_LEN;
use super::super::key_fingerprint::KeyFingerprint;
use super::super::record::Moment;
use super::*;
use std::sync::{Arc, Mutex};

/// Bytes in memory, which can refuse to grow.
#[derive(Clone, Default)]
struct Bytes {
    bytes: Arc<Mutex<Vec<u8>>>,
    most: Arc<Mutex<Option<usize>>>,
}

impl Bytes {
    fn new() -> Self {
        let bytes = Self::default();
        let header = Header {
            salt: [1; SALT_LEN],
            ..Header::default()
        };
        *bytes.bytes.lock().unwrap() = Store::<Self>::empty(&header);
        bytes
    }

    fn limit(&self, most: Option<usize>) {
        *self.most.lock().unwrap() = most;
    }
}

impl Disk for Bytes {
    fn len(&self) -> io::Result<u64> {
        Ok(self.bytes.lock().unwrap().len() as u64)
    }

    fn read_at(&self, at: u64, room: &mut [u8]) -> io::Result<usize> {
        let bytes = self.bytes.lock().unwrap();
        let rest = bytes.get(at as usize..).unwrap_or_default();
        let len = rest.len().min(room.len());
        room[..len].copy_from_slice(&rest[..len]);
        Ok(len)
    }

    fn write_at(&mut self, at: u64, new: &[u8]) -> io::Result<()> {
        let (mut bytes, end) = (self.bytes.lock().unwrap(), at as usize + new.len());
        if end > bytes.len() {
            if self.most.lock().unwrap().is_some_and(|most| end > most) {
                return Err(io::ErrorKind::StorageFull.into());
            }
            bytes.resize(end, 0);
        }
        bytes[at as usize..end].copy_from_slice(new);
        Ok(())
    }

    fn sync(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn open(bytes: &Bytes) -> (Store<Bytes>, Records) {
    Store::open(bytes.clone()).ok().unwrap()
}

fn name(number: usize) -> KeyFingerprint {
    let mut name = KeyFingerprint::default();
    name[..8].copy_from_slice(&(number as u64 + 1).to_le_bytes());
    name
}

fn at(now: u64) -> Moment {
    Moment { now, since_boot: 1 }
}

#[test]
fn records_are_found_again_as_they_were_written_last() {
    let bytes = Bytes::new();
    let (mut store, mut records) = open(&bytes);
    for number in 0..100 {
        let place = records.add(name(number), at(5));
        records.change(place, |record| record.reserved = number as u64);
    }
    store.commit(&mut records).unwrap();
    for number in (0..100).step_by(3) {
        let place = records.find(&name(number)).unwrap();
        records.change(place, |record| record.reserved += 1000);
    }
    store.commit(&mut records).unwrap();
    let (_, again) = open(&bytes);
    for number in 0..100 {
        let record = again.record(again.find(&name(number)).unwrap());
        let more = if number % 3 == 0 { 1000 } else { 0 };
        assert_eq!(record.reserved, number as u64 + more);
    }
    assert_eq!(again.find(&name(100)), None);
}

#[test]
fn a_record_half_written_leaves_the_one_before() {
    let bytes = Bytes::new();
    let (mut store, mut records) = open(&bytes);
    let place = records.add(name(0), at(5));
    for reserved in 1..=6 {
        records.change(place, |record| record.reserved = reserved);
        let second = records.plan(1).0[0].second;
        store.commit(&mut records).unwrap();
        let newest = offset(place, second) as usize;
        bytes.bytes.lock().unwrap()[newest + 40] ^= 1;
        let (_, again) = open(&bytes);
        match again.find(&name(0)) {
            Some(place) => assert_eq!(again.record(place).reserved, reserved - 1),
            None => assert_eq!(reserved, 1, "it was there before"),
        }
        bytes.bytes.lock().unwrap()[newest + 40] ^= 1;
    }
    for copy in [false, true] {
        bytes.bytes.lock().unwrap()[offset(place, copy) as usize] ^= 1;
    }
    assert!(matches!(
        Store::open(bytes.clone()),
        Err(BadStore::SaRecord)
    ));
}

#[test]
fn a_full_disk_keeps_what_has_room_and_goes_on_when_there_is_more() {
    let bytes = Bytes::new();
    let (mut store, mut records) = open(&bytes);
    let first = records.add(name(0), at(5));
    store.commit(&mut records).unwrap();
    bytes.limit(Some(2 * PAGE + GROUP_BYTES));
    for number in 1..=RECORDS_PER_GROUP {
        records.add(name(number), at(5));
    }
    records.change(first, |record| record.reserved = 9);
    let error = store.commit(&mut records).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::StorageFull);
    let last = records.find(&name(RECORDS_PER_GROUP)).unwrap();
    assert_eq!(records.reserved_on_disk(first), 9);
    assert!(
        records
            .plan(usize::MAX)
            .0
            .iter()
            .all(|planned| planned.place == last)
    );
    bytes.limit(None);
    store.commit(&mut records).unwrap();
    assert!(!records.are_changed());
    assert_eq!(open(&bytes).1.record(first).reserved, 9);
}

#[test]
fn a_file_that_was_cut_is_written_again() {
    let bytes = Bytes::new();
    let (mut store, mut records) = open(&bytes);
    for number in 0..40 {
        records.add(name(number), at(5));
    }
    records.change(0, |record| record.reserved = 6);
    store.commit(&mut records).unwrap();
    bytes.bytes.lock().unwrap().truncate(10);
    assert!(Store::open(bytes.clone()).is_err(), "the control failed");
    records.change(0, |record| record.reserved = 7);
    assert!(store.is_cut().unwrap());
    store.mend().unwrap();
    records.are_lost();
    assert_eq!(records.reserved_on_disk(0), 0);
    store.commit(&mut records).unwrap();
    assert_eq!(records.reserved_on_disk(0), 7);
    let (cleaned, again) = open(&bytes);
    assert_eq!(cleaned.header().salt, [1; SALT_LEN]);
    assert!((0..40).all(|number| again.find(&name(number)).is_some()));
    assert_eq!(again.record(0).reserved, 7);
}

#[test]
fn a_write_that_ends_late_reserves_no_more_than_the_record_does_by_then() {
    let (mut store, mut records) = open(&Bytes::new());
    let place = records.add(name(0), at(5));
    store.commit(&mut records).unwrap();
    records.change(place, |record| record.reserved = 100);
    let plan = records.plan(1);
    records.change(place, |record| record.reserved = 10);
    store.write(&plan).unwrap();
    records.is_durable(&plan);
    assert_eq!(records.reserved_on_disk(place), 10);
}

#[test]
fn the_header_counts_the_starts() {
    let bytes = Bytes::new();
    for start in 1..5 {
        let (mut store, _) = open(&bytes);
        assert_eq!(store.header().generation, start - 1);
        store.begin(|header| header.pid = start).unwrap();
    }
    assert_eq!(open(&bytes).0.header().pid, 4);
}

#[test]
fn the_key_that_was_not_in_use_for_longest_gives_way() {
    let bytes = Bytes::new();
    let (mut store, mut records) = open(&bytes);
    for number in 0..MAX_RECORDS {
        let place = records.add(name(number), at(1000 - number as u64 % 500));
        records.set_in_use(place, number % 500 == 499);
    }
    store.commit(&mut records).unwrap();
    // Of the records that are not in use, number 498 and its like are the oldest.
    records.add(name(MAX_RECORDS), at(2000));
    store.commit(&mut records).unwrap();
    let (_, again) = open(&bytes);
    assert_eq!(again.count(), MAX_RECORDS);
    assert!(again.find(&name(498)).is_none() && again.find(&name(499)).is_some());
    assert!(again.find(&name(MAX_RECORDS)).is_some());
}
