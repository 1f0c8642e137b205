"""The same suite on another kernel: a guest that has been given Python, these tests and the programs that they use.

    debian12    Debian 12's own kernel, in QEMU
    unstable    that of Debian's unstable release, in QEMU
    qemu        the newest that Debian 12 has beside it, in QEMU
    counted     the same, whose clock goes by instructions

`inside.py KIND` fetches the kernel while there is an Internet. User Mode Linux will not do: Debian's has no nftables
tables of the family inet, which the barriers are.
"""

import os
import shlex
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
TESTS = os.path.dirname(HERE)
sys.path += [TESTS, os.path.join(TESTS, "interop")]

import image  # noqa: E402
from guest import Counted, Emulated  # noqa: E402
from network.gateway import program  # noqa: E402
from network.namespace import Network  # noqa: E402

import initramfs  # noqa: E402

GUESTS = {"debian12": Emulated, "unstable": Emulated, "qemu": Emulated, "counted": Counted}
OF_A_RELEASE = ["linux-image-cloud-amd64"]
# Seconds for all kinds; an emulated processor takes its time. And between two looks at what is said meanwhile.
LIMIT, POLL_INTERVAL = 7200, 3
# How many times longer tests wait there.
SLOWNESS = 10
PYTHON = f"python{sys.version_info.major}.{sys.version_info.minor}"
# Of Python's library, what no test imports.
LEFT_OUT = shutil.ignore_patterns("test", "tests", "site-packages", "idlelib", "tkinter", "ensurepip", "config-*",
                                  "lib2to3",
                                  "pydoc_data", "turtledemo", "distutils", "*.a")
SOURCES = {"flood": HERE, "refuse": os.path.join(TESTS, "network")}
FOLDERS = ["hostile-host", "end-to-end", "ikev2", "kernel-plane", "network"]
TOOLS = ["nft", "tc", "sysctl", "ss", "setpriv", "unshare", "mount", "umount", "ip", "ping", "timeout", "dd", "stat"]


def choose(kind):
    if kind in ("debian12", "unstable"):
        initramfs.KERNELS = OF_A_RELEASE
    if kind == "unstable":
        initramfs.take_from("sid", image.CACHE)
    return GUESTS[kind]


def things(folder):
    """What the guest is given, made ready in a folder."""
    shutil.copytree(sysconfig.get_path("stdlib"), f"{folder}/library", ignore=LEFT_OUT)
    for name, source in SOURCES.items():
        subprocess.run(["cc", "-static", "-O2", "-Wall", "-Wextra", "-Werror", "-o", f"{folder}/{name}",
                        f"{source}/{name}.c"], check=True)
    return [f"{os.path.realpath(sys.executable)}=/usr/bin/python3", f"{folder}/library=/usr/lib/{PYTHON}",
            *(f"{TESTS}/{name}=/tests/{name}" for name in FOLDERS), f"{os.path.dirname(TESTS)}/README.md=/README.md",
            f"{os.path.dirname(TESTS)}/ipsec/tests/vectors/setkey=/samples",
            program("esplanade"), program("setkey"),
            *(f"{folder}/{name}" for name in SOURCES), *filter(None, map(shutil.which, TOOLS))]


class Inside:
    """A guest for these tests; as a context manager it goes with all that runs in it. `before` is called with the host
    at the other end of its wire before it boots, and gives what is kept as `outside`. `more` are further programs that
    the guest is given."""

    def __init__(self, kind, before=lambda _: None, more=()):
        self.kind, self.before, self.more = kind, before, more

    def __enter__(self):
        self.network = Network("inside").__enter__()
        self.host = self.network.host("wire")
        self.host.sh("ip tuntap add dev tap0 mode tap; ip link set tap0 up")
        with tempfile.TemporaryDirectory(prefix="esplanade-inside-") as folder:
            given = [*things(folder), *self.more]
            self.outside = self.before(self.host)
            started = time.monotonic()
            self.guest = choose(self.kind)(self.host.name, "tap0", given)
        self.release = self.guest.root.run("uname -r")[1].strip()
        self.guest.root.run("modprobe -a tun sch_ingress cls_bpf nf_tables; mkdir -p /sys/fs/cgroup; "
                            "mount -t cgroup2 groups /sys/fs/cgroup && echo +memory > /sys/fs/cgroup/cgroup.subtree_control")
        print(f"guest ({self.kind}) up after {time.monotonic() - started:.1f} s: {self.release}", flush=True)
        return self

    def __exit__(self, *_):
        if hasattr(self, "guest"):
            self.guest.stop()
        self.network.__exit__()

    def run(self, script, arguments, limit=LIMIT):
        """Exit status and output of one of these tests' own programs."""
        return self.guest.root.run(f"{self.words(script, arguments)} 2>&1", limit)

    def words(self, script, arguments):
        words = ["env", "PYTHONHOME=/usr", "ESPLANADE_BIN=/usr/bin", "ESPLANADE_OWN_CLOCK=yes",
                 f"ESPLANADE_SLOWNESS={SLOWNESS}",
                 f"ESPLANADE_EVERY_CALL={os.environ.get('ESPLANADE_EVERY_CALL', '')}",
                 "python3", "-u", f"/tests/{script}", *arguments]
        return f"cd /tests; {shlex.join(words)}"

    def follow(self, script, arguments, limit=LIMIT):
        """The lines of one of these tests' own programs as it says them, and its exit status in the end."""
        root = self.guest.root
        root.run(f"rm -f /tmp/status; ({self.words(script, arguments)} </dev/null >/tmp/said 2>&1; echo $? >/tmp/status) &")
        deadline, seen, rest = time.monotonic() + limit, 0, ""
        while True:
            time.sleep(POLL_INTERVAL)
            ended, status = root.run("cat /tmp/status")
            _, said = root.run(f"tail -c +{seen + 1} /tmp/said")
            seen += len(said.encode())
            *lines, rest = (rest + said).split("\n")
            yield from lines
            if ended == 0:
                return int(status)
            if time.monotonic() > deadline:
                yield f"not ok {script}: no end within {limit} s: {rest}"
                return 124


def run_inside(kind, script, arguments):
    """A program of these tests in a guest; its lines are ours, with the kernel in each name."""
    with Inside(kind) as inside:
        lines = inside.follow(script, arguments)
        while True:
            try:
                line = next(lines)
            except StopIteration as end:
                return end.value
            for verdict in ("not ok ", "not here ", "ok "):
                if line.startswith(verdict):
                    line = f"{verdict}in the guest on {inside.release}, {line.removeprefix(verdict)}"
                    break
            print(line, flush=True)


if __name__ == "__main__":
    choose(sys.argv[1])
    print(*image.kept_image())
