//! Which hosts of a topology are machines of their own: network namespaces share one kernel, hosts reached by SSH do
//! not. What counts for a whole machine is read once on each.

use std::path::Path;

use crate::host::Host;
use crate::testbed::{Layout, Topology};

/// A number that every boot of every machine draws anew.
const BOOT_ID: &str = "/proc/sys/kernel/random/boot_id";

/// The hosts of a topology with their names, each once: a pair has two of them under four names.
pub(super) fn hosts(topology: &Topology) -> Vec<(&'static str, &dyn Host)> {
    let gateways: [(_, &dyn Host); 2] = [("left", &*topology.left), ("right", &*topology.right)];
    let ends: [(_, &dyn Host); 2] = [("client", &*topology.client), ("server", &*topology.server)];
    match topology.layout {
        Layout::Pair => gateways.into(),
        Layout::Gateways => gateways.into_iter().chain(ends).collect(),
    }
}

/// One host of each machine, with what its readings begin with: nothing where there is only one machine. A host whose
/// boot id cannot be read is assumed to be on the first machine.
pub(super) fn machines(topology: &Topology) -> Vec<(String, &dyn Host)> {
    let mut seen: Vec<String> = Vec::new();
    let mut found: Vec<(String, &dyn Host)> = Vec::new();
    for (name, host) in hosts(topology) {
        let boot = host.read(Path::new(BOOT_ID)).unwrap_or_default();
        if found.is_empty() || !(boot.is_empty() || seen.contains(&boot)) {
            found.push((format!("{name}."), host));
            seen.push(boot);
        }
    }
    if let [(prefix, _)] = &mut found[..] {
        prefix.clear();
    }
    found
}
