//! Nothing the lab creates may outlive it. So before anything else the lab enters its own namespaces:
//!
//! ```text
//!   esplanade-lab          waits, passes signals on
//!     └─ esplanade-lab     process 1 of its PID namespace; own mounts, a private /run; the experiment runs here
//!          ├─ gateways, iperf3 …        killed by the kernel with process 1
//!          └─ network namespaces        held by file descriptors only: links, routes and tables go with them
//! ```
//!
//! kill -9 of the outer process kills process 1 (parent-death signal), and with process 1 the kernel ends everything
//! else. There is no state to clean up at the next start, but for the control groups of a share, which have a cleanup
//! daemon (see `share`). Without root the same happens inside a user namespace.

use std::ffi::CString;
use std::fs;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::path::Path;
use std::sync::atomic::{AtomicI32, Ordering};

use crate::stop;

/// Where everything short-lived is: a file system in memory that only the lab sees.
pub const RUN: &str = "/run";

static INNER: AtomicI32 = AtomicI32::new(0);

/// Returns inside the namespaces, once. The caller's original process never returns: it exits with the inner one's
/// code. The error is a text for the user.
///
/// Must be called before any thread exists.
pub fn enter() -> Result<(), String> {
    unshare_all()?;
    let (alive, outer) = pipe().map_err(|error| format!("cannot make a pipe: {error}"))?;
    // SAFETY: no other thread exists yet, so the child may go on like any process.
    match unsafe { libc::fork() } {
        -1 => Err(format!("cannot fork: {}", io::Error::last_os_error())),
        0 => {
            drop(outer);
            set_up_inner(alive)
        }
        inner => {
            drop(alive);
            std::process::exit(supervise(inner))
        }
    }
}

/// Whether this process could enter, without entering: for the doctor. Forks a child that tries.
pub fn possible() -> Result<(), String> {
    // SAFETY: as in `enter`; the child only makes system calls and exits.
    match unsafe { libc::fork() } {
        -1 => Err(format!("cannot fork: {}", io::Error::last_os_error())),
        0 => {
            let code = unshare_all().map_or_else(|_| last_error(), |()| 0);
            // SAFETY: _exit ends the child without running the parent's exit handlers.
            unsafe { libc::_exit(code) }
        }
        child => match wait_for(child) {
            0 => Ok(()),
            code => Err(refusal(io::Error::from_raw_os_error(code))),
        },
    }
}

fn unshare_all() -> Result<(), String> {
    let private = libc::CLONE_NEWNS | libc::CLONE_NEWPID | libc::CLONE_NEWNET | libc::CLONE_NEWIPC;
    if unshare(private).is_ok() {
        return Ok(());
    }
    // SAFETY: these two only read this process's credentials.
    let (user, group) = unsafe { (libc::geteuid(), libc::getegid()) };
    unshare(private | libc::CLONE_NEWUSER).map_err(refusal)?;
    let written = fs::write("/proc/self/setgroups", "deny")
        .and_then(|()| fs::write("/proc/self/uid_map", format!("0 {user} 1")))
        .and_then(|()| fs::write("/proc/self/gid_map", format!("0 {group} 1")));
    written.map_err(|error| format!("cannot become root in a new user namespace: {error}"))
}

fn last_error() -> i32 {
    io::Error::last_os_error().raw_os_error().unwrap_or(1)
}

fn refusal(error: io::Error) -> String {
    format!(
        "this process may not create namespaces ({error}). Run the lab as root, or allow unprivileged user namespaces: \
         sysctl kernel.unprivileged_userns_clone=1 (Debian), kernel.apparmor_restrict_unprivileged_userns=0 (Ubuntu); \
         in a container, give it the capability SYS_ADMIN"
    )
}

fn unshare(namespaces: libc::c_int) -> io::Result<()> {
    // SAFETY: unshare takes flags only.
    done(unsafe { libc::unshare(namespaces) })
}

