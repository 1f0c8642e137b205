//! What key exchange passes on: the child SAs that it has negotiated carry on, as after a death of its process, until a
//! new IKE SA with the same peer replaces them. IKE SAs are not passed on.

use ikev2::connection::Traffic;
use ikev2::endpoint::ChildSa;
use ipsec::sa::{Sa, SaState, SavedCounters};
use serde::{Deserialize, Serialize};

/// Names and values that a hook was told.
pub(crate) type PassedFacts = Vec<(String, String)>;

/// What the key exchange of a gateway passes on.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub(crate) struct PassedKeyExchange {
    /// How many of the descriptors are its sockets.
    pub sockets: usize,
    /// How often its processes were started.
    pub starts: u64,
    /// Its pairs of child SAs.
    pub children: Vec<PassedChild>,
    /// What the hooks of each peer that is up were told.
    pub told: Vec<(String, PassedFacts)>,
    /// Numbers that tie policies to associations.
    #[serde(default)]
    pub reqids: PassedReqids,
}

/// Numbers of policies, which the kernel knows on its plane: the next gateway goes on with them.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub(crate) struct PassedReqids {
    /// The highest that was ever given.
    pub last: u32,
    /// Those of closed networks, by peer and child.
    pub closed: Vec<(String, String, u32)>,
}

/// A pair of child SAs, with its keys.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct PassedChild {
    /// As it is now; its traffic is in `traffic` alone.
    pub child: ChildSa,
    /// Each pair of this side's and the peer's networks.
    pub traffic: Vec<(Traffic, Traffic)>,
    /// The number that ties it to its policies; none from a gateway of an earlier version.
    #[serde(default)]
    pub reqid: Option<u32>,
    /// Of what the peer sends.
    pub inbound: PassedCounters,
    /// Of what this side sends.
    pub outbound: PassedCounters,
}

/// Sequence numbers, replay window and lifetimes of one association.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub(crate) struct PassedCounters {
    /// The last sequence number that was sent.
    pub sent: u64,
    /// The highest one that was received.
    pub edge: u64,
    /// What the replay window knows of those below it: [`SaState::seen`](ipsec::sa::SaState::seen).
    pub seen: Vec<u64>,
    /// Where its counter IVs begin: [`SaState::counter_start`](ipsec::sa::SaState::counter_start).
    pub counter_start: u64,
    /// Bytes carried.
    pub bytes: u64,
    /// Packets carried.
    pub packets: u64,
    /// When it was added, in seconds since the Unix epoch, as are the next two; 0 for never.
    pub created: u64,
    /// When it was first used.
    pub first_used: u64,
    /// When it was last used.
    pub last_used: u64,
}

impl PassedCounters {
    /// Those of an association.
    pub(crate) fn of(state: &SaState) -> Self {
        let saved = state.saved();
        Self {
            sent: saved.sent,
            edge: saved.edge,
            seen: state.seen(),
            counter_start: state.counter_start(),
            bytes: saved.bytes,
            packets: saved.packets,
            created: saved.created,
            first_used: saved.first_used,
            last_used: saved.last_used,
        }
    }

    /// Has the same association of another process go on from here.
    pub(crate) fn resume(&self, sa: &Sa) {
        let (config, state) = (&sa.config, &sa.state);
        let saved = SavedCounters {
            sent: self.sent,
            edge: self.edge,
            bytes: self.bytes,
            packets: self.packets,
            created: self.created,
            first_used: self.first_used,
            last_used: self.last_used,
        };
        state.resume(config, &saved);
        state.resume_window(config, self.edge, &self.seen);
        state.resume_counter(self.counter_start);
    }
}
