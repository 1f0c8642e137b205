//! The connections, and what is known of each apart from its IKE SAs.

use super::PeerState;
use crate::{
    connection::{Connection, Start},
    identity::{Identity, Pattern},
    ike_sa::Steps,
    message::IkeSpi,
    negotiation::Offer,
};
use std::{
    collections::{BTreeMap, HashMap},
    net::IpAddr,
    sync::Arc,
    time::Duration,
};

/// All connections.
#[derive(Default)]
pub(crate) struct Peers {
    pub records: BTreeMap<String, PeerRecord>,
    by_address: HashMap<IpAddr, ConnectionIndex>,
    anywhere: ConnectionIndex,
    /// What was computed for a local address and an address of a peer (none: any that is not configured), until a
    /// connection changes.
    accepted: HashMap<(IpAddr, Option<IpAddr>), Arc<Candidates>>,
    /// The connections whose state may differ from what [`Endpoint::take_state_changes`] has told.
    ///
    /// [`Endpoint::take_state_changes`]: super::Endpoint::take_state_changes
    untold: Vec<String>,
}

/// Connections whose peers begin from the same address, or from any.
#[derive(Default)]
struct ConnectionIndex {
    /// All of them, in the order in which they were added.
    names: Vec<String>,
    /// Those that expect exactly one identity, by [`Identity::index_text`].
    by_identity: HashMap<String, Vec<String>>,
    /// Those that expect an identity of a pattern.
    by_pattern: Vec<String>,
}

impl ConnectionIndex {
    fn add(&mut self, connection: &Connection) {
        let name = || connection.name.clone();
        self.names.push(name());
        match &connection.remote_id {
            Pattern::Exactly(identity) => {
                let same = self.by_identity.entry(identity.index_text()).or_default();
                same.push(name());
            }
            _ => self.by_pattern.push(name()),
        }
    }

    fn remove(&mut self, connection: &Connection) {
        let is_other = |name: &String| *name != connection.name;
        self.names.retain(is_other);
        self.by_pattern.retain(is_other);
        if let Pattern::Exactly(identity) = &connection.remote_id {
            let text = identity.index_text();
            if let Some(same) = self.by_identity.get_mut(&text) {
                same.retain(is_other);
                if same.is_empty() {
                    self.by_identity.remove(&text);
                }
            }
        }
    }

    /// Those that may expect this identity: the exact ones first.
    fn expecting(&self, identity: &Identity) -> impl Iterator<Item = &String> {
        let same = self.by_identity.get(&identity.index_text());
        same.into_iter().flatten().chain(&self.by_pattern)
    }
}

/// One connection.
pub(crate) struct PeerRecord {
    pub connection: Arc<Connection>,
    /// Whether it is to be up: it is tried for ever.
    pub is_wanted: bool,
    /// Whether it was taken down by command: the peer may not bring it up either.
    pub is_blocked: bool,
    /// The own SPI of the IKE SA that this side is trying to bring up.
    pub attempt: Option<IkeSpi>,
    /// The own SPIs of those that are up.
    pub up: Vec<IkeSpi>,
    /// How many attempts have failed in a row.
    pub failures: u32,
    /// When the next attempt begins.
    pub next_at: Option<Duration>,
    pub last_failure: Option<String>,
    /// The last negotiation.
    pub story: Steps,
    /// Whether it may differ from what was last reported.
    pub is_changed: bool,
    /// Whether it is in [`Peers::untold`].
    is_untold: bool,
    /// The state that was told last, and when the next attempt was due then.
    pub told: Option<(PeerState, Option<Duration>)>,
}

/// What a stranger's first request is compared with: all connections that it could be for.
#[derive(Default)]
pub(crate) struct Candidates {
    pub names: Vec<String>,
    pub offers: Vec<Offer>,
    /// Hashes of the keys of trusted authorities.
    pub authorities: Vec<u8>,
    pub is_forced: bool,
}

/// Connections to which a refused stranger is attributed.
const MAX_NAMED_CANDIDATES: usize = 8;

impl Peers {
    /// Whether a connection has this peer's address.
    pub fn knows(&self, remote: IpAddr) -> bool {
        self.by_address.contains_key(&remote)
    }

    /// A connection that is about to change, or whose IKE SAs have.
    pub fn record_mut(&mut self, name: &str) -> Option<&mut PeerRecord> {
        let record = self.records.get_mut(name)?;
        record.is_changed = true;
        if !std::mem::replace(&mut record.is_untold, true) {
            self.untold.push(name.to_owned());
        }
        Some(record)
    }

    /// The connections whose state may have changed since the last call.
    pub fn take_untold(&mut self) -> Vec<String> {
        let mut names = std::mem::take(&mut self.untold);
        names.retain(|name| {
            let record = self.records.get_mut(name);
            record.is_some_and(|record| std::mem::take(&mut record.is_untold))
        });
        names
    }

    pub fn is_up(&self, name: &str) -> bool {
        self.records
            .get(name)
            .is_some_and(|record| !record.up.is_empty())
    }

