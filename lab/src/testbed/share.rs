//! CPU quotas for the gateways: a control group with a quota each, to which the gateway's processes are moved once they
//! are up.
//!
//! ```text
//!   the lab's own group, or one above it
//!     └─ esplanade-lab-<pid>       locked as long as the lab lives
//!          ├─ left                 a quota, and the left gateway's processes
//!          └─ right
//! ```
//!
//! The kernel keeps a group after its creator has ended. So a cleanup daemon outside the lab's namespaces waits for the
//! lock on the folder, which is released when the last process of the lab has ended, and removes the groups. If the
//! cleanup daemon was killed, too, the next lab that creates groups removes them.

mod cleanup_daemon;
mod folder;
mod tree;
mod version;

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use super::process;
use crate::absence::Absence;
use crate::fault::Fault;
use crate::gateway::{Gateway, Side};
use crate::host::{Command, Process};
use crate::stop::Stop;
use folder::{REMOVE_ATTEMPTS, REMOVE_INTERVAL, clear, locked_folder, sweep};
use tree::{ParentGroup, Switch};
use version::Version;

pub use version::ThrottleCounts;

/// CPU quotas for gateways. Dropping it removes the folder.
pub struct Quotas {
    folder: PathBuf,
    version: Version,
    switch: Option<Switch>,
    _lock: File,
}

impl Quotas {
    /// Finds a parent group, removes groups of dead labs, and starts the cleanup daemon.
    ///
    /// Must be called before any thread exists, and before the lab enters namespaces of its own.
    pub fn open() -> Result<Quotas, Absence> {
        let read = |path: &str| fs::read_to_string(path).unwrap_or_default();
        let parents = tree::parents(&read("/proc/self/mountinfo"), &read("/proc/self/cgroup"));
        let mut refused = None;
        for place in parents {
            match Quotas::at(&place) {
                Ok(quotas) => return Ok(quotas),
                Err(error) => {
                    refused.get_or_insert((place.group, error));
                }
            }
        }
        Err(refused.map_or_else(no_controller, |(group, error)| refusal(&group, &error)))
    }

    fn at(place: &ParentGroup) -> io::Result<Quotas> {
        sweep(&place.group);
        let switch = if place.switched_on {
            None
        } else {
            Some(Switch::on(&place.group)?)
        };
        let (folder, lock) = locked_folder(&place.group)?;
        let quotas = Quotas {
            folder,
            version: place.version,
            switch,
            _lock: lock,
        };
        if place.version == Version::Two {
            tree::switch(&quotas.folder, "+cpu")?;
        }
        cleanup_daemon::start(&quotas.folder, quotas.switch.as_ref().map(Switch::group))?;
        Ok(quotas)
    }

    /// A group for each gateway. It is empty at first.
    pub(super) fn throttle(&self, share: f64) -> Result<Throttle, Fault> {
        self.groups(share).map_err(|error| {
            let folder = self.folder.display();
            Fault::failed(format!(
                "cannot create a control group with {share} processors in {folder}: {error}"
            ))
        })
    }

    /// A group counts as one process where processors are scarce, and its threads shall be no worse off than outside.
    fn groups(&self, share: f64) -> io::Result<Throttle> {
        let threads = share.ceil().max(1.0) as u64;
        self.version.weigh(&self.folder, 2 * threads)?;
        let group = |side: Side| {
            let path = self.folder.join(side.name());
            Group::make(path, self.version, share, threads)
        };
        Ok(Throttle {
            share,
            left: group(Side::Left)?,
            right: group(Side::Right)?,
        })
    }

    /// Limits a sleeping process to this share, to check that quotas work.
    pub fn tried(&self, share: f64) -> Result<(), Absence> {
        let try_it = || -> Result<(), Fault> {
            let throttle = self.throttle(share)?;
            let sleep = Command::line("sleep 60");
            let sleeper = process::start(&sleep, None, Stop::never(), true)?;
            let gateway = Gateway {
                side: Side::Left,
                pid: sleeper.pid(),
            };
            let held = throttle.limit(&gateway);
            drop(sleeper);
            held
        };
        try_it().map_err(|fault| Absence::new(fault.to_string(), REMEDY))
    }

