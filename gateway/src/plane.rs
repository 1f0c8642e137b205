//! What enforces commands: the gateway's own data plane, the kernel's IPsec, or a recorder for tests and dry runs.

mod interface_id;
mod kernel_alone;
mod moving;
mod own;
mod own_namespace;
mod parting;
mod recorder;
mod trial;
mod wish;
mod xfrm;

pub(crate) use interface_id::interface_id;
pub(crate) use kernel_alone::{serves, stays};
pub(crate) use moving::{
    KernelIvs, MoveWish, Mover, UsedIvs, association_name, carry_out, refusal,
};
pub(crate) use own::{Kernel, OwnPlane};
pub(crate) use parting::Parting;
pub(crate) use recorder::Recorder;
pub(crate) use trial::{Trial, try_kernel};
pub(crate) use wish::PlaneWish;
pub(crate) use xfrm::features::find_out;
pub(crate) use xfrm::supported::{carries, enforces};
pub(crate) use xfrm::{
    Carried, KernelDatabases, KernelNotice, KernelNotices, LastStates, Statistics, XfrmPlane,
};

use ipsec::command::{Answer, Command, Refused};

/// Why a plane cannot enforce a command: a sentence for the operator, which becomes the reason in a [`Refused`].
#[derive(PartialEq, Eq, Debug, thiserror::Error)]
#[error("{0}")]
pub(crate) struct Unsupported(pub String);

impl Unsupported {
    pub(crate) fn new(sentence: impl Into<String>) -> Self {
        Self(sentence.into())
    }
}

/// Something that enforces commands.
pub(crate) trait Plane {
    /// Whether a command is supported, or why not.
    fn supports(&self, command: &Command) -> Result<(), Unsupported>;

    /// Applies all commands, in order, or none.
    fn apply(&mut self, commands: &[Command]) -> Result<Vec<Answer>, Refused>;
}

/// Refuses the first command that a plane does not support, before anything is changed.
pub(crate) fn check(plane: &dyn Plane, commands: &[Command]) -> Result<(), Refused> {
    for (index, command) in commands.iter().enumerate() {
        plane
            .supports(command)
            .map_err(|Unsupported(reason)| Refused { index, reason })?;
    }
    Ok(())
}
