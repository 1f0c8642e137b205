//! The cleanup daemon of the control groups: a process that outlives the lab, waits until the lab has ended, and
//! removes its groups. It is detached, in its own session, in none of the lab's namespaces, and holds only the folder
//! open.

use std::fs::File;
use std::io;
use std::path::Path;
use std::time::Duration;

use rustix::fs::{FlockOperation, flock};

use super::folder::{clear, leads_to};
use super::tree;

/// The members of the groups die with the lab, but not in the same moment: half a minute is more than a machine in
/// trouble takes.
const REMOVE_ATTEMPTS: usize = 1500;
const REMOVE_INTERVAL: Duration = Duration::from_millis(20);

/// Starts one for a folder that this process has locked.
pub(super) fn start(folder: &Path, switched_on: Option<&Path>) -> io::Result<()> {
    // SAFETY: no other thread exists yet, so a child may go on like any process.
    match unsafe { libc::fork() } {
        -1 => Err(io::Error::last_os_error()),
        0 => fork_again(folder, switched_on),
        child => reap(child),
    }
}

/// Forks a second time and exits, so that the daemon is not a child of the lab.
fn fork_again(folder: &Path, switched_on: Option<&Path>) -> ! {
    // SAFETY: as in `start`; _exit ends the child without running the lab's exit handlers.
    unsafe {
        match libc::fork() {
            -1 => libc::_exit(io::Error::last_os_error().raw_os_error().unwrap_or(1)),
            0 => {
                detach();
                watch(folder, switched_on);
                libc::_exit(0)
            }
            _ => libc::_exit(0),
        }
    }
}

fn reap(child: libc::pid_t) -> io::Result<()> {
    let mut status = 0;
    // SAFETY: waits for one child of this process; the pointer lives for the call.
    if unsafe { libc::waitpid(child, &mut status, 0) } != child {
        return Err(io::Error::last_os_error());
    }
    match status {
        0 => Ok(()),
        _ => Err(io::Error::from_raw_os_error(libc::WEXITSTATUS(status))),
    }
}

/// Leaves the lab's terminal, pipes and files alone: a reader of the lab's output must not wait for the daemon.
fn detach() {
    // SAFETY: system calls with plain numbers and texts that live for ever, about this process only. Closing everything
    // is right because no object of this process is used again that owns a descriptor.
    unsafe {
        libc::setsid();
        libc::chdir(c"/".as_ptr());
        for signal in [libc::SIGHUP, libc::SIGINT, libc::SIGTERM] {
            libc::signal(signal, libc::SIG_IGN);
        }
        libc::prctl(libc::PR_SET_NAME, c"lab-cleanup".as_ptr());
        let nowhere = libc::open(c"/dev/null".as_ptr(), libc::O_RDWR);
        for standard in 0..3 {
            libc::dup2(nowhere, standard);
        }
        libc::close_range(3, libc::c_uint::MAX, 0);
    }
}

/// INVARIANT: the lock is asked for by a descriptor of its own. Inherited ones are the lab's lock, and were closed.
fn watch(folder: &Path, switched_on: Option<&Path>) {
    // A folder that no longer exists needs no cleanup.
    let Ok(lock) = File::open(folder) else {
        return;
    };
    while flock(&lock, FlockOperation::LockExclusive).is_err() {
        std::thread::sleep(REMOVE_INTERVAL);
    }
    for _ in 0..REMOVE_ATTEMPTS {
        // By now another lab may have a folder of the same name.
        if !leads_to(folder, &lock) || clear(folder) {
            break;
        }
        std::thread::sleep(REMOVE_INTERVAL);
    }
    switched_on.into_iter().for_each(tree::switch_off);
}
