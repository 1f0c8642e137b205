//! Manual pages and shell completions, made from the command line's own description.

use crate::failure::Failure;
use crate::output::print;
use clap::Command;
use clap_complete::Shell;
use std::path::Path;

/// One page to standard output, or one for each command into a folder.
pub(super) fn man(program: &Command, folder: Option<&Path>) -> Result<(), Failure> {
    let Some(folder) = folder else {
        let mut page = Vec::new();
        clap_mangen::Man::new(program.clone())
            .render(&mut page)
            .map_err(Failure::new)?;
        return print(&String::from_utf8_lossy(&page));
    };
    std::fs::create_dir_all(folder)
        .and_then(|()| clap_mangen::generate_to(program.clone(), folder))
        .map_err(|error| Failure::new(format!("cannot write to {}: {error}", folder.display())))
}

/// Completions to standard output.
pub(super) fn completions(program: &mut Command, shell: Shell) -> Result<(), Failure> {
    let mut script = Vec::new();
    clap_complete::generate(shell, program, "esplanade", &mut script);
    print(&String::from_utf8_lossy(&script))
}
