//! What enforces commands: the gateway's own data plane, the kernel's IPsec, or a recorder for tests and dry runs.

mod own;
mod recorder;
mod xfrm;

pub(crate) use own::{Kernel, OwnPlane};
pub(crate) use recorder::Recorder;
pub(crate) use xfrm::XfrmPlane;

use ipsec::command::{Answer, Command, Refused};

/// Something that enforces commands.
pub(crate) trait Plane {
    /// Whether a command is supported, or why not.
    fn supports(&self, command: &Command) -> Result<(), String>;

    /// Applies all commands, in order, or none.
    fn apply(&mut self, commands: &[Command]) -> Result<Vec<Answer>, Refused>;
}

/// Refuses the first command that a plane does not support, before anything is changed.
pub(crate) fn check(plane: &dyn Plane, commands: &[Command]) -> Result<(), Refused> {
    for (index, command) in commands.iter().enumerate() {
        plane
            .supports(command)
            .map_err(|reason| Refused { index, reason })?;
    }
    Ok(())
}
