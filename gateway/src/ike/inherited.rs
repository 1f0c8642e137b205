//! What a process of key exchange gets from the one that started it: a connected stream as its standard input, and over
//! it the descriptors that it works with.

use crate::failure::Failure;
use crate::handover;
use crate::privileges::{self, ChildCalls};
use rustix::net::SocketType;
use rustix::net::sockopt::socket_type;
use std::ffi::CStr;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::Arc;

/// Options of the hidden subcommands.
#[derive(Clone, Copy, clap::Args)]
pub(crate) struct ProcessOptions {
    /// Keep system calls and files as they are
    #[arg(long)]
    pub no_privilege_drop: bool,
}

/// The niceness of key exchange. The threads that carry packets have 0, and ten times its share of a processor that has
/// too much to do: a flood of requests takes little from an established tunnel.
const NICENESS: i32 = 10;

/// Restricts this process, and returns the stream to the process that started it, with the descriptors that came first
/// over it.
pub(super) fn settle(
    options: ProcessOptions,
    name: &CStr,
    calls: Option<ChildCalls>,
) -> Result<(UnixStream, Vec<OwnedFd>), Failure> {
    let stream = parent()?;
    let (_, descriptors) = handover::receive(&stream).map_err(Failure::new)?;
    // Threads that are started later take it over.
    let _ = rustix::process::setpriority_process(None, NICENESS);
    confine(options, name, calls)?;
    Ok((stream, descriptors))
}

/// Restricts this process, and returns the stream to the process that started it, over which descriptors will come.
pub(crate) fn settle_without_descriptors(
    options: ProcessOptions,
    name: &CStr,
    calls: Option<ChildCalls>,
) -> Result<UnixStream, Failure> {
    let stream = parent()?;
    confine(options, name, calls)?;
    Ok(stream)
}

/// The descriptors that come next over the stream; `None` at its end.
pub(super) fn next_descriptors(stream: &UnixStream) -> io::Result<Option<Vec<OwnedFd>>> {
    match handover::receive(stream) {
        Ok((_, descriptors)) => Ok(Some(descriptors)),
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(None),
        Err(error) => Err(error),
    }
}

fn confine(options: ProcessOptions, name: &CStr, calls: Option<ChildCalls>) -> Result<(), Failure> {
    // The main process decides when key exchange ends. A terminal sends signals to all processes.
    for signal in [libc::SIGINT, libc::SIGTERM, libc::SIGHUP] {
        // SAFETY: ignoring a signal runs no code.
        unsafe { libc::signal(signal, libc::SIG_IGN) };
    }
    // The name serves people alone.
    let _ = rustix::thread::set_name(name);
    let calls = calls.filter(|_| !options.no_privilege_drop);
    let warn: dataplane::io::Warn = Arc::new(|words: &str| eprintln!("esplanade: {words}"));
    privileges::confine_child(calls, &warn).map_err(Failure::new)
}

/// Standard input, if it is a stream socket: these subcommands are not for people.
fn parent() -> Result<UnixStream, Failure> {
    let refusal =
        || Failure::new("a running gateway starts this subcommand; it is of no use alone");
    let input = std::io::stdin().as_fd().try_clone_to_owned();
    let input = input.map_err(Failure::new)?;
    match (socket_type(&input), rustix::net::getpeername(&input)) {
        (Ok(SocketType::STREAM), Ok(Some(peer)))
            if peer.address_family() == rustix::net::AddressFamily::UNIX =>
        {
            Ok(UnixStream::from(input))
        }
        _ => Err(refusal()),
    }
}
