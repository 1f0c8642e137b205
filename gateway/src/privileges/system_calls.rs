//! The system calls that a gateway may make once it has started: its own, and those that the C library and the standard
//! library make for it. An intruder has no others.
//!
//! ```text
//!   on the list                                 allowed
//!   what only an attacker would want            ends the process: its barriers stay, and nothing is lost but a tunnel
//!   everything else, and other architectures    "this kernel has no such call" (ENOSYS)
//! ```
//!
//! ENOSYS, not EPERM, because every library handles kernels that are older than itself: with a future C library a
//! gateway still runs. So the C library falls back from `clone3`, whose flags no filter can see, to `clone`, whose
//! flags are checked.

mod children;

pub(crate) use children::ChildCalls;
pub(super) use children::hold_child_to;

use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter,
    SeccompRule, apply_filter,
};
use std::collections::BTreeMap;
use std::ffi::{c_int, c_long};

type Outcome<T> = Result<T, Box<dyn std::error::Error>>;

/// Restricts the calling thread, and all threads that it starts from now on, to the list.
pub(super) fn hold_to_list() -> Outcome<()> {
    // The stricter result of two filters applies. The list is installed last, because it does not allow another filter.
    apply(hostile()?, SeccompAction::Allow, SeccompAction::KillProcess)?;
    let elsewhere = SeccompAction::Errno(libc::ENOSYS as u32);
    apply(allowed()?, elsewhere, SeccompAction::Allow)
}

type Rules = BTreeMap<c_long, Vec<SeccompRule>>;

fn apply(rules: Rules, otherwise: SeccompAction, named: SeccompAction) -> Outcome<()> {
    let architecture = std::env::consts::ARCH.try_into()?;
    let filter = SeccompFilter::new(rules, otherwise, named, architecture)?;
    let program: BpfProgram = filter.try_into()?;
    Ok(apply_filter(&program)?)
}

fn hostile() -> Outcome<Rules> {
    let mut rules: Rules = HOSTILE.iter().map(|call| (*call, Vec::new())).collect();
    let new_namespace = NEW_NAMESPACES
        .into_iter()
        .map(|flag| rule(&[(0, SeccompCmpOp::MaskedEq(flag), flag)]));
    rules.insert(libc::SYS_clone, new_namespace.collect::<Outcome<_>>()?);
    Ok(rules)
}

fn allowed() -> Outcome<Rules> {
    let every = ALLOWED.iter().chain(OLD_NAMES);
    let mut rules: Rules = every.map(|call| (*call, Vec::new())).collect();
    let thread = (libc::CLONE_THREAD | libc::CLONE_VM) as u64;
    let executable = libc::PROT_EXEC as u64;
    let not_executable = [(2, SeccompCmpOp::MaskedEq(executable), 0)];
    // The ID of this process, so that no other process can be sent a signal.
    let ourselves = u64::from(std::process::id());
    let mut among = |call: c_long, place: u8, values: &[u64]| -> Outcome<()> {
        let one = |value: &u64| rule(&[(place, SeccompCmpOp::Eq, *value)]);
        let list = values.iter().map(one).collect::<Outcome<_>>()?;
        rules.insert(call, list);
        Ok(())
    };
    among(libc::SYS_socket, 0, &FAMILIES.map(|family| family as u64))?;
    among(libc::SYS_ioctl, 1, &REQUESTS.map(u64::from))?;
    among(
        libc::SYS_prctl,
        0,
        &NAMES_OF_THREADS_AND_MEMORY.map(|one| one as u64),
    )?;
    among(libc::SYS_tgkill, 0, &[ourselves])?;
    // Limits may be read, but not set.
    among(libc::SYS_prlimit64, 2, &[0])?;
    for (call, conditions) in [
        (
            libc::SYS_clone,
            &[(0, SeccompCmpOp::MaskedEq(thread), thread)],
        ),
        (libc::SYS_mmap, &not_executable),
        (libc::SYS_mprotect, &not_executable),
    ] {
        rules.insert(call, vec![rule(conditions)?]);
    }
    Ok(rules)
}

/// All of the conditions: which argument, how it is compared, and with what.
fn rule(conditions: &[(u8, SeccompCmpOp, u64)]) -> Outcome<SeccompRule> {
    let whole = SeccompCmpArgLen::Qword;
    let half = SeccompCmpArgLen::Dword;
    let one = |(place, how, value): &(u8, SeccompCmpOp, u64)| {
        // Pointers and flags are compared in full; for numbers that the kernel reads as `int` the upper half is
        // ignored.
        let is_int = matches!(how, SeccompCmpOp::Eq) && *value != 0;
        let len = if is_int { half.clone() } else { whole.clone() };
        SeccompCondition::new(*place, len, how.clone(), *value)
    };
    let conditions = conditions.iter().map(one).collect::<Result<_, _>>()?;
    Ok(SeccompRule::new(conditions)?)
}

