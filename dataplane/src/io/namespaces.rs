//! Network namespaces for tests that need real devices: each test has its own and leaves nothing behind.
//!
//! As root the test's thread enters a namespace. Without root the test runs itself again in a process of its own,
//! because a process with several threads may not enter a user namespace.

use super::{Arrival, Family, MAX_ITEM_BYTES, ProtectedSource, ReceiveBuffer, Wait};
use ipsec::tunnel::Outer;
use rustix::thread::{LinkNameSpaceType, UnshareFlags, move_into_link_name_space, unshare_unsafe};
use std::fs::{self, File};
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::time::{Duration, Instant};

const INSIDE: &str = "DATAPLANE_TEST_IS_INSIDE_ITS_NAMESPACE";

/// Runs a test body in a fresh network namespace with its loopback up.
pub(crate) fn isolated(body: fn()) {
    if rustix::process::geteuid().is_root() && enter_new().is_ok() {
        command("ip link set lo up");
        return body();
    }
    if std::env::var_os(INSIDE).is_some() {
        command("ip link set lo up");
        return body();
    }
    run_this_test_rootless();
}

fn enter_new() -> rustix::io::Result<()> {
    // SAFETY: only the network namespace of this thread changes; no file descriptor or memory is unshared.
    unsafe { unshare_unsafe(UnshareFlags::NEWNET) }
}

fn run_this_test_rootless() {
    let name = std::thread::current()
        .name()
        .expect("a test's thread bears its name")
        .to_owned();
    let (user, group) = (
        rustix::process::geteuid().as_raw(),
        rustix::process::getegid().as_raw(),
    );
    let mut test = Command::new(std::env::current_exe().unwrap());
    test.args(["--exact", &name, "--nocapture", "--test-threads=1"])
        .env(INSIDE, "1");
    let become_root = move || {
        // SAFETY: the child has one thread and nothing of it depends on the namespaces.
        unsafe { unshare_unsafe(UnshareFlags::NEWUSER | UnshareFlags::NEWNET) }?;
        fs::write("/proc/self/setgroups", "deny")?;
        fs::write("/proc/self/uid_map", format!("0 {user} 1"))?;
        fs::write("/proc/self/gid_map", format!("0 {group} 1"))
    };
    // SAFETY: what runs between fork and exec takes no lock that another thread of the parent could hold, but the
    // allocator's, which the C library makes safe for this.
    unsafe { test.pre_exec(become_root) };
    let output = test
        .output()
        .expect("these tests need root or user namespaces");
    let told = String::from_utf8_lossy(&output.stdout).into_owned()
        + &String::from_utf8_lossy(&output.stderr);
    assert!(
        output.status.success() && told.contains("1 passed"),
        "{told}"
    );
}

/// A second network namespace, beside the test's own.
pub(crate) struct Namespace(File);

impl Namespace {
    pub(crate) fn new() -> Self {
        let other = std::thread::spawn(|| {
            enter_new().unwrap();
            command("ip link set lo up");
            File::open("/proc/thread-self/ns/net").unwrap()
        });
        Self(other.join().unwrap())
    }

    /// Runs `body` inside; what it opens there stays there.
    pub(crate) fn run<T: Send>(&self, body: impl FnOnce() -> T + Send) -> T {
        std::thread::scope(|scope| {
            let inside = scope.spawn(|| {
                move_into_link_name_space(self.0.as_fd(), Some(LinkNameSpaceType::Network))
                    .unwrap();
                body()
            });
            inside
                .join()
                .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        })
    }

    /// Its name for `ip`.
    pub(crate) fn path(&self) -> String {
        format!("/proc/{}/fd/{}", std::process::id(), self.0.as_raw_fd())
    }
}

/// Runs a command line of plain words in the namespace of this thread; it must succeed.
pub(crate) fn command(line: &str) {
    let mut words = line.split_whitespace();
    let program = words.next().unwrap();
    let output = Command::new(program)
        .args(words)
        .output()
        .unwrap_or_else(|error| panic!("{line}: {error}"));
    assert!(
        output.status.success(),
        "{line}: {}",
        String::from_utf8_lossy(&output.stderr)
    );
}

/// A veth pair from the test's namespace (`left`: 192.0.2.1, 2001:db8::1) to another (`right`: .2, ::2).
pub(crate) fn cable(right: &Namespace, mtu: u32) {
    command(&format!(
        "ip link add left mtu {mtu} type veth peer name right mtu {mtu} netns {}",
        right.path()
    ));
    command("ip link set left up");
    right.run(|| command("ip link set right up"));
    dress("left", 1);
    right.run(|| dress("right", 2));
    // Neighbours are found before a test starts to count packets.
    command("ping -q -c 1 -W 5 192.0.2.2");
    command("ping -q -c 1 -W 5 2001:db8::2");
}

fn dress(device: &str, number: u8) {
    // A query makes the kernel notice the carrier at once, and not within a second, which IPv6 would wait for.
    command(&format!("ip link show dev {device}"));
    command(&format!("ip addr add 192.0.2.{number}/24 dev {device}"));
    command(&format!(
        "ip addr add 2001:db8::{number}/64 dev {device} nodad"
    ));
}

/// The outer header of native ESP along the cable, from left to right.
pub(crate) fn along_cable(family: Family) -> Outer {
    let (source, destination) = match family {
        Family::V4 => ("192.0.2.1", "192.0.2.2"),
        Family::V6 => ("2001:db8::1", "2001:db8::2"),
    };
    Outer {
        source: source.parse().unwrap(),
        destination: destination.parse().unwrap(),
        protocol: 50,
        ports: None,
        traffic_class: 0xb9,
        dont_fragment: true,
        hop_limit: 61,
        emitted_len: 0,
    }
}

/// Gives received packets to `take` until it returns true or nothing came for a second.
pub(crate) fn receive(
    source: &mut dyn ProtectedSource,
    mut take: impl FnMut(&[u8], &Arrival) -> bool,
) {
    let mut buffer = ReceiveBuffer::with_capacity(8 * MAX_ITEM_BYTES, 256);
    let mut enough = false;
    let second = Duration::from_secs(1);
    let mut quiet = Instant::now() + second;
    while !enough {
        buffer.clear();
        // Packets of others end a sleep too.
        let wait = Wait::AtMost(quiet.saturating_duration_since(Instant::now()));
        if source.fill(&mut buffer, wait).unwrap() > 0 {
            quiet = Instant::now() + second;
        } else if Instant::now() >= quiet {
            return;
        }
        for (range, arrival) in &buffer.items {
            enough = take(&buffer.bytes[range.clone()], arrival);
        }
    }
}

/// Waits until the kernel has made this IPv6 address local, which takes a moment after it was added.
pub(crate) fn await_local(address: &str) {
    for _ in 0..1000 {
        let route = Command::new("ip")
            .args(["-6", "route", "get", address])
            .output()
            .unwrap();
        if route.stdout.starts_with(b"local") {
            return;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    panic!("{address} never became an address of ours");
}

/// Collects warnings for a test.
pub(crate) fn warnings() -> (super::Warn, std::sync::Arc<std::sync::Mutex<Vec<String>>>) {
    let heard = std::sync::Arc::new(std::sync::Mutex::new(Vec::new()));
    let ear = heard.clone();
    (
        std::sync::Arc::new(move |words: &str| ear.lock().unwrap().push(words.to_owned())),
        heard,
    )
}
