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


class GuestError(Exception):
    """The guest did not boot, died or did not answer."""


class Guest:
    """One booted kernel; `run` gives the exit status and the output of a shell command in it."""

    def __init__(self, kernel, initramfs, netns, tap, mac):
        self.folder = tempfile.mkdtemp(prefix="esplanade-guest-")
        self.log = f"{self.folder}/console"
        self.number = 0
        self.pending = b""
        self.process = subprocess.Popen(["ip", "netns", "exec", netns, *self.arguments(kernel, initramfs, tap, mac)],
                                        stdin=subprocess.DEVNULL, preexec_fn=die_with_parent)
        try:
            self.port = self.connect()
            self.answer(0, BOOT_LIMIT)
        except BaseException:
            self.stop()
            raise

    def arguments(self, kernel, initramfs, tap, mac):
        return ["qemu-system-x86_64", "-accel", "tcg,thread=multi", "-cpu", "max", "-smp", "2", "-m", MEMORY,
                "-kernel", kernel, "-initrd", initramfs, "-append", "console=ttyS0 quiet panic=-1 mitigations=off",
                "-nodefaults", "-no-reboot", "-display", "none", "-serial", f"file:{self.log}",
                "-device", "virtio-serial-pci", "-chardev", f"socket,id=port,path={self.folder}/port,server=on,wait=off",
                "-device", "virtserialport,chardev=port,name=port",
                "-netdev", f"tap,id=net,ifname={tap},script=no,downscript=no",
                "-device", f"virtio-net-pci,netdev=net,mac={mac},romfile=", "-device", "virtio-rng-pci"]

    def connect(self):
        port = socket.socket(socket.AF_UNIX)
        deadline = time.monotonic() + 30
        while True:
            try:
                port.connect(f"{self.folder}/port")
                return port
            except OSError:
                if self.process.poll() is not None or time.monotonic() > deadline:
                    raise GuestError("QEMU did not start; its message stands above") from None
                time.sleep(0.05)

    def run(self, command, limit=60):
        """Exit status and output of a command; the guest runs one at a time."""
        self.number += 1
        text = base64.b64encode(command.encode()).decode()
        self.port.sendall(f"{self.number} {text}\n".encode())
        return self.answer(self.number, limit)

    def answer(self, number, limit):
        deadline = time.monotonic() + limit
        while b"\n" not in self.pending:
            self.port.settimeout(max(0.01, deadline - time.monotonic()))
            try:
                piece = self.port.recv(65536)
            except TimeoutError:
                raise GuestError(f"no answer within {limit} s\n{self.console()}") from None
            if not piece:
                raise GuestError(f"the guest is gone\n{self.console()}")
            self.pending += piece
        line, self.pending = self.pending.split(b"\n", 1)
        got, status, *text = line.decode().split(" ")
        if int(got) != number:
            raise GuestError(f"answer {got} where {number} was due")
        return int(status), base64.b64decode("".join(text)).decode(errors="replace")

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


def die_with_parent():
    ctypes.CDLL(None, use_errno=True).prctl(PARENT_DEATH_SIGNAL, signal.SIGKILL)
    os.setsid()