/// Outer and inner sockets, the kernel's tables, packet rings, AF_XDP, the control socket.
const FAMILIES: [c_int; 6] = [
    libc::AF_UNIX,
    libc::AF_INET,
    libc::AF_INET6,
    libc::AF_NETLINK,
    libc::AF_PACKET,
    libc::AF_XDP,
];

/// `NS_GET_USERNS` of `linux/nsfs.h`: the user namespace that owns the network namespace.
const OWNER_OF_NAMESPACE: u32 = 0xb701;

/// Requests to TUN devices, to other devices and to the network namespace, and for non-blocking files.
const REQUESTS: [u32; 18] = [
    OWNER_OF_NAMESPACE,
    libc::TUNSETIFF as u32,
    libc::TUNGETIFF as u32,
    libc::TUNSETPERSIST as u32,
    libc::TUNSETQUEUE as u32,
    libc::TUNSETOFFLOAD as u32,
    libc::TUNGETSNDBUF as u32,
    libc::TUNSETSNDBUF as u32,
    libc::TUNGETVNETHDRSZ as u32,
    libc::TUNSETVNETHDRSZ as u32,
    libc::SIOCGIFINDEX as u32,
    libc::SIOCGIFMTU as u32,
    libc::SIOCSIFMTU as u32,
    libc::SIOCGIFFLAGS as u32,
    libc::SIOCSIFFLAGS as u32,
    libc::SIOCETHTOOL as u32,
    libc::FIONBIO as u32,
    libc::FIONREAD as u32,
];

/// Names that libraries give to threads and memory, for debuggers and /proc.
const NAMES_OF_THREADS_AND_MEMORY: [c_int; 3] =
    [libc::PR_SET_NAME, libc::PR_GET_NAME, libc::PR_SET_VMA];

const NEW_NAMESPACES: [u64; 7] = [
    libc::CLONE_NEWNS as u64,
    libc::CLONE_NEWCGROUP as u64,
    libc::CLONE_NEWUTS as u64,
    libc::CLONE_NEWIPC as u64,
    libc::CLONE_NEWUSER as u64,
    libc::CLONE_NEWPID as u64,
    libc::CLONE_NEWNET as u64,
];

/// Other programs, other processes' memory, the kernel itself, other roots and namespaces, clocks and the whole host.
const HOSTILE: &[c_long] = &[
    libc::SYS_acct,
    libc::SYS_add_key,
    libc::SYS_adjtimex,
    libc::SYS_bpf,
    libc::SYS_chroot,
    libc::SYS_clock_adjtime,
    libc::SYS_clock_settime,
    libc::SYS_delete_module,
    libc::SYS_execve,
    libc::SYS_execveat,
    libc::SYS_finit_module,
    libc::SYS_fsconfig,
    libc::SYS_fsmount,
    libc::SYS_fsopen,
    libc::SYS_fspick,
    libc::SYS_init_module,
    libc::SYS_io_uring_setup,
    libc::SYS_kcmp,
    libc::SYS_kexec_file_load,
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
    libc::SYS_pidfd_getfd,
    libc::SYS_pivot_root,
    libc::SYS_process_vm_readv,
    libc::SYS_process_vm_writev,
    libc::SYS_ptrace,
    libc::SYS_quotactl,
    libc::SYS_reboot,
    libc::SYS_request_key,
    libc::SYS_setdomainname,
    libc::SYS_sethostname,
    libc::SYS_setns,
    libc::SYS_settimeofday,
    libc::SYS_swapoff,
    libc::SYS_swapon,
    libc::SYS_umount2,
    libc::SYS_unshare,
    libc::SYS_userfaultfd,
];

