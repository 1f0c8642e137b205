use super::*;
use rustix::net::{AddressFamily, SocketType, socket};
use std::ffi::{c_long, c_ulong};
use std::os::unix::process::ExitStatusExt;
use std::process::Command;
use std::sync::Arc;

/// Selects which of [`CALLS`] a process that was started for the test makes.
const CALL: &str = "GATEWAY_TEST_MAKES_THIS_CALL";

/// The outcome of a system call.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Fate {
    Works,
    Refused(i32),
    Kills,
}

/// A call with up to six numbers; none of them is a pointer to anything.
fn call(number: c_long, arguments: [c_ulong; 6]) -> Fate {
    let [a, b, c, d, e, f] = arguments;
    // SAFETY: every call that this process may still make is refused or harmless with these arguments.
    match unsafe { libc::syscall(number, a, b, c, d, e, f) } {
        -1 => Fate::Refused(io::Error::last_os_error().raw_os_error().unwrap_or(0)),
        _ => Fate::Works,
    }
}

const NONE: [c_ulong; 6] = [0; 6];

const fn first(value: c_ulong) -> [c_ulong; 6] {
    [value, 0, 0, 0, 0, 0]
}

const fn mapping(protection: i32) -> [c_ulong; 6] {
    let private = (libc::MAP_PRIVATE | libc::MAP_ANONYMOUS) as c_ulong;
    [0, 4096, protection as c_ulong, private, c_ulong::MAX, 0]
}

const NEW_USERS: c_ulong = libc::CLONE_NEWUSER as c_ulong;
const NO_SUCH_CALL: Fate = Fate::Refused(libc::ENOSYS);

/// A call, its arguments, and its outcome.
const CALLS: &[(&str, c_long, [c_ulong; 6], Fate)] = &[
    ("getpid", libc::SYS_getpid, NONE, Fate::Works),
    (
        "mmap",
        libc::SYS_mmap,
        mapping(libc::PROT_READ),
        Fate::Works,
    ),
    (
        "mmap of code",
        libc::SYS_mmap,
        mapping(libc::PROT_EXEC),
        NO_SUCH_CALL,
    ),
    (
        "a TUN request",
        libc::SYS_ioctl,
        [99, libc::TUNGETIFF as c_ulong, 0, 0, 0, 0],
        Fate::Refused(libc::EBADF),
    ),
    (
        "a request to a terminal",
        libc::SYS_ioctl,
        [99, libc::TIOCSTI as c_ulong, 0, 0, 0, 0],
        NO_SUCH_CALL,
    ),
    (
        "a socket of the kernel's ciphers",
        libc::SYS_socket,
        [38, 5, 0, 0, 0, 0],
        NO_SUCH_CALL,
    ),
    (
        "a signal to another process",
        libc::SYS_tgkill,
        [1, 1, 0, 0, 0, 0],
        NO_SUCH_CALL,
    ),
    ("kill", libc::SYS_kill, [1, 0, 0, 0, 0, 0], NO_SUCH_CALL),
    (
        "a limit that is set",
        libc::SYS_prlimit64,
        [0, 7, 1, 0, 0, 0],
        NO_SUCH_CALL,
    ),
    ("a new process", libc::SYS_clone, first(17), NO_SUCH_CALL),
    ("clone3", libc::SYS_clone3, NONE, NO_SUCH_CALL),
    ("setuid", libc::SYS_setuid, NONE, NO_SUCH_CALL),
    ("a number that no kernel has", 0x3000, NONE, NO_SUCH_CALL),
    (
        "a new user namespace",
        libc::SYS_clone,
        first(NEW_USERS),
        Fate::Kills,
    ),
    ("unshare", libc::SYS_unshare, first(NEW_USERS), Fate::Kills),
    ("setns", libc::SYS_setns, NONE, Fate::Kills),
    ("execve", libc::SYS_execve, NONE, Fate::Kills),
    ("execveat", libc::SYS_execveat, NONE, Fate::Kills),
    ("ptrace", libc::SYS_ptrace, NONE, Fate::Kills),
    (
        "process_vm_readv",
        libc::SYS_process_vm_readv,
        NONE,
        Fate::Kills,
    ),
    (
        "process_vm_writev",
        libc::SYS_process_vm_writev,
        NONE,
        Fate::Kills,
    ),
    ("kexec_load", libc::SYS_kexec_load, NONE, Fate::Kills),
    (
        "kexec_file_load",
        libc::SYS_kexec_file_load,
        NONE,
        Fate::Kills,
    ),
    ("init_module", libc::SYS_init_module, NONE, Fate::Kills),
    ("finit_module", libc::SYS_finit_module, NONE, Fate::Kills),
    ("bpf", libc::SYS_bpf, NONE, Fate::Kills),
    ("userfaultfd", libc::SYS_userfaultfd, NONE, Fate::Kills),
    (
        "open_by_handle_at",
        libc::SYS_open_by_handle_at,
        NONE,
        Fate::Kills,
    ),
    ("mount", libc::SYS_mount, NONE, Fate::Kills),
    ("move_mount", libc::SYS_move_mount, NONE, Fate::Kills),
    ("pivot_root", libc::SYS_pivot_root, NONE, Fate::Kills),
    ("add_key", libc::SYS_add_key, NONE, Fate::Kills),
    ("keyctl", libc::SYS_keyctl, NONE, Fate::Kills),
    (
        "io_uring_setup",
        libc::SYS_io_uring_setup,
        NONE,
        Fate::Kills,
    ),
    (
        "perf_event_open",
        libc::SYS_perf_event_open,
        NONE,
        Fate::Kills,
    ),
];

