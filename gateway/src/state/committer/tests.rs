//! A model of a disk that loses, tears or keeps whatever was not synced, under a keeper that is killed, loses power and
//! restarts at random: no number of a key is ever used twice; no packet received before the last round is accepted
//! again after a kill, and none received before the last sync after a power failure.

use super::super::header::{Header, SALT_LEN};
use super::super::keeper::{MAX_RESERVED_NUMBERS, Recalled, block_end};
use super::super::key_fingerprint::{FINGERPRINT_LEN, KeyFingerprint, key_fingerprint};
use super::super::last_used::LastUsed;
use super::super::recent::Recent;
use super::super::records::Plan;
use super::super::store::BadStore;
use super::*;
use ipsec::Dropped;
use ipsec::command::Command;
use ipsec::database::{Database, Snapshot};
use ipsec::sa::{Sa, SequenceNumber};
use ipsec::setkey::{Forwarding, NoNames, compile};
use proptest::prelude::*;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;

/// What is durable, and what was written since.
#[derive(Clone, Default)]
struct Model(Arc<Mutex<Bytes>>);

#[derive(Default)]
struct Bytes {
    durable: Vec<u8>,
    written: Vec<u8>,
    /// Places of pieces of 512 bytes that were written and not synced.
    unsynced: Vec<usize>,
    fails: bool,
}

const SECTOR: usize = 512;

impl Model {
    fn new() -> Self {
        let model = Self::default();
        let header = Header {
            salt: [1; SALT_LEN],
            ..Header::default()
        };
        let bytes = Store::<Self>::empty(&header);
        *model.0.lock().unwrap() = Bytes {
            durable: bytes.clone(),
            written: bytes,
            ..Bytes::default()
        };
        model
    }

    fn set_fails(&self, fails: bool) {
        self.0.lock().unwrap().fails = fails;
    }

    /// Of each unsynced sector the disk has the new bytes, the old ones, or a part of each.
    fn lose_power(&self, mut luck: u64) {
        let mut bytes = self.0.lock().unwrap();
        let bytes = &mut *bytes;
        let len = bytes.written.len().max(bytes.durable.len());
        bytes.durable.resize(len, 0);
        for at in std::mem::take(&mut bytes.unsynced) {
            luck = luck
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            let new = match luck >> 62 {
                0 => 0,
                1 => SECTOR,
                _ => (luck >> 32) as usize % SECTOR,
            };
            let end = (at + new).min(bytes.written.len());
            if at < end {
                bytes.durable[at..end].copy_from_slice(&bytes.written[at..end]);
            }
        }
        bytes.written = bytes.durable.clone();
    }
}

impl Disk for Model {
    fn len(&self) -> io::Result<u64> {
        Ok(self.0.lock().unwrap().written.len() as u64)
    }

    fn read_at(&self, at: u64, room: &mut [u8]) -> io::Result<usize> {
        let bytes = self.0.lock().unwrap();
        let rest = bytes.written.get(at as usize..).unwrap_or_default();
        let len = rest.len().min(room.len());
        room[..len].copy_from_slice(&rest[..len]);
        Ok(len)
    }

    fn write_at(&mut self, at: u64, new: &[u8]) -> io::Result<()> {
        let mut bytes = self.0.lock().unwrap();
        if bytes.fails {
            return Err(io::ErrorKind::StorageFull.into());
        }
        let (at, end) = (at as usize, at as usize + new.len());
        if end > bytes.written.len() {
            bytes.written.resize(end, 0);
        }
        bytes.written[at..end].copy_from_slice(new);
        let first = at / SECTOR * SECTOR;
        bytes.unsynced.extend((first..end).step_by(SECTOR));
        Ok(())
    }

    fn sync(&mut self) -> io::Result<()> {
        let mut bytes = self.0.lock().unwrap();
        if bytes.fails {
            return Err(io::Error::other("the disk is gone"));
        }
        bytes.durable = bytes.written.clone();
        bytes.unsynced.clear();
        Ok(())
    }
}

/// A disk, and memory that outlives a process and no power failure.
#[derive(Clone)]
struct Machine {
    disk: Model,
    memory: Model,
}

impl Machine {
    fn new() -> Self {
        Self {
            disk: Model::new(),
            memory: Model::default(),
        }
    }

