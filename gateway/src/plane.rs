//! Who enforces commands: our own data plane, the kernel's, or a recorder for tests and dry runs.

mod own;
mod recorder;
mod xfrm;

pub(crate) use own::{Kernel, OwnPlane};
pub(crate) use recorder::Recorder;
pub(crate) use xfrm::XfrmPlane;

use ipsec::command::{Answer, Command, Refused};

/// Something that can be told what to protect, and does.
pub(crate) trait Plane {
    /// Whether a command can be obeyed at all, or why not.
    fn supports(&self, command: &Command) -> Result<(), String>;

    /// Obeys all commands, in order, or none.
    fn apply(&mut self, commands: &[Command]) -> Result<Vec<Answer>, Refused>;
}

/// The first command that a plane does not know, before anything is changed.
pub(crate) fn check(plane: &dyn Plane, commands: &[Command]) -> Result<(), Refused> {
    for (index, command) in commands.iter().enumerate() {
        plane
            .supports(command)
            .map_err(|reason| Refused { index, reason })?;
    }
    Ok(())
}
