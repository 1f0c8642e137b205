//! The main process's end: starting the runner, asking it for runs, hearing how they ended. Nothing here waits.

use super::message::{Ended, ToRunner};
use crate::config::HookCommand;
use crate::failure::Failure;
use crate::ike::{Channel, ProcessOptions, own_program};
use crate::privileges::User;
use std::collections::HashMap;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;

/// The runner, for as long as it lives. Dropping it ends it, and the hooks that run.
pub(crate) struct Runner {
    channel: Channel,
    /// The number of each program that it was given.
    programs: HashMap<HookCommand, u32>,
}

/// The user that hooks run as.
pub(crate) struct Account {
    user: User,
    is_another: bool,
}

impl Account {
    /// The named user, or that of this process; never root.
    pub(crate) fn choose(named: Option<&str>) -> Result<Self, Failure> {
        let present = User::current();
        let user = match named {
            Some(word) => User::named(word)
                .map_err(|why| Failure::new(format!("--hook-user {word}: {why}")))?,
            None => present.clone(),
        };
        if user.uid() == 0 {
            return Err(Failure::new(
                "hooks (`on_up`, `on_down`) do not run as root: create the user of gateways with systemd-sysusers \
                 (packaging/sysusers.d), or name another one: `user` or `hook_user` in [gateway]",
            ));
        }
        Ok(Self {
            is_another: user.uid() != present.uid() || user.gid() != present.gid(),
            user,
        })
    }
}

impl Runner {
    /// Starts it with these programs: before privileges are dropped.
    pub(crate) fn start(
        programs: Vec<HookCommand>,
        account: &Account,
        options: ProcessOptions,
    ) -> Result<Self, Failure> {
        let begin = || -> io::Result<Channel> {
            let (ours, theirs) = UnixStream::pair()?;
            let mut command = own_program("hook-runner", theirs, options);
            if account.is_another {
                command.uid(account.user.uid()).gid(account.user.gid());
            }
            // It ends with this process; nothing waits for it.
            drop(command.spawn()?);
            Channel::new(ours)
        };
        let cannot = |why: &dyn std::fmt::Display| {
            let user = &account.user;
            Failure::new(format!(
                "cannot start the process that runs hooks, as user {user}: {why}"
            ))
        };
        let mut channel = begin().map_err(|error| match error.kind() {
            io::ErrorKind::PermissionDenied if account.is_another => cannot(&format!(
                "{error}: only a gateway that root starts can run hooks as another user"
            )),
            _ => cannot(&error),
        })?;
        let numbered = programs.iter().cloned().zip(0..);
        let numbered = numbered.collect();
        let given = channel.push(&ToRunner::Programs(programs));
        given.map_err(|_| cannot(&"too many programs"))?;
        channel.flush().map_err(|error| cannot(&error))?;
        Ok(Self {
            channel,
            programs: numbered,
        })
    }

    /// The number of a program, if it was given one.
    pub(crate) fn number(&self, hook: &HookCommand) -> Option<u32> {
        self.programs.get(hook).copied()
    }

    /// Asks for a run. An error: the runner is gone, or does not read.
    pub(crate) fn run(
        &mut self,
        run: u64,
        program: u32,
        variables: Vec<(String, String)>,
    ) -> io::Result<()> {
        let message = ToRunner::Run {
            run,
            program,
            variables,
        };
        let full = |_| io::Error::from(io::ErrorKind::StorageFull);
        self.channel.push(&message).map_err(full)?;
        self.channel.flush()
    }

    /// The next that has ended, if one has. An error: the runner is gone.
    pub(crate) fn receive(&mut self) -> io::Result<Option<Ended>> {
        self.channel.flush()?;
        self.channel.receive()
    }
}

impl AsFd for Runner {
    /// Readable when [`Runner::receive`] has something.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.channel.as_fd()
    }
}