fn quiet() -> Warn {
    Arc::new(|text: &str| panic!("{text}"))
}

/// Each call in a process of its own, which is this test again: a filter cannot be taken off, and some calls end it.
#[test]
fn each_call_has_the_fate_that_it_should_have() {
    if let Ok(name) = std::env::var(CALL) {
        let found = CALLS.iter().find(|(known, ..)| *known == name);
        let (_, number, arguments, expected) = found.unwrap();
        drop_to_needed(CapabilitySet::empty(), &quiet()).unwrap();
        let fate = call(*number, *arguments);
        assert_eq!(fate, *expected, "{name}");
        return;
    }
    let name = std::thread::current().name().unwrap().to_owned();
    for (what, _, _, expected) in CALLS {
        let mut test = Command::new(std::env::current_exe().unwrap());
        test.args(["--exact", &name, "--nocapture", "--test-threads=1"]);
        let output = test.env(CALL, what).output().unwrap();
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        if *expected == Fate::Kills {
            assert_eq!(output.status.signal(), Some(libc::SIGSYS), "{what}: {said}");
        } else {
            assert!(
                output.status.success() && said.contains("1 passed"),
                "{what}: {said}"
            );
        }
    }
}

/// A call in a process of key exchange, and its outcome in the ike process and in the key process.
const CHILD_CALLS: &[(&str, c_long, [c_ulong; 6], [Fate; 2])] = &[
    ("getpid", libc::SYS_getpid, NONE, [Fate::Works; 2]),
    (
        "a datagram",
        libc::SYS_sendmsg,
        first(99),
        [Fate::Refused(libc::EBADF), NO_SUCH_CALL],
    ),
    (
        "many datagrams",
        libc::SYS_recvmmsg,
        first(99),
        [Fate::Refused(libc::EBADF), NO_SUCH_CALL],
    ),
    (
        "bytes to an address",
        libc::SYS_sendto,
        [99, 0, 0, 0, 1, 16],
        [NO_SUCH_CALL; 2],
    ),
    (
        "bytes to the other end",
        libc::SYS_sendto,
        first(99),
        [Fate::Refused(libc::EBADF); 2],
    ),
    ("openat", libc::SYS_openat, NONE, [NO_SUCH_CALL; 2]),
    ("unlinkat", libc::SYS_unlinkat, NONE, [NO_SUCH_CALL; 2]),
    ("setsockopt", libc::SYS_setsockopt, NONE, [NO_SUCH_CALL; 2]),
    ("ioctl", libc::SYS_ioctl, NONE, [NO_SUCH_CALL; 2]),
    (
        "a stream that does not wait",
        libc::SYS_ioctl,
        [99, libc::FIONBIO as u32 as c_ulong, 0, 0, 0, 0],
        [Fate::Refused(libc::EBADF); 2],
    ),
    (
        "a new process",
        libc::SYS_clone,
        first(17),
        [NO_SUCH_CALL; 2],
    ),
    ("clone3", libc::SYS_clone3, NONE, [NO_SUCH_CALL; 2]),
    (
        "memory with code",
        libc::SYS_mmap,
        mapping(libc::PROT_EXEC),
        [NO_SUCH_CALL; 2],
    ),
    (
        "socket",
        libc::SYS_socket,
        [2, 2, 0, 0, 0, 0],
        [Fate::Kills; 2],
    ),
    ("connect", libc::SYS_connect, NONE, [Fate::Kills; 2]),
    ("bind", libc::SYS_bind, NONE, [Fate::Kills; 2]),
    ("accept4", libc::SYS_accept4, NONE, [Fate::Kills; 2]),
    ("kill", libc::SYS_kill, NONE, [Fate::Kills; 2]),
    ("execve", libc::SYS_execve, NONE, [Fate::Kills; 2]),
    ("ptrace", libc::SYS_ptrace, NONE, [Fate::Kills; 2]),
    ("setns", libc::SYS_setns, NONE, [Fate::Kills; 2]),
];

