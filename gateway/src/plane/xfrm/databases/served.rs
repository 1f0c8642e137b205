//! What the kernel wants to read in a policy about the associations that serve it: that they aggregate (RFC 9347),
//! which is a mode of its own there, or that a network card carries them whole.

use super::super::extensions::{MODE_IPTFS, of_policy};
use super::compare::is_carried;
use ipsec::database::Snapshot;
use ipsec::policy::{Action, Policy};
use ipsec::sa::{Mode, Offload, Protocol};
use netlink_packet_xfrm::XfrmAttrs;
use netlink_packet_xfrm::policy::ModifyMessage;
use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;

/// What is special about the associations of one policy.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct Served {
    aggregates: bool,
    offload: Option<Offload>,
}

/// The ends of a tunnel, and its device.
type Tunnel = (IpAddr, IpAddr, Option<Arc<str>>);

/// Tunnels whose associations are special. One of several between the same ends is enough.
#[derive(Default)]
pub(super) struct SpecialTunnels(HashMap<Tunnel, Served>);

impl SpecialTunnels {
    /// Those of the databases.
    pub(super) fn of(snapshot: &Snapshot) -> Self {
        let mut tunnels = HashMap::<Tunnel, Served>::new();
        for config in snapshot
            .sas()
            .filter(|sa| is_carried(sa))
            .map(|sa| &sa.config)
        {
            if config.mode != Mode::Tunnel || config.aggfrag.is_none() && config.offload.is_none() {
                continue;
            }
            let ends = (
                config.source,
                config.id.destination,
                config.interface.clone(),
            );
            let served = tunnels.entry(ends).or_default();
            served.aggregates |= config.aggfrag.is_some();
            if config.offload.is_some() {
                served.offload.clone_from(&config.offload);
            }
        }
        Self(tunnels)
    }

    /// What serves this policy. Special associations have no others around them.
    pub(super) fn served(&self, policy: &Policy) -> Served {
        let Action::Protect(templates) = &policy.action else {
            return Served::default();
        };
        let [template] = &templates[..] else {
            return Served::default();
        };
        let ends = template
            .endpoints
            .filter(|_| template.protocol == Protocol::Esp);
        let tunnel = ends.map(|(near, far)| (near, far, policy.device.clone()));
        let known = tunnel.and_then(|tunnel| self.0.get(&tunnel));
        known.cloned().unwrap_or_default()
    }
}

impl Served {
    /// Says so in the message that adds the policy.
    pub(super) fn put_into(&self, message: &mut ModifyMessage) {
        for attribute in &mut message.nlas {
            if let XfrmAttrs::Template(templates) = attribute
                && self.aggregates
            {
                templates.iter_mut().for_each(|one| one.mode(MODE_IPTFS));
            }
        }
        message
            .nlas
            .extend(self.offload.as_ref().and_then(of_policy));
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::policy::{PolicyName, emit_enforced};
    use super::*;
    use ipsec::database::Database;
    use ipsec::policy::Direction;
    use ipsec::setkey::{Forwarding, NoNames, compile};

    const GCM: &str = "-E aes-gcm-16 0x000102030405060708090a0b0c0d0e0f10111213;";

    fn snapshot(options: &str) -> Arc<Snapshot> {
        let text = format!(
            "add 192.0.2.1 192.0.2.2 esp 0x1001 -m tunnel {options} {GCM}
             spdadd 10.1.0.0/24 10.2.0.0/24 any -P out ipsec esp/tunnel/192.0.2.1-192.0.2.2/require;
             spdadd 10.1.0.0/24 10.3.0.0/24 any -P out ipsec esp/tunnel/192.0.2.1-192.0.2.3/require;"
        );
        let commands = compile(text.as_bytes(), Forwarding::AsWritten, &mut NoNames);
        let mut database = Database::default();
        let commands = commands.unwrap().commands;
        database.apply(&commands, 0, &mut || 0).unwrap();
        database.snapshot()
    }

    /// For each policy the mode of its template, and whether it names a network card.
    fn written(options: &str) -> Vec<(u8, bool)> {
        let snapshot = snapshot(options);
        let special = SpecialTunnels::of(&snapshot);
        let policies = snapshot.policies(Direction::Out);
        let each = policies.map(|(_, policy)| {
            let mut message = emit_enforced(policy);
            special.served(policy).put_into(&mut message);
            assert_eq!(PolicyName::read(&message), Some(PolicyName::of(policy)));
            let mode = message.nlas.iter().find_map(|attribute| match attribute {
                XfrmAttrs::Template(templates) => Some(templates[0].mode),
                _ => None,
            });
            let is_card = |one: &XfrmAttrs| matches!(one, XfrmAttrs::OffloadDevice(_));
            (mode.unwrap(), message.nlas.iter().any(is_card))
        });
        each.collect()
    }

    #[test]
    fn policies_of_the_same_ends_say_what_their_associations_are() {
        const TUNNEL: (u8, bool) = (1, false);
        assert_eq!(written(""), [TUNNEL, TUNNEL]);
        assert_eq!(written("-o aggfrag"), [(MODE_IPTFS, false), TUNNEL]);
        assert_eq!(written("-o offload=crypto:lo"), [TUNNEL, TUNNEL]);
        assert_eq!(written("-o offload=packet:lo"), [(1, true), TUNNEL]);
    }
}