    /// Where the groups are, and of which kind, for a reader.
    pub fn describe(&self) -> String {
        let above = self.folder.parent().unwrap_or(&self.folder);
        let kind = match self.version {
            Version::One => "v1",
            Version::Two => "v2",
        };
        format!("control groups {kind} in {}", above.display())
    }
}

impl Drop for Quotas {
    fn drop(&mut self) {
        clear(&self.folder);
    }
}

const REMEDY: &str = "run the lab as root, without chrt, where control groups are writable (in a container: --privileged)";

fn no_controller() -> Absence {
    Absence::new(
        "no control group with the controller `cpu` is available, so CPU quotas cannot be set",
        "as root: mount -t cgroup2 none /sys/fs/cgroup; in a container: --privileged --cgroupns=host",
    )
}

fn refusal(group: &Path, error: &io::Error) -> Absence {
    Absence::new(
        format!(
            "cannot create a control group in {} ({error}), so CPU quotas cannot be set",
            group.display()
        ),
        REMEDY,
    )
}

/// The gateways of one topology, held to their share. Dropping it takes the groups away: by then they are empty.
pub struct Throttle {
    share: f64,
    left: Group,
    right: Group,
}

impl Throttle {
    /// Processors' time for each gateway, in processors.
    pub fn share(&self) -> f64 {
        self.share
    }

    /// Moves a process with all its threads into the group of its side; threads that it starts later are in that group,
    /// too.
    pub fn limit(&self, gateway: &Gateway) -> Result<(), Fault> {
        let (pid, side) = (gateway.pid, gateway.side.name());
        if in_real_time(pid) {
            return Err(Fault::failed(format!(
                "process {pid} of the {side} gateway has a real-time priority, which no CPU quota limits: start the lab without chrt"
            )));
        }
        let members = self.group(gateway.side).path.join("cgroup.procs");
        fs::write(&members, pid.to_string()).map_err(|error| {
            Fault::failed(format!(
                "cannot limit process {pid} of the {side} gateway to {} processors: {error}",
                self.share
            ))
        })
    }

    /// Removes the quotas, so that a clean shutdown is not slowed down.
    pub fn remove_quotas(&self) -> Result<(), Fault> {
        let groups = [&self.left, &self.right];
        let lifted = groups.map(|group| group.version.lift(&group.path));
        let lifted: io::Result<Vec<()>> = lifted.into_iter().collect();
        lifted
            .map(drop)
            .map_err(|error| Fault::failed(format!("cannot remove a quota: {error}")))
    }

    /// What was counted so far.
    pub fn counts(&self, side: Side) -> Result<ThrottleCounts, Fault> {
        let path = self.group(side).path.join("cpu.stat");
        fs::read_to_string(&path)
            .map(|text| version::counted(&text))
            .map_err(|error| Fault::failed(format!("cannot read {}: {error}", path.display())))
    }

    fn group(&self, side: Side) -> &Group {
        match side {
            Side::Left => &self.left,
            Side::Right => &self.right,
        }
    }
}

/// One control group with a quota.
struct Group {
    path: PathBuf,
    version: Version,
}

impl Group {
    fn make(path: PathBuf, version: Version, share: f64, threads: u64) -> io::Result<Group> {
        fs::create_dir(&path)?;
        let group = Group { path, version };
        version.weigh(&group.path, threads)?;
        version.limit(&group.path, share)?;
        Ok(group)
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        for _ in 0..REMOVE_ATTEMPTS {
            match fs::remove_dir(&self.path) {
                Err(error) if error.kind() == io::ErrorKind::ResourceBusy => {
                    std::thread::sleep(REMOVE_INTERVAL);
                }
                _ => break,
            }
        }
    }
}

/// A quota is for the ordinary scheduler only.
fn in_real_time(pid: u32) -> bool {
    // SAFETY: takes a number and returns one; a process that is gone gives -1.
    let policy = unsafe { libc::sched_getscheduler(pid as libc::pid_t) };
    let policy = policy & !libc::SCHED_RESET_ON_FORK;
    policy >= 0
        && matches!(
            policy,
            libc::SCHED_FIFO | libc::SCHED_RR | libc::SCHED_DEADLINE
        )
}

#[cfg(test)]
mod tests;
