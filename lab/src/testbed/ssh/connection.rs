//! One connection to one host, from `ssh` to its end. It breaks once and for all: whoever wants to go on opens another.

use std::cell::{Cell, RefCell};
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Stdio};
use std::rc::{Rc, Weak};
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::Luggage;
use super::bootstrap::{HERE, remote_command};
use super::protocol::{Answer, Ask, Question, READY, Reply};
use crate::fault::Fault;
use crate::stop::Stop;
use crate::testbed::process;

/// A host, and the attendant on it.
pub(super) struct Connection {
    /// `left (ssh://root@alpha)`.
    name: String,
    child: RefCell<Child>,
    input: Input,
    output: RefCell<Lines>,
    complaints: File,
    /// The attendant's on the host; empty until it is known.
    folder: String,
    /// Where the host finds what was brought along, by our own path.
    luggage: Vec<(String, String)>,
    asked: Cell<u64>,
    broken: Cell<bool>,
    stop: Stop,
    /// Those to the other hosts of the bed: when one of them goes, what is waited for here may never come.
    others: RefCell<Vec<Weak<Connection>>>,
    /// Its end ends the sign of life.
    _alive: Option<Sender<()>>,
}

/// Shared with what gives the sign of life. `None`: closed.
type Input = Arc<Mutex<Option<ChildStdin>>>;

/// To log in, jump hosts included, and for the attendant of a lost connection to notice and to take everything back.
const LOGIN: Duration = Duration::from_secs(300);
/// To take in a program: a slow line is waited for.
const COPY: Duration = Duration::from_secs(600);
/// For an answer that needs no time, over a bad line. ssh notices a dead one after 30 s.
pub(super) const PROMPT: Duration = Duration::from_secs(60);
/// Between two signs of life; the attendant waits for several.
const SIGN_OF_LIFE: Duration = Duration::from_secs(10);
/// A signal that arrives just before a sleep is noticed after this long at the latest.
const GLANCE: Duration = Duration::from_millis(200);
/// For the attendant to take everything away. It gives up a little earlier.
const FAREWELL: Duration = Duration::from_secs(200);

/// The connection is our own and ends with us: a master that the user's configuration shares would outlive us. All else is
/// left to that configuration, the question of known hosts above all.
const OPTIONS: [&str; 8] = [
    "BatchMode=yes",
    "ConnectTimeout=10",
    "ServerAliveInterval=5",
    "ServerAliveCountMax=6",
    "ControlMaster=no",
    "ControlPath=none",
    "ClearAllForwardings=yes",
    "PermitLocalCommand=no",
];

impl Connection {
    /// Logs in, brings along what is not there, and starts the attendant. `after` is a connection that was lost: what its
    /// attendant takes back is waited for.
    pub(super) fn open(
        role: &str,
        at: &str,
        config: Option<&Path>,
        luggage: &Luggage,
        stop: Stop,
        after: Option<&Connection>,
    ) -> Result<Connection, Fault> {
        let mut connection = Connection::start(role, at, config, luggage, stop, after)?;
        let arrived = connection.arrive(luggage);
        arrived.map_err(|fault| connection.explained(fault, at))?;
        connection._alive = Some(sign_of_life(connection.input.clone()));
        Ok(connection)
    }

    fn start(
        role: &str,
        at: &str,
        config: Option<&Path>,
        luggage: &Luggage,
        stop: Stop,
        after: Option<&Connection>,
    ) -> Result<Connection, Fault> {
        let name = format!("{role} ({at})");
        let cannot = |error: io::Error| {
            Fault::failed(format!(
                "cannot start ssh: {error}. Get it by: apt-get install openssh-client"
            ))
        };
        let complaints = process::memory("complaints").map_err(cannot)?;
        let lost = after.map(|lost| lost.folder.as_str());
        let lost = lost.filter(|folder| !folder.is_empty());
        let names: Vec<&str> = luggage.iter().map(|(name, _)| *name).collect();
        let mut ssh = std::process::Command::new("ssh");
        if let Some(config) = config {
            ssh.arg("-F").arg(config);
        }
        for option in OPTIONS {
            ssh.arg("-o").arg(option);
        }
        // In a group of its own: Ctrl-C is for the lab, which then says goodbye in order.
        let child = ssh
            .arg("-T")
            .arg(at)
            .arg(remote_command(&names, lost))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(complaints.try_clone().map_err(cannot)?)
            .process_group(0)
            .spawn();
        let mut child = child.map_err(cannot)?;
        let output = child.stdout.take();
        let output = output.ok_or_else(|| cannot(io::Error::other("it has no output")))?;
        Ok(Connection {
            name,
            input: Arc::new(Mutex::new(child.stdin.take())),
            output: RefCell::new(Lines {
                output,
                waiting: Vec::new(),
            }),
            child: RefCell::new(child),
            complaints,
            folder: String::new(),
            luggage: Vec::new(),
            asked: Cell::new(0),
            broken: Cell::new(false),
            stop,
            others: RefCell::default(),
            _alive: None,
        })
    }

