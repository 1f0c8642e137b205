//! One hook that runs: its process group, what it writes, and its time.

use super::message::{Ended, Outcome};
use crate::config::HookCommand;
use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process_group, waitid};
use std::io::{self, Read};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, ChildStderr, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

/// How long a hook may run.
pub(super) const TIME_LIMIT: Duration = Duration::from_secs(10);

/// How much of what a hook wrote last is kept.
pub(super) const KEPT_BYTES: usize = 512;

/// Reads in one poll, so that a hook that writes without end leaves time for the others.
const MAX_READS: usize = 16;

/// The names that the main process may set: no LD_PRELOAD.
const PREFIX: &str = "ESPLANADE_";

/// Where a hook finds other programs.
const PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// A hook. Dropping it kills it.
pub(super) struct Running {
    run: u64,
    child: Child,
    group: Pid,
    /// None once it is closed.
    errors: Option<ChildStderr>,
    last_bytes: Vec<u8>,
    began: Instant,
    is_late: bool,
}

impl Running {
    /// Starts it.
    pub(super) fn start(
        run: u64,
        hook: &HookCommand,
        variables: &[(String, String)],
    ) -> io::Result<Self> {
        let ours = variables
            .iter()
            .filter(|(name, _)| name.starts_with(PREFIX));
        let mut command = Command::new(&hook.program);
        command
            .args(&hook.arguments)
            .env_clear()
            .env("PATH", PATH)
            .envs(ours.map(|(name, value)| (name, value)))
            .current_dir("/")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .process_group(0);
        // SAFETY: both functions may be called between fork and exec, and neither allocates.
        unsafe { command.pre_exec(prepare) };
        let mut child = command.spawn()?;
        let errors = child.stderr.take();
        if let Some(errors) = &errors {
            fcntl_setfl(errors, fcntl_getfl(errors)? | OFlags::NONBLOCK)?;
        }
        let group = Pid::from_child(&child);
        Ok(Self {
            run,
            child,
            group,
            errors,
            last_bytes: Vec::new(),
            began: Instant::now(),
            is_late: false,
        })
    }

    /// What it writes to.
    pub(super) fn output(&self) -> Option<&ChildStderr> {
        self.errors.as_ref()
    }

    /// Reads what it has written. Returns how it has ended, or kills it if its time is over.
    pub(super) fn poll(&mut self, now: Instant) -> Option<Ended> {
        self.read();
        if self.has_exited() {
            // What it has left behind goes with it, while its number cannot be another's.
            self.kill();
            let status = self.child.wait();
            self.read();
            return Some(Ended {
                run: self.run,
                outcome: self.outcome(status),
                words: shown(&self.last_bytes),
                time: now.duration_since(self.began),
            });
        }
        if !self.is_late && now.duration_since(self.began) >= TIME_LIMIT {
            self.is_late = true;
            self.kill();
        }
        None
    }

    fn outcome(&self, status: io::Result<ExitStatus>) -> Outcome {
        match status {
            _ if self.is_late => Outcome::TimeOver,
            Ok(status) => match (status.code(), status.signal()) {
                (Some(code), _) => Outcome::Exited(code),
                (None, signal) => Outcome::Signal(signal.unwrap_or(0)),
            },
            Err(error) => Outcome::NotStarted(error.to_string()),
        }
    }

    fn has_exited(&self) -> bool {
        let how = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
        !matches!(waitid(WaitId::Pid(self.group), how), Ok(None))
    }

    fn kill(&self) {
        // All of the group may have ended already.
        let _ = kill_process_group(self.group, Signal::KILL);
    }

    fn read(&mut self) {
        let mut room = [0; 4096];
        for _ in 0..MAX_READS {
            let Some(errors) = &mut self.errors else {
                return;
            };
            match errors.read(&mut room) {
                Ok(0) => self.errors = None,
                Ok(count) => {
                    self.last_bytes
                        .extend_from_slice(room.get(..count).unwrap_or_default());
                    let over = self.last_bytes.len().saturating_sub(KEPT_BYTES);
                    self.last_bytes.drain(..over);
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(_) => return,
            }
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if let Ok(None) = self.child.try_wait() {
            self.kill();
            let _ = self.child.wait();
        }
    }
}

/// In the new process: it ends with the runner, and signals have their usual effect again, which the runner ignores.
fn prepare() -> io::Result<()> {
    // SAFETY: the calls take numbers alone.
    unsafe {
        libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
        for signal in [libc::SIGINT, libc::SIGTERM, libc::SIGHUP] {
            let _: usize = libc::signal(signal, libc::SIG_DFL);
        }
    }
    Ok(())
}

/// As one line without control characters: it is shown on terminals.
fn shown(bytes: &[u8]) -> String {
    let text = String::from_utf8_lossy(bytes);
    let visible = |letter: char| if letter.is_control() { ' ' } else { letter };
    let line: String = text.trim().chars().map(visible).collect();
    line.split_whitespace().collect::<Vec<_>>().join(" ")
}
