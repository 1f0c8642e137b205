"""The processes of key exchange: what each may do, and how those that end are started again.

A starter is driven here as a gateway drives it: over a stream that is its standard input."""

import os
import signal
import socket
import struct
import subprocess
import time

from network.expect import expect
from network.gateway import program
from network.inside import Gone, Inside
from privileges import AF_INET, CLONE, DATAGRAM, ENOSYS, EXECVE, HERE, OPENAT, PTRACE, READ, SOCKET, facts

SENDTO, CONNECT, BIND, KILL, GETPID = 44, 42, 49, 62, 39
EACCES, CREATE = -13, os.O_WRONLY | os.O_CREAT
NAMES = {"ike": "ike-process", "keys": "ike-keys"}


class Starter:
    """A starter with the sockets of UDP 500 and 4500, and the ends of the streams to what it has started."""

    def __enter__(self):
        self.order, theirs = socket.socketpair()
        self.process = subprocess.Popen([program(), "ike-starter"], stdin=theirs, env={"SECRET": "in the environment"})
        theirs.close()
        self.sockets = [socket.socket(socket.AF_INET, socket.SOCK_DGRAM) for _ in (500, 4500)]
        for one, port in zip(self.sockets, (500, 4500)):
            bind(one, port)
        return self

    def start(self):
        """Starts both, and waits until they are restricted."""
        socket.send_fds(self.order, [b" "], [one.fileno() for one in self.sockets])
        _, ends, _, _ = socket.recv_fds(self.order, 1, 8)
        expect(len(ends) == 2, f"{len(ends)} streams came")
        self.ike, self.keys = [socket.socket(fileno=end) for end in ends]
        deadline = time.monotonic() + 10
        while any(facts(f"/proc/{pid}/status")["Seccomp"] != "2" for pid in self.children().values()):
            expect(time.monotonic() < deadline, "they are never restricted")
            time.sleep(0.02)
        # The main thread sleeps in its loop.
        time.sleep(0.2)

    def children(self):
        """The process ID of each, by what it was started as."""
        with open(f"/proc/{self.process.pid}/task/{self.process.pid}/children") as file:
            found = {command(pid): int(pid) for pid in file.read().split()}
        return {short: found[name] for short, name in NAMES.items() if name in found}

    def __exit__(self, *_):
        self.order.close()
        self.process.wait(10)
        for one in self.sockets:
            one.close()


def bind(one, port):
    """The processes of a starter that has just been killed may still have the port."""
    deadline = time.monotonic() + 10
    while True:
        try:
            return one.bind(("127.0.0.1", port))
        except OSError:
            expect(time.monotonic() < deadline, f"port {port} stays taken")
            time.sleep(0.05)


def command(pid):
    with open(f"/proc/{pid}/cmdline") as file:
        return (file.read().split("\0") + [""])[1]


def has_ended(end):
    """Whether the other end of a stream is gone."""
    end.settimeout(10)
    try:
        return end.recv(1) == b""
    except ConnectionResetError:
        return True


def descriptors(pid):
    links = [os.readlink(f"/proc/{pid}/fd/{one}") for one in os.listdir(f"/proc/{pid}/fd")]
    return [link for link in links if link.startswith("socket:")]


def inodes(sockets):
    return {f"socket:[{os.fstat(one.fileno()).st_ino}]" for one in sockets}


def they_have_no_rights_no_environment_and_no_sockets_but_theirs():
    with Starter() as starter:
        starter.start()
        children = starter.children()
        for name, pid in children.items():
            tasks = f"/proc/{pid}/task"
            for task in os.listdir(tasks):
                thread = facts(f"{tasks}/{task}/status")
                none = "0" * 16
                for wanted, value in (("Seccomp", "2"), ("NoNewPrivs", "1"), ("CapEff", none), ("CapPrm", none)):
                    expect(thread[wanted] == value, f"{name}, {thread['Name']}: {wanted} is {thread[wanted]}")
                niceness = os.getpriority(os.PRIO_PROCESS, int(task))
                expect(niceness == 10, f"{name}, {thread['Name']}: its niceness is {niceness}")
            with open(f"/proc/{pid}/environ") as file:
                expect(file.read() == "", f"{name} has an environment")
            with open(f"/proc/{pid}/limits") as file:
                core = next(line for line in file if line.startswith("Max core file size"))
            expect(core.split()[4:6] == ["0", "0"], f"{name}: {core}")
        own = facts(f"/proc/{starter.process.pid}/status")
        expect(own["CapPrm"] == "0" * 16 and own["Seccomp"] == "2" and own["NoNewPrivs"] == "1", f"the starter: {own}")
        outside = inodes(starter.sockets)
        expect(outside <= set(descriptors(children["ike"])), "the ike process lacks its sockets")
        expect(not outside & set(descriptors(children["keys"])), "the key process has sockets of the network")


