"""A gateway that runs holds no more power than it uses: capabilities, system calls, files."""

import os
import tempfile

from fail_closed import in_clear
from network.expect import expect
from network.inside import Gone, Inside
from network.sites import Sites

# Bits: CAP_NET_BIND_SERVICE, CAP_NET_ADMIN, CAP_NET_RAW.
THREE_CAPABILITIES = 1 << 10 | 1 << 12 | 1 << 13
OPEN, OPENAT, SOCKET, CLONE, SETUID, UNSHARE, PTRACE, EXECVE = 2, 257, 41, 56, 105, 272, 101, 59
HERE, READ, MAKE = -100, 0, 0o101
NEW_USERS, AF_ALG, AF_INET, DATAGRAM = 0x10000000, 38, 2, 2
EACCES, ENOSYS = -13, -38


def every_thread_has_three_capabilities_and_a_filter():
    with Sites("pr") as sites:
        sites.start("right")
        left = sites.start("left", options=["--workers", "2"])
        expect(sites.ping() == 3, "no ping through the tunnel")
        tasks = f"/proc/{left.process.pid}/task"
        threads = [facts(f"{tasks}/{task}/status") for task in os.listdir(tasks)]
        for thread in threads:
            for wanted, value in (("Seccomp", "2"), ("NoNewPrivs", "1"), ("CapInh", "0" * 16), ("CapAmb", "0" * 16)):
                expect(thread[wanted] == value, f"{thread['Name']}: {wanted} is {thread[wanted]}")
            for held in ("CapEff", "CapPrm"):
                expect(int(thread[held], 16) & ~THREE_CAPABILITIES == 0, f"{thread['Name']}: {held} is {thread[held]}")
        expect("warning" not in left.words(), f"a start draws a warning:\n{left.words()}")
        expect(len(threads) > 3, f"only {len(threads)} threads")
        return f"{len(threads)} threads"


def facts(path):
    with open(path) as file:
        return dict(line.rstrip("\n").split(":\t", 1) for line in file if ":\t" in line)


def an_intruder_reaches_no_other_files():
    with Sites("pr") as sites, tempfile.TemporaryDirectory() as folder:
        sites.start("right")
        left = sites.start("left")
        beside = f"{folder}/beside"
        with Inside(left.process.pid) as gateway:
            for path, flags in (("/proc/self/status", READ), (f"{left.folder}/control.sock.state", READ),
                                ("/proc/sys/net/ipv4/ip_forward", READ), (f"{left.folder}/made", MAKE)):
                found = gateway.call(OPENAT, HERE, path, flags, 0o600)
                expect(found >= 0, f"the control failed: {path} cannot be opened: {found}")
            for path, flags in (("/etc/shadow", READ), ("/etc/passwd", READ), ("/proc/1/environ", READ), ("/", READ),
                                (beside, MAKE), ("/etc/made-by-a-test", MAKE), ("/proc/sys/kernel/core_pattern", 1)):
                for found in (gateway.call(OPENAT, HERE, path, flags, 0o600), gateway.call(OPEN, path, flags, 0o600)):
                    expect(found == EACCES, f"{path} was opened, or refused otherwise: {found}")
        expect(not os.path.exists(beside), "a file was made all the same")
        os.remove(f"{left.folder}/made")
        expect(sites.ping() == 3, "the gateway does not go on")


def an_intruder_makes_no_other_system_calls():
    with Sites("pr") as sites:
        sites.start("right")
        left = sites.start("left")
        with Inside(left.process.pid) as gateway:
            expect(gateway.call(SOCKET, AF_INET, DATAGRAM, 0) >= 0, "the control failed: no socket")
            for name, number, *arguments in (("socket of ciphers", SOCKET, AF_ALG, 5, 0), ("setuid", SETUID, 0),
                                             ("fork", CLONE, 17, 0, 0, 0, 0)):
                found = gateway.call(number, *arguments)
                expect(found == ENOSYS, f"{name}: {found}")
        expect(sites.ping() == 3, "the gateway does not go on")


def what_only_an_attacker_wants_ends_it_closed(name, number, *arguments):
    def test():
        with Sites("pr") as sites:
            sites.start("right")
            left = sites.start("left")
            expect(sites.ping() == 3, "no ping through the tunnel")
            try:
                with Inside(left.process.pid) as gateway:
                    found = gateway.call(number, *arguments)
            except Gone as gone:
                found = str(gone)
            expect(found == "SIGSYS", f"{name}: {found}")
            wire = sites.listen(sites.wire, "left")
            for family in (4, 6):
                expect(sites.ping(family) == 0, f"a ping was answered without a gateway, IPv{family}")
            expect(not in_clear(wire.settle()), "inner addresses in clear on the wire")
    return test


CASES = {
    "every thread has three capabilities and a filter": every_thread_has_three_capabilities_and_a_filter,
    "an intruder reaches no other files": an_intruder_reaches_no_other_files,
    "an intruder makes no other system calls": an_intruder_makes_no_other_system_calls,
    **{f"{name} ends it, closed": what_only_an_attacker_wants_ends_it_closed(name, *what) for name, *what in (
        ("another program", EXECVE, "/bin/true", 0, 0), ("a user namespace", UNSHARE, NEW_USERS),
        ("another process's memory", PTRACE, 16, 1, 0, 0))},
}
