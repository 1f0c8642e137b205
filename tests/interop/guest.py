"""The guest: a Linux kernel of its own that takes shell commands, without hardware virtualization.

    UserMode    User Mode Linux (Debian's package): the kernel as a process, at this machine's speed
    Emulated    QEMU, which translates every instruction: slow, and a second opinion from a newer kernel

A caller cannot tell which it uses: the same first process, the same three shells, one network device.
"""

import ctypes
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time

from image import initial_file_system, kept_image, root_folder

BOOT_LIMIT = 180
MEMORY = "1G"
PARENT_DEATH_SIGNAL = 1  # PR_SET_PDEATHSIG
MAC = "02:00:00:00:00:aa"
# In the order of the ports that the guest's first process gives to them.
SHELLS = ["root", "left", "right"]
# Bytes; the line's own buffer in the guest is twice as large.
LONGEST_ON_A_LINE = 2048


class GuestError(Exception):
    """The guest did not boot, died or did not answer."""


class Guest:
    """One booted kernel and its shells: `root`, and `left` and `right` in namespaces of these names."""

    def __init__(self, netns, tap, programs=()):
        """On a tap device of a network namespace; `programs` are brought along, each as /usr/bin/NAME or HERE=THERE."""
        self.folder = tempfile.mkdtemp(prefix="esplanade-guest-")
        self.log = f"{self.folder}/console"
        self.process = None
        try:
            ports = self.start(["ip", "netns", "exec", netns], tap, programs)
            self.root, self.left, self.right = [Shell(self, port) for port in ports]
            for shell in (self.root, self.left, self.right):
                shell.answer(0, BOOT_LIMIT)
        except BaseException:
            self.stop()
            raise

    def console(self):
        try:
            with open(self.log, errors="replace") as file:
                return file.read()[-3000:]
        except OSError:
            return "(no console output)"

    def carried(self, script):
        """The words by which a script comes through a port."""
        return script

    def stop(self):
        """Ends it with all that it started; it leads a group of its own."""
        if self.process is not None:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()
        shutil.rmtree(self.folder, ignore_errors=True)


class UserMode(Guest):
    """A folder is its root, and each shell is one end of a socket pair."""

    place = "User Mode Linux"

    def start(self, prefix, tap, programs):
        kernel = shutil.which("linux.uml")
        if kernel is None:
            raise GuestError("there is no linux.uml: install Debian's package user-mode-linux, or say --guest qemu")
        root = root_folder(f"{self.folder}/root", programs)
        pairs = [socket.socketpair() for _ in SHELLS]
        far = [fd for _, theirs in pairs for fd in (theirs.fileno(), os.dup(theirs.fileno()))]
        lines = [f"ssl{number}=fd:{far[2 * number]},fd:{far[2 * number + 1]}" for number in range(len(pairs))]
        argv = [kernel, f"mem={MEMORY}", f"uml_dir={self.folder}/", "umid=guest", "root=/dev/root",
                "rootfstype=hostfs", f"rootflags={root}", "ro", "init=/init", "quiet", "panic=-1",
                f"vec0:transport=tap,ifname={tap},mac={MAC}", "ssl=null", *lines, "con=null", "con0=null,fd:1"]
        with open(self.log, "wb") as log:
            self.process = subprocess.Popen([*prefix, *argv], stdin=subprocess.DEVNULL, stdout=log,
                                            stderr=subprocess.STDOUT, pass_fds=far, preexec_fn=die_with_parent)
        for _, theirs in pairs:
            theirs.close()
        return [ours for ours, _ in pairs]

    def carried(self, script):
        """Its serial line stalls once a reader falls behind, so long scripts are put where the guest finds them."""
        if len(script) <= LONGEST_ON_A_LINE:
            return script
        file, path = tempfile.mkstemp(dir=f"{self.folder}/root/scripts")
        with open(file, "wb") as out:
            out.write(script)
        return f". /scripts/{os.path.basename(path)}".encode()