    fn lose_power(&self, luck: u64) {
        self.disk.lose_power(luck);
        self.memory.0.lock().unwrap().written.clear();
    }

    fn set_fails(&self, fails: bool) {
        self.disk.set_fails(fails);
    }
}

/// A gateway with three associations of one key each, one of which only receives.
struct Gateway {
    database: Database,
    committer: Committer<Model>,
    /// What a slow disk is writing.
    in_flight: Option<Plan>,
    held: Option<Arc<Snapshot>>,
}

const MOMENT: Moment = Moment {
    now: 1_800_000_000,
    since_boot: 100,
};

/// An association of each kind: a counter in the packet, one that does not travel, and one that only receives.
fn text(number: usize, key: u8) -> String {
    let suite = ["aes-gcm-16", "aes-gcm-16-iiv", "chacha20-poly1305"][number];
    let len = [20, 20, 36][number];
    format!(
        "add 192.0.2.1 192.0.2.2 esp 0x{:x} -m tunnel -r 64 -o key=fresh -E {suite} 0x{};",
        0x1001 + number,
        format!("{key:02x}").repeat(len)
    )
}

fn commands(text: &str) -> Vec<Command> {
    compile(text.as_bytes(), Forwarding::WithIn, &mut NoNames)
        .unwrap()
        .commands
}

impl Gateway {
    /// As `open` does it.
    fn start(machine: &Machine) -> Option<Self> {
        let (mut store, mut records) = match Store::open(machine.disk.clone()) {
            Ok(read) => read,
            // The disk refuses at present: no gateway starts.
            Err(BadStore::Io(_)) => return None,
            Err(error) => panic!("{error:?}"),
        };
        Recent::read(&machine.memory, &LastUsed::of(store.header()), &mut records).unwrap();
        store.commit(&mut records).ok()?;
        store.begin(|_| {}).ok()?;
        let empty = Recent::empty(&LastUsed::of(store.header()));
        machine.memory.0.lock().unwrap().written = empty;
        let recent = Recent::new(machine.memory.clone());
        Some(Self {
            database: Database::default(),
            committer: Committer::new(store, Keeper::new(records, Some(recent))),
            in_flight: None,
            held: None,
        })
    }

    fn key_fingerprint(&self, sa: &Sa) -> KeyFingerprint {
        key_fingerprint(&sa.config, &self.committer.header().salt)
    }

    /// What the two threads do in a round.
    fn round(&self) -> io::Result<()> {
        self.committer.round(MOMENT).unwrap();
        self.committer.commit()
    }

    /// A round of the writer, and one of the syncer unless the disk is busy.
    fn round_beside_the_disk(&self, seen: &mut Seen) {
        self.committer.round(MOMENT).unwrap();
        seen.written();
        if self.in_flight.is_none() && self.committer.commit().is_ok() {
            seen.synced();
        }
    }

    /// The syncer begins a commit, which the disk finishes later.
    fn begin(&mut self, seen: &mut Seen) {
        let mut store = lock(&self.committer.store);
        let mut keeper = self.committer.keeper();
        if self.in_flight.is_none() && store.grow(keeper.records().count()).is_ok() {
            self.in_flight = Some(keeper.records().plan(store.room()));
            seen.planned();
        }
    }

    /// The slow disk has done what it was given.
    fn land(&mut self, seen: &mut Seen) {
        if let Some(plan) = self.in_flight.take()
            && lock(&self.committer.store).write(&plan).is_ok()
        {
            self.committer.keeper().is_durable(&plan);
            seen.landed();
        }
    }

    /// Applies the text, unless the kernel refuses it after its numbers were recalled.
    fn apply(&mut self, text: &str, refused: bool) {
        let mut draft = self.database.clone();
        let before = self.database.snapshot();
        if draft.apply(&commands(text), MOMENT.now, &mut || 7).is_err() {
            return;
        }
        let after = draft.snapshot();
        let known: HashSet<_> = before.sas().map(Arc::as_ptr).collect();
        let changed: Vec<_> = after
            .sas()
            .filter(|sa| !known.contains(&Arc::as_ptr(sa)))
            .map(|sa| Changed {
                sa,
                name: self.key_fingerprint(sa),
                sends: sa.config.id.spi.get() != 0x1003,
            })
            .collect();
        let (outcome, _) = self.committer.recall(&changed, MOMENT);
        if refused {
            self.committer
                .keeper()
                .follow(&before, &Recalled::default(), MOMENT);
            return;
        }
        self.database = draft;
        self.committer
            .keeper()
            .follow(&after, &outcome.recalled, MOMENT);
    }

