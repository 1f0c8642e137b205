//! What a reload changes: peers that are new, changed, gone, and those that keep their tunnels untouched.

use super::checked::ConfiguredPeer;
use std::collections::HashMap;
use std::fmt;

/// Names of peers, each in one of the lists.
#[derive(Default, PartialEq, Eq, Debug)]
pub(crate) struct Difference {
    /// In the new file alone.
    pub(crate) new: Vec<String>,
    /// In both, with other settings or secrets: negotiated anew.
    pub(crate) changed: Vec<String>,
    /// In the old file alone: taken down.
    pub(crate) gone: Vec<String>,
    /// In both and equal: not touched.
    pub(crate) same: Vec<String>,
}

/// Compares the peers of two files by name.
pub(crate) fn difference(old: &[ConfiguredPeer], new: &[ConfiguredPeer]) -> Difference {
    let (before, after) = (by_name(old), by_name(new));
    let mut difference = Difference::default();
    for peer in new {
        let name = &peer.connection.name;
        let list = match before.get(name.as_str()) {
            None => &mut difference.new,
            Some(before) if *before == peer => &mut difference.same,
            Some(_) => &mut difference.changed,
        };
        list.push(name.clone());
    }
    let names = old.iter().map(|peer| &peer.connection.name);
    let gone = names.filter(|name| !after.contains_key(name.as_str()));
    difference.gone = gone.cloned().collect();
    difference
}

fn by_name(peers: &[ConfiguredPeer]) -> HashMap<&str, &ConfiguredPeer> {
    let named = peers
        .iter()
        .map(|peer| (peer.connection.name.as_str(), peer));
    named.collect()
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let lists = [
            ("new", &self.new),
            ("changed", &self.changed),
            ("gone", &self.gone),
            ("not touched", &self.same),
        ];
        let shown = lists.into_iter().filter(|(_, names)| !names.is_empty());
        let mut is_empty = true;
        for (what, names) in shown {
            is_empty = false;
            writeln!(f, "{what:<12} {}", names.join(", "))?;
        }
        if is_empty {
            f.write_str("neither file has a peer\n")
        } else {
            Ok(())
        }
    }
}
