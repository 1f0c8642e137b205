//! CREATE_CHILD_SA: a request of the peer that waits for keys or for the data plane. Data alone.

use crate::{
    endpoint::ChildId,
    negotiation::{Chosen, Narrowed},
};

/// A request of the peer that is being answered.
pub(crate) struct Answer {
    /// By which its key work comes back.
    pub number: u32,
    pub message_id: u32,
    pub chosen: Chosen,
    /// The peer's nonce and the own one.
    pub nonces: (Vec<u8>, Vec<u8>),
    pub goal: AnswerGoal,
}

impl Answer {
    pub fn is_ike(&self) -> bool {
        matches!(self.goal, AnswerGoal::Ike(..))
    }

    /// Whether it waits until the data plane has installed this pair.
    pub fn installs(&self, id: ChildId) -> bool {
        matches!(&self.goal, AnswerGoal::Child(pair) if pair.installing.as_ref().is_some_and(|one| one.0 == id))
    }

    /// Whether it replaces this pair.
    pub fn replaces(&self, old: ChildId) -> bool {
        matches!(&self.goal, AnswerGoal::Child(pair) if pair.replaces == Some(old))
    }
}

/// What is made.
pub(crate) enum AnswerGoal {
    /// A pair of child SAs.
    Child(Box<Pair>),
    /// An IKE SA in the place of this one: the peer's SPI and the own one.
    Ike([u8; 8], [u8; 8]),
}

/// A pair that was agreed on.
pub(crate) struct Pair {
    pub name: String,
    pub replaces: Option<ChildId>,
    pub own_spi: u32,
    pub peers_spi: u32,
    pub is_transport: bool,
    pub traffic: Narrowed,
    /// While the data plane installs it: which, and the own public value.
    pub installing: Option<(ChildId, Vec<u8>)>,
}
