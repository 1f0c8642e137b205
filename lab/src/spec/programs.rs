//! Where the programs of this project are.

use std::path::PathBuf;

/// Where the programs of this project are.
#[derive(Debug, Clone, Default)]
pub(crate) struct Programs {
    /// `esplanade`, if it was found.
    pub esplanade: Option<PathBuf>,
    /// `esplanade-lab` itself, whose small tools run on the hosts.
    pub lab: PathBuf,
}
