//! Ctrl-C, SIGTERM and SIGHUP request a stop; every wait of the lab checks this flag. A second request ends the
//! process at once, which is safe because nothing the lab made outlives it (see `testbed::isolate`).

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};

static ASKED: AtomicBool = AtomicBool::new(false);

/// Exit code of a run the user stopped, as shells give it.
pub const INTERRUPTED_EXIT: i32 = 130;

/// The request to stop, shared by everything that waits.
#[derive(Debug, Clone, Copy)]
pub struct Stop(&'static AtomicBool);

impl Stop {
    /// The flag that this process's signal handlers raise.
    pub fn on_signals() -> io::Result<Stop> {
        for signal in [libc::SIGINT, libc::SIGTERM, libc::SIGHUP] {
            catch(signal, note_request)?;
        }
        Ok(Stop(&ASKED))
    }

    /// A flag that only [`Stop::ask`] sets: for tests.
    pub fn never() -> Stop {
        Stop(Box::leak(Box::new(AtomicBool::new(false))))
    }

    /// Requests the stop.
    pub fn ask(&self) {
        self.0.store(true, Ordering::SeqCst);
    }

    /// Whether a stop was requested.
    pub fn asked(&self) -> bool {
        self.0.load(Ordering::SeqCst)
    }
}

/// Installs `handler` for `signal`, without restarting interrupted system calls: waits must return.
pub(crate) fn catch(signal: libc::c_int, handler: extern "C" fn(libc::c_int)) -> io::Result<()> {
    // SAFETY: an all-zero sigaction is a valid value; both pointers live for the call; the handlers passed here only
    // touch atomics and call async-signal-safe functions.
    let refused = unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = handler as *const () as libc::sighandler_t;
        libc::sigaction(signal, &action, std::ptr::null_mut())
    };
    if refused == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}

extern "C" fn note_request(_signal: libc::c_int) {
    if ASKED.swap(true, Ordering::SeqCst) {
        // SAFETY: _exit is async-signal-safe; the kernel then ends everything in this process's PID namespace.
        unsafe { libc::_exit(INTERRUPTED_EXIT) }
    }
}
