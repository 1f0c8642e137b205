//! `[testbed.hosts]`: machines that are there already. What is made of virtual links or would meet the host's own
//! associations is refused, at its place in the file.

use std::net::Ipv4Addr;
use std::ops::Range;

use toml::de::DeTable;

use super::cell::Cell;
use super::complaint::{self, SpecError};
use super::diagnostic::Diagnostic;
use super::kinds::{ContenderKind, Named};
use super::tree::{self, Placed, Tree};
use crate::testbed::{HostSpec, Hosts, LinkSpec};

/// The fields of a host's table, and the roles.
const HOST_FIELDS: [&str; 5] = ["ssh", "wan", "wan_address", "lan", "lan_address"];
const ROLES: [&str; 4] = ["client", "left", "right", "server"];

/// The addresses of a testbed in namespaces, by role and link: they serve where the spec gives none.
const DEFAULT_ADDRESSES: [(&str, &str, &str); 6] = [
    ("left", "wan", "192.0.2.1/24"),
    ("right", "wan", "192.0.2.2/24"),
    ("left", "lan", "10.1.0.1/24"),
    ("right", "lan", "10.2.0.1/24"),
    ("client", "lan", "10.1.0.2/24"),
    ("server", "lan", "10.2.0.2/24"),
];

/// The kind of testbed that is not namespaces of this machine, but of a guest on it.
pub(super) const GUEST: &str = "guest";

/// Whether the spec has a guest, which excludes hosts.
pub(super) fn is_guest(file: Tree<'_>) -> Result<bool, Diagnostic> {
    let testbed = file.table("testbed")?;
    let kind = testbed.and_then(|testbed| testbed.get("kind"));
    let guest = kind.filter(|kind| kind.get_ref().as_str() == Some(GUEST));
    match (guest, hosts_of(file)?) {
        (Some(kind), Some(_)) => Err(Diagnostic {
            at: kind.span(),
            what: "a guest and [testbed.hosts] exclude each other".into(),
            advice: "leave one of them out".into(),
        }),
        (guest, _) => Ok(guest.is_some()),
    }
}

/// Reads the hosts, if the spec names any, and refuses what cannot be done on them; or not, where it was left out of
/// the cells before.
pub(super) fn read(
    file: Tree<'_>,
    cells: &[Cell],
    refuses: bool,
) -> Result<Option<Hosts>, Diagnostic> {
    for part in file.tables("part")? {
        if let Some(hosts) = hosts_of(part)? {
            return Err(Diagnostic {
                at: hosts.at.0..hosts.at.1,
                what: "a part cannot have its own hosts".into(),
                advice: "name them in the top-level [testbed]".into(),
            });
        }
    }
    let Some(tree) = hosts_of(file)? else {
        return Ok(None);
    };
    let hosts = hosts(tree)?;
    suffice(&hosts, tree, cells)?;
    if refuses {
        for (name, at, value) in words(file)? {
            refuse(&name, &at, value)?;
        }
    }
    Ok(Some(hosts))
}

