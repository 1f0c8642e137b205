//! Sequence numbers, replay windows and lifetimes of associations keyed by hand, kept across restarts (docs/state.md).
//!
//! ```text
//!   main thread: a text changes associations ──► recall, durable ──► published ──► follow ─┐
//!                                                                                         keeper ──► store ──► file
//!   its own thread, 20 times a second ──► round ──────────────────────────────────────────┘
//! ```
//!
//! Everything is opened before privileges are dropped. From then on the file is only queried (`fstat`), written
//! (`pwrite64`) and synced (`fdatasync`) by its descriptor; no path is opened any more.

mod boot_record;
mod disk;
mod header;
mod keeper;
mod key_fingerprint;
mod machine;
mod open;
mod record;
mod store;

pub(crate) use boot_record::BootRecord;
pub(crate) use open::{Wanted, open};

use crate::memory;
use dataplane::io::Warn;
use ipsec::command::{Command, Refused};
use ipsec::database::Snapshot;
use ipsec::sa::{Sa, SaConfig, SaId};
use keeper::{Changed, Keeper, Recalled};
use record::Moment;
use std::collections::{HashMap, HashSet};
use std::fs::File;
use std::io;
use std::net::IpAddr;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

/// How long received sequence numbers may be unwritten. Together with the write it must be less than 100 ms.
const WRITE_INTERVAL: Duration = Duration::from_millis(50);

/// Whether numbers are kept.
#[derive(Default)]
pub(crate) enum Numbers {
    /// Not requested: a plane in tests.
    #[default]
    Unasked,
    /// They are not, and why.
    NotKept(String),
    /// They are.
    Kept(Keeping),
}

/// The file, and the thread that keeps it up to date.
pub(crate) struct Keeping {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

struct Shared {
    keeper: Mutex<Keeper<File>>,
    /// The file's name, for messages.
    place: String,
    trouble: Mutex<Option<String>>,
    is_over: Mutex<bool>,
    bell: Condvar,
    warn: Warn,
    /// Dropping this releases the file's lock.
    _lock: File,
}

/// Changed associations with their records, to be followed once they are published.
#[derive(Default)]
pub(crate) struct Pending(Recalled);

impl Numbers {
    /// Before a change is published: gives changed associations the stored numbers of their keys, and reserves numbers
    /// for them.
    pub(crate) fn recall(
        &self,
        commands: &[Command],
        before: &Snapshot,
        after: &Snapshot,
        addresses: &[IpAddr],
    ) -> Result<Pending, Refused> {
        let refuse = |(id, reason)| Refused {
            index: place_of(commands, &id),
            reason,
        };
        match self {
            Self::Unasked => Ok(Pending::default()),
            Self::NotKept(why) => {
                let mut changed = changed(before, after);
                match changed.find(|sa| sa.config.has_implicit_iv()) {
                    None => Ok(Pending::default()),
                    Some(sa) => Err(refuse((sa.config.id, without_state(&sa.config, why)))),
                }
            }
            Self::Kept(keeping) => {
                let changed: Vec<_> = changed(before, after).collect();
                keeping.shared.recall(&changed, addresses).map_err(refuse)
            }
        }
    }

    /// After a change was published; or after it was given up, with the present snapshot and nothing pending.
    pub(crate) fn follow(&self, snapshot: &Snapshot, pending: &Pending) {
        if let Self::Kept(keeping) = self {
            let follow = || {
                keeping
                    .shared
                    .keeper()
                    .follow(snapshot, &pending.0, moment())
            };
            memory::without_keys(follow);
        }
    }

    /// Starts the thread that writes numbers as they change. Called once privileges are dropped.
    pub(crate) fn start(&mut self) -> io::Result<()> {
        if let Self::Kept(keeping) = self {
            let shared = Arc::clone(&keeping.shared);
            let thread = std::thread::Builder::new().name("numbers".to_owned());
            keeping.thread = Some(thread.spawn(move || shared.go_round())?);
        }
        Ok(())
    }

