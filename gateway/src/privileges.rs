//! Reduces the process's privileges: a user of its own, only the capabilities that the gateway needs, no way to gain
//! more, only the system calls and the files that it uses, and no core dumps with keys in them.

mod files;
mod system_calls;
mod user;

pub(crate) use files::AllowedFiles;
pub(crate) use system_calls::ChildCalls;
pub(crate) use user::{DEFAULT as DEFAULT_USER, User, refusal as why_not};

use crate::failure::Failure;
use dataplane::io::Warn;
use dataplane::pipeline::priority::{LOWEST, Priority};
use rustix::process::{
    DumpableBehavior, Resource, Rlimit, Signal, getrlimit, set_dumpable_behavior,
    set_parent_process_death_signal, setrlimit,
};
use rustix::thread::{
    CapabilitySet, CapabilitySets, capabilities, set_capabilities, set_no_new_privs,
};
use std::io;

/// Keys are in memory: neither a core dump nor another process's debugger may read them.
pub(crate) fn keep_keys_out_of_core_dumps() {
    // Neither call fails for this process itself; if one does, there is no alternative.
    let none = Rlimit {
        current: Some(0),
        maximum: Some(0),
    };
    let _ = setrlimit(Resource::Core, none);
    let _ = set_dumpable_behavior(DumpableBehavior::NotDumpable);
}

/// Keys lie in locked pages, which a system limit restricts: raises it without bound for root, to the hard limit for
/// others.
pub(crate) fn let_keys_be_locked() {
    let all = Rlimit {
        current: None,
        maximum: None,
    };
    if setrlimit(Resource::Memlock, all).is_err() {
        let maximum = getrlimit(Resource::Memlock).maximum;
        // Memory that cannot be locked because of this limit is reported when that happens.
        let current = maximum;
        let _ = setrlimit(Resource::Memlock, Rlimit { current, maximum });
    }
}

/// Each peer, device and client has descriptors: raises their number to the hard limit.
pub(crate) fn raise_descriptor_limit() {
    let maximum = getrlimit(Resource::Nofile).maximum;
    // With fewer descriptors clients are turned away, and a peer that finds none is reported.
    let current = maximum;
    let _ = setrlimit(Resource::Nofile, Rlimit { current, maximum });
}

/// What a gateway needs for as long as it runs: devices, routes, rules and marks; raw sockets; ports below 1024.
const NEEDED: CapabilitySet = CapabilitySet::NET_ADMIN
    .union(CapabilitySet::NET_RAW)
    .union(CapabilitySet::NET_BIND_SERVICE);

/// The capabilities of this thread, and so of every thread of a gateway, by the names of `man 7 capabilities`.
pub(crate) fn held() -> Vec<String> {
    let held = capabilities(None).map(|sets| sets.effective);
    let names = held.unwrap_or(CapabilitySet::empty()).iter_names();
    names.map(|(name, _)| format!("CAP_{name}")).collect()
}

/// The capability that threads need for this priority once the others are dropped: none if the system's limit is high
/// enough or can be raised, which root in a container may not be able to do.
pub(crate) fn needed_for(priority: Priority) -> Result<CapabilitySet, Failure> {
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
        Err(error) => Err(Failure::new(format!(
            "--priority {priority} is not allowed here: {error}. Start the gateway as root (in a container: with the \
             capability SYS_NICE), or allow it real-time priority {LOWEST}: ulimit -r {LOWEST}"
        ))),
    }
}

/// Drops all other capabilities, and blocks the system calls that no gateway makes. Called before threads are started,
/// which inherit these limits.
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

/// Restricts a process that the gateway has started for one task: no capability, no file (the starter: none to write),
/// no way to gain more, and only the system calls of its task. It ends with the process that started it. Called before
/// its threads are started.
pub(crate) fn confine_child(calls: Option<ChildCalls>, warn: &Warn) -> io::Result<()> {
    keep_keys_out_of_core_dumps();
    set_parent_process_death_signal(Some(Signal::KILL))?;
    set_capabilities(
        None,
        CapabilitySets {
            effective: CapabilitySet::empty(),
            permitted: CapabilitySet::empty(),
            inheritable: CapabilitySet::empty(),
        },
    )?;
    set_no_new_privs(true)?;
    let Some(calls) = calls else { return Ok(()) };
    let files = match calls {
        ChildCalls::Hooks => return confine_hooks(warn),
        ChildCalls::Starter => AllowedFiles::to_start_programs(),
        ChildCalls::Ike | ChildCalls::Keys => AllowedFiles::default(),
    };
    hold_to(files, warn);
    if let Err(why) = system_calls::hold_child_to(calls) {
        warn(&format!("system calls are not filtered: {why}"));
    }
    Ok(())
}

/// Hooks are programs of the administrator, who chooses what they need: they may do what their user may, but for calls
/// that no program without privileges needs, and signals to other processes than hooks.
fn confine_hooks(warn: &Warn) -> io::Result<()> {
    if let Err(why) = files::keep_signals_inside() {
        warn(&format!(
            "hooks can send signals to other processes of their user: {why} (Landlock needs kernel 6.12 for this)"
        ));
    }
    if let Err(why) = system_calls::hold_child_to(ChildCalls::Hooks) {
        warn(&format!("system calls of hooks are not filtered: {why}"));
    }
    Ok(())
}

/// What a hook may use at most of the host: a limit that is lower already stays.
pub(crate) fn limit_hooks() {
    for (resource, most) in [
        (Resource::Cpu, 30),
        (Resource::Data, 1 << 30),
        (Resource::Fsize, 1 << 30),
        (Resource::Memlock, 1 << 16),
        (Resource::Nofile, 256),
        (Resource::Nproc, 4096),
    ] {
        let before = getrlimit(resource).maximum;
        let most = Some(before.map_or(most, |before| most.min(before)));
        // Lowering a limit does not fail.
        let _ = setrlimit(
            resource,
            Rlimit {
                current: most,
                maximum: most,
            },
        );
    }
}

/// Gives up access to all files but these.
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
