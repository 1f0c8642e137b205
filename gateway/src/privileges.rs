//! Less power than we were started with: the capabilities that the gateway needs, no way to gain more, no system calls
//! that only an attacker would want, and no core dumps with keys in them.

use dataplane::io::Warn;
use dataplane::pipeline::priority::{LOWEST, Priority};
use rustix::process::{
    DumpableBehavior, Resource, Rlimit, getrlimit, set_dumpable_behavior, setrlimit,
};
use rustix::thread::{
    CapabilitySet, CapabilitySets, capabilities, configure_capability_in_ambient_set,
    set_capabilities, set_no_new_privs,
};
use seccompiler::{BpfProgram, SeccompAction, SeccompFilter, apply_filter};
use std::io;

/// Keys live in memory; a core dump or another process's debugger must not carry them off.
pub fn keep_keys_out_of_core_dumps() {
    // Neither can fail for a process of our own; if the system is stranger than that, there is nothing to do instead.
    let none = Rlimit {
        current: Some(0),
        maximum: Some(0),
    };
    let _ = setrlimit(Resource::Core, none);
    let _ = set_dumpable_behavior(DumpableBehavior::NotDumpable);
}

/// Keys lie in locked pages, of which the system's limit allows few; root may raise it, others as far as they may.
pub fn let_keys_be_locked() {
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

/// What threads need beside the usual to have this priority once the rest is given up: nothing where the system's limit is
/// high enough or can be made so, which a container's root may not do.
pub fn needed_for(priority: Priority) -> Result<CapabilitySet, String> {
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

/// Gives up everything else. Called before threads are started, which then have no more than this one.
pub fn drop_to_needed(also: CapabilitySet, warn: &Warn) -> io::Result<()> {
    let held = capabilities(None)?.permitted;
    let kept = held & (NEEDED | also);
    set_capabilities(
        None,
        CapabilitySets {
            effective: kept,
            permitted: kept,
            inheritable: kept,
        },
    )?;
    // nft, which we run to change drop rules, needs the first of them even where we are not root.
    for capability in (kept & NEEDED).iter() {
        let _ = configure_capability_in_ambient_set(capability, true);
    }
    set_no_new_privs(true)?;
    if let Err(why) = forbid_system_calls() {
        warn(&format!("system calls are not filtered: {why}"));
    }
    Ok(())
}

/// Refused with "not permitted": a list of what no gateway and no nft has any use for. A list of what is allowed would
/// break with every new C library; this one fails safe for us and hard for whoever got in.
fn forbid_system_calls() -> Result<(), Box<dyn std::error::Error>> {
    let architecture = std::env::consts::ARCH.try_into()?;
    let rules = FORBIDDEN.iter().map(|call| (*call, Vec::new())).collect();
    let filter = SeccompFilter::new(
        rules,
        SeccompAction::Allow,
        SeccompAction::Errno(libc::EPERM as u32),
        architecture,
    )?;
    let program: BpfProgram = filter.try_into()?;
    Ok(apply_filter(&program)?)
}

const FORBIDDEN: &[libc::c_long] = &[
    libc::SYS_acct,
    libc::SYS_add_key,
    libc::SYS_adjtimex,
    libc::SYS_bpf,
    libc::SYS_chroot,
    libc::SYS_clock_adjtime,
    libc::SYS_clock_settime,
    libc::SYS_delete_module,
    libc::SYS_finit_module,
    libc::SYS_fsconfig,
    libc::SYS_fsmount,
    libc::SYS_fsopen,
    libc::SYS_init_module,
    libc::SYS_io_uring_setup,
    libc::SYS_kcmp,
    libc::SYS_kexec_load,
    libc::SYS_keyctl,
    libc::SYS_mount,
    libc::SYS_mount_setattr,
    libc::SYS_move_mount,
    libc::SYS_name_to_handle_at,
    libc::SYS_open_by_handle_at,
    libc::SYS_open_tree,
    libc::SYS_perf_event_open,
    libc::SYS_personality,
    libc::SYS_pivot_root,
    libc::SYS_process_vm_readv,
    libc::SYS_process_vm_writev,
    libc::SYS_ptrace,
    libc::SYS_quotactl,
    libc::SYS_reboot,
    libc::SYS_request_key,
    libc::SYS_sethostname,
    libc::SYS_setns,
    libc::SYS_settimeofday,
    libc::SYS_swapoff,
    libc::SYS_swapon,
    libc::SYS_umount2,
    libc::SYS_unshare,
    libc::SYS_userfaultfd,
];

#[cfg(test)]
mod tests {
    use super::*;

    /// Capabilities and filters are a thread's own, so a thread that ends afterwards can try them.
    #[test]
    fn afterwards_the_forbidden_is_refused_and_the_needed_works() {
        let tried = std::thread::spawn(|| {
            drop_to_needed(
                CapabilitySet::empty(),
                &(std::sync::Arc::new(|_: &str| {}) as Warn),
            )
            .unwrap();
            let held = capabilities(None).unwrap().permitted;
            // SAFETY: the call takes a number and touches no memory.
            let unshared = unsafe { libc::unshare(libc::CLONE_FS) };
            let refused = io::Error::last_os_error().raw_os_error();
            let read = std::fs::read("/proc/self/status").is_ok();
            (held, unshared, refused, read)
        });
        let (held, unshared, refused, read) = tried.join().unwrap();
        assert!(NEEDED.contains(held));
        assert_eq!((unshared, refused), (-1, Some(libc::EPERM)));
        assert!(read);
    }
}
