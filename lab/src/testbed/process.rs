//! Programs that run inside a network namespace (or where this process is): started there, their output kept in memory
//! files (so no pipe must be drained), waited for without polling, and killed when their owner is dropped.

use std::fs::File;
use std::io::{self, Write};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::os::unix::fs::FileExt;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::MemfdFlags;
use rustix::process::{PidfdFlags, pidfd_open};

use super::isolate;
use crate::fault::Fault;
use crate::host::{Command, Finished, Process, program};
use crate::stop::Stop;

/// A started program.
pub(crate) struct Running {
    child: Child,
    ended: OwnedFd,
    stdout: File,
    stderr: File,
    name: String,
    stop: Stop,
    code: Option<i32>,
}

/// Starts `command` in the network namespace; `None`: in the lab's own. With `together`, both outputs go to one file in
/// their order.
pub(crate) fn start(
    command: &Command,
    namespace: Option<BorrowedFd<'_>>,
    stop: Stop,
    together: bool,
) -> Result<Running, Fault> {
    let Some(path) = program(&command.program) else {
        let name = &command.program;
        return Err(Fault::failed(format!(
            "the program `{name}` is not installed"
        )));
    };
    try_start(&path, command, namespace, stop, together)
        .map_err(|error| Fault::failed(format!("cannot start `{command}`: {error}")))
}

fn try_start(
    path: &Path,
    command: &Command,
    namespace: Option<BorrowedFd<'_>>,
    stop: Stop,
    together: bool,
) -> io::Result<Running> {
    let stdout = memory("stdout")?;
    let stderr = if together {
        stdout.try_clone()?
    } else {
        memory("stderr")?
    };
    let mut child = std::process::Command::new(path);
    child
        .args(&command.arguments)
        .stdin(stdin(&command.input)?)
        .stdout(stdout.try_clone()?)
        .stderr(stderr.try_clone()?)
        .process_group(0);
    let namespace = namespace.map(|namespace| namespace.as_raw_fd());
    enter_before_exec(&mut child, namespace, command.binds.clone());
    let child = child.spawn()?;
    let pid = rustix::process::Pid::from_child(&child);
    Ok(Running {
        ended: pidfd_open(pid, PidfdFlags::empty())?,
        child,
        stdout,
        stderr,
        name: command.to_string(),
        stop,
        code: None,
    })
}

/// An anonymous file in memory.
pub(super) fn memory(name: &str) -> io::Result<File> {
    Ok(File::from(rustix::fs::memfd_create(
        name,
        MemfdFlags::CLOEXEC,
    )?))
}

fn stdin(text: &str) -> io::Result<Stdio> {
    if text.is_empty() {
        return Ok(Stdio::null());
    }
    let mut file = memory("stdin")?;
    file.write_all(text.as_bytes())?;
    io::Seek::rewind(&mut file)?;
    Ok(file.into())
}

fn enter_before_exec(
    child: &mut std::process::Command,
    namespace: Option<RawFd>,
    binds: Vec<(PathBuf, PathBuf)>,
) {
    let enter = move || {
        // SAFETY: plain system calls on a descriptor that is open in the parent until the child was started.
        unsafe {
            isolate::done(libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL))?;
            if let Some(namespace) = namespace {
                isolate::done(libc::setns(namespace, libc::CLONE_NEWNET))?;
            }
            if !binds.is_empty() {
                isolate::done(libc::unshare(libc::CLONE_NEWNS))?;
            }
        }
        binds
            .iter()
            .try_for_each(|(what, at)| isolate::mount(what, at, "", libc::MS_BIND, ""))
    };
    // SAFETY: between fork and exec the closure makes system calls and allocates two short strings per mount, which the
    // C library allows: it hands the child an allocator that no other thread holds.
    unsafe { child.pre_exec(enter) };
}

/// Makes the kernel end a program when this process ends, for any reason.
pub(super) fn die_with_parent(child: &mut std::process::Command) {
    // SAFETY: one system call, with plain numbers.
    let ask = || isolate::done(unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) });
    // SAFETY: between fork and exec the closure makes one system call and nothing else.
    unsafe { child.pre_exec(ask) };
}