fn hosts_of(part: Tree<'_>) -> Result<Option<Tree<'_>>, Diagnostic> {
    match part.table("testbed")? {
        Some(testbed) => testbed.table("hosts"),
        None => Ok(None),
    }
}

fn hosts(tree: Tree<'_>) -> Result<Hosts, Diagnostic> {
    tree.only(&ROLES)?;
    let found = |role: &str| {
        tree.table(role)?
            .map(|table| host_spec(role, table))
            .transpose()
    };
    let gateway = |role: &str| {
        found(role)?.ok_or_else(|| Diagnostic {
            at: tree.at.0..tree.at.1,
            what: format!("the host `{role}` is missing"),
            advice: format!(
                "add [testbed.hosts.{role}] with `ssh = \"ssh://root@NAME\"` and `wan = \"DEVICE\"`"
            ),
        })
    };
    Ok(Hosts {
        left: gateway("left")?,
        right: gateway("right")?,
        client: found("client")?,
        server: found("server")?,
    })
}

fn host_spec(role: &str, tree: Tree<'_>) -> Result<HostSpec, Diagnostic> {
    tree.only(&HOST_FIELDS)?;
    let Some(at) = tree.get("ssh") else {
        return Err(Diagnostic {
            at: tree.at.0..tree.at.1,
            what: format!("the host `{role}` has no `ssh`"),
            advice: "add `ssh = \"ssh://root@NAME\"`".into(),
        });
    };
    Ok(HostSpec {
        at: url(at)?,
        wan: link(role, "wan", tree)?,
        lan: link(role, "lan", tree)?,
    })
}

fn url(written: Placed<'_>) -> Result<String, Diagnostic> {
    let word = tree::text(written)?;
    let host = word.strip_prefix("ssh://").unwrap_or_default();
    if host.is_empty() || host.starts_with('-') || host.contains(char::is_whitespace) {
        Err(Diagnostic {
            at: written.span(),
            what: format!("`{word}` is not an SSH URL"),
            advice: "write it as \"ssh://root@NAME\" or \"ssh://root@NAME:PORT\"".into(),
        })
    } else {
        Ok(word.into())
    }
}

fn link(role: &str, name: &'static str, tree: Tree<'_>) -> Result<Option<LinkSpec>, Diagnostic> {
    let key = format!("{name}_address");
    let usual = DEFAULT_ADDRESSES
        .iter()
        .find(|(whose, which, _)| (*whose, *which) == (role, name));
    let Some((.., usual)) = usual else {
        let stray = tree.get(name).or(tree.get(&key));
        return stray.map_or(Ok(None), |value| {
            Err(Diagnostic {
                at: value.span(),
                what: format!("the {role} is an end host and has no `{name}`"),
                advice: "its device is its `lan`".into(),
            })
        });
    };
    let Some(device) = tree.get(name) else {
        return Ok(None);
    };
    let (address, prefix) = match tree.get(&key) {
        Some(written) => address(written)?,
        None => parsed(usual).unwrap_or((Ipv4Addr::UNSPECIFIED, 0)),
    };
    Ok(Some(LinkSpec {
        device: device_name(device)?,
        address,
        prefix,
    }))
}

fn device_name(written: Placed<'_>) -> Result<String, Diagnostic> {
    let word = tree::text(written)?;
    let strange = |letter: char| letter.is_whitespace() || matches!(letter, '/' | ':');
    if (1..=15).contains(&word.len()) && !word.starts_with(['-', '.']) && !word.contains(strange) {
        Ok(word.into())
    } else {
        Err(Diagnostic {
            at: written.span(),
            what: format!("`{word}` is not a device name"),
            advice: "`ip link` lists them".into(),
        })
    }
}

fn address(written: Placed<'_>) -> Result<(Ipv4Addr, u8), Diagnostic> {
    let word = tree::text(written)?;
    parsed(word).ok_or_else(|| Diagnostic {
        at: written.span(),
        what: format!("`{word}` is not an IPv4 address with a prefix length"),
        advice: "write it as \"192.0.2.1/24\"".into(),
    })
}

fn parsed(word: &str) -> Option<(Ipv4Addr, u8)> {
    let (address, prefix) = word.split_once('/')?;
    let prefix = prefix.parse().ok().filter(|prefix| *prefix <= 32)?;
    Some((address.parse().ok()?, prefix))
}

/// Whether there are as many hosts, and devices, as the cells need.
fn suffice(hosts: &Hosts, tree: Tree<'_>, cells: &[Cell]) -> Result<(), Diagnostic> {
    let wrong = |what: String, advice: &str| Diagnostic {
        at: tree.at.0..tree.at.1,
        what,
        advice: advice.into(),
    };
    let gateways = [("left", &hosts.left), ("right", &hosts.right)];
    if let Some((role, _)) = gateways.iter().find(|(_, place)| place.wan.is_none()) {
        return Err(wrong(
            format!("the host `{role}` has no `wan`"),
            "add `wan = \"DEVICE\"`",
        ));
    }
    let four = cells.iter().any(|cell| !cell.is_of_a_pair());
    match (four, &hosts.client, &hosts.server) {
        (true, Some(client), Some(server)) => {
            let ends = [("client", client), ("server", server)];
            let mut all = gateways.into_iter().chain(ends);
            match all.find(|(_, place)| place.lan.is_none()) {
                Some((role, _)) => Err(wrong(
                    format!("the host `{role}` has no `lan`"),
                    "add `lan = \"DEVICE\"`",
                )),
                None => Ok(()),
            }
        }
        (true, ..) => Err(wrong(
            "a client and a server behind the gateways are missing".into(),
            "add them, or write `kind = \"pair\"` in [testbed] to use left and right as end hosts",
        )),
        (false, None, None) => Ok(()),
        (false, ..) => Err(wrong(
            "a pair has only `left` and `right`".into(),
            "remove the others, or write `kind = \"gateways\"` in [testbed]",
        )),
    }
}

/// Every word of the file that may name a factor, a load or a contender, with its place.
fn words(file: Tree<'_>) -> Result<Vec<(String, Range<usize>, Placed<'_>)>, Diagnostic> {
    let mut all = Vec::new();
    for part in file.tables("part")?.into_iter().chain([file]) {
        for (table, before) in [("testbed", ""), ("factors", ""), ("load", "load.")] {
            let leaves = part
                .table(table)?
                .map(|tree| tree.leaves())
                .unwrap_or_default();
            all.extend(
                leaves
                    .into_iter()
                    .map(|(name, at, value)| (format!("{before}{name}"), at, value)),
            );
        }
        for (tables, before) in [("cells", ""), ("contender", "contender.")] {
            let leaves = part
                .tables(tables)?
                .into_iter()
                .flat_map(|tree| tree.leaves());
            all.extend(leaves.map(|(name, at, value)| (format!("{before}{name}"), at, value)));
        }
    }
    for preset in ["smoke", "quick", "standard", "faithful"] {
        let factors = file
            .table(preset)?
            .map(|tree| tree.table("factors"))
            .transpose()?;
        all.extend(
            factors
                .flatten()
                .map(|tree| tree.leaves())
                .unwrap_or_default(),
        );
    }
    Ok(all)
}

fn refuse(name: &str, at: &Range<usize>, value: Placed<'_>) -> Result<(), Diagnostic> {
    let plain = name
        .trim_start_matches("contender.")
        .trim_start_matches("load.");
    let word = value.get_ref().as_str().unwrap_or_default();
    let kind = ContenderKind::named(word).filter(|_| name == "contender.kind");
    if let Some(kind) = kind.filter(|kind| !is_measured_on_machines(*kind)) {
        return Err(Diagnostic {
            at: value.span(),
            what: in_namespaces_only(kind),
            advice: "use plain and esplanade, or remove [testbed.hosts] to use namespaces".into(),
        });
    }
    match only_in_namespaces(plain) {
        Some((what, advice)) => Err(Diagnostic {
            at: at.clone(),
            what,
            advice,
        }),
        None => Ok(()),
    }
}

/// Whether a contender leaves the host's own configuration alone.
pub(super) fn is_measured_on_machines(kind: ContenderKind) -> bool {
    matches!(kind, ContenderKind::Plain | ContenderKind::Esplanade)
}

/// Why one is not measured.
pub(super) fn in_namespaces_only(kind: ContenderKind) -> String {
    format!(
        "`{}` is measured in namespaces only: on a real machine it could conflict with the host's configuration",
        kind.name()
    )
}

/// Of a factor that real machines cannot be given: why, and what to do.
pub(super) fn only_in_namespaces(factor: &str) -> Option<(String, String)> {
    let first = factor.split('.').next().unwrap_or_default();
    let instead =
        |name: &str| format!("remove `{name}`, or remove [testbed.hosts] to use namespaces");
    Some(match first {
        "link" | "impair" | "path" => (
            format!("`{factor}` needs virtual links, and cannot be set on real machines"),
            "remove it, or remove [testbed.hosts] to use namespaces".into(),
        ),
        "rekey_ms" => (
            "the lab cannot renew keys on two real machines".into(),
            instead(first),
        ),
        "families" => (
            "real machines are measured over IPv4 only".into(),
            instead(first),
        ),
        "ip_early_demux" | "rx_udp_gro_forwarding" | "rx_gro_list" | "rps_cpus" => (
            format!("`{factor}` can only be set in namespaces"),
            "remove it; on a real machine use `esplanade tune`".into(),
        ),
        "share" => (
            "`share` needs control groups, which the lab creates on this machine only".into(),
            instead(first),
        ),
        _ => return None,
    })
}

/// Whether a machine has a setting of its own for such a factor, under which it can be measured all the same.
pub(super) fn has_by_itself(factor: &str) -> bool {
    const SETTINGS: [&str; 4] = [
        "ip_early_demux",
        "rx_udp_gro_forwarding",
        "rx_gro_list",
        "rps_cpus",
    ];
    factor.starts_with("link.") || SETTINGS.contains(&factor)
}

/// How many machines a file names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum HostCount {
    /// Left and right, which are end hosts, too.
    Two,
    /// Client and server behind them.
    Four,
}

