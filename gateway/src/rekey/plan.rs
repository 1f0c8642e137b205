//! What a text requests: which associations are new, which are old, and which peers they belong to. A text that changes
//! anything beside keys is refused, with the line.

use super::{SaReference, standing_by};
use crate::apply::{blame, warnings};
use crate::control::SetkeyText;
use crate::events::{PolicyName, SaName};
use crate::failure::Failure;
use crate::plane::Plane;
use crate::reload::{Comparison, Databases, compare, is_same, origin, policies};
use ipsec::command::{Command, Refused};
use ipsec::sa::{Protocol, SaConfig};
use ipsec::setkey::Lowered;
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;

/// All that a rekey changes, and when.
pub(crate) struct RekeyPlan {
    /// The commands that install the new associations.
    pub install: Vec<Command>,
    /// The peers that get new keys.
    pub peers: Vec<Peer>,
    /// Warnings about the text, a rendered message each.
    pub warnings: Vec<String>,
    /// All associations of the text that exist already.
    pub known: Vec<SaReference>,
    text: Text,
}

/// One peer's part.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Peer {
    /// Its address.
    pub address: IpAddr,
    /// Its new associations.
    pub new: Ends,
    /// Its old associations.
    pub old: Ends,
}

/// Associations of one peer.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Ends {
    /// Those with which the peer sends.
    pub inbound: Vec<SaReference>,
    /// Those with which this gateway sends.
    pub outbound: Vec<SaReference>,
}

impl Ends {
    /// All of them.
    pub(crate) fn all(&self) -> impl Iterator<Item = &SaReference> {
        self.inbound.iter().chain(&self.outbound)
    }
}

impl Peer {
    /// A new outbound ESP association: a dummy packet on it shows the peer that we have the new keys. AH has no dummy
    /// packets.
    pub(crate) fn messenger(&self) -> Option<SaReference> {
        let mut outbound = self.new.outbound.iter();
        let esp = outbound.find(|name| name.id.protocol == Protocol::Esp);
        esp.copied().filter(|_| !self.new.inbound.is_empty())
    }
}

/// A text as it was read, for messages about it.
struct Text {
    lowered: Lowered,
    name: String,
}

impl RekeyPlan {
    /// Compares a text with what `plane` has, on a host with the addresses `local`.
    pub(crate) fn of(
        plane: &mut dyn Plane,
        request: &SetkeyText,
        local: &[IpAddr],
    ) -> Result<Self, Failure> {
        let Comparison {
            lowered,
            wanted,
            present,
        } = compare(plane, request)?;
        let at = |Conflict { command, reason }: Conflict| {
            let index = origin(&lowered, command.as_ref());
            Failure::new(blame(&Refused { index, reason }, &lowered, request))
        };
        keeps_policies(&present, &wanted).map_err(at)?;
        let (new, known) = sort_out_new(&present, &wanted).map_err(at)?;
        let old: Vec<_> = present.sas.iter().filter(|sa| !wanted.has(sa)).collect();
        let peers = by_peer(&new, &old, &wanted, local)
            .map_err(|why| Failure::new(format!("{}: {why}", request.name)))?;
        let install = new.iter().map(|config| {
            let sends = !local.contains(&config.id.destination);
            Command::AddSa(standing_by(config, sends))
        });
        Ok(Self {
            install: install.collect(),
            peers,
            warnings: warnings(&lowered, request),
            known,
            text: Text {
                lowered,
                name: request.name.clone(),
            },
        })
    }

    /// A refusal by the plane of a command of `install`, at its statement.
    pub(crate) fn blame(&self, refused: &Refused, request: &SetkeyText) -> String {
        let index = origin(&self.text.lowered, self.install.get(refused.index));
        let refused = Refused {
            index,
            reason: refused.reason.clone(),
        };
        blame(&refused, &self.text.lowered, request)
    }

    /// The name of the text.
    pub(crate) fn name(&self) -> &str {
        &self.text.name
    }
}

/// Why a text is no rekey of what the gateway has, and the command of the text that shows it, if one does.
struct Conflict {
    command: Option<Command>,
    reason: String,
}

