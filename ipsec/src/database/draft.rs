//! The databases while they are being changed: a cheap copy that is thrown away if any command is refused.

use super::change_error::ChangeError;
use super::compression::{any_spi, check_compression};
use super::shadowed::nat_conflict;
use super::spd_entry::SpdEntry;
use super::spread::Spreader;
use crate::command::{Answer, Command, Refused, SaReport};
use crate::policy::{Direction, Policy, Selector};
use crate::sa::{Protocol, Sa, SaConfig, SaId, SaState, Spi};
use multibuffer::without_stack_copies;
use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;

/// How long a reserved SPI waits for its keys, in seconds (KAME's and Linux's default).
const LARVAL_TIMEOUT_SECONDS: u64 = 30;

/// Associations and policies in the order in which they were added.
#[derive(Clone, Default)]
pub(super) struct Draft {
    sas: Vec<Arc<Sa>>,
    places: HashMap<SaId, usize>,
    larval: Vec<(SaId, u64)>,
    /// Their numbers rise.
    policies: Vec<Arc<SpdEntry>>,
    /// The number of each.
    known: HashMap<(Selector, Direction), u32>,
    last_policy: u32,
    updated: Vec<Arc<Sa>>,
    /// Taken out by the present list of commands: one that comes back with the same keys goes on from its numbers.
    removed: Vec<Arc<Sa>>,
    /// Made with the first policy that spreads: flows keep their associations from snapshot to snapshot.
    spreader: Option<Spreader>,
}

type Outcome = Result<Answer, ChangeError>;

impl Draft {
    pub(super) fn sas(&self) -> impl Iterator<Item = &Arc<Sa>> {
        self.sas.iter()
    }

    pub(super) fn policies(&self) -> impl Iterator<Item = &Arc<SpdEntry>> {
        self.policies.iter()
    }

    pub(super) fn spreader(&self) -> Spreader {
        self.spreader.unwrap_or_default()
    }

    pub(super) fn apply_all(
        &mut self,
        commands: &[Command],
        now: u64,
        random: &mut dyn FnMut() -> u64,
    ) -> Result<Vec<Answer>, Refused> {
        let mut apply = |(index, command)| {
            self.apply(command, now, random).map_err(|error| Refused {
                index,
                reason: error.to_string(),
            })
        };
        commands.iter().enumerate().map(&mut apply).collect()
    }

    fn apply(&mut self, command: &Command, now: u64, random: &mut dyn FnMut() -> u64) -> Outcome {
        match command {
            Command::AddSa(config) => self.add_sa(config, now, random),
            Command::UpdateSa(config) => self.update_sa(config, now, random),
            Command::DeleteSa { id, source } => self.delete_sa(id, *source),
            Command::DeleteAllSas {
                source,
                destination,
                protocol,
            } => {
                let between = (*source, *destination, *protocol);
                self.retain_sas(|config| {
                    let SaConfig { source, id, .. } = config;
                    config.is_negotiated || (*source, id.destination, id.protocol) != between
                });
                Ok(Answer::Done)
            }
            Command::GetSa { id, source } => self
                .find(id, *source)
                .map(|place| Answer::Sas(vec![report(&self.sas[place])])),
            Command::GetSpi {
                destination,
                protocol,
                range,
                ..
            } => self.get_spi(*destination, *protocol, *range, now, random),
            Command::FlushSas(protocol) => {
                self.retain_sas(|config| {
                    config.is_negotiated
                        || protocol.is_some_and(|protocol| protocol != config.id.protocol)
                });
                Ok(Answer::Done)
            }
            Command::DumpSas(protocol) => Ok(Answer::Sas(self.dump_sas(*protocol))),
            Command::AddPolicy(policy) => self.add_policy(policy, now, random),
            Command::UpdatePolicy(policy) => {
                if self.change_in_place(policy, now) {
                    return Ok(Answer::Done);
                }
                self.remove_policy(&policy.selector, policy.direction);
                self.add_policy(policy, now, random)
            }
            Command::DeletePolicy {
                selector,
                direction,
            } => {
                if !self.remove_policy(selector, *direction) {
                    return Err(ChangeError::NoPolicy);
                }
                Ok(Answer::Done)
            }
            Command::GetPolicy {
                selector,
                direction,
            } => {
                let place = self.place_of(selector, *direction);
                let entry = place.and_then(|place| self.policies.get(place));
                entry
                    .map(|entry| Answer::Policies(vec![entry.report()]))
                    .ok_or(ChangeError::NoPolicy)
            }
            Command::FlushPolicies => {
                self.flush_policies();
                Ok(Answer::Done)
            }
            Command::DumpPolicies => Ok(Answer::Policies(
                self.policies.iter().map(|entry| entry.report()).collect(),
            )),
        }
    }

