//! CREATE_CHILD_SA: what an IKE SA remembers of it, and an exchange that this side began. Data alone.

use super::{answering::Answer, child_state::ChildState, task::Task};
use crate::{
    connection::Traffic,
    endpoint::ChildId,
    exchange::collision::NoncePair,
    message::{IkeSpi, payload::Protocol},
    negotiation::Chosen,
    work::Handle,
};
use std::time::Duration;

/// How many Deletes of pairs that are not known yet are remembered while an answer is on the way.
const MAX_EARLY_DELETES: usize = 16;

/// What an IKE SA remembers of CREATE_CHILD_SA exchanges besides the attempt in progress.
#[derive(Default)]
pub(crate) struct Creating {
    pub next_number: u32,
    /// Requests of the peer that wait for keys or for the data plane.
    pub answers: Vec<Answer>,
    /// What is tried again, and when.
    pub later: Vec<(Duration, Task)>,
    /// Since when the peer has answered by TEMPORARY_FAILURE alone.
    pub refused_since: Option<Duration>,
    /// Pairs that the peer deleted before its answer with their SPIs came.
    pub early_deletes: Vec<(Protocol, u32)>,
    /// The rekey of the IKE SA itself.
    pub ike: Progress,
}

impl Creating {
    /// When there is something to do.
    pub fn next_at(&self) -> Option<Duration> {
        let later = self.later.iter().map(|(at, _)| *at);
        later.chain(self.ike.next_at()).min()
    }

    /// A number for an exchange, by which its key work is found again.
    pub fn number(&mut self) -> u32 {
        self.next_number = self.next_number.wrapping_add(1);
        self.next_number
    }

    /// The peer deletes a pair that is not known: perhaps one of which the answer is still on its way.
    pub fn remember_early_delete(&mut self, protocol: Protocol, spi: u32) {
        if self.early_deletes.len() < MAX_EARLY_DELETES {
            self.early_deletes.push((protocol, spi));
        }
    }

    /// Whether the peer has deleted this pair before its answer came.
    pub fn was_deleted_early(&mut self, protocol: Protocol, spi: u32) -> bool {
        let early = std::mem::take(&mut self.early_deletes);
        early.contains(&(protocol, spi))
    }
}

/// An exchange that this side began.
pub(crate) struct Attempt {
    /// By which its key work comes back.
    pub number: u32,
    pub task: Task,
    pub goal: Goal,
    /// Groups that were sent so far.
    pub groups: Vec<u16>,
    /// The own nonce.
    pub nonce: Vec<u8>,
    pub stage: AttemptStage,
}

impl Attempt {
    /// The private value to forget, if the attempt is given up.
    pub fn handle(&self) -> Option<Handle> {
        match self.stage {
            AttemptStage::Asked(begun) => begun,
            _ => None,
        }
    }
}

/// What an exchange is to make.
pub(crate) enum Goal {
    /// A pair of child SAs.
    Child {
        /// Its name in the connection.
        name: String,
        /// The pair that it replaces.
        replaces: Option<ChildId>,
        /// The own SPI.
        spi: u32,
    },
    /// An IKE SA in the place of this one.
    Ike {
        /// The own SPI.
        spi: [u8; 8],
    },
}

/// How far an exchange is.
pub(crate) enum AttemptStage {
    /// A key pair is being made. Nothing was sent yet.
    Beginning,
    /// The request was sent, with the public value of a key pair or without one.
    Asked(Option<Handle>),
    /// The response was accepted: keys are being made.
    Deriving(Box<Answered>),
    /// The data plane installs the pair.
    Installing(ChildId, Vec<u8>),
}

/// What the peer's response holds.
pub(crate) struct Answered {
    pub chosen: Chosen,
    pub nonce: Vec<u8>,
    /// The peer's SPI.
    pub spi: Vec<u8>,
    pub is_transport: bool,
    pub local_traffic: Vec<Traffic>,
    pub remote_traffic: Vec<Traffic>,
}

/// How far the replacement of an IKE SA is.
#[derive(Default)]
pub(crate) struct Progress {
    /// The one that this side has made.
    pub own: Option<NewSa>,
    /// The one that the peer has made.
    pub peers: Option<NewSa>,
    /// The children have moved: this IKE SA carries nothing.
    pub is_replaced: bool,
    /// When it goes, if the peer has not deleted it by then.
    pub drop_at: Option<Duration>,
}

impl Progress {
    /// When there is something to do.
    pub fn next_at(&self) -> Option<Duration> {
        self.drop_at
    }

    /// Whether its end is of no interest: its children have moved, or it never had any.
    pub fn is_superseded(&self) -> bool {
        self.is_replaced || self.drop_at.is_some()
    }

    /// Whether its children have moved.
    pub fn is_replaced(&self) -> bool {
        self.is_replaced
    }

    /// Whether the peer replaces it, or it is replaced.
    pub fn is_in_progress(&self) -> bool {
        self.is_superseded() || self.peers.is_some()
    }
}

/// A new IKE SA.
#[derive(Clone)]
pub struct NewSa {
    pub own_spi: IkeSpi,
    pub nonces: NoncePair,
}

/// What moves from an IKE SA to the one that replaces it.
pub(crate) struct Inherited {
    pub children: Vec<ChildState>,
    pub tasks: Vec<Task>,
    pub later: Vec<(Duration, Task)>,
}
