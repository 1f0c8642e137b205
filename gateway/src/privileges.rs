//! Less power than we were started with: a user of its own, the capabilities that the gateway needs, no way to gain
//! more, the system calls and the files that it uses, and no core dumps with keys in them.

mod files;
mod system_calls;
mod user;

pub(crate) use files::AllowedFiles;
pub(crate) use user::{DEFAULT as DEFAULT_USER, User, refusal as why_not};

use dataplane::io::Warn;
use dataplane::pipeline::priority::{LOWEST, Priority};
use rustix::process::{
    DumpableBehavior, Resource, Rlimit, getrlimit, set_dumpable_behavior, setrlimit,
};
use rustix::thread::{
    CapabilitySet, CapabilitySets, capabilities, set_capabilities, set_no_new_privs,
};
use std::io;

/// Keys live in memory; a core dump or another process's debugger must not carry them off.
pub(crate) fn keep_keys_out_of_core_dumps() {
    // Neither can fail for a process of our own; if the system is stranger than that, there is nothing to do instead.
    let none = Rlimit {
        current: Some(0),
        maximum: Some(0),
    };
    let _ = setrlimit(Resource::Core, none);
    let _ = set_dumpable_behavior(DumpableBehavior::NotDumpable);
}

/// Keys lie in locked pages, of which the system's limit allows few; root may raise it, others as far as they may.
pub(crate) fn let_keys_be_locked() {
    let all = Rlimit {
        current: None,
        maximum: None,
    };
    if setrlimit(Resource::Memlock, all).is_err() {
        let maximum = getrlimit(Resource::Memlock).maximum;
        // What then cannot be locked is told when it happens.
        let current = maximum;
        let _ = setrlimit(Resource::Memlock, Rlimit { current, maximum });
    }
}

/// What a gateway needs for as long as it runs: devices, routes, rules and marks; raw sockets; ports below 1024.
const NEEDED: CapabilitySet = CapabilitySet::NET_ADMIN
    .union(CapabilitySet::NET_RAW)
    .union(CapabilitySet::NET_BIND_SERVICE);

/// What this thread, and so every one of a gateway, may do beyond an ordinary user, by the names of `man 7
/// capabilities`.
pub(crate) fn held() -> Vec<String> {
    let held = capabilities(None).map(|sets| sets.effective);
    let names = held.unwrap_or(CapabilitySet::empty()).iter_names();
    names.map(|(name, _)| format!("CAP_{name}")).collect()
}

/// What threads need beside the usual to have this priority once the rest is given up: nothing where the system's limit
/// is high enough or can be made so, which a container's root may not do.
pub(crate) fn needed_for(priority: Priority) -> Result<CapabilitySet, String> {
    if priority == Priority::Normal {
        return Ok(CapabilitySet::empty());
    }
    let limit = Rlimit {
        current: Some(LOWEST.into()),
        maximum: Some(LOWEST.into()),
    };
    let raised = setrlimit(Resource::Rtprio, limit).is_ok();
    let tried = std::thread::spawn(move || priority.claim()).join();
    match tried.unwrap_or_else(|_| Err(io::ErrorKind::Other.into())) {
        Ok(()) if raised => Ok(CapabilitySet::empty()),
        Ok(()) => Ok(CapabilitySet::SYS_NICE),
        Err(error) => Err(format!(
            "--priority {priority} is not allowed here: {error}. Start the gateway as root (in a container: with the \
             capability SYS_NICE), or allow it real-time priority {LOWEST}: ulimit -r {LOWEST}"
        )),
    }
}

/// Gives up everything else, and the system calls that no gateway makes. Called before threads are started, which then
/// have no more than this one.
pub(crate) fn drop_to_needed(also: CapabilitySet, warn: &Warn) -> io::Result<()> {
    let held = capabilities(None)?.permitted;
    let kept = held & (NEEDED | also);
    set_capabilities(
        None,
        CapabilitySets {
            effective: kept,
            permitted: kept,
            inheritable: CapabilitySet::empty(),
        },
    )?;
    set_no_new_privs(true)?;
    if let Err(why) = system_calls::hold_to_list() {
        warn(&format!("system calls are not filtered: {why}"));
    }
    Ok(())
}

/// Gives up all files but these.
pub(crate) fn hold_to(places: AllowedFiles, warn: &Warn) {
    if let Err(why) = places.hold_to() {
        warn(&format!(
            "file access is not restricted: {why} (Landlock needs kernel 5.13, with `landlock` among its security \
             modules)"
        ));
    }
}

#[cfg(test)]
mod tests;