    fn sa(&self, number: usize) -> Option<Arc<Sa>> {
        let snapshot = self.database.snapshot();
        let spi = 0x1001 + number as u32;
        snapshot
            .sas()
            .find(|sa| sa.config.id.spi.get() == spi)
            .cloned()
    }
}

#[derive(Clone, Debug)]
enum Act {
    Add(usize, u8),
    Update(usize, u8),
    Delete(usize),
    /// Deleted and added by one text.
    Again(usize, u8),
    Refused(usize, u8),
    Send(usize, u32),
    Receive(usize, u64),
    Round,
    Hold,
    LetGo,
    /// The syncer begins a commit, which the disk finishes later.
    Begin,
    Land,
    Fail(bool),
    Stop,
    Kill,
    PowerFailure(u64),
}

fn act() -> impl Strategy<Value = Act> {
    let sa = || 0..3usize;
    let key = || 1..4u8;
    prop_oneof![
        3 => (sa(), key()).prop_map(|(sa, key)| Act::Add(sa, key)),
        2 => (sa(), key()).prop_map(|(sa, key)| Act::Update(sa, key)),
        2 => sa().prop_map(Act::Delete),
        2 => (sa(), key()).prop_map(|(sa, key)| Act::Again(sa, key)),
        1 => (sa(), key()).prop_map(|(sa, key)| Act::Refused(sa, key)),
        8 => (sa(), prop_oneof![1..50u32, 500_000..1_100_000u32]).prop_map(|(sa, count)| Act::Send(sa, count)),
        4 => (sa(), 1..200u64).prop_map(|(sa, ahead)| Act::Receive(sa, ahead)),
        8 => Just(Act::Round),
        1 => Just(Act::Hold),
        1 => Just(Act::LetGo),
        3 => Just(Act::Begin),
        3 => Just(Act::Land),
        1 => any::<bool>().prop_map(Act::Fail),
        1 => Just(Act::Stop),
        1 => Just(Act::Kill),
        2 => any::<u64>().prop_map(Act::PowerFailure),
    ]
}

type UsedKey = [u8; FINGERPRINT_LEN];

/// What all incarnations have sent and received under each key.
#[derive(Default)]
struct Seen {
    /// The end of what was sent: numbers only rise, so a lower one was used before.
    sent: HashMap<UsedKey, u64>,
    edges: HashMap<UsedKey, Edges>,
}

/// The highest number received: in all, when the last round was, when the commit in flight began, and on the disk.
#[derive(Clone, Copy, Default)]
struct Edges {
    top: u64,
    written: u64,
    planned: u64,
    durable: u64,
}

impl Seen {
    fn send(&mut self, gateway: &Gateway, number: usize, count: u32) {
        let Some(sa) = gateway.sa(number) else { return };
        let name = gateway.key_fingerprint(&sa);
        let mut left = count;
        while left > 0 {
            match sa.state.reserve(&sa.config, left, 1, MOMENT.now) {
                Ok((first, granted)) => {
                    let used = self.sent.entry(name).or_default();
                    assert!(first.0 > *used, "{} was used: up to {used}", first.0);
                    *used = first.0 + u64::from(granted) - 1;
                    left -= granted;
                }
                Err(reason) => {
                    assert_eq!(reason, Dropped::StateNotKept);
                    return;
                }
            }
        }
    }

    fn receive(&mut self, gateway: &Gateway, number: usize, ahead: u64) {
        let Some(sa) = gateway.sa(number) else { return };
        let name = gateway.key_fingerprint(&sa);
        let edges = self.edges.entry(name).or_default();
        edges.top = edges.top.max(sa.state.saved().edge) + ahead;
        sa.state
            .admit(&sa.config, SequenceNumber(edges.top), 1, MOMENT.now)
            .unwrap();
    }

    fn each(&mut self, change: impl Fn(&mut Edges)) {
        self.edges.values_mut().for_each(change);
    }

    /// Everything received so far is written.
    fn written(&mut self) {
        self.each(|edges| edges.written = edges.top);
    }