    fn dump_sas(&self, protocol: Option<Protocol>) -> Vec<SaReport> {
        let wanted =
            |sa: &&Arc<Sa>| protocol.is_none_or(|protocol| protocol == sa.config.id.protocol);
        self.sas
            .iter()
            .filter(wanted)
            .map(|sa| report(sa))
            .collect()
    }

    /// Those that IKE negotiated stay.
    fn flush_policies(&mut self) {
        self.policies.retain(|entry| entry.policy.is_negotiated);
        let left = self.policies.iter();
        self.known = left
            .map(|entry| ((entry.policy.selector, entry.policy.direction), entry.id))
            .collect();
    }

    fn add_sa(
        &mut self,
        config: &Arc<SaConfig>,
        now: u64,
        random: &mut dyn FnMut() -> u64,
    ) -> Outcome {
        if self.places.contains_key(&config.id) {
            return Err(ChangeError::SaExists(config.id));
        }
        self.check_nat_conflict(config)?;
        self.larval.retain(|(id, _)| *id != config.id);
        self.places.insert(config.id, self.sas.len());
        let start = random();
        let state = match self.removed_before(config) {
            Some(state) => {
                state.check_update(config)?;
                Some(state)
            }
            None => None,
        };
        let is_back = state.is_some();
        let sa = without_stack_copies(|| {
            Arc::new(match state {
                Some(state) => Sa::with_state((**config).clone(), state),
                None => Sa::new((**config).clone(), now, start),
            })
        });
        if is_back {
            self.updated.push(Arc::clone(&sa));
        }
        self.sas.push(sa);
        Ok(Answer::Done)
    }

    /// The state of an association with these ends and keys that the same list of commands has taken out.
    fn removed_before(&self, config: &SaConfig) -> Option<Arc<SaState>> {
        let is_it = |sa: &&Arc<Sa>| {
            let old = &sa.config;
            (old.id, old.source) == (config.id, config.source) && old.suite == config.suite
        };
        let removed = self.removed.iter().rev().find(is_it)?;
        Some(Arc::clone(&removed.state))
    }

    fn update_sa(
        &mut self,
        config: &Arc<SaConfig>,
        now: u64,
        random: &mut dyn FnMut() -> u64,
    ) -> Outcome {
        if self.larval.iter().any(|(id, _)| *id == config.id) {
            return self.add_sa(config, now, random);
        }
        let place = self.find(&config.id, config.source)?;
        let state = Arc::clone(&self.sas[place].state);
        state.check_update(config)?;
        let updated = without_stack_copies(|| Arc::new(Sa::with_state((**config).clone(), state)));
        self.updated.push(Arc::clone(&updated));
        self.sas[place] = updated;
        Ok(Answer::Done)
    }

    /// RFC 3948 5.2: two hosts behind one NAT have one address here, and policies identify hosts by their addresses.
    /// Updates are not checked: a NAT that gives one host another port moves all its associations, one after the other.
    fn check_nat_conflict(&self, config: &SaConfig) -> Result<(), ChangeError> {
        let Some(known) = nat_conflict(config, self.sas.iter().map(|sa| &**sa)) else {
            return Ok(());
        };
        let ports = |config: &SaConfig| {
            let udp = config
                .encapsulation
                .map(|udp| (udp.source_port, udp.destination_port));
            udp.map_or_else(String::new, |(source, destination)| {
                format!("UDP ports {source} to {destination}")
            })
        };
        Err(ChangeError::SameNat {
            known: known.id,
            known_ports: ports(known),
            ports: ports(config),
        })
    }

    fn delete_sa(&mut self, id: &SaId, source: IpAddr) -> Outcome {
        let larval = self.larval.len();
        self.larval.retain(|(larva, _)| larva != id);
        if self.larval.len() < larval {
            return Ok(Answer::Done);
        }
        self.find(id, source)?;
        self.retain_sas(|config| config.id != *id);
        Ok(Answer::Done)
    }

    fn find(&self, id: &SaId, from: IpAddr) -> Result<usize, ChangeError> {
        let place = self
            .places
            .get(id)
            .copied()
            .filter(|place| self.sas[*place].config.source == from);
        place.ok_or(ChangeError::NoSa { id: *id, from })
    }

