//! A remote host: every call becomes a request to its agent. Interfaces have the names of the testbed, and kernel files
//! that list them are translated, so that records of real machines and of namespaces are alike.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::Duration;

use super::connection::{Connection, REPLY_TIMEOUT};
use super::protocol::{Bytes, Request, Response};
use crate::capture::Frame;
use crate::fault::Fault;
use crate::host::{Command, Datagrams, Finished, Host, Process, Tap};

/// One of the four roles on a remote machine.
pub(super) struct RemoteHost {
    pub(super) name: &'static str,
    pub(super) connection: Rc<Connection>,
    /// Where a copy of every placed file is kept.
    pub(super) results: PathBuf,
    /// Its devices by their names in the testbed.
    pub(super) devices: Vec<(&'static str, String)>,
    /// Addresses of the testbed.
    pub(super) among: Vec<Ipv4Addr>,
    pub(super) processors: Option<String>,
}

impl RemoteHost {
    fn ask(&self, ask: Request) -> Result<Response, Fault> {
        self.connection.ask(ask, REPLY_TIMEOUT, true)
    }

    /// The same command with the host's own paths of what was brought along.
    fn with_remote_paths(&self, command: &Command) -> Command {
        let mut there = command.clone();
        for word in there.arguments.iter_mut().chain([&mut there.program]) {
            *word = self.connection.remote_path(word);
        }
        there
    }