class Emulated(Guest):
    """All that it needs is in its initial file system, and each shell is a socket that QEMU listens on."""

    place = "in QEMU"
    # How its clock goes.
    clock = ()

    def start(self, prefix, tap, programs):
        kernel, initramfs = initial_file_system(self.folder, programs)
        # One processor: with two the kernel itself reorders what it sends.
        argv = ["qemu-system-x86_64", "-accel", "tcg", *self.clock, "-cpu", "max", "-smp", "1", "-m", MEMORY,
                "-kernel", kernel, "-initrd", initramfs, "-append", "console=ttyS0 quiet panic=-1 mitigations=off no_timer_check",
                "-nodefaults", "-no-reboot", "-display", "none", "-serial", f"file:{self.log}",
                "-netdev", f"tap,id=net,ifname={tap},script=no,downscript=no",
                "-device", f"virtio-net-pci,netdev=net,mac={MAC},romfile=", "-device", "virtio-rng-pci",
                "-device", "virtio-serial-pci", *self.ports()]
        self.process = subprocess.Popen([*prefix, *argv], stdin=subprocess.DEVNULL, preexec_fn=die_with_parent)
        return [self.connect(name) for name in SHELLS]

    def ports(self):
        for name in SHELLS:
            yield from ("-chardev", f"socket,id={name},path={self.folder}/{name},server=on,wait=off",
                        "-device", f"virtserialport,chardev={name},name={name}")

    def connect(self, name):
        port = socket.socket(socket.AF_UNIX)
        deadline = time.monotonic() + 30
        while True:
            try:
                port.connect(f"{self.folder}/{name}")
                return port
            except OSError:
                if self.process.poll() is not None or time.monotonic() > deadline:
                    raise GuestError("QEMU did not start; its message stands above") from None
                time.sleep(0.05)


class Counted(Emulated):
    """Its clock goes on by a nanosecond with each instruction, and while it is idle to the next timer at once."""

    clock = ("-icount", "shift=0,sleep=off")


KINDS = {"uml": UserMode, "qemu": Emulated}


def guest_option(arguments):
    """The option by which every runner chooses its guest."""
    arguments.add_argument("--guest", choices=list(KINDS), default=usual(),
                           help="User Mode Linux, or QEMU's emulation as a second opinion")


def usual():
    """User Mode Linux, unless this processor has AMX: Debian 12's has no room for such a state and dies with its first process."""
    with open("/proc/cpuinfo") as file:
        return "qemu" if "amx_tile" in file.read() else "uml"


class Shell:
    """A shell in the guest; it runs one command at a time."""

    def __init__(self, guest, port):
        self.guest, self.port = guest, port
        self.number = 0
        self.pending = b""

    def run(self, command, limit=60):
        """Exit status and output of a command."""
        self.number += 1
        script = self.guest.carried(command.encode())
        self.port.settimeout(limit)
        self.port.sendall(b"%d %d\n%b" % (self.number, len(script), script))
        return self.answer(self.number, limit)

    def answer(self, number, limit):
        deadline = time.monotonic() + limit
        while b"\n" not in self.pending:
            self.receive(deadline)
        head, _, self.pending = self.pending.partition(b"\n")
        got, status, length = map(int, head.split())
        if got != number:
            raise GuestError(f"answer {got} where {number} was due")
        while len(self.pending) < length:
            self.receive(deadline)
        text, self.pending = self.pending[:length], self.pending[length:]
        return status, text.decode(errors="replace")

    def receive(self, deadline):
        self.port.settimeout(max(0.01, deadline - time.monotonic()))
        try:
            piece = self.port.recv(65536)
        except TimeoutError:
            raise GuestError(f"the guest does not answer\n{self.guest.console()}") from None
        if not piece:
            raise GuestError(f"the guest is gone\n{self.guest.console()}")
        self.pending += piece


def die_with_parent():
    ctypes.CDLL(None, use_errno=True).prctl(PARENT_DEATH_SIGNAL, signal.SIGKILL)
    os.setsid()


if __name__ == "__main__":
    # What QEMU boots is fetched while there is a network: gateways on the kernel plane need it on every machine.
    print(*kept_image())