/// How many the hosts of a spec are.
pub(super) fn machines(file: Tree<'_>) -> Result<Option<HostCount>, Diagnostic> {
    let Some(tree) = hosts_of(file)? else {
        return Ok(None);
    };
    let hosts = hosts(tree)?;
    Ok(Some(match (hosts.client, hosts.server) {
        (None, None) => HostCount::Two,
        _ => HostCount::Four,
    }))
}

/// The text of a study with the hosts of a file of their own behind it, which is checked first, so that errors name
/// places in that file.
pub(crate) fn joined(study: &str, hosts: &str, name: &str) -> Result<String, SpecError> {
    let wrong = |wrong: Diagnostic| SpecError::new(wrong.at, wrong.what, wrong.advice, hosts, name);
    let file = DeTable::parse(hosts).map_err(|error| complaint::of_toml(&error, hosts, name))?;
    let tree = Tree::of(&file);
    tree.only(&["testbed"]).map_err(wrong)?;
    if let Some(testbed) = tree.table("testbed").map_err(wrong)? {
        testbed.only(&["hosts"]).map_err(wrong)?;
    }
    match machines(tree).map_err(wrong)? {
        Some(_) => Ok(format!("{study}\n# From {name}:\n{hosts}")),
        None => Err(wrong(Diagnostic {
            at: 0..0,
            what: "this file names no hosts".into(),
            advice: "add [testbed.hosts.left] and [testbed.hosts.right], see docs/lab.md".into(),
        })),
    }
}

#[cfg(test)]
mod tests;