/// The calls that packets, the control socket, netlink, state on disk, threads and memory need. The calls of the packet
/// path are allowed by number alone, so that the kernel can cache the result and skip the filter.
const ALLOWED: &[c_long] = &[
    // Packets and sockets.
    libc::SYS_accept,
    libc::SYS_accept4,
    libc::SYS_bind,
    libc::SYS_connect,
    libc::SYS_getpeername,
    libc::SYS_getsockname,
    libc::SYS_getsockopt,
    libc::SYS_listen,
    libc::SYS_recvfrom,
    libc::SYS_recvmmsg,
    libc::SYS_recvmsg,
    libc::SYS_sendmmsg,
    libc::SYS_sendmsg,
    libc::SYS_sendto,
    libc::SYS_setsockopt,
    libc::SYS_shutdown,
    libc::SYS_socketpair,
    // Files and descriptors. Landlock restricts which files.
    libc::SYS_close,
    libc::SYS_dup,
    libc::SYS_dup3,
    libc::SYS_epoll_create1,
    libc::SYS_epoll_ctl,
    libc::SYS_epoll_pwait,
    libc::SYS_eventfd2,
    libc::SYS_faccessat,
    libc::SYS_faccessat2,
    libc::SYS_fallocate,
    libc::SYS_fchmod,
    libc::SYS_fcntl,
    libc::SYS_fdatasync,
    libc::SYS_flock,
    libc::SYS_fstat,
    libc::SYS_fstatfs,
    libc::SYS_fsync,
    libc::SYS_ftruncate,
    libc::SYS_getcwd,
    libc::SYS_getdents64,
    libc::SYS_lseek,
    libc::SYS_mkdirat,
    libc::SYS_newfstatat,
    libc::SYS_openat,
    libc::SYS_openat2,
    libc::SYS_pipe2,
    libc::SYS_ppoll,
    libc::SYS_pread64,
    libc::SYS_preadv,
    libc::SYS_pselect6,
    libc::SYS_pwrite64,
    libc::SYS_pwritev,
    libc::SYS_read,
    libc::SYS_readlinkat,
    libc::SYS_readv,
    libc::SYS_renameat,
    libc::SYS_renameat2,
    libc::SYS_signalfd4,
    libc::SYS_statfs,
    libc::SYS_statx,
    libc::SYS_timerfd_create,
    libc::SYS_timerfd_settime,
    libc::SYS_umask,
    libc::SYS_unlinkat,
    libc::SYS_write,
    libc::SYS_writev,
    // Memory.
    libc::SYS_brk,
    libc::SYS_madvise,
    libc::SYS_mlock,
    libc::SYS_mlock2,
    libc::SYS_mremap,
    libc::SYS_msync,
    libc::SYS_munlock,
    libc::SYS_munmap,
    // Threads, time and signals of our own.
    libc::SYS_clock_getres,
    libc::SYS_clock_gettime,
    libc::SYS_clock_nanosleep,
    libc::SYS_exit,
    libc::SYS_exit_group,
    libc::SYS_futex,
    libc::SYS_getcpu,
    libc::SYS_gettimeofday,
    libc::SYS_membarrier,
    libc::SYS_nanosleep,
    libc::SYS_restart_syscall,
    libc::SYS_rseq,
    libc::SYS_rt_sigaction,
    libc::SYS_rt_sigprocmask,
    libc::SYS_rt_sigreturn,
    libc::SYS_rt_sigtimedwait,
    libc::SYS_sched_getaffinity,
    libc::SYS_sched_getparam,
    libc::SYS_sched_getscheduler,
    libc::SYS_sched_setaffinity,
    libc::SYS_sched_setscheduler,
    libc::SYS_sched_yield,
    libc::SYS_set_robust_list,
    libc::SYS_set_tid_address,
    libc::SYS_sigaltstack,
    // Information about the process itself and the host.
    libc::SYS_capget,
    libc::SYS_getegid,
    libc::SYS_geteuid,
    libc::SYS_getgid,
    libc::SYS_getgroups,
    libc::SYS_getpid,
    libc::SYS_getppid,
    libc::SYS_getrandom,
    libc::SYS_getresgid,
    libc::SYS_getresuid,
    libc::SYS_getrusage,
    libc::SYS_gettid,
    libc::SYS_getuid,
    // With these a process can only restrict itself.
    libc::SYS_landlock_add_rule,
    libc::SYS_landlock_create_ruleset,
    libc::SYS_landlock_restrict_self,
    libc::SYS_sysinfo,
    libc::SYS_uname,
];

/// The same by the names that only this architecture still has.
#[cfg(target_arch = "x86_64")]
const OLD_NAMES: &[c_long] = &[
    libc::SYS_access,
    libc::SYS_epoll_wait,
    libc::SYS_getdents,
    libc::SYS_lstat,
    libc::SYS_mkdir,
    libc::SYS_open,
    libc::SYS_poll,
    libc::SYS_readlink,
    libc::SYS_rename,
    libc::SYS_rmdir,
    libc::SYS_select,
    libc::SYS_stat,
    libc::SYS_time,
    libc::SYS_unlink,
];

/// The same by older names: there are none.
#[cfg(not(target_arch = "x86_64"))]
const OLD_NAMES: &[c_long] = &[];
