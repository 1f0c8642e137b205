//! Pairs of child SAs on their way from a gateway to the one that replaces it.
//!
//! ```text
//!   installed pair ── pass ──► what was negotiated, networks, counters ── adopt ──► orphaned pair of the next gateway
//! ```

use super::super::networks::Child;
use super::super::selectors::pairs;
use super::{Change, FIRST_REQID, Origin, Peers};
use crate::failure::Failure;
use crate::handover::{PassedChild, PassedCounters, PassedReqids};
use ikev2::connection::{ChildLifetime, ChildMode};
use ikev2::endpoint::{ChildId, ChildSa, Outbound};
use ikev2::message::payload::Protocol as IkeProtocol;
use ipsec::sa::{Mode, Protocol, Reqid, SaId};
use std::time::Duration;

impl Peers {
    /// None yet; numbers go on from those of the gateway before.
    pub(crate) fn after(passed: &PassedReqids) -> Self {
        let known = passed
            .closed
            .iter()
            .filter(|(.., number)| is_reqid(*number));
        let closed = known.map(|(peer, child, number)| {
            let key = (peer.clone(), child.clone());
            (key, Reqid(*number))
        });
        let given = passed.closed.iter().map(|(.., number)| *number);
        let given = given
            .chain([passed.last])
            .filter(|number| is_reqid(*number));
        Self {
            closed: closed.collect(),
            reqids: given.max().map_or(0, |last| last - FIRST_REQID),
            ..Self::default()
        }
    }

    /// The numbers for the next gateway. Those of peers that it does not carry on stay with what it removes.
    pub(crate) fn pass_reqids(&self, is_carried: impl Fn(&str) -> bool) -> PassedReqids {
        let closed = self.closed.iter().filter(|((peer, _), _)| is_carried(peer));
        let closed =
            closed.map(|((peer, child), Reqid(number))| (peer.clone(), child.clone(), *number));
        PassedReqids {
            last: FIRST_REQID + self.reqids,
            closed: closed.collect(),
        }
    }

    /// Every pair of these peers whose associations exist. `counters`: those of an association that exists.
    pub(crate) fn pass(
        &self,
        is_carried: impl Fn(&str) -> bool,
        counters: impl Fn(&SaId) -> Option<PassedCounters>,
    ) -> Vec<PassedChild> {
        let passed = |(name, id, child): (&str, ChildId, &Child)| {
            let traffic = child.pairs.iter().map(|pair| pair.traffic());
            Some(PassedChild {
                child: negotiated(name, id, child),
                traffic: traffic.collect::<Option<_>>()?,
                reqid: Some(child.protection.reqid.0),
                inbound: counters(&child.associations.inbound.id)?,
                outbound: counters(&child.associations.outbound.id)?,
            })
        };
        let children = self.children();
        let carried = children.filter(|(name, ..)| is_carried(name));
        carried.filter_map(passed).collect()
    }

    /// Takes over a pair of the gateway before. Its IKE SA has gone.
    pub(crate) fn adopt(&mut self, passed: &PassedChild) -> Result<Change, Failure> {
        let mut all = Vec::new();
        for (local, remote) in &passed.traffic {
            all.extend(pairs(&[*local], &[*remote])?);
        }
        let reqid = passed.reqid.filter(|number| is_reqid(*number));
        self.add(&passed.child, all, Origin::PassedOn(reqid.map(Reqid)))
    }
}

/// Whether a number is one of those that policies of peers have.
fn is_reqid(number: u32) -> bool {
    (FIRST_REQID..2 * FIRST_REQID).contains(&number)
}

/// A pair as it was negotiated, but for its traffic.
fn negotiated(name: &str, id: ChildId, child: &Child) -> ChildSa {
    let [inbound, outbound] = child.associations.both();
    let (soft, hard) = (&inbound.lifetimes.soft, &inbound.lifetimes.hard);
    let limit = |value: u64| (value > 0).then_some(value);
    let hard = Duration::from_secs(hard.age);
    ChildSa {
        id,
        connection: name.to_owned(),
        child: child.name.clone(),
        peer: child.identity.clone(),
        protocol: match child.protection.protocol {
            Protocol::Ah => IkeProtocol::AH,
            Protocol::Esp | Protocol::IpComp => IkeProtocol::ESP,
        },
        mode: match child.protection.mode {
            Mode::Transport => ChildMode::Transport,
            Mode::Tunnel | Mode::Any => ChildMode::Tunnel,
        },
        inbound_spi: inbound.id.spi.get(),
        outbound_spi: outbound.id.spi.get(),
        inbound: inbound.suite.clone(),
        outbound: outbound.suite.clone(),
        extended_sequence_numbers: inbound.esn,
        replay_window: inbound.replay_window,
        local: inbound.id.destination,
        remote: outbound.id.destination,
        encapsulation: outbound
            .encapsulation
            .map(|udp| (udp.source_port, udp.destination_port)),
        sends_keepalives: outbound.keepalive > 0,
        local_traffic: Vec::new(),
        remote_traffic: Vec::new(),
        lifetime: ChildLifetime {
            // Without IKE nothing is rekeyed.
            soft: hard,
            hard,
            soft_bytes: limit(soft.bytes),
            soft_packets: limit(soft.packets),
        },
        outbound_state: if child.is_standby() {
            Outbound::Standby
        } else {
            Outbound::Active
        },
        replaces: None,
    }
}
