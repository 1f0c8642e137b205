//! The process that runs hooks: one thread, which waits for orders, for what hooks write, and for their ends.

use super::MAX_RUNNING;
use super::message::{Ended, Outcome, ToRunner};
use super::running::Running;
use crate::config::HookCommand;
use crate::failure::Failure;
use crate::ike::{Channel, ProcessOptions, settle_without_descriptors};
use crate::privileges::{ChildCalls, limit_hooks};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

/// How often the runner checks whether a hook has ended, if none closes its standard error.
const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// `esplanade hook-runner`.
pub(crate) fn hook_runner(options: ProcessOptions) -> Result<(), Failure> {
    limit_hooks();
    let main = settle_without_descriptors(options, c"hook-runner", Some(ChildCalls::Hooks))?;
    serve(main).map_err(Failure::new)
}

/// Serves until the main process closes the stream; hooks that still run are killed then.
pub(super) fn serve(main: UnixStream) -> io::Result<()> {
    let mut channel = Channel::new(main)?;
    let mut programs = Vec::new();
    let mut running: Vec<Running> = Vec::new();
    loop {
        wait(&channel, &running)?;
        loop {
            match channel.receive() {
                Ok(Some(message)) => take(message, &mut programs, &mut running, &mut channel)?,
                Ok(None) => break,
                // What runs is killed when it is dropped.
                Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(()),
                Err(error) => return Err(error),
            }
        }
        let now = Instant::now();
        let mut still = Vec::new();
        for mut one in running.drain(..) {
            match one.poll(now) {
                Some(ended) => push(&mut channel, &ended)?,
                None => still.push(one),
            }
        }
        running = still;
        channel.flush()?;
    }
}

fn take(
    message: ToRunner,
    programs: &mut Vec<HookCommand>,
    running: &mut Vec<Running>,
    channel: &mut Channel,
) -> io::Result<()> {
    let (run, program, variables) = match message {
        // An intruder in the main process cannot add to them.
        ToRunner::Programs(given) => {
            if programs.is_empty() {
                *programs = given;
            }
            return Ok(());
        }
        ToRunner::Run {
            run,
            program,
            variables,
        } => (run, program, variables),
    };
    let started = match programs.get(program as usize) {
        None => Err(io::Error::other(
            "it was not there when the gateway was started",
        )),
        Some(_) if running.len() >= MAX_RUNNING => Err(io::Error::other("too many run already")),
        Some(hook) => Running::start(run, hook, &variables),
    };
    match started {
        Ok(one) => {
            running.push(one);
            Ok(())
        }
        Err(error) => push(
            channel,
            &Ended {
                run,
                outcome: Outcome::NotStarted(error.to_string()),
                words: String::new(),
                time: Duration::ZERO,
            },
        ),
    }
}

fn push(channel: &mut Channel, ended: &Ended) -> io::Result<()> {
    let full = |_| io::Error::from(io::ErrorKind::StorageFull);
    channel.push(ended).map_err(full)
}

fn wait(channel: &Channel, running: &[Running]) -> io::Result<()> {
    let mut fds = vec![PollFd::new(channel, PollFlags::IN)];
    let outputs = running.iter().filter_map(Running::output);
    fds.extend(outputs.map(|output| PollFd::from_borrowed_fd(output.as_fd(), PollFlags::IN)));
    let interval = Timespec {
        tv_sec: 0,
        tv_nsec: i64::from(POLL_INTERVAL.subsec_nanos()),
    };
    let limit = (!running.is_empty()).then_some(&interval);
    match poll(&mut fds, limit) {
        Ok(_) | Err(Errno::INTR) => Ok(()),
        Err(error) => Err(error.into()),
    }
}
