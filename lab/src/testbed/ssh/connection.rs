//! One connection to one agent, over the input and output of a program: `ssh`, or QEMU. A broken connection stays
//! broken; a new one must be opened.

mod login;

use std::cell::{Cell, RefCell};
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::unix::process::CommandExt;
use std::process::{Child, ChildStdin, ChildStdout, Stdio};
use std::rc::{Rc, Weak};
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::protocol::{READY, Request, RequestMessage, Response, ResponseMessage};
use crate::fault::Fault;
use crate::stop::Stop;
use crate::testbed::process;

/// A host, and the agent on it.
pub(in crate::testbed) struct Connection {
    /// `left (ssh://root@alpha)`.
    name: String,
    child: RefCell<Child>,
    input: Input,
    output: RefCell<Lines>,
    stderr: File,
    /// The agent's folder on the host; empty until it is known.
    folder: String,
    /// The uploaded programs: the local path, and the path on the host.
    uploads: Vec<(String, String)>,
    asked: Cell<u64>,
    broken: Cell<bool>,
    stop: Stop,
    /// Those to the other hosts of the topology: when one of them goes, what is waited for here may never come.
    others: RefCell<Vec<Weak<Connection>>>,
    /// Its end ends the sign of life.
    _alive: Option<Sender<()>>,
}

/// Shared with the thread that sends keepalives. `None`: closed.
type Input = Arc<Mutex<Option<ChildStdin>>>;

/// For a response that takes no time to compute, over a slow line. ssh detects a dead one after 30 s.
pub(in crate::testbed) const REPLY_TIMEOUT: Duration = Duration::from_secs(60);
/// Between two keepalives; the agent waits for several.
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(10);
/// A signal that arrives just before a sleep is noticed after this long at the latest.
const STOP_CHECK_INTERVAL: Duration = Duration::from_millis(200);
/// For the agent to undo everything. Its own timeout is a little shorter.
const CLEANUP_TIMEOUT: Duration = Duration::from_secs(200);

impl Connection {
    /// Starts a program whose input and output lead to an agent. In a group of its own: Ctrl-C is for the lab, which
    /// then disconnects cleanly.
    pub(in crate::testbed) fn over(
        mut program: std::process::Command,
        name: String,
        stop: Stop,
    ) -> io::Result<Connection> {
        let stderr = process::memory("complaints")?;
        let mut child = program
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(stderr.try_clone()?)
            .process_group(0)
            .spawn()?;
        let output = child.stdout.take();
        let output = output.ok_or_else(|| io::Error::other("it has no output"))?;
        Ok(Connection {
            name,
            input: Arc::new(Mutex::new(child.stdin.take())),
            output: RefCell::new(Lines {
                output,
                waiting: Vec::new(),
            }),
            child: RefCell::new(child),
            stderr,
            folder: String::new(),
            uploads: Vec::new(),
            asked: Cell::new(0),
            broken: Cell::new(false),
            stop,
            others: RefCell::default(),
            _alive: None,
        })
    }

    /// Waits for the agent's first word, and gives signs of life from then on.
    pub(in crate::testbed) fn wait_until_ready(&mut self, limit: Duration) -> Result<(), Fault> {
        self.expect(READY, limit)?;
        self._alive = Some(send_keepalives(self.input.clone()));
        Ok(())
    }

    fn expect(&self, word: &str, limit: Duration) -> Result<(), Fault> {
        match self.line(limit, true)? {
            line if line.trim() == word => Ok(()),
            line => Err(Fault::failed(format!(
                "{} said `{line}`, not `{word}`",
                self.name
            ))),
        }
    }

    /// Where the host finds something: the path there of what was brought along, everything else as it is.
    pub(super) fn remote_path(&self, ours: &str) -> String {
        let brought = self.uploads.iter().find(|(path, _)| path == ours);
        brought.map_or(ours, |(_, there)| there).to_owned()
    }

    /// Makes all of a topology's connections known to each other.
    pub(super) fn link_all(all: &[Rc<Connection>]) {
        for one in all {
            let others = all.iter().filter(|other| !Rc::ptr_eq(one, other));
            *one.others.borrow_mut() = others.map(Rc::downgrade).collect();
        }
    }

    /// `left (ssh://root@alpha)`.
    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// Whether it is of no use any more.
    pub(super) fn broken(&self) -> bool {
        let ended = || matches!(self.child.borrow_mut().try_wait(), Ok(Some(_)));
        self.broken.get() || ended()
    }

    /// The loss of another host, if one was lost.
    fn lost_peer(&self) -> Option<Fault> {
        let others = self.others.borrow();
        let mut others = others.iter().filter_map(Weak::upgrade);
        let lost = others.find(|other| other.broken())?;
        Some(lost.lost("ssh has ended"))
    }

    /// Removes what a topology left, also after the user has stopped the run.
    pub(super) fn clear(&self) -> Result<(), Fault> {
        self.ask(Request::CleanUp, CLEANUP_TIMEOUT, false).map(drop)
    }

