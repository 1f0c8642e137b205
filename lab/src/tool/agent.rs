//! The lab's agent on a host that is reached by SSH, or in the guest: it runs programs, reads files and captures on
//! interfaces, and responds on its standard output (see `testbed::ssh`).
//!
//! ```text
//!   lab ── ssh ── sshd ── sh ── esplanade-lab tool agent      one thread, which starts every program itself
//!                                  ├─ gateways, iperf3 …       killed when the lab goes
//!                                  └─ FOLDER/undo              commands that then undo the changes, run by agent or sh
//! ```
//!
//! The lab is considered gone when standard input ends, or after a time of silence, because a dead link does not close
//! the connection. Then every program is killed, what was changed on the host is undone, and the folder is emptied. One
//! thread does it all, because a program dies with the thread that started it.

mod handles;
mod pending;
mod sniffer;
mod undo;

use std::io::{self, Read, Seek, Write};
use std::net::UdpSocket;
use std::os::unix::fs::DirBuilderExt;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::host::{self, Command, Process};
use crate::stop::Stop;
use crate::testbed::process::{self, Running};
use crate::testbed::ssh::protocol::{
    Bytes, FrameMessage, READY, Request, RequestMessage, Response, ResponseMessage, UNDO,
};
use handles::{Handle, Handles};
use pending::{AwaitedEvent, Pending};
use sniffer::Sniffer;
use undo::undoing;

pub(crate) use undo::quoted;

/// Serve a remote lab until it disconnects.
#[derive(Debug, clap::Args)]
pub struct AgentArgs {
    /// A private folder, emptied at the end
    folder: PathBuf,
    /// Seconds of silence after which the lab is considered dead
    #[arg(long, default_value_t = 60)]
    silence: u64,
}

impl AgentArgs {
    pub(super) fn run(self) -> io::Result<()> {
        let mut agent = Agent {
            folder: self.folder,
            handles: Handles::default(),
            pending: Vec::new(),
            undo: Vec::new(),
            stop: Stop::never(),
        };
        let served = agent
            .write_line(&format!("{READY}\n"))
            .and_then(|()| agent.serve(Duration::from_secs(self.silence)));
        agent.clear();
        served
    }
}

struct Agent {
    folder: PathBuf,
    handles: Handles,
    pending: Vec<Pending>,
    undo: Vec<Command>,
    stop: Stop,
}

/// An answer now, or a wait.
enum Reaction {
    Now(Response),
    Later(u64, Duration, AwaitedEvent),
}

