//! A host, as contenders, loads and meters see it: it runs programs, reads files and captures on interfaces. It may be
//! a network namespace or a remote machine.

use std::fmt;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::capture::Frame;
use crate::fault::Fault;

/// One machine of a testbed.
pub trait Host {
    /// `client`, `left`, `right` or `server`.
    fn name(&self) -> &str;

    /// What errors call it: its name, and where a machine is reached.
    fn place(&self) -> String {
        self.name().to_owned()
    }

    /// Runs a program to its end; killed when it takes longer than `limit`.
    fn run(&self, command: &Command, limit: Duration) -> Result<Finished, Fault>;

    /// The same for a program that must succeed: its standard output, or its complaint as a fault.
    fn must(&self, command: &Command, limit: Duration) -> Result<String, Fault> {
        self.run(command, limit)?.success(command)
    }

    /// Starts a program that keeps running. Dropping the returned value ends it.
    fn start(&self, command: &Command) -> Result<Box<dyn Process>, Fault>;

    /// Reads a file as this host sees it (its own `/proc/net`).
    fn read(&self, path: &Path) -> Result<String, Fault>;

    /// The names in a folder as this host sees it.
    fn list(&self, path: &Path) -> Result<Vec<String>, Fault>;

    /// Puts a readable file among the results and returns where the host finds it. `name` may hold folders.
    fn write_file(&self, name: &str, text: &str) -> Result<PathBuf, Fault>;

    /// A private folder with a short path, gone with the trial: for sockets.
    fn scratch(&self) -> Result<PathBuf, Fault>;

    /// Captures all frames of an interface, both directions, from now on.
    fn tap(&self, interface: &str) -> Result<Box<dyn Tap>, Fault>;

    /// A UDP socket of this host.
    fn datagrams(&self, local: SocketAddr) -> Result<Box<dyn Datagrams>, Fault>;

    /// Whether a program of this name is there.
    fn has(&self, name: &str) -> Result<bool, Fault> {
        Ok(program(name).is_some())
    }

    /// Registers a command to run when the topology ends, for any reason: it removes what outlives a killed program.
    /// Must be called before the program starts. A host that ends with the topology has nothing to do.
    fn on_cleanup(&self, _command: &Command) -> Result<(), Fault> {
        Ok(())
    }
}

/// A program that runs on a host. Dropping it kills the program.
pub trait Process {
    /// Its process id as that host's `/proc` shows it.
    fn pid(&self) -> u32;
    /// Its exit code (128 + signal number when killed), once it has ended.
    fn ended(&mut self) -> Option<i32>;
    /// Its output so far, standard output and error together.
    fn output(&mut self) -> String;
    /// Asks it to end (SIGTERM), and kills it after `grace`.
    fn stop(&mut self, grace: Duration) -> Result<(), Fault>;
}

/// A running capture on an interface.
pub trait Tap {
    /// The frames that passed since the last call.
    fn frames(&mut self) -> Result<Vec<Frame>, Fault>;
}

/// A UDP socket on a host.
pub trait Datagrams {
    /// Sends one datagram.
    fn send(&self, to: SocketAddr, payload: &[u8]) -> Result<(), Fault>;
    /// The next datagram, if one comes in time.
    fn receive(&self, within: Duration) -> Result<Option<Vec<u8>>, Fault>;
}

/// A program with its arguments, and what it must see instead of the host's own files.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Command {
    /// Name or path.
    pub program: String,
    /// Arguments.
    pub arguments: Vec<String>,
    /// `(what, where)`: paths mounted over others, for this program alone.
    pub binds: Vec<(PathBuf, PathBuf)>,
    /// Text for its standard input.
    pub input: String,
}

impl Command {
    /// A command line split at blanks: `Command::line("ip link show")`. Further arguments by [`Command::arg`].
    pub fn line(line: &str) -> Command {
        let mut words = line.split_whitespace().map(str::to_owned);
        Command {
            program: words.next().unwrap_or_default(),
            arguments: words.collect(),
            binds: Vec::new(),
            input: String::new(),
        }
    }

    /// One of the lab's own small tools: `esplanade-lab tool NAME`.
    pub fn tool(lab: &Path, name: &str) -> Command {
        Command::line("").program(lab).arg("tool").arg(name)
    }

    /// Another program with the same arguments; its path may hold blanks.
    pub fn program(mut self, program: &Path) -> Command {
        self.program = program.to_string_lossy().into_owned();
        self
    }

    /// Adds an argument as it is.
    pub fn arg(mut self, argument: impl AsRef<std::ffi::OsStr>) -> Command {
        let text = argument.as_ref().to_string_lossy().into_owned();
        self.arguments.push(text);
        self
    }

    /// Mounts `what` over `at` for this program alone.
    pub fn bind(mut self, what: impl Into<PathBuf>, at: impl Into<PathBuf>) -> Command {
        self.binds.push((what.into(), at.into()));
        self
    }

    /// The same command, kept to a set of processors, as `0-3,8`; `None`: as it is.
    pub fn on_processors(&self, processors: Option<&str>) -> Command {
        let mut bound = self.clone();
        if let Some(list) = processors {
            let words = ["-c", list, self.program.as_str()].map(str::to_owned);
            bound.arguments.splice(0..0, words);
            bound.program = "taskset".into();
        }
        bound
    }

    /// Feeds `text` to its standard input.
    pub fn input(mut self, text: impl Into<String>) -> Command {
        self.input = text.into();
        self
    }
}

impl fmt::Display for Command {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&self.program)?;
        self.arguments
            .iter()
            .try_for_each(|argument| write!(out, " {argument}"))
    }
}

/// How a program ended, and its output.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Finished {
    /// Exit code; 128 + signal number when killed.
    pub code: i32,
    /// Standard output.
    pub stdout: String,
    /// Standard error.
    pub stderr: String,
}

impl Finished {
    /// Standard output of a program that succeeded; its complaint as a fault otherwise.
    pub fn success(self, command: &Command) -> Result<String, Fault> {
        match self.code {
            0 => Ok(self.stdout),
            code => Err(Fault::failed(format!(
                "`{command}` ended with {code}: {}",
                self.complaint()
            ))),
        }
    }

    /// The last line of its output, which in most programs is the reason.
    pub fn complaint(&self) -> &str {
        [&self.stderr, &self.stdout]
            .into_iter()
            .find_map(|text| text.lines().rfind(|line| !line.trim().is_empty()))
            .map_or("it said nothing", str::trim)
    }
}

/// Where a program is, looking where administrators' tools live even if PATH does not.
pub fn program(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let usual = ["/usr/local/sbin", "/usr/sbin", "/sbin", "/usr/bin", "/bin"];
    std::env::split_paths(&path)
        .chain(usual.iter().map(PathBuf::from))
        .map(|folder| folder.join(name))
        .find(|candidate| candidate.is_file())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_set_of_processors_goes_before_the_program() {
        let command = Command::line("esplanade run");
        assert_eq!(
            command.on_processors(Some("0,2")).to_string(),
            "taskset -c 0,2 esplanade run"
        );
        assert_eq!(command.on_processors(None), command);
    }
}