#[test]
fn each_call_of_a_process_of_key_exchange_has_the_fate_that_it_should_have() {
    let lists = [ChildCalls::Ike, ChildCalls::Keys];
    if let Ok(wanted) = std::env::var(CALL) {
        let every = CHILD_CALLS
            .iter()
            .flat_map(|(name, number, arguments, fates)| {
                let of_list = lists.into_iter().zip(fates);
                of_list.map(move |(list, fate)| {
                    (format!("{list:?} {name}"), list, number, arguments, fate)
                })
            });
        let (name, list, number, arguments, expected) = every
            .into_iter()
            .find(|(name, ..)| *name == wanted)
            .unwrap();
        confine_child(None, &quiet()).unwrap();
        let held = capabilities(None).unwrap();
        assert_eq!(held.permitted | held.effective, CapabilitySet::empty());
        confine_child(Some(list), &quiet()).unwrap();
        assert_eq!(call(*number, *arguments), *expected, "{name}");
        // Threads are still to be had, and random bytes.
        let another = std::thread::spawn(crate::random::system_random);
        assert_ne!(another.join().unwrap(), 0);
        return;
    }
    let name = std::thread::current().name().unwrap().to_owned();
    for (what, _, _, fates) in CHILD_CALLS {
        for (list, expected) in lists.into_iter().zip(fates) {
            let wanted = format!("{list:?} {what}");
            let mut test = Command::new(std::env::current_exe().unwrap());
            test.args(["--exact", &name, "--nocapture", "--test-threads=1"]);
            let output = test.env(CALL, &wanted).output().unwrap();
            let said = String::from_utf8_lossy(&output.stdout).into_owned();
            if *expected == Fate::Kills {
                let signal = output.status.signal();
                assert_eq!(signal, Some(libc::SIGSYS), "{wanted}: {said}");
            } else {
                let is_good = output.status.success() && said.contains("1 passed");
                assert!(is_good, "{wanted}: {said}");
            }
        }
    }
}

/// Capabilities and filters are a thread's own, so a thread that ends afterwards can try them.
#[test]
fn afterwards_the_needed_works_and_no_more_capabilities_are_there() {
    let tried = std::thread::spawn(|| {
        drop_to_needed(CapabilitySet::empty(), &quiet()).unwrap();
        let held = capabilities(None).unwrap();
        let another = std::thread::spawn(|| 7).join().unwrap();
        let opened = socket(AddressFamily::INET, SocketType::DGRAM, None).is_ok();
        let status = std::fs::read_to_string("/proc/thread-self/status").unwrap();
        (held, another, opened, status)
    });
    let (held, another, opened, status) = tried.join().unwrap();
    assert!(NEEDED.contains(held.permitted) && held.inheritable.is_empty());
    assert_eq!((another, opened), (7, true));
    for line in ["Seccomp:\t2", "NoNewPrivs:\t1", "CapAmb:\t0000000000000000"] {
        assert!(status.contains(line), "{line} is not in\n{status}");
    }
}

#[test]
fn only_the_places_named_are_reached() {
    let folder = std::env::temp_dir().join(format!("esplanade-places-{}", std::process::id()));
    let (inside, outside) = (folder.join("inside"), folder.join("outside"));
    for one in [&inside, &outside] {
        std::fs::create_dir_all(one).unwrap();
        std::fs::write(one.join("file"), "before").unwrap();
    }
    let there = std::fs::File::open(&inside).unwrap();
    let (near, far) = (inside.clone(), outside.clone());
    let tried = std::thread::spawn(move || {
        let mut places = AllowedFiles::of_every_gateway();
        places
            .keep_files_in(std::os::fd::AsFd::as_fd(&there))
            .unwrap();
        drop_to_needed(CapabilitySet::empty(), &quiet()).unwrap();
        hold_to(places, &quiet());
        let works = [
            std::fs::write(near.join("file"), "after").is_ok(),
            std::fs::write(near.join("new"), "").is_ok(),
            std::fs::rename(near.join("new"), near.join("newer")).is_ok(),
            std::fs::remove_file(near.join("newer")).is_ok(),
            std::fs::read("/proc/self/status").is_ok(),
            std::fs::read("/proc/thread-self/schedstat").is_ok(),
            std::fs::read("/proc/sys/net/ipv4/ip_forward").is_ok(),
            std::os::unix::net::UnixListener::bind(near.join("socket")).is_ok(),
        ];
        let refused = [
            std::fs::read(far.join("file")).is_ok(),
            std::fs::write(far.join("file"), "after").is_ok(),
            std::fs::write(far.join("new"), "").is_ok(),
            std::fs::remove_file(far.join("file")).is_ok(),
            std::fs::rename(near.join("file"), far.join("moved")).is_ok(),
            std::fs::create_dir(near.join("folder")).is_ok(),
            std::fs::read("/etc/passwd").is_ok(),
            std::fs::read("/proc/1/status").is_ok(),
            std::fs::write("/proc/sys/kernel/panic", "0").is_ok(),
            std::fs::read_dir("/").is_ok(),
            std::net::TcpListener::bind("127.0.0.1:0").is_ok(),
        ];
        (works, refused)
    });
    let (works, refused) = tried.join().unwrap();
    assert_eq!(works, [true; 8]);
    assert_eq!(refused, [false; 11]);
    // The same on a thread without the restriction.
    assert_eq!(std::fs::read(outside.join("file")).unwrap(), b"before");
    assert!(std::fs::read("/etc/passwd").is_ok() && std::fs::read("/proc/1/status").is_ok());
    assert!(std::net::TcpListener::bind("127.0.0.1:0").is_ok());
    std::fs::remove_dir_all(folder).unwrap();
}
