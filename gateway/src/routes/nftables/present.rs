//! The contents of a table in the kernel, by the kernel's handles: a rule cannot be changed, only replaced by one with
//! another handle, so equal handles mean that nothing was changed.

use super::connection::Connection;
use super::encoding::message;
use super::{NamedSet, Ruleset, TableFamily};
use crate::netlink_socket::attributes::{self, Attributes};
use std::collections::{BTreeMap, BTreeSet};
use std::io;

/// A table as the kernel listed it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Present {
    handle: u64,
    flags: u32,
    chains: BTreeMap<String, Chain>,
    /// The values of each set that rules name.
    sets: BTreeMap<&'static str, BTreeSet<Vec<u8>>>,
}

#[derive(Clone, PartialEq, Eq, Debug)]
struct Chain {
    handle: u64,
    policy: u32,
    rules: Vec<u64>,
}

impl Present {
    /// Reads a table, and the sets of these names; none if it does not exist.
    pub(crate) fn read(
        connection: &mut Connection,
        family: TableFamily,
        table: &str,
        sets: &[&'static str],
    ) -> io::Result<Option<Self>> {
        let named = || {
            let mut which = Attributes::default();
            which.put_text(1, table);
            which
        };
        let Some(found) = connection.get(message::GET_TABLE, family, named())? else {
            return Ok(None);
        };
        let chains = connection.list(message::GET_CHAIN, family, named())?;
        let mut rules = Vec::new();
        for body in chains.iter().filter(|body| is_of(table, body)) {
            // One request for each chain: for each part of a long listing the kernel iterates again over what it has
            // listed before.
            let mut which = named();
            which.put_text(2, attributes::find_text(body, 3).unwrap_or_default());
            rules.extend(connection.list(message::GET_RULE, family, which)?);
        }
        let mut present = Self::of(table, &found, &chains, &rules);
        for name in sets {
            let mut which = named();
            which.put_text(2, name);
            let values = match connection.list(message::GET_SET_ELEMENTS, family, which) {
                // The set was deleted, which the kernel allows only if no rule names it: that rule is missing, too.
                Err(error) if error.raw_os_error() == Some(libc::ENOENT) => continue,
                lists => lists?.iter().flat_map(|body| values(body)).collect(),
            };
            present.sets.insert(name, values);
        }
        Ok(Some(present))
    }

    /// The same table after its sets were given other values.
    pub(crate) fn with_values(mut self, sets: &[NamedSet]) -> Self {
        self.sets = values_of(sets);
        self
    }

    /// Parses the kernel's answers: the one about the table, and those about chains and rules of any table.
    pub(super) fn of(table: &str, found: &[u8], chains: &[Vec<u8>], rules: &[Vec<u8>]) -> Self {
        let mut present = Self {
            handle: attributes::find_u64(found, 4).unwrap_or_default(),
            flags: attributes::find_u32(found, 2).unwrap_or_default(),
            chains: BTreeMap::new(),
            sets: BTreeMap::new(),
        };
        let is_ours = |body: &&Vec<u8>| is_of(table, body);
        for body in chains.iter().filter(is_ours) {
            let name = attributes::find_text(body, 3).unwrap_or_default();
            let chain = Chain {
                handle: attributes::find_u64(body, 2).unwrap_or_default(),
                policy: attributes::find_u32(body, 5).unwrap_or_default(),
                rules: Vec::new(),
            };
            present.chains.insert(name.to_owned(), chain);
        }
        for body in rules.iter().filter(is_ours) {
            let chain = attributes::find_text(body, 2).unwrap_or_default();
            let handle = attributes::find_u64(body, 3).unwrap_or_default();
            if let Some(chain) = present.chains.get_mut(chain) {
                chain.rules.push(handle);
            }
        }
        present
    }

    /// Whether it has the chains of `ruleset`, each with as many rules, and the values of its sets.
    pub(crate) fn has_shape_of(&self, ruleset: &Ruleset) -> bool {
        let wanted = ruleset.chains.iter();
        let wanted: BTreeMap<_, _> = wanted
            .map(|chain| (chain.name.as_str(), chain.rules.len()))
            .collect();
        let found = self.chains.iter();
        let found: BTreeMap<_, _> = found
            .map(|(name, chain)| (name.as_str(), chain.rules.len()))
            .collect();
        wanted == found && self.sets == values_of(&ruleset.sets)
    }

    /// Describes what is missing or changed in `now`.
    pub(crate) fn differences(&self, now: Option<&Self>) -> Vec<String> {
        let Some(now) = now else {
            return vec!["table deleted".to_owned()];
        };
        if now.handle != self.handle {
            return vec!["table replaced by another".to_owned()];
        }
        let mut words = Vec::new();
        if now.flags != self.flags {
            words.push(format!(
                "table flags are {:#x} instead of {:#x}",
                now.flags, self.flags
            ));
        }
        for (name, chain) in &self.chains {
            match now.chains.get(name) {
                None => words.push(format!("chain {name} deleted")),
                Some(found) => words.extend(
                    chain
                        .difference(found)
                        .map(|what| format!("chain {name}: {what}")),
                ),
            }
        }
        let strange = now
            .chains
            .keys()
            .filter(|name| !self.chains.contains_key(*name));
        words.extend(strange.map(|name| format!("chain {name} added")));
        for (name, wanted) in &self.sets {
            let lost = match now.sets.get(name) {
                None => Some("deleted".to_owned()),
                Some(found) => difference("value", wanted, found),
            };
            words.extend(lost.map(|what| format!("set {name}: {what}")));
        }
        words
    }
}

fn values_of(sets: &[NamedSet]) -> BTreeMap<&'static str, BTreeSet<Vec<u8>>> {
    let sets = sets.iter();
    sets.map(|set| (set.name, set.values.clone())).collect()
}

/// The values in one part of a listing of a set's elements.
pub(super) fn values(body: &[u8]) -> Vec<Vec<u8>> {
    let elements = attributes::read(attributes::find(body, 3).unwrap_or_default());
    let keys = elements.filter_map(|(_, element)| attributes::find(element, 1));
    keys.filter_map(|key| attributes::find(key, 1))
        .map(<[u8]>::to_vec)
        .collect()
}

/// Describes how many of these things are missing or added, if they differ.
fn difference<E: Ord>(thing: &str, wanted: &BTreeSet<E>, there: &BTreeSet<E>) -> Option<String> {
    let missing = wanted.difference(there).count();
    let added = there.difference(wanted).count();
    match (missing, added) {
        (0, 0) => None,
        (0, 1) => Some(format!("1 {thing} added")),
        (0, more) => Some(format!("{more} {thing}s added")),
        (1, _) => Some(format!("1 {thing} missing")),
        (many, _) => Some(format!("{many} {thing}s missing")),
    }
}

fn is_of(table: &str, body: &[u8]) -> bool {
    attributes::find_text(body, 1) == Some(table)
}

impl Chain {
    fn difference(&self, found: &Self) -> Option<String> {
        if self == found {
            return None;
        }
        if self.handle != found.handle {
            return Some("replaced by another".to_owned());
        }
        if self.policy != found.policy {
            return Some("its policy changed".to_owned());
        }
        let [wanted, there]: [BTreeSet<_>; 2] =
            [self, found].map(|chain| chain.rules.iter().collect());
        // The same rules in another order are other rules.
        difference("rule", &wanted, &there).or_else(|| Some("its rules are reordered".to_owned()))
    }
}