impl Agent {
    /// Until the lab goes.
    fn serve(&mut self, silence: Duration) -> io::Result<()> {
        let (mut input, mut heard) = (Vec::new(), Instant::now());
        loop {
            self.answer_pending()?;
            let patience = silence.saturating_sub(heard.elapsed());
            if patience.is_zero() {
                return Ok(());
            }
            if !self.sleep(patience) {
                continue;
            }
            heard = Instant::now();
            // Larger than the library's own buffer, which therefore is empty while this thread sleeps in poll.
            let mut chunk = [0; 65_536];
            match io::stdin().lock().read(&mut chunk)? {
                0 => return Ok(()),
                length => input.extend_from_slice(&chunk[..length]),
            }
            while let Some(end) = input.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = input.drain(..=end).collect();
                self.handle_line(&line)?;
            }
        }
    }

    /// Answers every request whose wait is over.
    fn answer_pending(&mut self) -> io::Result<()> {
        let now = Instant::now();
        for wait in std::mem::take(&mut self.pending) {
            match wait.response(&mut self.handles, now >= wait.until) {
                Some(answer) => self.reply(wait.number, answer)?,
                None => self.pending.push(wait),
            }
        }
        Ok(())
    }

    /// Sleeps until there is something to do, at most so long. Says whether the lab spoke.
    fn sleep(&self, most: Duration) -> bool {
        let now = Instant::now();
        let next = self.pending.iter().map(|wait| wait.until - now);
        let time = next.min().unwrap_or(most).min(most);
        let stdin = io::stdin();
        let mut ready = vec![PollFd::new(&stdin, PollFlags::IN)];
        let awaited = self
            .pending
            .iter()
            .filter_map(|wait| self.handles.get(wait.handle));
        ready.extend(
            awaited.filter_map(|handle| {
                Some(PollFd::from_borrowed_fd(handle.event()?, PollFlags::IN))
            }),
        );
        let time = Timespec {
            tv_sec: time.as_secs() as i64,
            tv_nsec: i64::from(time.subsec_nanos()),
        };
        // Any error, also "interrupted", only means: look again.
        let woken = poll(&mut ready, Some(&time)).is_ok_and(|count| count > 0);
        woken && !ready[0].revents().is_empty()
    }

    fn handle_line(&mut self, line: &[u8]) -> io::Result<()> {
        if line.trim_ascii().is_empty() {
            return Ok(());
        }
        let request: RequestMessage = serde_json::from_slice(line)?;
        match self.execute(request.ask) {
            Ok(Reaction::Later(handle, time, what)) => {
                let (number, until) = (request.number, Instant::now() + time);
                self.pending.push(Pending {
                    number,
                    handle,
                    until,
                    what,
                });
                Ok(())
            }
            Ok(Reaction::Now(answer)) => self.reply(request.number, Ok(answer)),
            Err(why) => self.reply(request.number, Err(why)),
        }
    }

    fn reply(&self, number: u64, answer: Result<Response, String>) -> io::Result<()> {
        self.write_line(&(serde_json::to_string(&ResponseMessage { number, answer })? + "\n"))
    }

    fn write_line(&self, line: &str) -> io::Result<()> {
        let mut stdout = io::stdout().lock();
        stdout.write_all(line.as_bytes())?;
        stdout.flush()
    }

    fn execute(&mut self, ask: Request) -> Result<Reaction, String> {
        let answer = match ask {
            Request::Run { command, limit } => {
                let running = self.start(&command, false)?;
                let handle = self.handles.keep(Handle::Process(running));
                return Ok(Reaction::Later(handle, limit, AwaitedEvent::End));
            }
            Request::Stop { process, grace } => {
                self.handles.process(process)?.ask_to_end();
                return Ok(Reaction::Later(process, grace, AwaitedEvent::Stop));
            }
            Request::Receive { socket, within } => {
                self.handles.socket(socket)?;
                return Ok(Reaction::Later(socket, within, AwaitedEvent::Datagram));
            }
            Request::Start { command } => {
                let running = self.start(&command, true)?;
                let pid = running.pid();
                Response::Started(self.handles.keep(Handle::Process(running)), pid)
            }
            Request::State { process } => {
                let process = self.handles.process(process)?;
                Response::State(process.ended(), process.output())
            }
            Request::Read { path } => Response::Text(
                std::fs::read_to_string(&path)
                    .map_err(|error| format!("cannot read {}: {error}", path.display()))?,
            ),
            Request::Fetch { path, from } => Response::Bytes(Bytes(
                bytes(&path, from)
                    .map_err(|error| format!("cannot read {}: {error}", path.display()))?,
            )),
            Request::List { path } => Response::Names(
                names(&path).map_err(|error| format!("cannot list {}: {error}", path.display()))?,
            ),
            Request::WriteFile { name, text } => Response::Text(self.write_file(&name, &text)?),
            Request::Scratch => Response::Text(self.scratch()?),
            Request::Has { program } => Response::Flag(host::program(&program).is_some()),
            Request::Sniff { interface, among } => {
                let sniffer = Sniffer::open(&interface, among)
                    .map_err(|error| cannot_listen(&interface, &error))?;
                Response::Handle(self.handles.keep(Handle::Sniffer(sniffer)))
            }
            Request::TakeFrames { sniffer } => {
                let frames = self.handles.sniffer(sniffer)?.frames()?;
                Response::Frames(frames.into_iter().map(FrameMessage::from).collect())
            }
            Request::Bind { local } => {
                let socket = UdpSocket::bind(local)
                    .map_err(|error| format!("cannot bind UDP {local}: {error}"))?;
                Response::Handle(self.handles.keep(Handle::Socket(socket)))
            }
            Request::Send {
                socket,
                to,
                payload,
            } => {
                let sent = self.handles.socket(socket)?.send_to(&payload.0, to);
                sent.map_err(|error| format!("cannot send to {to}: {error}"))?;
                Response::Done
            }
            Request::Close { handle } => {
                self.handles.close(handle);
                Response::Done
            }
            Request::OnCleanup { command } => {
                self.undo.push(command);
                self.write_undo()
                    .map_err(|error| format!("cannot write {UNDO}: {error}"))?;
                Response::Done
            }
            Request::CleanUp => {
                self.clear();
                Response::Done
            }
        };
        Ok(Reaction::Now(answer))
    }

    fn start(&self, command: &Command, together: bool) -> Result<Running, String> {
        process::start(command, None, self.stop, together).map_err(|fault| fault.to_string())
    }

    /// Everything of a topology is in one folder.
    fn topology_folder(&self) -> PathBuf {
        self.folder.join("topology")
    }

    fn write_file(&self, name: &str, text: &str) -> Result<String, String> {
        let path = self.topology_folder().join(name);
        let folder = path.parent().unwrap_or(&self.folder);
        std::fs::create_dir_all(folder)
            .and_then(|()| std::fs::write(&path, text))
            .map_err(|error| format!("cannot write {}: {error}", path.display()))?;
        Ok(path.to_string_lossy().into_owned())
    }

    fn scratch(&self) -> Result<String, String> {
        let path = self.topology_folder().join("run");
        // A gateway keeps its socket there, and refuses where others may write, which a lax umask would allow.
        let mut folder = std::fs::DirBuilder::new();
        folder.recursive(true).mode(0o755);
        folder
            .create(&path)
            .map_err(|error| format!("cannot make {}: {error}", path.display()))?;
        Ok(path.to_string_lossy().into_owned())
    }

    /// The list is written before the changes are made: if the agent is killed, the shell that started it runs it.
    fn write_undo(&self) -> io::Result<()> {
        std::fs::write(self.folder.join(UNDO), undoing(&self.undo))
    }

    /// Kills everything, undoes everything, and empties the topology's folder.
    fn clear(&mut self) {
        self.pending.clear();
        self.handles = Handles::default();
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
        let _ = std::fs::remove_dir_all(self.topology_folder());
    }
}

/// For all that has to be undone.
const UNDO_TIMEOUT: Duration = Duration::from_secs(180);

/// With what to do where it is a question of rights: root in a container may not have this one.
fn cannot_listen(interface: &str, error: &io::Error) -> String {
    let advice = match error.kind() {
        io::ErrorKind::PermissionDenied => {
            ". Fix: packet sockets need CAP_NET_RAW there: log in as root, or give the container that right \
             (--cap-add NET_RAW)"
        }
        _ => "",
    };
    format!("cannot listen on {interface}: {error}{advice}")
}

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
