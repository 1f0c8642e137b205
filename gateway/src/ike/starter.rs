//! The process that starts the two others, as often as the main process asks: the main process itself may not start
//! programs any more, nor may an intruder in it choose one.
//!
//! It takes sockets, reads nothing, and has no capability. It ends with the main process, and the two others end with
//! it.

use super::inherited::{ProcessOptions, next_descriptors, settle_without_descriptors};
use crate::failure::Failure;
use crate::handover;
use crate::privileges::ChildCalls;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};

/// The program that runs, whatever has become of its file.
pub(super) const OURSELVES: &str = "/proc/self/exe";

/// `esplanade ike-starter`.
pub(crate) fn starter(options: ProcessOptions) -> Result<(), Failure> {
    let main = settle_without_descriptors(options, c"ike-starter", Some(ChildCalls::Starter))?;
    let mut running: Vec<Child> = Vec::new();
    // Each message has the sockets, and starts the two processes once.
    while let Some(sockets) = next_descriptors(&main).map_err(Failure::new)? {
        end(&mut running);
        let started = start(options, &sockets, &mut running);
        let ends = started.unwrap_or_else(|error| {
            eprintln!("esplanade: cannot start the processes of key exchange: {error}");
            Vec::new()
        });
        handover::send(&main, &ends).map_err(Failure::new)?;
    }
    end(&mut running);
    Ok(())
}

/// One that has not ended by itself, because it hangs, is ended here.
fn end(running: &mut Vec<Child>) {
    for mut child in running.drain(..) {
        // It may have ended already.
        let _ = child.kill();
        let _ = child.wait();
    }
}

/// Returns the main process's ends of the streams to `ike` and to `ike-keys`.
fn start(
    options: ProcessOptions,
    sockets: &[OwnedFd],
    running: &mut Vec<Child>,
) -> io::Result<Vec<OwnedFd>> {
    let (main_to_keys, keys) = UnixStream::pair()?;
    let (main_to_ike, ike) = UnixStream::pair()?;
    let (ike_to_keys, keys_to_ike) = UnixStream::pair()?;
    running.push(spawn("ike-keys", keys, options)?);
    running.push(spawn("ike-process", ike, options)?);
    handover::send(&main_to_keys, &[keys_to_ike.into()])?;
    let mut work = vec![OwnedFd::from(ike_to_keys)];
    for socket in sockets {
        work.push(socket.try_clone()?);
    }
    handover::send(&main_to_ike, &work)?;
    Ok(vec![main_to_ike.into(), main_to_keys.into()])
}

/// Starts this program by a hidden subcommand, with a stream as its standard input and nothing else of ours.
pub(super) fn spawn(name: &str, input: UnixStream, options: ProcessOptions) -> io::Result<Child> {
    own_program(name, input, options).spawn()
}

/// The same, not started yet.
pub(crate) fn own_program(name: &str, input: UnixStream, options: ProcessOptions) -> Command {
    let mut command = Command::new(OURSELVES);
    command.arg0("esplanade").arg(name);
    if options.no_privilege_drop {
        command.arg("--no-privilege-drop");
    }
    command
        .env_clear()
        .current_dir("/")
        .stdin(Stdio::from(OwnedFd::from(input)))
        .stdout(Stdio::null());
    command
}
