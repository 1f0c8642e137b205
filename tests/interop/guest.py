"""The guest: a QEMU machine without hardware virtualization that takes shell commands."""

import base64
import ctypes
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time

BOOT_LIMIT = 180
MEMORY = "512M"
PARENT_DEATH_SIGNAL = 1  # PR_SET_PDEATHSIG
# In the order of the ports that the guest's first process gives to them.
SHELLS = ["root", "left", "right"]


class GuestError(Exception):
    """The guest did not boot, died or did not answer."""


class Guest:
    """One booted kernel and its shells: `root`, and `left` and `right` in namespaces of these names."""

    def __init__(self, kernel, initramfs, netns, tap, mac):
        self.folder = tempfile.mkdtemp(prefix="esplanade-guest-")
        self.log = f"{self.folder}/console"
        self.process = subprocess.Popen(["ip", "netns", "exec", netns, *self.arguments(kernel, initramfs, tap, mac)],
                                        stdin=subprocess.DEVNULL, preexec_fn=die_with_parent)
        try:
            self.root, self.left, self.right = [Shell(self, self.connect(name)) for name in SHELLS]
            for shell in (self.root, self.left, self.right):
                shell.answer(0, BOOT_LIMIT)
        except BaseException:
            self.stop()
            raise

    def arguments(self, kernel, initramfs, tap, mac):
        # One processor: with two the kernel itself reorders what it sends.
        return ["qemu-system-x86_64", "-accel", "tcg", "-cpu", "max", "-smp", "1", "-m", MEMORY,
                "-kernel", kernel, "-initrd", initramfs, "-append", "console=ttyS0 quiet panic=-1 mitigations=off",
                "-nodefaults", "-no-reboot", "-display", "none", "-serial", f"file:{self.log}",
                "-netdev", f"tap,id=net,ifname={tap},script=no,downscript=no",
                "-device", f"virtio-net-pci,netdev=net,mac={mac},romfile=", "-device", "virtio-rng-pci",
                "-device", "virtio-serial-pci", *self.ports()]

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

    def console(self):
        try:
            with open(self.log, errors="replace") as file:
                return file.read()[-3000:]
        except OSError:
            return "(no console output)"

    def stop(self):
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()
        shutil.rmtree(self.folder, ignore_errors=True)


class Shell:
    """A shell in the guest; it runs one command at a time."""

    def __init__(self, guest, port):
        self.guest, self.port = guest, port
        self.number = 0
        self.pending = b""

    def run(self, command, limit=60):
        """Exit status and output of a command."""
        self.number += 1
        text = base64.b64encode(command.encode()).decode()
        self.port.sendall(f"{self.number} {text}\n".encode())
        return self.answer(self.number, limit)

    def answer(self, number, limit):
        line = self.line(time.monotonic() + limit)
        got, status, *text = line.split(" ")
        if int(got) != number:
            raise GuestError(f"answer {got} where {number} was due")
        return int(status), base64.b64decode("".join(text)).decode(errors="replace")

    def line(self, deadline):
        while b"\n" not in self.pending:
            self.port.settimeout(max(0.01, deadline - time.monotonic()))
            try:
                piece = self.port.recv(65536)
            except TimeoutError:
                raise GuestError(f"the guest does not answer\n{self.guest.console()}") from None
            if not piece:
                raise GuestError(f"the guest is gone\n{self.guest.console()}")
            self.pending += piece
        line, self.pending = self.pending.split(b"\n", 1)
        return line.decode()


def die_with_parent():
    ctypes.CDLL(None, use_errno=True).prctl(PARENT_DEATH_SIGNAL, signal.SIGKILL)
    os.setsid()