    /// Whether several IKE SAs of a connection are up.
    pub fn has_several(&self, name: &str) -> bool {
        let record = self.records.get(name);
        record.is_some_and(|record| record.up.len() > 1)
    }

    /// Connections for a peer at `remote` that sent to `local`: those for its address first, then those for any.
    pub fn candidates(
        &self,
        local: IpAddr,
        remote: IpAddr,
    ) -> impl Iterator<Item = &Arc<Connection>> {
        let indexes = self.indexes(remote);
        self.open_to(local, indexes.flat_map(|index| &index.names))
    }

    /// Those of them that may expect this identity: where there are thousands, few are looked at.
    pub fn expecting(
        &self,
        (local, remote): (IpAddr, IpAddr),
        identity: &Identity,
    ) -> Vec<Arc<Connection>> {
        let indexes = self.indexes(remote);
        let names = indexes.flat_map(|index| index.expecting(identity));
        self.open_to(local, names).cloned().collect()
    }

    fn indexes(&self, remote: IpAddr) -> impl Iterator<Item = &ConnectionIndex> {
        let here = self.by_address.get(&remote).into_iter();
        here.chain([&self.anywhere])
    }

    fn open_to<'a>(
        &'a self,
        local: IpAddr,
        names: impl Iterator<Item = &'a String>,
    ) -> impl Iterator<Item = &'a Arc<Connection>> {
        let records = names.filter_map(|name| self.records.get(name));
        let records = records.filter(|record| !record.is_blocked);
        let connections = records.map(|record| &record.connection);
        let is_local = move |connection: &&Arc<Connection>| {
            connection.local.is_empty() || connection.local.contains(&local)
        };
        connections.filter(is_local)
    }

    /// What all of them accept together.
    pub fn acceptance(&mut self, local: IpAddr, remote: IpAddr) -> Arc<Candidates> {
        let key = (local, self.knows(remote).then_some(remote));
        if let Some(known) = self.accepted.get(&key) {
            return Arc::clone(known);
        }
        let mut candidates = Candidates::default();
        for connection in self.candidates(local, remote) {
            candidates.add(connection);
            if candidates.names.len() < MAX_NAMED_CANDIDATES {
                candidates.names.push(connection.name.clone());
            }
        }
        let candidates = Arc::new(candidates);
        self.accepted.insert(key, Arc::clone(&candidates));
        candidates
    }

    /// Has [`Peers::acceptance`] computed anew: a connection was added, removed, blocked or opened.
    pub fn forget_acceptance(&mut self) {
        self.accepted.clear();
    }

    /// Adds a connection, or replaces the one of its name.
    pub fn insert(&mut self, connection: Arc<Connection>) {
        self.remove(&connection.name);
        self.forget_acceptance();
        for address in &connection.remote {
            self.by_address
                .entry(*address)
                .or_default()
                .add(&connection);
        }
        if connection.remote.is_empty() {
            self.anywhere.add(&connection);
        }
        let name = connection.name.clone();
        self.untold.push(name.clone());
        self.records.insert(name, PeerRecord::new(connection));
    }

    pub fn remove(&mut self, name: &str) -> Option<PeerRecord> {
        let record = self.records.remove(name)?;
        self.forget_acceptance();
        let connection = &record.connection;
        if connection.remote.is_empty() {
            self.anywhere.remove(connection);
        }
        for address in &connection.remote {
            if let Some(index) = self.by_address.get_mut(address) {
                index.remove(connection);
                if index.names.is_empty() {
                    self.by_address.remove(address);
                }
            }
        }
        Some(record)
    }
}

impl PeerRecord {
    fn new(connection: Arc<Connection>) -> Self {
        let mut record = Self {
            connection,
            is_wanted: false,
            is_blocked: false,
            attempt: None,
            up: Vec::new(),
            failures: 0,
            next_at: None,
            last_failure: None,
            story: Steps::default(),
            is_changed: true,
            is_untold: true,
            told: None,
        };
        record.is_wanted = record.begins();
        record
    }

    /// Whether it is brought up at start.
    pub fn begins(&self) -> bool {
        self.connection.start == Start::AtStart && !self.connection.remote.is_empty()
    }

    /// The address to try next: each in turn.
    pub fn address(&self) -> Option<IpAddr> {
        let addresses = &self.connection.remote;
        let turn = self.failures as usize % addresses.len().max(1);
        addresses.get(turn).copied()
    }

    /// The pause in front of the next attempt: doubled each time that all addresses have failed, and shortened by up to
    /// a quarter at random, so that not all peers begin at once.
    pub fn pause(&self, random: u8) -> Duration {
        let (first, longest) = self.connection.retry;
        let rounds = self.failures / (self.connection.remote.len().max(1) as u32);
        let factor = 1u32
            .checked_shl(rounds.saturating_sub(1))
            .unwrap_or(u32::MAX);
        let pause = first.saturating_mul(factor).min(longest);
        pause.saturating_sub(pause.mul_f64(f64::from(random) / 1024.0))
    }
}
