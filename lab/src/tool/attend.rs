//! The lab's attendant on a host that is reached by SSH, or in the guest: it runs programs, reads files, listens on interfaces, and answers
//! for all of it on its standard output (see `testbed::ssh`).
//!
//! ```text
//!   lab ── ssh ── sshd ── sh ── esplanade-lab tool attend      one thread, which starts every program itself
//!                                  ├─ gateways, iperf3 …       killed when the lab goes
//!                                  └─ FOLDER/undo              what then has to be taken back, run by us or by that sh
//! ```
//!
//! The lab has gone when standard input ends, or when nothing at all came for a while: a dead link does not say goodbye.
//! Then every program is killed, what was changed on the host is undone, and the folder is emptied. One thread does it
//! all, because a program dies with the thread that started it.

mod ear;
mod things;
mod undo;
mod waits;

use std::io::{self, Read, Seek, Write};
use std::net::UdpSocket;
use std::os::unix::fs::DirBuilderExt;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::host::{self, Command, Process};
use crate::stop::Stop;
use crate::testbed::process::{self, Running};
use crate::testbed::ssh::protocol::{Answer, Ask, Bytes, Question, READY, Reply, Seen, UNDO};
use ear::Ear;
use things::{Thing, Things};
use undo::undoing;
use waits::{Awaited, Wait};

pub(crate) use undo::quoted;

/// Do what a lab elsewhere asks for, until it goes.
#[derive(Debug, clap::Args)]
pub struct Attend {
    /// A private folder; it is emptied in the end
    folder: PathBuf,
    /// Seconds without a word after which the lab is taken for dead
    #[arg(long, default_value_t = 60)]
    silence: u64,
}

impl Attend {
    pub(super) fn run(self) -> io::Result<()> {
        let mut attendant = Attendant {
            folder: self.folder,
            things: Things::default(),
            waits: Vec::new(),
            undo: Vec::new(),
            stop: Stop::never(),
        };
        let served = attendant
            .answer(&format!("{READY}\n"))
            .and_then(|()| attendant.serve(Duration::from_secs(self.silence)));
        attendant.clear();
        served
    }
}

struct Attendant {
    folder: PathBuf,
    things: Things,
    waits: Vec<Wait>,
    undo: Vec<Command>,
    stop: Stop,
}

/// An answer now, or a wait.
enum Soon {
    Now(Answer),
    Later(u64, Duration, Awaited),
}