    fn get_spi(
        &mut self,
        destination: IpAddr,
        protocol: Protocol,
        range: Option<(Spi, Spi)>,
        now: u64,
        random: &mut dyn FnMut() -> u64,
    ) -> Outcome {
        let (low, high) = range.map_or(any_spi(protocol), |(low, high)| (low.get(), high.get()));
        let width = u64::from(high.saturating_sub(low)) + 1;
        let first = random() % width;
        // A random start and then one after the other: finds a free one if there is one.
        let candidates = (0..width.min(1 << 20)).map(|step| low + ((first + step) % width) as u32);
        let id = candidates
            .filter_map(Spi::new)
            .map(|spi| SaId {
                destination,
                protocol,
                spi,
            })
            .find(|id| {
                !self.places.contains_key(id) && !self.larval.iter().any(|(larva, _)| larva == id)
            })
            .ok_or(ChangeError::NoFreeSpi)?;
        self.larval.push((id, now + LARVAL_TIMEOUT_SECONDS));
        Ok(Answer::Spi(id.spi))
    }

    fn retain_sas(&mut self, keep: impl Fn(&SaConfig) -> bool) {
        let removed = self.sas.extract_if(.., |sa| !keep(&sa.config));
        self.removed.extend(removed);
        self.places = self
            .sas
            .iter()
            .enumerate()
            .map(|(place, sa)| (sa.config.id, place))
            .collect();
    }

    /// Once nothing can be refused any more: lets shared state follow updated configurations.
    pub(super) fn finish_updates(&mut self) {
        for sa in self.updated.drain(..) {
            sa.state.reconfigure(&sa.config);
            let used = sa.config.sequence;
            sa.state.raise(&sa.config, used, used);
        }
        // With its last holder an association's keys go.
        self.removed.clear();
    }

    /// Takes out associations whose hard limit is over.
    pub(super) fn remove_dead(&mut self) {
        self.sas.retain(|sa| sa.is_alive());
        self.places = self
            .sas
            .iter()
            .enumerate()
            .map(|(place, sa)| (sa.config.id, place))
            .collect();
    }

    /// Takes back reserved SPIs that were never keyed; whether there were any.
    pub(super) fn expire_larval(&mut self, now: u64) -> bool {
        let before = self.larval.len();
        self.larval.retain(|(_, until)| *until > now);
        self.larval.len() < before
    }

    fn add_policy(
        &mut self,
        policy: &Arc<Policy>,
        now: u64,
        random: &mut dyn FnMut() -> u64,
    ) -> Outcome {
        check_compression(policy)?;
        let key = (policy.selector, policy.direction);
        if self.known.contains_key(&key) {
            return Err(ChangeError::PolicyExists);
        }
        if policy.spread > 1 {
            self.spreader.get_or_insert_with(|| Spreader::new(random));
        }
        self.last_policy += 1;
        self.known.insert(key, self.last_policy);
        let entry = SpdEntry::new(Arc::clone(policy), self.last_policy, now);
        self.policies.push(Arc::new(entry));
        Ok(Answer::Done)
    }

    fn remove_policy(&mut self, selector: &Selector, direction: Direction) -> bool {
        let place = self.place_of(selector, direction);
        if let Some(place) = place {
            self.policies.remove(place);
            self.known.remove(&(*selector, direction));
        }
        place.is_some()
    }

    /// A policy of IKE that changes with its child SA keeps its place among those of the same priority. False if there
    /// is none.
    fn change_in_place(&mut self, policy: &Arc<Policy>, now: u64) -> bool {
        if check_compression(policy).is_err() {
            return false;
        }
        let place = self.place_of(&policy.selector, policy.direction);
        let old = place.and_then(|place| self.policies.get_mut(place));
        let is_kept = |old: &&mut Arc<SpdEntry>| {
            let is_negotiated = old.policy.is_negotiated && policy.is_negotiated;
            is_negotiated && old.policy.priority == policy.priority && policy.spread == 1
        };
        let Some(old) = old.filter(is_kept) else {
            return false;
        };
        *old = Arc::new(SpdEntry::new(Arc::clone(policy), old.id, now));
        true
    }

    fn place_of(&self, selector: &Selector, direction: Direction) -> Option<usize> {
        let id = self.known.get(&(*selector, direction))?;
        let place = self.policies.binary_search_by_key(id, |entry| entry.id);
        place.ok()
    }
}

fn report(sa: &Sa) -> SaReport {
    let usage = sa.state.usage();
    SaReport {
        config: Arc::new(sa.config.clone()),
        sequence: usage.sequence,
        created: usage.created,
        first_used: usage.first_used,
        last_used: usage.last_used,
        bytes: usage.bytes,
        packets: usage.packets,
        phase: usage.phase,
        drops: sa.state.drops(),
    }
}