fn keeps_policies(present: &Databases, wanted: &Databases) -> Result<(), Conflict> {
    const ALONE: &str = "a rekey changes keys and no policy: use `esplanade reload` for this file";
    let mut added = wanted.policies.iter();
    if let Some(policy) = added.find(|policy| !present.policies.contains(policy)) {
        return Err(Conflict {
            command: Some(Command::AddPolicy(Arc::clone(policy))),
            reason: format!("this policy differs from the gateway's, and {ALONE}"),
        });
    }
    let mut gone = present.policies.iter();
    if let Some(policy) = gone.find(|policy| !wanted.policies.contains(policy)) {
        let name = PolicyName::of(policy);
        return Err(Conflict {
            command: None,
            reason: format!(
                "the gateway has a policy that is not in the file ({name}), and {ALONE}"
            ),
        });
    }
    if policies(&present.policies, &wanted.policies).is_empty() {
        Ok(())
    } else {
        Err(Conflict {
            command: None,
            reason: format!("the order of policies differs, and {ALONE}"),
        })
    }
}

type NewAndKnown = (Vec<Arc<SaConfig>>, Vec<SaReference>);

/// The associations that are new, and those that exist already.
fn sort_out_new(present: &Databases, wanted: &Databases) -> Result<NewAndKnown, Conflict> {
    let (mut new, mut known) = (Vec::new(), Vec::new());
    for config in &wanted.sas {
        let mut sas = present.sas.iter();
        match sas.find(|sa| sa.id == config.id) {
            None => new.push(Arc::clone(config)),
            Some(old) if is_same(&standing_by(old, false), config) => {
                known.push(SaReference::of(config))
            }
            Some(_) => {
                return Err(Conflict {
                    command: Some(Command::AddSa(Arc::clone(config))),
                    reason: "an association with this SPI is in use, with other keys or options: new keys need an SPI \
                             of their own"
                        .to_owned(),
                });
            }
        }
    }
    Ok((new, known))
}

fn by_peer(
    new: &[Arc<SaConfig>],
    old: &[&Arc<SaConfig>],
    wanted: &Databases,
    local: &[IpAddr],
) -> Result<Vec<Peer>, Failure> {
    let mut peers: BTreeMap<IpAddr, (Ends, Ends)> = BTreeMap::new();
    for config in new {
        let (address, is_inbound) = direction(config, local)?;
        peers.entry(address).or_default().0.note(config, is_inbound);
    }
    for config in old {
        let has_successor = wanted.sas.iter().any(|new| stands_for(new, config));
        if !has_successor {
            return Err(Failure::new(format!(
                "no new association replaces {}, which is no longer in the file: add one with the same endpoints, \
                 protocol, mode, `-u` and `-o interface`, keep the old one in the file, or use `esplanade reload`",
                SaName::of(config)
            )));
        }
        let (address, is_inbound) = direction(config, local)?;
        peers.entry(address).or_default().1.note(config, is_inbound);
    }
    let peer = |(address, (new, old))| Peer { address, new, old };
    Ok(peers.into_iter().map(peer).collect())
}

impl Ends {
    fn note(&mut self, config: &SaConfig, is_inbound: bool) {
        let list = if is_inbound {
            &mut self.inbound
        } else {
            &mut self.outbound
        };
        list.push(SaReference::of(config));
    }
}

/// The peer of an association, and whether the peer sends with it.
fn direction(config: &SaConfig, local: &[IpAddr]) -> Result<(IpAddr, bool), Failure> {
    match (
        local.contains(&config.id.destination),
        local.contains(&config.source),
    ) {
        (true, _) => Ok((config.source, true)),
        (false, true) => Ok((config.id.destination, false)),
        (false, false) => Err(Failure::new(format!(
            "neither end of {} is an address of this host, so its direction is unknown: use `esplanade reload`",
            SaName::of(config)
        ))),
    }
}

/// Whether every policy or device that uses `old` would use `new` too.
fn stands_for(new: &SaConfig, old: &SaConfig) -> bool {
    let ends = |config: &SaConfig| {
        let SaConfig {
            id, source, mode, ..
        } = *config;
        (source, id.destination, id.protocol, mode, config.reqid)
    };
    ends(new) == ends(old) && new.interface == old.interface
}
