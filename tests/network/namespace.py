"""Hosts as network namespaces. Everything made here bears one prefix and is gone afterwards."""

import ctypes
import os
import re
import signal
import socket
import subprocess
import threading

from network.timeout import slowed

LIBC = ctypes.CDLL(None, use_errno=True)
CLONE_NEWNET = 0x40000000
PREFIX = "esp"
PARENT_DEATH_SIGNAL = 1  # PR_SET_PDEATHSIG


class Failed(Exception):
    """A command on a host failed; the text says which and how."""


class Network:
    """All hosts of one test. Used as a context manager, it leaves nothing behind; what an earlier one
    could not remove, because it was killed, goes at the next start."""

    def __init__(self, purpose):
        sweep()
        self.prefix = f"{PREFIX}-{purpose}-{os.getpid()}"
        self.hosts = []

    def host(self, name):
        host = Host(f"{self.prefix}-{name}")
        self.hosts.append(host)
        host.create()
        return host

    def link(self, left, left_name, right, right_name):
        """A veth pair with one end on each host."""
        run(["ip", "link", "add", left_name, "netns", left.name, "type", "veth",
             "peer", "name", right_name, "netns", right.name])

    def __enter__(self):
        # Ended by a signal, the hosts still go.
        signal.signal(signal.SIGTERM, lambda *_: (_ for _ in ()).throw(SystemExit(143)))
        return self

    def __exit__(self, *_):
        for host in self.hosts:
            host.remove()


def sweep():
    """Removes the hosts of tests whose process is gone."""
    for line in run(["ip", "netns", "list"]).splitlines():
        name = line.split()[0]
        found = re.fullmatch(rf"{PREFIX}-[a-z]+-(\d+)-\w+", name)
        if found and not os.path.exists(f"/proc/{found[1]}"):
            subprocess.run(["ip", "netns", "del", name], check=False)


class Host:
    """A network namespace and the processes started in it."""

    def __init__(self, name):
        self.name = name
        self.processes = []

    def create(self):
        run(["ip", "netns", "add", self.name])
        self.sh("ip link set lo up")

    def remove(self):
        for process in self.processes:
            if process.poll() is None:
                process.kill()
            process.wait()
        subprocess.run(["ip", "netns", "del", self.name], check=False)

    def sh(self, script, limit=60):
        """Output of a shell script on this host; raises where it fails."""
        status, output = self.attempt(script, limit)
        if status != 0:
            raise Failed(f"exit status {status} on {self.name}: {script}\n{output}")
        return output

    def attempt(self, script, limit=60):
        """Exit status and output of a shell script on this host."""
        try:
            done = subprocess.run(self.argv(["bash", "-c", script]), capture_output=True, timeout=slowed(limit),
                                  stdin=subprocess.DEVNULL)
        except subprocess.TimeoutExpired:
            return 124, f"no end within {limit} s"
        return done.returncode, (done.stdout + done.stderr).decode(errors="replace")

    def start(self, argv, **options):
        """A process that lasts until the test ends."""
        process = subprocess.Popen(self.argv(argv), stdin=subprocess.DEVNULL, preexec_fn=die_with_parent, **options)
        self.processes.append(process)
        return process

    def argv(self, argv):
        return ["ip", "netns", "exec", self.name, *argv]

    def socket(self, *arguments):
        """A socket that lives on this host."""
        return in_namespace(self.name, lambda: socket.socket(*arguments))


def in_namespace(name, action):
    """The outcome of an action done by a thread that has moved to the namespace."""
    outcome = {}

    def work():
        try:
            descriptor = os.open(f"/run/netns/{name}", os.O_RDONLY)
            if LIBC.setns(descriptor, CLONE_NEWNET) != 0:
                raise OSError(ctypes.get_errno(), f"setns to {name}")
            os.close(descriptor)
            outcome["value"] = action()
        except BaseException as error:
            outcome["error"] = error

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    if "error" in outcome:
        raise outcome["error"]
    return outcome["value"]


def run(argv):
    done = subprocess.run(argv, capture_output=True, text=True, stdin=subprocess.DEVNULL)
    if done.returncode != 0:
        raise Failed(f"{' '.join(argv)}: {done.stderr.strip()}")
    return done.stdout


def die_with_parent():
    LIBC.prctl(PARENT_DEATH_SIGNAL, signal.SIGKILL)