    /// The conversation with the shell, up to the first word of the attendant.
    fn arrive(&mut self, luggage: &Luggage) -> Result<(), Fault> {
        let mut found = Vec::new();
        let here = loop {
            let line = self.line(LOGIN, true)?;
            let words: Vec<&str> = line.split_whitespace().collect();
            match words[..] {
                ["found", name, sum, path] => {
                    found.push((name.to_owned(), sum.to_owned(), path.to_owned()));
                }
                // A login script may have said something before.
                [HERE, machine, folder] => break (machine.to_owned(), folder.to_owned()),
                _ => continue,
            }
        };
        let machine;
        (machine, self.folder) = here;
        if machine != std::env::consts::ARCH {
            return Err(Fault::failed(format!(
                "this machine is a {}, {} is a {machine}: run the lab from a machine of that kind",
                std::env::consts::ARCH,
                self.name
            )));
        }
        for (name, path) in luggage {
            let sum = checksum(path)?;
            let there = found
                .iter()
                .find(|(other, theirs, _)| other == name && *theirs == sum);
            match there {
                Some((_, _, there)) => self.write(format!("link {name} {there}\n").as_bytes())?,
                None => self.put(name, path)?,
            }
            self.expect("got", COPY)?;
            let ours = path.to_string_lossy().into_owned();
            let there = format!("{}/{name}", self.folder);
            self.luggage.push((ours, there));
        }
        self.write(b"start\n")?;
        self.expect(READY, PROMPT)
    }

