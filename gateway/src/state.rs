//! Sequence numbers, replay windows and lifetimes of associations keyed by hand, kept across restarts (docs/state.md).
//!
//! ```text
//!   main thread: a text changes associations ──► recall, durable ──► published ──► follow ─┐
//!                                                                                         ▼
//!   writer, 20 times a second ──► round ──► file of recent numbers (never synced) ◄──── keeper ──► plan
//!                                                                                                   │
//!   syncer ──► commit ──► store ──► file on the disk ◄──────────────────────────────────────────────┘
//! ```
//!
//! Everything is opened before privileges are dropped. From then on the files are only queried (`fstat`), written
//! (`pwrite64`) and synced (`fdatasync`) by their descriptors; no path is opened any more.

mod committer;
mod disk;
mod header;
mod keeper;
mod key_fingerprint;
mod last_used;
mod machine;
mod open;
mod recent;
mod record;
mod records;
mod store;
mod threads;

pub(crate) use key_fingerprint::keyed_hash;
pub(crate) use open::{Wanted, open, remove_recent};

use crate::memory;
use committer::{Committer, lock};
use dataplane::io::Warn;
use ipsec::command::{Command, Refused};
use ipsec::database::Snapshot;
use ipsec::sa::{Sa, SaConfig, SaId};
use keeper::{Changed, Recalled};
use record::Moment;
use std::collections::HashSet;
use std::fs::File;
use std::io;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard};
use threads::{Threads, Work};

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

/// The file, and the threads that keep it up to date.
pub(crate) struct Keeping {
    shared: Arc<Shared>,
    threads: Option<Threads>,
}

struct Shared {
    committer: Committer<File>,
    /// The file's name, for messages.
    place: String,
    trouble: Mutex<Option<String>>,
    /// Whether the file of recent numbers was refused, which is reported once.
    recent_is_refused: Mutex<bool>,
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
                    .committer
                    .keeper()
                    .follow(snapshot, &pending.0, moment())
            };
            memory::without_keys(follow);
        }
    }

    /// Starts the threads that write numbers as they change. Called once privileges are dropped.
    pub(crate) fn start(&mut self) -> io::Result<()> {
        if let Self::Kept(keeping) = self {
            let works: [Work<Shared>; 2] = [
                ("numbers", Shared::write_recent),
                ("numbers-sync", Shared::commit),
            ];
            keeping.threads = Some(Threads::start(&keeping.shared, works)?);
        }
        Ok(())
    }

    /// The last write. No packet may be in flight any more.
    pub(crate) fn finish(&mut self) {
        if let Self::Kept(keeping) = self {
            // Both threads end by themselves; if one panicked, all reserved numbers count as used.
            keeping.threads = None;
            let outcome = keeping.shared.committer.finish(moment());
            keeping.shared.report(outcome);
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
}

impl Keeping {
    fn new(committer: Committer<File>, place: String, lock: File, warn: &Warn) -> Self {
        Self {
            shared: Arc::new(Shared {
                committer,
                place,
                trouble: Mutex::default(),
                recent_is_refused: Mutex::default(),
                warn: Arc::clone(warn),
                _lock: lock,
            }),
            threads: None,
        }
    }
}

impl Shared {
    fn recall(
        &self,
        changed: &[&Arc<Sa>],
        addresses: &[IpAddr],
    ) -> Result<Pending, (SaId, String)> {
        let salt = &self.committer.header().salt;
        // Only this step reads keys.
        let names: Vec<_> = changed
            .iter()
            .map(|sa| key_fingerprint::key_fingerprint(&sa.config, salt))
            .collect();
        memory::without_keys(|| {
            let local: HashSet<_> = addresses.iter().collect();
            let mut all = Vec::new();
            for (sa, name) in changed.iter().copied().zip(names) {
                let known = self.committer.keeper().knows(&name);
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
            let (outcome, committed) = self.committer.recall(&all, moment());
            let resumed: HashSet<_> = outcome.resumed.iter().collect();
            for sa in changed.iter().filter(|sa| resumed.contains(&sa.config.id)) {
                self.warn_if_over(sa);
            }
            self.report(committed);
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

    /// Writes what has changed to the file of recent numbers; a first failure is reported.
    fn write_recent(&self) {
        let outcome = self.committer.round(moment());
        let mut is_refused = lock(&self.recent_is_refused);
        if let Err(error) = &outcome
            && !*is_refused
        {
            (self.warn)(&format!(
                "cannot write recent sequence numbers beside the control socket: {error}. After a `kill -9`, packets \
                 that arrived while the disk was writing {} may be accepted again",
                self.place
            ));
        }
        *is_refused = outcome.is_err();
    }

    /// Writes what the disk lacks.
    fn commit(&self) {
        self.report(self.committer.commit());
    }

    /// Reports when writing begins to fail and when it works again.
    fn report(&self, outcome: io::Result<()>) {
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

    fn trouble(&self) -> MutexGuard<'_, Option<String>> {
        lock(&self.trouble)
    }
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
    let is_known = move |sa: &Arc<Sa>| {
        let old = before.find(&sa.config.id);
        old.is_some_and(|old| std::ptr::eq(before.sa(old), &**sa))
    };
    let kept = after.sas().filter(|sa| !sa.config.is_negotiated);
    kept.filter(move |sa| !is_known(sa))
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