    /// Everything written so far is being synced.
    fn planned(&mut self) {
        self.each(|edges| edges.planned = edges.written);
    }

    fn landed(&mut self) {
        self.each(|edges| edges.durable = edges.planned);
    }

    /// Everything written so far is durable.
    fn synced(&mut self) {
        self.planned();
        self.landed();
    }

    /// What was not written may be forgotten.
    fn killed(&mut self) {
        self.each(|edges| edges.top = edges.written);
    }

    /// What was not durable may be forgotten.
    fn lost(&mut self) {
        self.each(|edges| edges.written = edges.durable);
        self.killed();
    }

    fn check_edges(&self, gateway: &Gateway) {
        for number in 0..3 {
            let Some(sa) = gateway.sa(number) else {
                continue;
            };
            let name = gateway.key_fingerprint(&sa);
            let edge = self.edges.get(&name).copied().unwrap_or_default().written;
            assert!(
                sa.state.saved().edge >= edge,
                "the window fell behind {edge}"
            );
        }
    }
}

fn play(acts: &[Act]) {
    let machine = Machine::new();
    let mut seen = Seen::default();
    let mut gateway = Gateway::start(&machine);
    let mut fails = false;
    for act in acts {
        let Some(running) = &mut gateway else {
            (fails, gateway) = (false, {
                machine.set_fails(false);
                Gateway::start(&machine)
            });
            // A start makes durable what a kill has left.
            seen.synced();
            continue;
        };
        let delete =
            |number: usize| format!("delete 192.0.2.1 192.0.2.2 esp 0x{:x};", 0x1001 + number);
        // A change waits for the commit in flight.
        if matches!(
            act,
            Act::Add(..) | Act::Update(..) | Act::Delete(_) | Act::Again(..) | Act::Refused(..)
        ) {
            running.land(&mut seen);
        }
        match act {
            Act::Add(number, key) => running.apply(&text(*number, *key), false),
            Act::Update(number, key) => {
                running.apply(&text(*number, *key).replace("add", "update"), false);
            }
            Act::Delete(number) => running.apply(&delete(*number), false),
            Act::Again(number, key) => {
                running.apply(&(delete(*number) + &text(*number, *key)), false);
            }
            Act::Refused(number, key) => {
                running.apply(&text(*number, *key), true);
            }
            Act::Send(number, count) => seen.send(running, *number, *count),
            Act::Receive(number, ahead) => seen.receive(running, *number, *ahead),
            Act::Round => running.round_beside_the_disk(&mut seen),
            Act::Begin => running.begin(&mut seen),
            Act::Land => running.land(&mut seen),
            Act::Hold => running.held = Some(running.database.snapshot()),
            Act::LetGo => running.held = None,
            Act::Fail(now) => {
                machine.set_fails(*now);
                fails = *now;
            }
            Act::Stop => {
                running.land(&mut seen);
                let finished = running.committer.finish(MOMENT);
                seen.written();
                if finished.is_ok() {
                    seen.synced();
                }
                gateway = None;
            }
            Act::Kill => {
                seen.killed();
                gateway = None;
            }
            Act::PowerFailure(luck) => {
                machine.lose_power(*luck);
                seen.lost();
                gateway = None;
            }
        }
        if let Some(running) = gateway.as_ref().filter(|_| !fails) {
            seen.check_edges(running);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn no_number_is_used_twice_whatever_fails(acts in prop::collection::vec(act(), 1..80)) {
        play(&acts);
    }
}

/// A disk that takes long writes what was received before; a kill loses nothing of what came since.
#[test]
fn what_arrives_beside_a_slow_sync_is_kept_by_a_kill_and_not_by_a_power_failure() {
    for has_power in [true, false] {
        let machine = Machine::new();
        let mut gateway = Gateway::start(&machine).unwrap();
        gateway.apply(&text(2, 1), false);
        let receive = |gateway: &Gateway, number| {
            let sa = gateway.sa(2).unwrap();
            let number = SequenceNumber(number);
            sa.state.admit(&sa.config, number, 1, MOMENT.now).unwrap();
            gateway.committer.round(MOMENT).unwrap();
        };
        receive(&gateway, 10);
        gateway.committer.commit().unwrap();
        receive(&gateway, 20);
        let plan = gateway.committer.keeper().records().plan(1);
        // The disk is slow: the plan is not written yet.
        receive(&gateway, 30);
        drop((plan, gateway));
        if !has_power {
            machine.lose_power(0);
        }
        let mut gateway = Gateway::start(&machine).unwrap();
        gateway.apply(&text(2, 1), false);
        let edge = gateway.sa(2).unwrap().state.saved().edge;
        assert_eq!(edge, if has_power { 30 } else { 10 });
    }
}

/// A disk that is never done before more has arrived: numbers are reserved all the same.
#[test]
fn numbers_are_reserved_though_each_sync_ends_after_the_next_change() {
    let machine = Machine::new();
    let mut gateway = Gateway::start(&machine).unwrap();
    gateway.apply(&text(0, 1), false);
    let sa = gateway.sa(0).unwrap();
    let mut sent = 0;
    for _ in 0..30 {
        let plan = gateway.committer.keeper().records().plan(1);
        for _ in 0..3 {
            let (_, granted) = sa
                .state
                .reserve(&sa.config, 50_000, 1, MOMENT.now)
                .unwrap_or_else(|why| panic!("after {sent}: {why:?}"));
            sent += u64::from(granted);
            gateway.committer.round(MOMENT).unwrap();
        }
        lock(&gateway.committer.store).write(&plan).unwrap();
        gateway.committer.keeper().is_durable(&plan);
    }
    assert!(sent > 4 * MAX_RESERVED_NUMBERS);
}

/// The control: the same test detects a keeper that does not wait for the disk.
#[test]
fn a_number_used_twice_would_be_seen() {
    let (disk, mut seen) = (Machine::new(), Seen::default());
    let mut gateway = Gateway::start(&disk).unwrap();
    gateway.apply(&text(0, 1), false);
    seen.send(&gateway, 0, 10);
    let sa = gateway.sa(0).unwrap();
    sa.state.allow_up_to(u64::MAX);
    seen.send(&gateway, 0, 2_000_000);
    disk.lose_power(0);
    let mut gateway = Gateway::start(&disk).unwrap();
    gateway.apply(&text(0, 1), false);
    let twice = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        seen.send(&gateway, 0, 1);
    }));
    assert!(twice.is_err());
}