impl Running {
    /// Waits for the end; a program that takes longer is killed.
    pub(crate) fn finish(mut self, limit: Duration) -> Result<Finished, Fault> {
        let code = self.wait(limit)?.ok_or_else(|| Fault::TimedOut {
            what: format!("`{}`", self.name),
            after: limit,
        })?;
        let (stdout, stderr) = self.outputs();
        Ok(Finished {
            code,
            stdout,
            stderr,
        })
    }

    /// What it wrote so far, one output and the other.
    pub(crate) fn outputs(&self) -> (String, String) {
        (contents(&self.stdout), contents(&self.stderr))
    }

    /// Readable once it has ended.
    pub(crate) fn end(&self) -> BorrowedFd<'_> {
        self.ended.as_fd()
    }

    /// Sends SIGTERM.
    pub(crate) fn ask_to_end(&self) {
        self.signal(rustix::process::Signal::TERM);
    }

    /// Waits up to `limit` for the end. A request to stop ends the waiting.
    fn wait(&mut self, limit: Duration) -> Result<Option<i32>, Fault> {
        let deadline = Instant::now() + limit;
        loop {
            if let Some(code) = self.ended() {
                return Ok(Some(code));
            }
            if self.stop.asked() {
                return Err(Fault::Interrupted);
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(None);
            }
            self.sleep(left.min(STOP_CHECK_INTERVAL));
        }
    }

    /// Sleeps until the program ends, a signal comes or the time is over.
    fn sleep(&self, time: Duration) {
        let mut ended = [PollFd::new(&self.ended, PollFlags::IN)];
        let time = Timespec {
            tv_sec: time.as_secs() as i64,
            tv_nsec: i64::from(time.subsec_nanos()),
        };
        // After any result, "interrupted" too, the caller checks again.
        let _ = poll(&mut ended, Some(&time));
    }

    fn signal(&self, signal: rustix::process::Signal) {
        // An error means that it has ended by itself.
        let _ = rustix::process::pidfd_send_signal(self.ended.as_fd(), signal);
    }
}

/// A signal that arrives just before a sleep is noticed after this long at the latest.
const STOP_CHECK_INTERVAL: Duration = Duration::from_millis(200);

impl Process for Running {
    fn pid(&self) -> u32 {
        self.child.id()
    }

    fn ended(&mut self) -> Option<i32> {
        if self.code.is_none() {
            let status = self.child.try_wait().ok().flatten();
            self.code = status.map(|status| {
                status
                    .code()
                    .unwrap_or_else(|| 128 + status.signal().unwrap_or(0))
            });
        }
        self.code
    }

    fn output(&mut self) -> String {
        contents(&self.stdout)
    }

    /// Completes also after the user has stopped the run: programs then still end cleanly.
    fn stop(&mut self, grace: Duration) -> Result<(), Fault> {
        self.ask_to_end();
        let deadline = Instant::now() + grace;
        while self.ended().is_none() {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                self.kill();
                let what = format!("the end of `{}`", self.name);
                return Err(Fault::TimedOut { what, after: grace });
            }
            self.sleep(left);
        }
        Ok(())
    }
}

impl Running {
    /// With all that it started, as long as they stay in its process group.
    pub(crate) fn kill(&mut self) {
        if self.ended().is_none() {
            // It was not waited for yet, so the group is still its own.
            let group = rustix::process::Pid::from_child(&self.child);
            let _ = rustix::process::kill_process_group(group, rustix::process::Signal::KILL);
            let _ = self.child.wait();
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.kill();
    }
}

/// What was written so far. The program shares the file's position, so it is read by offset.
pub(super) fn contents(file: &File) -> String {
    let length = file.metadata().map_or(0, |metadata| metadata.len()) as usize;
    let mut bytes = vec![0; length];
    let read = file.read_at(&mut bytes, 0).unwrap_or(0);
    bytes.truncate(read);
    String::from_utf8_lossy(&bytes).into_owned()
}