def what_an_intruder_tries_is_refused(name):
    def test():
        with Starter() as starter:
            starter.start()
            with Inside(starter.children()[name]) as process:
                expect(process.call(GETPID) > 0, "the control failed")
                for what, number, *arguments in (("a file", OPENAT, HERE, "/etc/passwd", READ, 0),
                                                 ("a file of its own", OPENAT, HERE, "/proc/self/status", READ, 0),
                                                 ("a fork", CLONE, 17, 0, 0, 0, 0),
                                                 ("a datagram to an address", SENDTO, 0, 0, 0, 0, "address", 16)):
                    found = process.call(number, *arguments)
                    expect(found == ENOSYS, f"{what}: {found}")
    return test


def what_only_an_intruder_tries_ends_it(name, number, *arguments):
    def test():
        for process in NAMES:
            with Starter() as starter:
                starter.start()
                try:
                    with Inside(starter.children()[process]) as inside:
                        found = inside.call(number, *arguments)
                except Gone as gone:
                    found = str(gone)
                expect(found == "SIGSYS", f"{process}, {name}: {found}")
    return test


def what_an_intruder_in_the_starter_tries():
    with Starter() as starter:
        starter.start()
        with Inside(starter.process.pid) as process:
            expect(process.call(GETPID) == starter.process.pid, "the control failed")
            expect(process.call(OPENAT, HERE, "/etc/passwd", READ, 0) >= 0, "the control failed: a file to read")
            found = process.call(OPENAT, HERE, "/tmp/esplanade-intruder", CREATE, 0o600)
            expect(found == EACCES, f"a file to write: {found}")
    for name, number, *arguments in (("a socket", SOCKET, AF_INET, DATAGRAM, 0), ("a connection", CONNECT, 0, 0, 0),
                                     ("a port", BIND, 0, 0, 0), ("another process's memory", PTRACE, 16, 1, 0, 0)):
        with Starter() as starter:
            starter.start()
            try:
                with Inside(starter.process.pid) as inside:
                    found = inside.call(number, *arguments)
            except Gone as gone:
                found = str(gone)
            expect(found == "SIGSYS", f"{name}: {found}")


def the_end_of_one_ends_the_other_and_both_are_started_again():
    with Starter() as starter:
        for victim in ("keys", "ike", "keys"):
            starter.start()
            before = starter.children()
            os.kill(before[victim], signal.SIGKILL)
            expect(has_ended(starter.ike) and has_ended(starter.keys), f"after the end of {victim} one goes on")
        starter.start()
        after = starter.children()
        expect(len(after) == 2 and not set(after.values()) & set(before.values()), f"{before} {after}")
        # One that hangs is replaced as well.
        os.kill(after["ike"], signal.SIGSTOP)
        starter.start()
        expect(set(starter.children().values()).isdisjoint(after.values()), "one that hangs stays")


def nothing_stays_when_the_gateway_is_killed():
    starter = Starter().__enter__()
    starter.start()
    pids = starter.children().values()
    os.kill(starter.process.pid, signal.SIGKILL)
    starter.process.wait(10)
    for one in starter.sockets:
        one.close()
    deadline = time.monotonic() + 10
    while any(os.path.exists(f"/proc/{pid}") and facts(f"/proc/{pid}/status")["State"][0] != "Z" for pid in pids):
        expect(time.monotonic() < deadline, "they outlive it")
        time.sleep(0.05)


def bytes_that_are_no_message_end_it_without_a_crash():
    for junk in (os.urandom(4096), struct.pack("<I", 2**32 - 1), struct.pack("<I", 3) + b"\xff\xff\xff"):
        with Starter() as starter:
            for name in NAMES:
                starter.start()
                end = getattr(starter, name)
                end.sendall(junk)
                expect(has_ended(end), f"{name} goes on after {junk[:8]}")
                expect(starter.process.poll() is None, "the starter has ended")


def started_by_hand_they_refuse():
    for name in ("ike-starter", *NAMES.values()):
        made = subprocess.run([program(), name], stdin=subprocess.DEVNULL, capture_output=True, text=True)
        expect(made.returncode == 1 and "a running gateway starts this" in made.stderr, f"{name}: {made}")


CASES = {
    "they have no rights, no environment and no sockets but theirs":
        they_have_no_rights_no_environment_and_no_sockets_but_theirs,
    **{f"what an intruder in {NAMES[name]} tries is refused": what_an_intruder_tries_is_refused(name)
       for name in NAMES},
    **{f"{name} ends it": what_only_an_intruder_tries_ends_it(name, *what) for name, *what in (
        ("another program", EXECVE, "/bin/true", 0, 0), ("a socket", SOCKET, AF_INET, DATAGRAM, 0),
        ("a connection", CONNECT, 0, 0, 0), ("a port", BIND, 0, 0, 0), ("a signal", KILL, 1, 0),
        ("another process's memory", PTRACE, 16, 1, 0, 0))},
    "what an intruder in ike-starter tries is refused or ends it": what_an_intruder_in_the_starter_tries,
    "the end of one ends the other, and both are started again":
        the_end_of_one_ends_the_other_and_both_are_started_again,
    "nothing stays when the gateway is killed": nothing_stays_when_the_gateway_is_killed,
    "bytes that are no message end it without a crash": bytes_that_are_no_message_end_it_without_a_crash,
    "started by hand they refuse": started_by_hand_they_refuse,
}
