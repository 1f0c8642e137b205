//! The connections, and what is known of each apart from its IKE SAs.

use crate::{
    connection::{Connection, Start},
    ike_sa::Step,
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
    by_address: HashMap<IpAddr, Vec<String>>,
    anywhere: Vec<String>,
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
    pub story: Vec<Step>,
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

    pub fn is_up(&self, name: &str) -> bool {
        self.records
            .get(name)
            .is_some_and(|record| !record.up.is_empty())
    }

    /// Connections for a peer at `remote` that sent to `local`: those for its address first, then those for any.
    pub fn candidates(&self, local: IpAddr, remote: IpAddr) -> Vec<Arc<Connection>> {
        let by_address = self.by_address.get(&remote).into_iter().flatten();
        let names = by_address.chain(&self.anywhere);
        let records = names.filter_map(|name| self.records.get(name));
        let records = records.filter(|record| !record.is_blocked);
        let connections = records.map(|record| &record.connection);
        let is_local = |connection: &&Arc<Connection>| {
            connection.local.is_empty() || connection.local.contains(&local)
        };
        connections.filter(is_local).cloned().collect()
    }

    /// What all of them accept together.
    pub fn acceptance(&self, local: IpAddr, remote: IpAddr) -> Candidates {
        let mut candidates = Candidates::default();
        for connection in self.candidates(local, remote) {
            candidates.add(&connection);
            if candidates.names.len() < MAX_NAMED_CANDIDATES {
                candidates.names.push(connection.name.clone());
            }
        }
        candidates
    }

    /// Adds a connection, or replaces the one of its name.
    pub fn insert(&mut self, connection: Arc<Connection>) {
        self.remove(&connection.name);
        let name = connection.name.clone();
        for address in &connection.remote {
            self.by_address
                .entry(*address)
                .or_default()
                .push(name.clone());
        }
        if connection.remote.is_empty() {
            self.anywhere.push(name.clone());
        }
        self.records.insert(name, PeerRecord::new(connection));
    }

    pub fn remove(&mut self, name: &str) -> Option<PeerRecord> {
        let record = self.records.remove(name)?;
        self.anywhere.retain(|other| other != name);
        for address in &record.connection.remote {
            if let Some(names) = self.by_address.get_mut(address) {
                names.retain(|other| other != name);
                if names.is_empty() {
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
            story: Vec::new(),
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
