"""The guest's image as these tests need it: the lab's, with its own first process and a few programs more."""

import os
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.append(os.path.join(HERE, "..", "..", "lab", "guest"))

from initramfs import base  # noqa: E402

CACHE = ".cache/interop"
# Before busybox on the path: its `ip` knows no xfrm, and its shell would prefer its own applets.
PROGRAMS = ["bash", "ip", "ping", "iperf3"]
# Built here: they are of use on this side of the wire, too.
C_PROGRAMS = ["encapsulate", "probe"]


def image():
    """Paths of the kernel and the initial file system, made now if they are not there."""
    things = [f"{name}=/usr/bin/{name}" for name in PROGRAMS]
    things += [f"{compiled(name)}=/usr/bin/{name}" for name in C_PROGRAMS]
    return base(CACHE, os.path.join(HERE, "init"), [*things, f"{HERE}/listen=/listen"])


def compiled(name):
    """The path of a program of our own."""
    os.makedirs(CACHE, exist_ok=True)
    program = os.path.join(CACHE, name)
    subprocess.run(["cc", "-static", "-O1", "-Wall", "-Werror", "-o", f"{program}.new",
                    os.path.join(HERE, f"{name}.c")], check=True)
    os.rename(f"{program}.new", program)
    return program


if __name__ == "__main__":
    print(*image())