/// The inner process: dies with the outer one, and sees its own processes and its own /run.
fn set_up_inner(alive: OwnedFd) -> Result<(), String> {
    // SAFETY: the arguments are plain numbers and affect this process only. In a process group of its own it does not
    // receive Ctrl-C from the terminal; the outer process passes it on once. SIGTTOU, by which a terminal stops
    // background processes that write, is ignored.
    unsafe {
        libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
        libc::setpgid(0, 0);
        libc::signal(libc::SIGTTOU, libc::SIG_IGN);
    }
    if parent_gone(&alive) {
        std::process::exit(stop::INTERRUPTED_EXIT);
    }
    let private = mount("none", "/", "", libc::MS_REC | libc::MS_PRIVATE, "");
    private.map_err(|error| match error.raw_os_error() {
        Some(libc::EINVAL) => "the root folder is not a mount point (a bare chroot), so mounts cannot be made private. \
             Make it one before entering it: mount --bind DIR DIR"
            .to_owned(),
        _ => format!("cannot make mounts private: {error}"),
    })?;
    let flags = libc::MS_NOSUID | libc::MS_NODEV;
    mount("proc", "/proc", "proc", flags | libc::MS_NOEXEC, "").map_err(|error| {
        format!("cannot mount a private /proc: {error}. In a container, run it with --privileged")
    })?;
    mount("tmpfs", RUN, "tmpfs", flags, "mode=755")
        .map_err(|error| format!("cannot mount a private {RUN}: {error}"))
}

/// Whether the outer process is gone already: the parent-death signal is for later deaths only.
fn parent_gone(alive: &OwnedFd) -> bool {
    let mut poll = libc::pollfd {
        fd: alive.as_raw_fd(),
        events: 0,
        revents: 0,
    };
    // SAFETY: one valid pollfd, no wait.
    let ready = unsafe { libc::poll(&mut poll, 1, 0) };
    ready == 1 && poll.revents & libc::POLLHUP != 0
}

/// The outer process: passes signals on and waits.
fn supervise(inner: libc::pid_t) -> i32 {
    INNER.store(inner, Ordering::SeqCst);
    for signal in [libc::SIGINT, libc::SIGTERM, libc::SIGHUP] {
        // A handler that cannot be installed leaves the default: this process dies, and the inner one with it.
        let _ = stop::catch(signal, pass_on);
    }
    wait_for(inner)
}

extern "C" fn pass_on(signal: libc::c_int) {
    // SAFETY: kill is async-signal-safe; INNER was set before the handler was installed.
    unsafe { libc::kill(INNER.load(Ordering::SeqCst), signal) };
}

fn wait_for(child: libc::pid_t) -> i32 {
    let mut status = 0;
    loop {
        // SAFETY: waits for one child of this process; the pointer lives for the call.
        let waited = unsafe { libc::waitpid(child, &mut status, 0) };
        if waited == child {
            break;
        }
        if io::Error::last_os_error().kind() != io::ErrorKind::Interrupted {
            return 1;
        }
    }
    if libc::WIFEXITED(status) {
        libc::WEXITSTATUS(status)
    } else {
        128 + libc::WTERMSIG(status)
    }
}

fn pipe() -> io::Result<(OwnedFd, OwnedFd)> {
    let mut ends = [0; 2];
    // SAFETY: the kernel fills two descriptors, which are not owned elsewhere.
    unsafe {
        done(libc::pipe2(ends.as_mut_ptr(), libc::O_CLOEXEC))?;
        Ok((OwnedFd::from_raw_fd(ends[0]), OwnedFd::from_raw_fd(ends[1])))
    }
}

/// mount(2). Empty texts stand for null.
pub(super) fn mount(
    what: impl AsRef<Path>,
    at: impl AsRef<Path>,
    kind: &str,
    flags: libc::c_ulong,
    options: &str,
) -> io::Result<()> {
    let text = |path: &Path| CString::new(path.as_os_str().as_encoded_bytes());
    let (what, at) = (text(what.as_ref())?, text(at.as_ref())?);
    let (kind, options) = (CString::new(kind)?, CString::new(options)?);
    let or_null = |text: &CString| {
        if text.is_empty() {
            std::ptr::null()
        } else {
            text.as_ptr()
        }
    };
    // SAFETY: all pointers are null or C strings that live for the call.
    done(unsafe {
        libc::mount(
            what.as_ptr(),
            at.as_ptr(),
            or_null(&kind),
            flags,
            or_null(&options).cast(),
        )
    })
}

pub(crate) fn done(result: libc::c_int) -> io::Result<()> {
    match result {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}