#[test]
fn a_stop_wastes_no_number_and_a_kill_at_most_a_block() {
    let disk = Machine::new();
    let first_of = |disk: &Machine| {
        let mut gateway = Gateway::start(disk).unwrap();
        gateway.apply(&text(0, 1), false);
        let sa = gateway.sa(0).unwrap();
        let (first, _) = sa.state.reserve(&sa.config, 10, 1, MOMENT.now).unwrap();
        (first.0, gateway)
    };
    let (first, gateway) = first_of(&disk);
    assert_eq!(first, 1);
    gateway.committer.finish(MOMENT).unwrap();
    let (first, _killed) = first_of(&disk);
    assert_eq!(first, 11);
    let (first, _) = first_of(&disk);
    assert_eq!(first, 11 + MAX_RESERVED_NUMBERS);
}

#[test]
fn an_update_with_other_keys_and_back_never_uses_a_number_of_either_again() {
    let (disk, mut seen) = (Machine::new(), Seen::default());
    let mut gateway = Gateway::start(&disk).unwrap();
    gateway.apply(&text(0, 1), false);
    seen.send(&gateway, 0, 100);
    gateway.apply(&text(0, 2).replace("add", "update"), false);
    seen.send(&gateway, 0, 100);
    gateway.round().unwrap();
    gateway.apply(&text(0, 1).replace("add", "update"), false);
    seen.send(&gateway, 0, 100);
    drop(gateway);
    disk.lose_power(1);
    let mut gateway = Gateway::start(&disk).unwrap();
    for key in [2, 1] {
        gateway.apply(&format!("flush; {}", text(0, key)), false);
        seen.send(&gateway, 0, 100);
    }
}

#[test]
fn an_update_to_the_keys_of_an_association_that_has_just_gone_takes_its_window_over() {
    let (disk, mut seen) = (Machine::new(), Seen::default());
    let mut gateway = Gateway::start(&disk).unwrap();
    gateway.apply(&text(0, 1), false);
    seen.receive(&gateway, 0, 7);
    gateway.apply(&format!("flush; {}", text(0, 2)), false);
    gateway.apply(&text(0, 1).replace("add", "update"), false);
    seen.written();
    seen.check_edges(&gateway);
}

