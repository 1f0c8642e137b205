"""Faults that end the gateway, or keep it from working: killed at each step, a full disk, no more memory.

What it left in the kernel closes, and the next start takes that over. Each function does it once; `bench.number` counts
the rounds, so that every round kills at another step.
"""

import contextlib
import os
import resource
import signal
import subprocess
import tempfile
import time

from network.expect import expect
from network.gateway import GatewayError
from network.timeout import slowed
from network.refuser import AND_KILL, KILL, Refuser

TIMEOUT_SECONDS = slowed(20)
TABLE = "nft list table inet esplanade"
# Bytes that the gateway may take beyond what it has, and policies that want more than that.
ROOM, MANY = 4 << 20, 4000
DISK = "256k"
# Bytes of address space at the start, and beyond what is taken then; what a program in Rust says when it gets none.
ADDRESSES, MORE_ADDRESSES = 1 << 30, 1 << 20
FAILED = "memory allocation of"


@contextlib.contextmanager
def refused():
    """How the gateway is started: by way of the one that stands between it and the kernel."""
    refuser = Refuser()
    try:
        yield {"wrap": refuser.wrap}, refuser
    finally:
        refuser.close()


@contextlib.contextmanager
def small_disk():
    """A file system of its own for the gateway's folder."""
    folder = tempfile.mkdtemp(prefix="esplanade-test-")
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={DISK},mode=0700", "disk", folder], check=True)
    try:
        yield {"folder": folder}, folder
    finally:
        subprocess.run(["umount", "-l", folder], check=True)


@contextlib.contextmanager
def one_heap():
    """All threads take from one heap, as each further one has its room reserved in advance; and none is so large that
    addresses for locked memory could be reserved."""
    yield {"wrap": ("env", "MALLOC_ARENA_MAX=1", "prlimit", f"--as={ADDRESSES}")}, None


@contextlib.contextmanager
def nothing_special():
    yield {}, None


def ended(bench):
    """The gateway's exit status, by itself."""
    try:
        return bench.gateway.process.wait(TIMEOUT_SECONDS)
    except subprocess.TimeoutExpired:
        raise AssertionError(f"still running:\n{bench.gateway.words()}") from None


def starts_again(bench):
    bench.gateway.start().ready()
    bench.goes()


