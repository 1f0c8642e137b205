//! `esplanade lab …` runs `esplanade-lab …`, as git runs its commands: from this program's own folder, or from the
//! PATH.

use crate::failure::Failure;
use std::ffi::OsString;
use std::io::ErrorKind;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::Command;

const NAME: &str = "esplanade-lab";

/// Replaces this process by `esplanade-lab`; returns only if that fails.
pub(super) fn exec(arguments: &[OsString]) -> Result<(), Failure> {
    let mut error = None;
    for program in candidates() {
        let failed = Command::new(&program).args(arguments).exec();
        if failed.kind() != ErrorKind::NotFound {
            return Err(Failure::new(format!(
                "cannot run {}: {failed}",
                program.display()
            )));
        }
        error = Some(failed);
    }
    let error = error.map_or_else(String::new, |error| format!(" ({error})"));
    Err(Failure::new(format!(
        "{NAME} is neither next to this program nor in PATH{error}: build it with `cargo build --release -p lab`"
    )))
}

fn candidates() -> Vec<PathBuf> {
    let beside = std::env::current_exe()
        .ok()
        .and_then(|own| Some(own.parent()?.join(NAME)));
    beside.into_iter().chain([PathBuf::from(NAME)]).collect()
}
