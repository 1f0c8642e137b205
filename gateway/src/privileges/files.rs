//! The files that a gateway may reach once it has started (Landlock): the folders of its control socket and of its
//! keys, the settings of the network, TUN devices, what it reads of itself. Nothing else of the host is opened,
//! written, made or run, by root either.
//!
//! Descriptors that were opened before keep their rights. Kernels before 5.13 have no Landlock, and nothing is
//! restricted.

use std::ffi::c_long;
use std::fs::File;
use std::io;
use std::mem::forget;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

/// `LANDLOCK_ACCESS_FS_*` of `linux/landlock.h`.
mod right {
    pub(super) const EXECUTE: u64 = 1;
    pub(super) const WRITE: u64 = 1 << 1;
    pub(super) const READ: u64 = 1 << 2;
    pub(super) const LIST: u64 = 1 << 3;
    pub(super) const REMOVE_FOLDER: u64 = 1 << 4;
    pub(super) const REMOVE: u64 = 1 << 5;
    pub(super) const MAKE_FILE: u64 = 1 << 8;
    pub(super) const MAKE_SOCKET: u64 = 1 << 9;
    /// Since the second version.
    pub(super) const MOVE_BETWEEN: u64 = 1 << 13;
    /// Since the third.
    pub(super) const TRUNCATE: u64 = 1 << 14;
    /// Since the fifth: requests to devices.
    pub(super) const IOCTL: u64 = 1 << 15;
}

/// The rights that each version of Landlock supports, starting with version 1; the last entry holds for all later
/// versions.
const KNOWN: [u64; 5] = [
    right::MOVE_BETWEEN - 1,
    right::TRUNCATE - 1,
    right::IOCTL - 1,
    right::IOCTL - 1,
    2 * right::IOCTL - 1,
];

/// `LANDLOCK_ACCESS_NET_BIND_TCP` and `LANDLOCK_ACCESS_NET_CONNECT_TCP`, since the fourth version.
const TCP: u64 = 3;

/// `LANDLOCK_SCOPE_SIGNAL`, since the sixth: signals reach our own threads alone.
const SIGNALS: u64 = 2;

/// `LANDLOCK_CREATE_RULESET_VERSION` and `LANDLOCK_RULE_PATH_BENEATH`.
const ASK_VERSION: u32 = 1;
const PATH_BENEATH: u32 = 1;

/// `struct landlock_ruleset_attr`.
#[repr(C)]
struct Handled {
    files: u64,
    network: u64,
    scopes: u64,
}

/// `struct landlock_path_beneath_attr`.
#[repr(C, packed)]
struct PathBeneath {
    allowed: u64,
    parent: i32,
}

/// The files that stay accessible: each a descriptor of a file, or of a folder with everything beneath it, and the
/// rights there.
#[derive(Default)]
pub(crate) struct AllowedFiles(Vec<(OwnedFd, u64)>);

impl AllowedFiles {
    /// The files that every gateway needs: its own entry in `/proc`, the load of processors, its control group's
    /// limits, the network's settings, TUN devices, local time. Files that a host does not have are left out.
    pub(crate) fn of_every_gateway() -> Self {
        let mut places = Self::default();
        let read = right::READ | right::LIST;
        for (path, rights) in [
            ("/proc/self", read),
            ("/proc/stat", right::READ),
            ("/proc/sys/kernel/random/boot_id", right::READ),
            ("/sys/fs/cgroup", read),
            ("/proc/sys/net", read | right::WRITE | right::TRUNCATE),
            ("/dev/net/tun", right::READ | right::WRITE | right::IOCTL),
            ("/etc/localtime", right::READ),
            ("/usr/share/zoneinfo", read),
        ] {
            places.reach(Path::new(path), rights);
        }
        places
    }

    /// Every file may be read and run, and none written but `/dev/null`.
    pub(super) fn to_start_programs() -> Self {
        let mut places = Self::default();
        places.reach(Path::new("/"), right::READ | right::LIST | right::EXECUTE);
        places.reach(Path::new("/dev/null"), right::READ | right::WRITE);
        places
    }

    /// Allows files and sockets in a folder to be read, written, made, replaced and removed.
    pub(crate) fn keep_files_in(&mut self, folder: BorrowedFd<'_>) -> io::Result<()> {
        let files = right::READ | right::LIST | right::WRITE | right::TRUNCATE;
        let names = right::REMOVE | right::MAKE_FILE | right::MAKE_SOCKET;
        self.0.push((folder.try_clone_to_owned()?, files | names));
        Ok(())
    }

