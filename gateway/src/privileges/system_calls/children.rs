//! The system calls of the processes that a gateway starts for key exchange: they use descriptors that they were
//! given, and open none.

use super::{NAMES_OF_THREADS_AND_MEMORY, Outcome, Rules, apply, hostile, rule};
use seccompiler::{SeccompAction, SeccompCmpOp};
use std::ffi::c_long;

/// Whose list.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum ChildCalls {
    /// The process that starts the two below; what it starts inherits its list, and adds its own.
    Starter,
    /// The process that exchanges IKE messages: it sends and receives datagrams.
    Ike,
    /// The process that runs hooks, and they themselves: all but what no program without privileges needs.
    Hooks,
    /// The process that keeps the keys: it reads and writes connected streams, and addresses nothing.
    Keys,
}

/// Restricts the calling thread, and all threads that it starts from now on, to the list.
pub(in crate::privileges) fn hold_child_to(calls: ChildCalls) -> Outcome<()> {
    if calls == ChildCalls::Hooks {
        return hold_hooks();
    }
    let mut killed = hostile()?;
    killed.extend(OPENS.iter().map(|call| (*call, Vec::new())));
    if calls == ChildCalls::Starter {
        STARTS.iter().for_each(|call| drop(killed.remove(call)));
    }
    apply(killed, SeccompAction::Allow, SeccompAction::KillProcess)?;
    let elsewhere = SeccompAction::Errno(libc::ENOSYS as u32);
    apply(allowed(calls)?, elsewhere, SeccompAction::Allow)
}

/// Refused, not fatal: a program may try such a call and do without. `clone3`, whose flags no filter can see, is one
/// that an older kernel does not have.
fn hold_hooks() -> Outcome<()> {
    let mut refused = hostile()?;
    for call in [libc::SYS_execve, libc::SYS_execveat, libc::SYS_personality] {
        refused.remove(&call);
    }
    let not_permitted = SeccompAction::Errno(libc::EPERM as u32);
    apply(refused, SeccompAction::Allow, not_permitted)?;
    let unknown = SeccompAction::Errno(libc::ENOSYS as u32);
    let clone3 = [(libc::SYS_clone3, Vec::new())].into();
    apply(clone3, SeccompAction::Allow, unknown)
}

fn allowed(calls: ChildCalls) -> Outcome<Rules> {
    if calls == ChildCalls::Starter {
        let every = [
            ALLOWED,
            DATAGRAMS,
            STARTS,
            BEGINS,
            OLD_NAMES,
            OLD_NAMES_OF_BEGINS,
        ];
        let every = every.into_iter().flatten();
        return Ok(every.map(|call| (*call, Vec::new())).collect());
    }
    let datagrams: &[c_long] = match calls {
        ChildCalls::Ike => DATAGRAMS,
        ChildCalls::Keys | ChildCalls::Starter | ChildCalls::Hooks => &[],
    };
    let every = ALLOWED.iter().chain(datagrams).chain(OLD_NAMES);
    let mut rules: Rules = every.map(|call| (*call, Vec::new())).collect();
    let thread = (libc::CLONE_THREAD | libc::CLONE_VM) as u64;
    let executable = libc::PROT_EXEC as u64;
    let ourselves = u64::from(std::process::id());
    for (call, place, how, value) in [
        (libc::SYS_clone, 0, SeccompCmpOp::MaskedEq(thread), thread),
        (libc::SYS_mmap, 2, SeccompCmpOp::MaskedEq(executable), 0),
        (libc::SYS_mprotect, 2, SeccompCmpOp::MaskedEq(executable), 0),
        (libc::SYS_tgkill, 0, SeccompCmpOp::Eq, ourselves),
        // Streams that do not wait.
        (
            libc::SYS_ioctl,
            1,
            SeccompCmpOp::Eq,
            u64::from(libc::FIONBIO as u32),
        ),
        // Without an address: to the other end of a stream. The list of the ike process has datagrams besides.
        (libc::SYS_sendto, 4, SeccompCmpOp::Eq, 0),
    ] {
        rules.insert(call, vec![rule(&[(place, how, value)])?]);
    }
    let names = NAMES_OF_THREADS_AND_MEMORY.map(|name| name as u64);
    let names = names.map(|name| rule(&[(0, SeccompCmpOp::Eq, name)]));
    rules.insert(libc::SYS_prctl, names.into_iter().collect::<Outcome<_>>()?);
    Ok(rules)
}

/// What an intruder would start with: each ends the process.
const OPENS: &[c_long] = &[
    libc::SYS_accept,
    libc::SYS_accept4,
    libc::SYS_bind,
    libc::SYS_connect,
    libc::SYS_kill,
    libc::SYS_listen,
    libc::SYS_socket,
    libc::SYS_socketpair,
    libc::SYS_tkill,
];