    /// What the machine calls an interface of the testbed.
    fn device<'a>(&'a self, interface: &'a str) -> &'a str {
        let known = self.devices.iter().find(|(name, _)| *name == interface);
        known.map_or(interface, |(_, device)| device)
    }
}

/// Lines of `/proc/net/dev` under the names of the testbed.
fn renamed(table: &str, devices: &[(&'static str, String)]) -> String {
    let line = |line: &str| {
        let known = devices.iter().find_map(|(name, device)| {
            let rest = line.trim_start().strip_prefix(device.as_str())?;
            rest.starts_with(':').then(|| format!("{name}{rest}\n"))
        });
        known.unwrap_or_else(|| format!("{line}\n"))
    };
    table.lines().map(line).collect()
}

/// The response does not fit the request: the agent has another version, or is broken.
fn unexpected(answer: &Response) -> Fault {
    Fault::failed(format!("unexpected response from the agent: {answer:?}"))
}

/// The value of the expected response; an error for every other one.
macro_rules! fitting {
    ($answer:expr, $pattern:pat => $value:expr) => {
        match $answer? {
            $pattern => Ok($value),
            other => Err(unexpected(&other)),
        }
    };
}

impl Host for RemoteHost {
    fn name(&self) -> &str {
        self.name
    }

    fn place(&self) -> String {
        self.connection.name().to_owned()
    }

    fn run(&self, command: &Command, limit: Duration) -> Result<Finished, Fault> {
        let ask = Request::Run {
            command: self.with_remote_paths(command),
            limit,
        };
        let answer = self.connection.ask(ask, limit + REPLY_TIMEOUT, true);
        fitting!(answer, Response::Finished(finished) => finished)?.ok_or_else(|| Fault::TimedOut {
            what: format!("`{command}`"),
            after: limit,
        })
    }

    fn start(&self, command: &Command) -> Result<Box<dyn Process>, Fault> {
        let command = self
            .with_remote_paths(command)
            .on_processors(self.processors.as_deref());
        let answer = self.ask(Request::Start { command });
        let (process, pid) = fitting!(answer, Response::Started(process, pid) => (process, pid))?;
        Ok(Box::new(RemoteProcess {
            connection: self.connection.clone(),
            process,
            pid,
        }))
    }

    fn read(&self, path: &Path) -> Result<String, Fault> {
        let answer = self.ask(Request::Read { path: path.into() });
        let text = fitting!(answer, Response::Text(text) => text)?;
        if path == Path::new("/proc/net/dev") {
            Ok(renamed(&text, &self.devices))
        } else {
            Ok(text)
        }
    }

    fn list(&self, path: &Path) -> Result<Vec<String>, Fault> {
        let answer = self.ask(Request::List { path: path.into() });
        fitting!(answer, Response::Names(names) => names)
    }

    fn write_file(&self, name: &str, text: &str) -> Result<PathBuf, Fault> {
        let copy = self.results.join(name);
        std::fs::create_dir_all(copy.parent().unwrap_or(&self.results))
            .and_then(|()| std::fs::write(&copy, text))
            .map_err(|error| Fault::failed(format!("cannot write {}: {error}", copy.display())))?;
        let answer = self.ask(Request::WriteFile {
            name: name.into(),
            text: text.into(),
        });
        fitting!(answer, Response::Text(path) => path.into())
    }

    fn scratch(&self) -> Result<PathBuf, Fault> {
        fitting!(self.ask(Request::Scratch), Response::Text(path) => path.into())
    }

    fn tap(&self, interface: &str) -> Result<Box<dyn Tap>, Fault> {
        let answer = self.ask(Request::Sniff {
            interface: self.device(interface).into(),
            among: self.among.clone(),
        });
        let handle = fitting!(answer, Response::Handle(handle) => handle)?;
        Ok(Box::new(RemoteHandle {
            connection: self.connection.clone(),
            handle,
        }))
    }

    fn datagrams(&self, local: SocketAddr) -> Result<Box<dyn Datagrams>, Fault> {
        let handle =
            fitting!(self.ask(Request::Bind { local }), Response::Handle(handle) => handle)?;
        Ok(Box::new(RemoteHandle {
            connection: self.connection.clone(),
            handle,
        }))
    }

    fn has(&self, name: &str) -> Result<bool, Fault> {
        let answer = self.ask(Request::Has {
            program: name.into(),
        });
        fitting!(answer, Response::Flag(there) => there)
    }

    fn on_cleanup(&self, command: &Command) -> Result<(), Fault> {
        let command = self.with_remote_paths(command);
        fitting!(self.ask(Request::OnCleanup { command }), Response::Done => ())
    }
}

/// A program that the agent started.
struct RemoteProcess {
    connection: Rc<Connection>,
    process: u64,
    pid: u32,
}

impl RemoteProcess {
    fn state(&self) -> Result<(Option<i32>, String), Fault> {
        let ask = Request::State {
            process: self.process,
        };
        let answer = self.connection.ask(ask, REPLY_TIMEOUT, false);
        fitting!(answer, Response::State(code, said) => (code, said))
    }
}

/// What ssh itself ends with when the connection is lost.
const CONNECTION_LOST_CODE: i32 = 255;

impl Process for RemoteProcess {
    fn pid(&self) -> u32 {
        self.pid
    }

    /// If the host is lost, the program has ended: the agent kills it.
    fn ended(&mut self) -> Option<i32> {
        self.state()
            .map_or(Some(CONNECTION_LOST_CODE), |(code, _)| code)
    }

    fn output(&mut self) -> String {
        self.state()
            .map_or_else(|fault| fault.to_string(), |(_, said)| said)
    }

    fn stop(&mut self, grace: Duration) -> Result<(), Fault> {
        let ask = Request::Stop {
            process: self.process,
            grace,
        };
        let answer = self.connection.ask(ask, grace + REPLY_TIMEOUT, false);
        if fitting!(answer, Response::Flag(by_itself) => by_itself)? {
            Ok(())
        } else {
            Err(Fault::TimedOut {
                what: format!("the end of process {}", self.pid),
                after: grace,
            })
        }
    }
}

impl Drop for RemoteProcess {
    fn drop(&mut self) {
        close(&self.connection, self.process);
    }
}

/// A sniffer or a socket that the agent keeps.
struct RemoteHandle {
    connection: Rc<Connection>,
    handle: u64,
}

impl Drop for RemoteHandle {
    fn drop(&mut self) {
        close(&self.connection, self.handle);
    }
}

/// On a lost connection there is nothing left to close.
fn close(connection: &Connection, handle: u64) {
    let _ = connection.ask(Request::Close { handle }, REPLY_TIMEOUT, false);
}

impl Tap for RemoteHandle {
    fn frames(&mut self) -> Result<Vec<Frame>, Fault> {
        let answer = self.connection.ask(
            Request::TakeFrames {
                sniffer: self.handle,
            },
            REPLY_TIMEOUT,
            true,
        );
        fitting!(answer, Response::Frames(frames) => frames.into_iter().map(Frame::from).collect())
    }
}

impl Datagrams for RemoteHandle {
    fn send(&self, to: SocketAddr, payload: &[u8]) -> Result<(), Fault> {
        let ask = Request::Send {
            socket: self.handle,
            to,
            payload: Bytes(payload.to_vec()),
        };
        fitting!(self.connection.ask(ask, REPLY_TIMEOUT, true), Response::Done => ())
    }

    fn receive(&self, within: Duration) -> Result<Option<Vec<u8>>, Fault> {
        let ask = Request::Receive {
            socket: self.handle,
            within,
        };
        let answer = self.connection.ask(ask, within + REPLY_TIMEOUT, true);
        fitting!(answer, Response::Datagram(datagram) => datagram.map(|bytes| bytes.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_devices_of_the_testbed_bear_its_names() {
        let table = " face |bytes\n   eth1: 10 1\n  eth10: 20 2\n    lo: 5 1\n";
        let devices = [("wan", "eth1".to_owned())];
        assert_eq!(
            renamed(table, &devices),
            " face |bytes\nwan: 10 1\n  eth10: 20 2\n    lo: 5 1\n"
        );
    }
}