    /// The last write. No packet may be in flight any more.
    pub(crate) fn finish(&mut self) {
        if let Self::Kept(keeping) = self {
            keeping.stop();
            let outcome = keeping.shared.keeper().finish(moment());
            keeping.shared.mind(outcome);
        }
    }

    /// Where numbers are kept, or why not, as text.
    pub(crate) fn describe(&self) -> String {
        match self {
            Self::Unasked => String::new(),
            Self::NotKept(why) => format!("not stored: {why}"),
            Self::Kept(keeping) => match &*keeping.shared.trouble() {
                None => format!("stored in {}", keeping.shared.place),
                Some(why) => format!("CANNOT BE STORED in {}: {why}", keeping.shared.place),
            },
        }
    }

    /// Whether another process with the same keys can continue from the stored numbers.
    pub(crate) fn are_kept(&self) -> bool {
        matches!(self, Self::Kept(keeping) if keeping.shared.trouble().is_none())
    }

    /// The record by which a later start in this boot recognises the state that was used last.
    pub(crate) fn boot_record(&self) -> Option<BootRecord> {
        match self {
            Self::Kept(keeping) => Some(BootRecord::of(&keeping.shared.keeper())),
            Self::Unasked | Self::NotKept(_) => None,
        }
    }
}

impl Keeping {
    fn new(keeper: Keeper<File>, place: String, lock: File, warn: &Warn) -> Self {
        Self {
            shared: Arc::new(Shared {
                keeper: Mutex::new(keeper),
                place,
                trouble: Mutex::default(),
                is_over: Mutex::default(),
                bell: Condvar::new(),
                warn: Arc::clone(warn),
                _lock: lock,
            }),
            thread: None,
        }
    }

    fn stop(&mut self) {
        *lock(&self.shared.is_over) = true;
        self.shared.bell.notify_all();
        if let Some(thread) = self.thread.take() {
            // The thread ends by itself; if it panicked, all reserved numbers count as used.
            let _ = thread.join();
        }
    }
}

impl Drop for Keeping {
    fn drop(&mut self) {
        self.stop();
    }
}

impl Shared {
    fn recall(
        &self,
        changed: &[&Arc<Sa>],
        addresses: &[IpAddr],
    ) -> Result<Pending, (SaId, String)> {
        let mut keeper = self.keeper();
        let salt = keeper.salt().to_vec();
        // Only this step reads keys.
        let names: Vec<_> = changed
            .iter()
            .map(|sa| key_fingerprint::key_fingerprint(&sa.config, &salt))
            .collect();
        memory::without_keys(|| {
            let local: HashSet<_> = addresses.iter().collect();
            let mut all = Vec::new();
            for (sa, name) in changed.iter().copied().zip(names) {
                let known = keeper.knows(&name);
                if !known && !keeper::may_begin(&sa.config) {
                    return Err((sa.config.id, unknown_keys(&sa.config, &self.place)));
                }
                if known && sa.config.key_is_fresh {
                    (self.warn)(&format!(
                        "{}: `-o key=fresh` is set for keys that were used before; their stored sequence numbers are \
                         continued. Remove it, so that a loss of {} is noticed",
                        describe(&sa.config),
                        self.place
                    ));
                }
                let sends = local.is_empty() || local.contains(&sa.config.source);
                all.push(Changed { sa, name, sends });
            }
            let outcome = keeper.recall(&all, moment());
            drop(keeper);
            let resumed: HashSet<_> = outcome.resumed.iter().collect();
            for sa in changed.iter().filter(|sa| resumed.contains(&sa.config.id)) {
                self.warn_if_over(sa);
            }
            self.mind(outcome.trouble.map_or(Ok(()), Err));
            Ok(Pending(outcome.recalled))
        })
    }