/// What starting a program and ending it needs, of those calls that end the others.
const STARTS: &[c_long] = &[libc::SYS_execve, libc::SYS_kill, libc::SYS_socketpair];

/// What a program does until it has its own list: it is loaded, takes up its descriptors, and restricts itself.
const BEGINS: &[c_long] = &[
    libc::SYS_capget,
    libc::SYS_capset,
    libc::SYS_chdir,
    libc::SYS_clone,
    libc::SYS_dup,
    libc::SYS_dup3,
    libc::SYS_faccessat,
    libc::SYS_faccessat2,
    libc::SYS_fcntl,
    libc::SYS_fstat,
    libc::SYS_getegid,
    libc::SYS_geteuid,
    libc::SYS_getgid,
    libc::SYS_getpeername,
    libc::SYS_getppid,
    libc::SYS_getuid,
    libc::SYS_ioctl,
    libc::SYS_landlock_add_rule,
    libc::SYS_landlock_create_ruleset,
    libc::SYS_landlock_restrict_self,
    libc::SYS_lseek,
    libc::SYS_mmap,
    libc::SYS_mprotect,
    libc::SYS_newfstatat,
    libc::SYS_openat,
    libc::SYS_pipe2,
    libc::SYS_pread64,
    libc::SYS_prctl,
    libc::SYS_prlimit64,
    libc::SYS_readlinkat,
    libc::SYS_seccomp,
    libc::SYS_sendto,
    libc::SYS_set_tid_address,
    libc::SYS_setpriority,
    libc::SYS_setrlimit,
    libc::SYS_statx,
    libc::SYS_sysinfo,
    libc::SYS_tgkill,
    libc::SYS_uname,
    libc::SYS_wait4,
    libc::SYS_waitid,
];

/// Datagrams, on sockets that exist.
const DATAGRAMS: &[c_long] = &[
    libc::SYS_recvmmsg,
    libc::SYS_recvmsg,
    libc::SYS_sendmmsg,
    libc::SYS_sendmsg,
];

/// Streams, descriptors that are there, memory, threads, time.
const ALLOWED: &[c_long] = &[
    libc::SYS_brk,
    libc::SYS_clock_getres,
    libc::SYS_clock_gettime,
    libc::SYS_clock_nanosleep,
    libc::SYS_close,
    libc::SYS_eventfd2,
    libc::SYS_exit,
    libc::SYS_exit_group,
    libc::SYS_futex,
    libc::SYS_getcpu,
    libc::SYS_getpid,
    libc::SYS_getrandom,
    libc::SYS_getsockname,
    libc::SYS_getsockopt,
    libc::SYS_gettid,
    libc::SYS_gettimeofday,
    libc::SYS_madvise,
    libc::SYS_membarrier,
    libc::SYS_mlock,
    libc::SYS_mlock2,
    libc::SYS_mremap,
    libc::SYS_munlock,
    libc::SYS_munmap,
    libc::SYS_nanosleep,
    libc::SYS_ppoll,
    libc::SYS_read,
    libc::SYS_recvfrom,
    libc::SYS_restart_syscall,
    libc::SYS_rseq,
    libc::SYS_rt_sigaction,
    libc::SYS_rt_sigprocmask,
    libc::SYS_rt_sigreturn,
    libc::SYS_sched_getaffinity,
    libc::SYS_sched_yield,
    libc::SYS_set_robust_list,
    libc::SYS_sigaltstack,
    libc::SYS_write,
    libc::SYS_writev,
];

/// The same by the names that only this architecture still has.
#[cfg(target_arch = "x86_64")]
const OLD_NAMES: &[c_long] = &[libc::SYS_poll, libc::SYS_time];

/// The same of what a program does at its begin.
#[cfg(target_arch = "x86_64")]
const OLD_NAMES_OF_BEGINS: &[c_long] = &[
    libc::SYS_access,
    libc::SYS_arch_prctl,
    libc::SYS_dup2,
    libc::SYS_getrlimit,
    libc::SYS_open,
    libc::SYS_pipe,
    libc::SYS_readlink,
    libc::SYS_stat,
    libc::SYS_vfork,
];

/// The same of what a program does at its begin: there are none.
#[cfg(not(target_arch = "x86_64"))]
const OLD_NAMES_OF_BEGINS: &[c_long] = &[];

/// The same by older names: there are none.
#[cfg(not(target_arch = "x86_64"))]
const OLD_NAMES: &[c_long] = &[];