    /// Allows files in a folder to be read: the keys, for a later reload.
    pub(crate) fn read_files_in(&mut self, folder: BorrowedFd<'_>) -> io::Result<()> {
        self.0.push((folder.try_clone_to_owned()?, right::READ));
        Ok(())
    }

    /// Allows folders in this one to be removed: those that a failed start has made.
    pub(crate) fn remove_folders_in(&mut self, folder: &Path) {
        self.reach(folder, right::REMOVE_FOLDER);
    }

    fn reach(&mut self, path: &Path, rights: u64) {
        let mut options = File::options();
        let file = options.read(true).custom_flags(libc::O_PATH).open(path);
        self.0
            .extend(file.map(|file| (OwnedFd::from(file), rights)));
    }

    /// Restricts the calling thread, and all threads that it starts from now on, to these files. Fails where the kernel
    /// cannot.
    pub(crate) fn hold_to(self) -> io::Result<()> {
        let version = version()?;
        let place = (version as usize).min(KNOWN.len()).saturating_sub(1);
        let known = KNOWN[place];
        let handled = Handled {
            files: known,
            network: if version >= 4 { TCP } else { 0 },
            scopes: if version >= 6 { SIGNALS } else { 0 },
        };
        let ruleset = create(&handled)?;
        for (file, rights) in self.0 {
            allow(&ruleset, &file, rights & known)?;
            // Inodes of /proc are created on lookup. If this descriptor were closed, the next lookup of the name would
            // give another inode, to which the rule does not apply.
            forget(file);
        }
        restrict(&ruleset)
    }
}

/// Keeps the calling thread, and what it starts, from sending signals to other processes, and from tracing them; files
/// stay as they are.
pub(super) fn keep_signals_inside() -> io::Result<()> {
    if version()? < 6 {
        return Err(io::ErrorKind::Unsupported.into());
    }
    let handled = Handled {
        files: right::EXECUTE,
        network: 0,
        scopes: SIGNALS,
    };
    let ruleset = create(&handled)?;
    let mut all = AllowedFiles::default();
    all.reach(Path::new("/"), right::EXECUTE);
    for (file, rights) in all.0 {
        allow(&ruleset, &file, rights)?;
    }
    restrict(&ruleset)
}

/// The kernel's version of Landlock.
fn version() -> io::Result<c_long> {
    // SAFETY: with this flag the call takes no memory.
    let version = unsafe {
        libc::syscall(
            libc::SYS_landlock_create_ruleset,
            std::ptr::null::<Handled>(),
            0_usize,
            ASK_VERSION,
        )
    };
    check(version)
}

fn create(handled: &Handled) -> io::Result<OwnedFd> {
    // SAFETY: the kernel reads as many bytes of the value as the second argument gives, which is all of it.
    let ruleset = unsafe {
        libc::syscall(
            libc::SYS_landlock_create_ruleset,
            std::ptr::from_ref(handled),
            size_of::<Handled>(),
            0_u32,
        )
    };
    let ruleset = check(ruleset)? as RawFd;
    // SAFETY: the descriptor is new, so nothing else owns it.
    Ok(unsafe { OwnedFd::from_raw_fd(ruleset) })
}

/// Adds a rule. For a plain file the rights must not include those of folders: the kernel would refuse the rule.
fn allow(ruleset: &OwnedFd, file: &OwnedFd, rights: u64) -> io::Result<()> {
    let rule = PathBeneath {
        allowed: rights,
        parent: file.as_raw_fd(),
    };
    // SAFETY: the kernel reads the value, which lives through the call.
    let added = unsafe {
        libc::syscall(
            libc::SYS_landlock_add_rule,
            ruleset.as_raw_fd(),
            PATH_BENEATH,
            &raw const rule,
            0_u32,
        )
    };
    check(added).map(drop)
}

fn restrict(ruleset: &OwnedFd) -> io::Result<()> {
    // SAFETY: the call takes numbers alone.
    let restricted =
        unsafe { libc::syscall(libc::SYS_landlock_restrict_self, ruleset.as_raw_fd(), 0_u32) };
    check(restricted).map(drop)
}

fn check(result: c_long) -> io::Result<c_long> {
    if result < 0 {
        Err(io::Error::last_os_error())
    } else {
        Ok(result)
    }
}