    fn put(&self, name: &str, path: &Path) -> Result<(), Fault> {
        let cannot =
            |error: io::Error| Fault::failed(format!("cannot read {}: {error}", path.display()));
        let program = std::fs::read(path).map_err(cannot)?;
        self.write(format!("put {name} {}\n", program.len()).as_bytes())?;
        self.write(&program)
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
    pub(super) fn there(&self, ours: &str) -> String {
        let brought = self.luggage.iter().find(|(path, _)| path == ours);
        brought.map_or(ours, |(_, there)| there).to_owned()
    }

    /// Makes all of a bed's connections known to each other.
    pub(super) fn introduce(all: &[Rc<Connection>]) {
        for one in all {
            let others = all.iter().filter(|other| !Rc::ptr_eq(one, other));
            *one.others.borrow_mut() = others.map(Rc::downgrade).collect();
        }
    }

    /// Whether it is of no use any more.
    pub(super) fn broken(&self) -> bool {
        let ended = || matches!(self.child.borrow_mut().try_wait(), Ok(Some(_)));
        self.broken.get() || ended()
    }

    /// The loss of another host, if one was lost.
    fn alone(&self) -> Option<Fault> {
        let others = self.others.borrow();
        let mut others = others.iter().filter_map(Weak::upgrade);
        let lost = others.find(|other| other.broken())?;
        Some(lost.lost("ssh has ended"))
    }

    /// Takes away what a bed left, also where the user wants to stop.
    pub(super) fn clear(&self) -> Result<(), Fault> {
        self.ask(Ask::Clear, FAREWELL, false).map(drop)
    }

    /// Asks, and waits for the answer; with `heed` not beyond the user's wish to stop, nor the loss of another host.
    pub(super) fn ask(&self, ask: Ask, limit: Duration, heed: bool) -> Result<Answer, Fault> {
        let number = self.asked.get() + 1;
        self.asked.set(number);
        let question = serde_json::to_string(&Question { number, ask });
        let question = question.map_err(|error| Fault::failed(format!("cannot ask: {error}")))?;
        self.write(format!("{question}\n").as_bytes())?;
        loop {
            let line = self.line(limit, heed)?;
            let reply: Reply = serde_json::from_str(&line).map_err(|error| {
                self.lost(&format!(
                    "it said `{line}`, which is not understood: {error}"
                ))
            })?;
            if reply.number == number {
                let named = |why| Fault::failed(format!("{}: {why}", self.name));
                return reply.answer.map_err(named);
            }
        }
    }

    fn write(&self, bytes: &[u8]) -> Result<(), Fault> {
        if self.broken() {
            return Err(self.lost("it was lost before"));
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

    fn line(&self, limit: Duration, heed: bool) -> Result<String, Fault> {
        let deadline = Instant::now() + limit;
        let mut output = self.output.borrow_mut();
        loop {
            if let Some(line) = output.next() {
                return Ok(line);
            }
            if heed && self.stop.asked() {
                return Err(Fault::Interrupted);
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(self.lost(&format!("no answer for {} s", limit.as_secs())));
            }
            match output.more(left.min(GLANCE)) {
                Ok(More::Came) => {}
                Ok(More::NotYet) => {
                    if let Some(fault) = self.alone().filter(|_| heed) {
                        return Err(fault);
                    }
                }
                Ok(More::Never) => return Err(self.lost("the other end closed it")),
                Err(error) => return Err(self.lost(&error.to_string())),
            }
        }
    }

    /// The end of this connection, with what ssh says about it.
    fn lost(&self, why: &str) -> Fault {
        self.broken.set(true);
        let said = process::words(&self.complaints);
        let last = said.lines().rfind(|line| !line.trim().is_empty());
        let why = last.map_or(why, str::trim);
        Fault::failed(format!("{}: the connection is lost: {why}", self.name))
    }

    /// A fault before the attendant was ready, with what the user may try.
    fn explained(&self, fault: Fault, at: &str) -> Fault {
        match fault {
            Fault::Failed(why) if self.broken() => {
                let config = "this must work without a password: ssh";
                Fault::failed(format!("{why}; {config} {at} true"))
            }
            other => other,
        }
    }
}

impl Drop for Connection {
    /// Says goodbye, and waits until the host is as it was.
    fn drop(&mut self) {
        self._alive = None;
        // A lock that is held means a write that does not get on: then there is nobody to say goodbye to.
        if let Ok(mut input) = self.input.try_lock() {
            *input = None;
        }
        let child = self.child.get_mut();
        let deadline = Instant::now() + FAREWELL;
        while !self.broken.get() && Instant::now() < deadline {
            if let Ok(Some(_)) = child.try_wait() {
                return;
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        // It may have ended a moment ago, which is what was wanted.
        let _ = child.kill();
        let _ = child.wait();
    }
}

/// Says that the lab lives, until what it returns is dropped.
fn sign_of_life(input: Input) -> Sender<()> {
    let (sender, ended) = mpsc::channel();
    std::thread::spawn(move || {
        while let Err(RecvTimeoutError::Timeout) = ended.recv_timeout(SIGN_OF_LIFE) {
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

/// As `sha256sum` gives it, which is what the host is asked for, too.
fn checksum(path: &Path) -> Result<String, Fault> {
    let said = std::process::Command::new("sha256sum")
        .arg("--")
        .arg(path)
        .output();
    let said = said.map_err(|error| Fault::failed(format!("cannot start sha256sum: {error}")))?;
    let said = String::from_utf8_lossy(&said.stdout).into_owned();
    let sum = said.split_whitespace().next();
    sum.map(str::to_owned)
        .ok_or_else(|| Fault::failed(format!("sha256sum cannot read {}", path.display())))
}

/// What came of waiting.
enum More {
    Came,
    NotYet,
    Never,
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
    fn more(&mut self, time: Duration) -> io::Result<More> {
        let time = Timespec {
            tv_sec: time.as_secs() as i64,
            tv_nsec: i64::from(time.subsec_nanos()),
        };
        let mut ready = [PollFd::new(&self.output, PollFlags::IN)];
        // An interrupted wait only means: look again.
        if !poll(&mut ready, Some(&time)).is_ok_and(|count| count > 0) {
            return Ok(More::NotYet);
        }
        let mut chunk = [0; 65_536];
        let length = self.output.read(&mut chunk)?;
        self.waiting.extend_from_slice(&chunk[..length]);
        Ok(match length {
            0 => More::Never,
            _ => More::Came,
        })
    }
}