#[test]
fn other_keys_wait_for_a_record_of_their_own_where_the_disk_refuses_one() {
    let (disk, mut seen) = (Machine::new(), Seen::default());
    let mut gateway = Gateway::start(&disk).unwrap();
    gateway.apply(&text(1, 1), false);
    disk.set_fails(true);
    gateway.apply(&text(1, 2).replace("add", "update"), false);
    let sa = gateway.sa(1).unwrap();
    let send = || sa.state.reserve(&sa.config, 1, 1, MOMENT.now);
    assert_eq!(send(), Err(Dropped::StateNotKept));
    disk.set_fails(false);
    gateway.round().unwrap();
    seen.send(&gateway, 1, 10);
    drop(gateway);
    disk.lose_power(0);
    let mut gateway = Gateway::start(&disk).unwrap();
    gateway.apply(&text(1, 2), false);
    seen.send(&gateway, 1, 10);
}

/// The exact end of a deleted association reaches a failing disk later, and must not meet numbers beyond it in use.
#[test]
fn numbers_that_a_deleted_association_has_given_back_are_not_used_by_the_next_one() {
    let (disk, mut seen) = (Machine::new(), Seen::default());
    let mut gateway = Gateway::start(&disk).unwrap();
    let add_and_send = |gateway: &mut Gateway, seen: &mut Seen| {
        gateway.apply(&text(2, 1), false);
        // It is thought to only receive: its first packet asks for numbers.
        seen.send(gateway, 2, 1);
        gateway.round().unwrap();
        seen.send(gateway, 2, 10);
    };
    add_and_send(&mut gateway, &mut seen);
    disk.set_fails(true);
    gateway.apply("flush;", false);
    assert!(gateway.round().is_err());
    gateway.apply(&text(2, 1), false);
    disk.set_fails(false);
    gateway.committer.commit().unwrap();
    seen.send(&gateway, 2, 500_000);
    drop(gateway);
    disk.lose_power(0);
    add_and_send(&mut Gateway::start(&disk).unwrap(), &mut seen);
}

#[test]
fn blocks_grow_smaller_near_the_end_and_end_with_it() {
    let last = u64::from(u32::MAX);
    assert_eq!(block_end(0, last), MAX_RESERVED_NUMBERS);
    assert_eq!(
        block_end(last - MAX_RESERVED_NUMBERS, last),
        last - MAX_RESERVED_NUMBERS / 2
    );
    assert_eq!(block_end(last - 10, last), last);
    assert_eq!(block_end(last, last), last);
    assert_eq!(block_end(u64::MAX - 3, u64::MAX), u64::MAX);
}

#[test]
fn what_only_receives_reserves_nothing_and_is_helped_when_it_sends_all_the_same() {
    let disk = Machine::new();
    let mut gateway = Gateway::start(&disk).unwrap();
    gateway.apply(&text(2, 1), false);
    let sa = gateway.sa(2).unwrap();
    let send = || sa.state.reserve(&sa.config, 1, 1, MOMENT.now);
    assert_eq!(send(), Err(Dropped::StateNotKept));
    gateway.round().unwrap();
    assert_eq!(send(), Ok((SequenceNumber(1), 1)));
}

#[test]
fn a_disk_that_refuses_stops_a_counter_at_the_end_of_its_block() {
    let disk = Machine::new();
    let mut gateway = Gateway::start(&disk).unwrap();
    gateway.apply(&text(0, 1), false);
    let sa = gateway.sa(0).unwrap();
    disk.set_fails(true);
    let (mut sent, mut error) = (0, None);
    while error.is_none() {
        assert!(gateway.round().is_err() || sent == 0);
        match sa.state.reserve(&sa.config, 100_000, 1, MOMENT.now) {
            Ok((_, granted)) => sent += u64::from(granted),
            Err(reason) => error = Some(reason),
        }
    }
    assert_eq!(
        (sent, error),
        (MAX_RESERVED_NUMBERS, Some(Dropped::StateNotKept))
    );
    disk.set_fails(false);
    gateway.round().unwrap();
    let next = sa.state.reserve(&sa.config, 1, 1, MOMENT.now);
    assert_eq!(next, Ok((SequenceNumber(MAX_RESERVED_NUMBERS + 1), 1)));
}