    fn warn_if_over(&self, sa: &Sa) {
        if sa
            .config
            .is_exhausted(&sa.state.saved(), dataplane::clock::now())
        {
            (self.warn)(&format!(
                "{}: these keys had reached their hard limit or last sequence number before the restart: set new \
                 keys on both sides",
                describe(&sa.config)
            ));
        }
    }

    fn go_round(&self) {
        let mut is_over = lock(&self.is_over);
        while !*is_over {
            drop(is_over);
            let outcome = self.keeper().round(moment());
            self.mind(outcome);
            is_over = lock(&self.is_over);
            if !*is_over {
                let waited = self.bell.wait_timeout(is_over, WRITE_INTERVAL);
                is_over = waited.unwrap_or_else(PoisonError::into_inner).0;
            }
        }
    }

    /// Reports when writing begins to fail and when it works again.
    fn mind(&self, outcome: io::Result<()>) {
        let trouble = outcome.err().map(|error| error.to_string());
        let before = std::mem::replace(&mut *self.trouble(), trouble.clone());
        match (before, trouble) {
            (None, Some(why)) => (self.warn)(&format!(
                "cannot write sequence numbers to {}: {why}. Associations whose nonce is a counter (GCM, CCM, CTR, \
                 ChaCha20) stop when the reserved numbers are used up (`state-not-kept`); others continue, and peers \
                 may drop their packets after a restart. Free disk space or check the disk; writing is retried",
                self.place
            )),
            (Some(_), None) => eprintln!(
                "esplanade: sequence numbers are written to {} again",
                self.place
            ),
            _ => {}
        }
    }

    fn keeper(&self) -> MutexGuard<'_, Keeper<File>> {
        lock(&self.keeper)
    }

    fn trouble(&self) -> MutexGuard<'_, Option<String>> {
        lock(&self.trouble)
    }
}

/// A thread that panicked has left complete records: a reservation is written before it is used.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn moment() -> Moment {
    Moment {
        now: dataplane::clock::now(),
        since_boot: dataplane::clock::milliseconds() / 1000,
    }
}

/// Associations that have changed and whose numbers are stored. After a restart IKE negotiates new keys: those of the
/// earlier process have gone with it.
fn changed<'a>(
    before: &'a Snapshot,
    after: &'a Snapshot,
) -> impl Iterator<Item = &'a Arc<Sa>> + use<'a> {
    let known: HashMap<_, _> = before.sas().map(|sa| (sa.config.id, sa)).collect();
    after.sas().filter(move |sa| {
        let old = known.get(&sa.config.id);
        !sa.config.is_negotiated && old.is_none_or(|old| !Arc::ptr_eq(old, sa))
    })
}

/// The command that has changed an association last.
fn place_of(commands: &[Command], id: &SaId) -> usize {
    let makes = |command: &Command| match command {
        Command::AddSa(config) | Command::UpdateSa(config) => config.id == *id,
        _ => false,
    };
    commands.iter().rposition(makes).unwrap_or(commands.len())
}

fn describe(config: &SaConfig) -> String {
    crate::events::SaName::of(config).to_string()
}

fn algorithm(config: &SaConfig) -> &'static str {
    config
        .suite
        .encryption()
        .map_or("this", |(row, _)| row.name)
}

fn without_state(config: &SaConfig, why: &str) -> String {
    format!(
        "{} derives its nonces from sequence numbers, which would repeat after each start and break confidentiality: \
         {why}. Let the gateway store its numbers (`run --state DIR`), or use aes-gcm-16",
        algorithm(config)
    )
}

fn unknown_keys(config: &SaConfig, place: &str) -> String {
    format!(
        "{} derives its nonces from sequence numbers, and {place} has no record of these keys: add `-o key=fresh` if \
         they were never used, or `-o sequence=N` with the last number used; otherwise set new keys. Later starts \
         need neither",
        algorithm(config)
    )
}