    /// Sends a request and waits for the response. If `interruptible`, the wait ends when the user stops the run or
    /// another host is lost.
    pub(in crate::testbed) fn ask(
        &self,
        ask: Request,
        limit: Duration,
        interruptible: bool,
    ) -> Result<Response, Fault> {
        let number = self.asked.get() + 1;
        self.asked.set(number);
        let request = serde_json::to_string(&RequestMessage { number, ask });
        let request =
            request.map_err(|error| Fault::failed(format!("cannot encode a request: {error}")))?;
        self.write(format!("{request}\n").as_bytes())?;
        loop {
            let line = self.line(limit, interruptible)?;
            let reply: ResponseMessage = serde_json::from_str(&line).map_err(|error| {
                self.lost(&format!("it sent `{line}`, which is not valid: {error}"))
            })?;
            if reply.number == number {
                let named = |why| Fault::failed(format!("{}: {why}", self.name));
                return reply.answer.map_err(named);
            }
        }
    }

    fn write(&self, bytes: &[u8]) -> Result<(), Fault> {
        if self.broken() {
            return Err(self.lost("it was lost earlier"));
        }
        let mut input = self
            .input
            .lock()
            .unwrap_or_else(|poisoned| poisoned.into_inner());
        let written = match input.as_mut() {
            Some(input) => input.write_all(bytes).and_then(|()| input.flush()),
            None => Err(io::ErrorKind::BrokenPipe.into()),
        };
        written.map_err(|error| self.lost(&error.to_string()))
    }

    fn line(&self, limit: Duration, interruptible: bool) -> Result<String, Fault> {
        let deadline = Instant::now() + limit;
        let mut output = self.output.borrow_mut();
        loop {
            if let Some(line) = output.next() {
                return Ok(line);
            }
            if interruptible && self.stop.asked() {
                return Err(Fault::Interrupted);
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(self.lost(&format!("no answer for {} s", limit.as_secs())));
            }
            match output.read_more(left.min(STOP_CHECK_INTERVAL)) {
                Ok(ReadOutcome::Data) => {}
                Ok(ReadOutcome::TimedOut) => {
                    if let Some(fault) = self.lost_peer().filter(|_| interruptible) {
                        return Err(fault);
                    }
                }
                Ok(ReadOutcome::Closed) => return Err(self.lost("the other end closed it")),
                Err(error) => return Err(self.lost(&error.to_string())),
            }
        }
    }

    /// Marks the connection as lost; the fault has the last message of ssh.
    fn lost(&self, why: &str) -> Fault {
        self.broken.set(true);
        let said = process::contents(&self.stderr);
        let last = said.lines().rfind(|line| !line.trim().is_empty());
        let why = last.map_or(why, str::trim);
        Fault::failed(format!("{}: the connection is lost: {why}", self.name))
    }
}

impl Drop for Connection {
    /// Disconnects, and waits until the agent has undone its changes.
    fn drop(&mut self) {
        self._alive = None;
        // A held lock means a blocked write: then a clean disconnect is not possible.
        if let Ok(mut input) = self.input.try_lock() {
            *input = None;
        }
        let child = self.child.get_mut();
        let deadline = Instant::now() + CLEANUP_TIMEOUT;
        while !self.broken.get() && Instant::now() < deadline {
            if let Ok(Some(_)) = child.try_wait() {
                return;
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        // An error means that it has ended by itself.
        let _ = child.kill();
        let _ = child.wait();
    }
}

/// Sends keepalives to the agent, until the value returned is dropped.
fn send_keepalives(input: Input) -> Sender<()> {
    let (sender, ended) = mpsc::channel();
    std::thread::spawn(move || {
        while let Err(RecvTimeoutError::Timeout) = ended.recv_timeout(KEEPALIVE_INTERVAL) {
            let mut input = input
                .lock()
                .unwrap_or_else(|poisoned| poisoned.into_inner());
            let written = input.as_mut().map(|input| input.write_all(b"\n"));
            if !matches!(written, Some(Ok(()))) {
                break;
            }
        }
    });
    sender
}

/// The result of a wait.
enum ReadOutcome {
    Data,
    TimedOut,
    Closed,
}

/// Lines as they come.
struct Lines {
    output: ChildStdout,
    waiting: Vec<u8>,
}

impl Lines {
    fn next(&mut self) -> Option<String> {
        let end = self.waiting.iter().position(|byte| *byte == b'\n')?;
        let line: Vec<u8> = self.waiting.drain(..=end).collect();
        Some(String::from_utf8_lossy(&line[..end]).into_owned())
    }

    /// Waits for more, at most so long.
    fn read_more(&mut self, time: Duration) -> io::Result<ReadOutcome> {
        let time = Timespec {
            tv_sec: time.as_secs() as i64,
            tv_nsec: i64::from(time.subsec_nanos()),
        };
        let mut ready = [PollFd::new(&self.output, PollFlags::IN)];
        // An interrupted wait only means: look again.
        if !poll(&mut ready, Some(&time)).is_ok_and(|count| count > 0) {
            return Ok(ReadOutcome::TimedOut);
        }
        let mut chunk = [0; 65_536];
        let length = self.output.read(&mut chunk)?;
        self.waiting.extend_from_slice(&chunk[..length]);
        Ok(match length {
            0 => ReadOutcome::Closed,
            _ => ReadOutcome::Data,
        })
    }
}