impl Attendant {
    /// Until the lab goes.
    fn serve(&mut self, silence: Duration) -> io::Result<()> {
        let (mut input, mut heard) = (Vec::new(), Instant::now());
        loop {
            self.settle()?;
            let patience = silence.saturating_sub(heard.elapsed());
            if patience.is_zero() {
                return Ok(());
            }
            if !self.sleep(patience) {
                continue;
            }
            heard = Instant::now();
            // Larger than the library's own buffer, which therefore holds nothing back while we sleep.
            let mut chunk = [0; 65_536];
            match io::stdin().lock().read(&mut chunk)? {
                0 => return Ok(()),
                length => input.extend_from_slice(&chunk[..length]),
            }
            while let Some(end) = input.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = input.drain(..=end).collect();
                self.obey(&line)?;
            }
        }
    }

    /// Answers every question whose wait is over.
    fn settle(&mut self) -> io::Result<()> {
        let now = Instant::now();
        for wait in std::mem::take(&mut self.waits) {
            match wait.over(&mut self.things, now >= wait.until) {
                Some(answer) => self.reply(wait.number, answer)?,
                None => self.waits.push(wait),
            }
        }
        Ok(())
    }

    /// Sleeps until there is something to do, at most so long. Says whether the lab spoke.
    fn sleep(&self, most: Duration) -> bool {
        let now = Instant::now();
        let next = self.waits.iter().map(|wait| wait.until - now);
        let time = next.min().unwrap_or(most).min(most);
        let stdin = io::stdin();
        let mut ready = vec![PollFd::new(&stdin, PollFlags::IN)];
        let awaited = self
            .waits
            .iter()
            .filter_map(|wait| self.things.get(wait.thing));
        ready.extend(
            awaited
                .filter_map(|thing| Some(PollFd::from_borrowed_fd(thing.event()?, PollFlags::IN))),
        );
        let time = Timespec {
            tv_sec: time.as_secs() as i64,
            tv_nsec: i64::from(time.subsec_nanos()),
        };
        // Any error, also "interrupted", only means: look again.
        let woken = poll(&mut ready, Some(&time)).is_ok_and(|count| count > 0);
        woken && !ready[0].revents().is_empty()
    }

    fn obey(&mut self, line: &[u8]) -> io::Result<()> {
        if line.trim_ascii().is_empty() {
            return Ok(());
        }
        let question: Question = serde_json::from_slice(line)?;
        match self.act(question.ask) {
            Ok(Soon::Later(thing, time, what)) => {
                let (number, until) = (question.number, Instant::now() + time);
                self.waits.push(Wait {
                    number,
                    thing,
                    until,
                    what,
                });
                Ok(())
            }
            Ok(Soon::Now(answer)) => self.reply(question.number, Ok(answer)),
            Err(why) => self.reply(question.number, Err(why)),
        }
    }

    fn reply(&self, number: u64, answer: Result<Answer, String>) -> io::Result<()> {
        self.answer(&(serde_json::to_string(&Reply { number, answer })? + "\n"))
    }

    fn answer(&self, line: &str) -> io::Result<()> {
        let mut stdout = io::stdout().lock();
        stdout.write_all(line.as_bytes())?;
        stdout.flush()
    }

    fn act(&mut self, ask: Ask) -> Result<Soon, String> {
        let answer = match ask {
            Ask::Run { command, limit } => {
                let running = self.start(&command, false)?;
                let thing = self.things.keep(Thing::Process(running));
                return Ok(Soon::Later(thing, limit, Awaited::End));
            }
            Ask::Stop { process, grace } => {
                self.things.process(process)?.ask_to_end();
                return Ok(Soon::Later(process, grace, Awaited::Stop));
            }
            Ask::Receive { socket, within } => {
                self.things.socket(socket)?;
                return Ok(Soon::Later(socket, within, Awaited::Datagram));
            }
            Ask::Start { command } => {
                let running = self.start(&command, true)?;
                let pid = running.pid();
                Answer::Started(self.things.keep(Thing::Process(running)), pid)
            }
            Ask::Look { process } => {
                let process = self.things.process(process)?;
                Answer::State(process.ended(), process.said())
            }
            Ask::Read { path } => Answer::Text(
                std::fs::read_to_string(&path)
                    .map_err(|error| format!("cannot read {}: {error}", path.display()))?,
            ),
            Ask::Fetch { path, from } => {
                Answer::Bytes(Bytes(bytes(&path, from).map_err(|error| {
                    format!("cannot read {}: {error}", path.display())
                })?))
            }
            Ask::List { path } => Answer::Names(
                names(&path).map_err(|error| format!("cannot list {}: {error}", path.display()))?,
            ),
            Ask::Place { name, text } => Answer::Text(self.place(&name, &text)?),
            Ask::Scratch => Answer::Text(self.scratch()?),
            Ask::Has { program } => Answer::Flag(host::program(&program).is_some()),
            Ask::Listen { interface, among } => {
                let ear = Ear::open(&interface, among)
                    .map_err(|error| format!("cannot listen on {interface}: {error}"))?;
                Answer::Thing(self.things.keep(Thing::Ear(ear)))
            }
            Ask::Hear { ear } => {
                let frames = self.things.ear(ear)?.frames()?;
                Answer::Frames(frames.into_iter().map(Seen::from).collect())
            }
            Ask::Bind { local } => {
                let socket = UdpSocket::bind(local)
                    .map_err(|error| format!("cannot bind UDP {local}: {error}"))?;
                Answer::Thing(self.things.keep(Thing::Socket(socket)))
            }
            Ask::Send {
                socket,
                to,
                payload,
            } => {
                let sent = self.things.socket(socket)?.send_to(&payload.0, to);
                sent.map_err(|error| format!("cannot send to {to}: {error}"))?;
                Answer::Done
            }
            Ask::Close { thing } => {
                self.things.close(thing);
                Answer::Done
            }
            Ask::Afterwards { command } => {
                self.undo.push(command);
                self.write_undo()
                    .map_err(|error| format!("cannot write {UNDO}: {error}"))?;
                Answer::Done
            }
            Ask::Clear => {
                self.clear();
                Answer::Done
            }
        };
        Ok(Soon::Now(answer))
    }

    fn start(&self, command: &Command, together: bool) -> Result<Running, String> {
        process::start(command, None, self.stop, together).map_err(|fault| fault.to_string())
    }

    /// Everything of a bed is in one folder.
    fn bed(&self) -> PathBuf {
        self.folder.join("bed")
    }

    fn place(&self, name: &str, text: &str) -> Result<String, String> {
        let path = self.bed().join(name);
        let folder = path.parent().unwrap_or(&self.folder);
        std::fs::create_dir_all(folder)
            .and_then(|()| std::fs::write(&path, text))
            .map_err(|error| format!("cannot write {}: {error}", path.display()))?;
        Ok(path.to_string_lossy().into_owned())
    }

    fn scratch(&self) -> Result<String, String> {
        let path = self.bed().join("run");
        // A gateway keeps its socket there, and refuses where others may write, which a lax umask would allow.
        let mut folder = std::fs::DirBuilder::new();
        folder.recursive(true).mode(0o755);
        folder
            .create(&path)
            .map_err(|error| format!("cannot make {}: {error}", path.display()))?;
        Ok(path.to_string_lossy().into_owned())
    }

    /// The list stands on the disk before anything happens that is on it: the shell that started us reads it if we die.
    fn write_undo(&self) -> io::Result<()> {
        std::fs::write(self.folder.join(UNDO), undoing(&self.undo))
    }

    /// Kills everything, undoes everything, and empties the bed's folder.
    fn clear(&mut self) {
        self.waits.clear();
        self.things = Things::default();
        if !self.undo.is_empty() {
            let command = Command::line("sh").arg(self.folder.join(UNDO));
            let undone = self.start(&command, true);
            if let Err(why) =
                undone.and_then(|sh| sh.finish(UNDO_TIMEOUT).map_err(|fault| fault.to_string()))
            {
                eprintln!("not all changes were undone: {why}");
            }
            self.undo.clear();
        }
        // Neither need be there.
        let _ = std::fs::remove_file(self.folder.join(UNDO));
        let _ = std::fs::remove_dir_all(self.bed());
    }
}

/// For all that has to be undone.
const UNDO_TIMEOUT: Duration = Duration::from_secs(180);

fn bytes(path: &std::path::Path, from: u64) -> io::Result<Vec<u8>> {
    let mut found = Vec::new();
    match std::fs::File::open(path) {
        Ok(mut file) => {
            file.seek(io::SeekFrom::Start(from))?;
            file.read_to_end(&mut found)?;
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => return Err(error),
    }
    Ok(found)
}

fn names(path: &std::path::Path) -> io::Result<Vec<String>> {
    let entries = std::fs::read_dir(path)?.flatten();
    Ok(entries
        .map(|entry| entry.file_name().to_string_lossy().into_owned())
        .collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_fetched_from_a_place_on_and_one_that_is_not_there_is_empty() {
        let place = std::env::temp_dir().join(format!("lab-fetched-{}", std::process::id()));
        assert_eq!(bytes(&place, 0).unwrap(), b"");
        std::fs::write(&place, b"one\ntwo\n").unwrap();
        assert_eq!(bytes(&place, 4).unwrap(), b"two\n");
        assert_eq!(bytes(&place, 99).unwrap(), b"");
        std::fs::remove_file(&place).unwrap();
    }
}