def call_of(bench, calls):
    """The call of this round, spread over all there are; with as many rounds or more, each."""
    return 1 + (bench.number % calls if bench.rounds >= calls else bench.number * calls // bench.rounds)


def counted(bench, what, act):
    """How many calls a step makes, counted once; the control is that there are some."""
    if what not in bench.kept:
        bench.special.refuse(0)
        act()
        bench.kept[what] = bench.special.counted()
        expect(bench.kept[what] > 0, f"the control failed: {what} makes no call")
    return bench.kept[what]


def change(bench):
    policies = [line for line in bench.left_text.splitlines() if line.startswith("spdadd")]
    more = ["spdadd 10.1.0.0/24 10.77.0.0/24 any -P out discard;", "spdadd fd00:1::/64 fd00:77::/64 any -P out none;"]
    bench.gateway.setkey_text("spdflush;\n" + "\n".join(more + policies[::-1]))


def killed_in_a_change(bench):
    call = call_of(bench, counted(bench, "a change", lambda: change(bench)))
    bench.special.refuse(call, AND_KILL)
    with contextlib.suppress(GatewayError):
        change(bench)
    expect(ended(bench) == 128 + signal.SIGKILL, f"not killed at call {call}:\n{bench.gateway.words()}")
    bench.nothing_passed(f"killed at call {call} of a change")
    bench.special.refuse(0)
    starts_again(bench)


def start_after_a_crash(bench):
    bench.gateway.stop(KILL)
    bench.gateway.start().ready()


def killed_in_a_start(bench):
    call = call_of(bench, counted(bench, "a start", lambda: start_after_a_crash(bench)))
    bench.gateway.stop(KILL)
    bench.special.refuse(call, AND_KILL)
    bench.gateway.start()
    expect(ended(bench) == 128 + signal.SIGKILL, f"not killed at call {call}:\n{bench.gateway.words()}")
    bench.nothing_passed(f"killed at call {call} of a start")
    bench.special.refuse(0)
    starts_again(bench)


def down(bench):
    bench.gateway.attempt("down")
    ended(bench)


def killed_in_a_stop(bench):
    """As long as the drop rules stand, nothing passes; and `down` again takes away what is left."""
    first = "a stop" not in bench.kept
    call = call_of(bench, counted(bench, "a stop", lambda: down(bench)))
    if first:
        starts_again(bench)
        bench.taps.reset()
    bench.special.refuse(call, AND_KILL)
    down(bench)
    bench.special.refuse(0)
    if bench.attempt(TABLE)[0] == 0:
        bench.kept["closed"] = bench.kept.get("closed", 0) + 1
        bench.nothing_passed(f"killed at call {call} of a stop")
    bench.gateway.ask("down")
    expect(bench.attempt(TABLE)[0] != 0, f"the second `down` left the drop rules there, after call {call}")
    if bench.number == bench.rounds - 1:
        expect(bench.kept.get("closed"), "the control failed: no stop was killed before its end")
    starts_again(bench)
    bench.taps.reset()


def full_disk(bench):
    """Rules that are deleted come back, a change and a crash open nothing; with room again, it starts."""
    _, output = bench.attempt(f"dd if=/dev/zero of={bench.special}/filler bs=1k")
    expect("No space left" in output, f"the control failed: the disk is not full: {output}")
    bench.sh("ip route flush table 4500; ip -6 route flush table 4500")
    with contextlib.suppress(GatewayError):
        change(bench)
    bench.nothing_passed("changed on a full disk")
    bench.gateway.stop(signal.SIGKILL)
    with contextlib.suppress(GatewayError, OSError):
        bench.gateway.start().ready()
    bench.nothing_passed("started on a full disk")
    if bench.gateway.process.poll() is None:
        bench.gateway.stop(signal.SIGKILL)
    os.remove(f"{bench.special}/filler")
    starts_again(bench)


def grow(bench):
    """Policies that want more memory than there is."""
    lines = (f"spdadd 10.{120 + number // 4096}.{number // 16 % 256}.{number % 16 * 16}/28 10.1.0.0/24 any -P in discard;"
             for number in range(MANY))
    with contextlib.suppress(GatewayError, subprocess.TimeoutExpired):
        bench.gateway.setkey_text("\n".join(lines))


def memory_group():
    """Where a control group with a limit of memory can be made: its folder, and the files for limit and evidence."""
    for top, limit, evidence in (("/sys/fs/cgroup/memory", "memory.limit_in_bytes", "memory.oom_control"),
                                 ("/sys/fs/cgroup", "memory.max", "memory.events"),
                                 ("/sys/fs/cgroup/unified", "memory.max", "memory.events")):
        group = f"{top}/esplanade-hostile-{os.getpid()}"
        with contextlib.suppress(OSError):
            os.makedirs(group, exist_ok=True)
            if os.path.exists(f"{group}/{limit}"):
                return group, f"{group}/{limit}", f"{group}/{evidence}"
            os.rmdir(group)
    return None


def no_more_memory(bench):
    """The kernel kills the gateway of a control group whose memory is used up, and says so in the group's events."""
    group, limit, evidence = memory_group()
    try:
        write(f"{group}/cgroup.procs", bench.gateway.process.pid)
        write(limit, ROOM)
        grow(bench)
        status = ended(bench)
        with open(evidence) as file:
            kills = dict(line.split() for line in file).get("oom_kill", "0")
        expect(status == -signal.SIGKILL and int(kills) > 0,
               f"the control failed: exit status {status}, the kernel counts {kills} kills")
        bench.nothing_passed("killed for memory")
    finally:
        os.rmdir(group)
    starts_again(bench)


def no_more_addresses(bench):
    """An allocation fails at the limit of address space, which ends the gateway by its own hand."""
    pid = bench.gateway.process.pid
    with open(f"/proc/{pid}/statm") as file:
        size = int(file.read().split()[0]) * resource.getpagesize()
    resource.prlimit(pid, resource.RLIMIT_AS, (size + MORE_ADDRESSES, size + MORE_ADDRESSES))
    grow(bench)
    status, said = ended(bench), bench.gateway.words()
    expect(status == -signal.SIGABRT and FAILED in said, f"the control failed: exit status {status}:\n{said}")
    bench.nothing_passed("ended by an allocation that failed")
    starts_again(bench)


def write(path, what):
    with open(path, "w") as file:
        file.write(str(what))
