//! From `ssh` to the agent's ready message: logging in, uploading missing programs, and starting the agent.

use std::io;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use super::super::bootstrap::{BOOTSTRAP_READY, remote_command};
use super::super::hosts::Uploads;
use super::{Connection, REPLY_TIMEOUT};
use crate::fault::Fault;
use crate::stop::Stop;

/// To log in, jump hosts included, and until the agent of a lost connection has undone everything.
const LOGIN_TIMEOUT: Duration = Duration::from_secs(300);
/// To upload a program over a slow line.
const UPLOAD_TIMEOUT: Duration = Duration::from_secs(600);

/// The connection is not shared and ends with the lab: a shared master of the user's configuration would outlive it.
/// All else is left to that configuration, known hosts above all.
const SSH_OPTIONS: [&str; 8] = [
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
    /// Logs in, uploads missing programs, and starts the agent. `after` is a connection that was lost: what its agent
    /// takes back is waited for.
    pub(in crate::testbed::ssh) fn open(
        role: &str,
        at: &str,
        config: Option<&Path>,
        uploads: &Uploads,
        stop: Stop,
        after: Option<&Connection>,
    ) -> Result<Connection, Fault> {
        let mut connection = Connection::ssh(role, at, config, uploads, stop, after)?;
        let arrived = connection.arrive(uploads);
        arrived.map_err(|fault| connection.explained(fault, at))?;
        Ok(connection)
    }

    fn ssh(
        role: &str,
        at: &str,
        config: Option<&Path>,
        uploads: &Uploads,
        stop: Stop,
        after: Option<&Connection>,
    ) -> Result<Connection, Fault> {
        let lost = after.map(|lost| lost.folder.as_str());
        let lost = lost.filter(|folder| !folder.is_empty());
        let names: Vec<&str> = uploads.iter().map(|(name, _)| *name).collect();
        let mut ssh = Command::new("ssh");
        if let Some(config) = config {
            ssh.arg("-F").arg(config);
        }
        for option in SSH_OPTIONS {
            ssh.arg("-o").arg(option);
        }
        ssh.arg("-T").arg(at).arg(remote_command(&names, lost));
        Connection::over(ssh, format!("{role} ({at})"), stop).map_err(|error| {
            Fault::failed(format!(
                "cannot start ssh: {error}. Fix: apt-get install openssh-client"
            ))
        })
    }

    /// The dialogue with the shell, up to the first word of the agent.
    fn arrive(&mut self, uploads: &Uploads) -> Result<(), Fault> {
        let mut found = Vec::new();
        let here = loop {
            let line = self.line(LOGIN_TIMEOUT, true)?;
            let words: Vec<&str> = line.split_whitespace().collect();
            match words[..] {
                ["found", name, sum, path] => {
                    found.push((name.to_owned(), sum.to_owned(), path.to_owned()));
                }
                // A login script may print something before.
                [BOOTSTRAP_READY, machine, folder] => {
                    break (machine.to_owned(), folder.to_owned());
                }
                _ => continue,
            }
        };
        let machine;
        (machine, self.folder) = here;
        if machine != std::env::consts::ARCH {
            return Err(Fault::failed(format!(
                "this machine is a {}, {} is a {machine}: run the lab on a machine of the same architecture",
                std::env::consts::ARCH,
                self.name
            )));
        }
        for (name, path) in uploads {
            let sum = checksum(path)?;
            let there = found
                .iter()
                .find(|(other, theirs, _)| other == name && *theirs == sum);
            match there {
                Some((_, _, there)) => self.write(format!("link {name} {there}\n").as_bytes())?,
                None => self.put(name, path)?,
            }
            self.expect("got", UPLOAD_TIMEOUT)?;
            let ours = path.to_string_lossy().into_owned();
            let there = format!("{}/{name}", self.folder);
            self.uploads.push((ours, there));
        }
        self.write(b"start\n")?;
        self.wait_until_ready(REPLY_TIMEOUT)
    }

    fn put(&self, name: &str, path: &Path) -> Result<(), Fault> {
        let cannot =
            |error: io::Error| Fault::failed(format!("cannot read {}: {error}", path.display()));
        let program = std::fs::read(path).map_err(cannot)?;
        self.write(format!("put {name} {}\n", program.len()).as_bytes())?;
        self.write(&program)
    }

    /// A fault before the agent was ready, with what the user may try: before or after the shell there has answered.
    fn explained(&self, fault: Fault, at: &str) -> Fault {
        match fault {
            Fault::Failed(why) if self.broken() && self.folder.is_empty() => {
                let config = "this must work without a password: ssh";
                Fault::failed(format!("{why}; {config} {at} true"))
            }
            Fault::Failed(why) if self.broken() => Fault::failed(format!(
                "{why}; the lab's programs were put into {} there and must run: the file system needs room and must \
                 not be mounted noexec (TMPDIR there chooses another), and the C library must be as new as here",
                self.folder
            )),
            other => other,
        }
    }
}

/// As `sha256sum` gives it, which is what the host is asked for, too.
fn checksum(path: &Path) -> Result<String, Fault> {
    let said = Command::new("sha256sum").arg("--").arg(path).output();
    let said = said.map_err(|error| Fault::failed(format!("cannot start sha256sum: {error}")))?;
    let said = String::from_utf8_lossy(&said.stdout).into_owned();
    let sum = said.split_whitespace().next();
    sum.map(str::to_owned)
        .ok_or_else(|| Fault::failed(format!("sha256sum cannot read {}", path.display())))
}
