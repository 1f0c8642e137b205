"""What the guests boot: the lab's image with a first process of these tests' own and a few programs more.

User Mode Linux takes a folder of this machine for its root; QEMU gets an archive in memory, made once and kept.
"""

import os
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.append(os.path.join(HERE, "..", "..", "lab", "guest"))

from initramfs import BUSYBOX, add, base, write_cpio  # noqa: E402

CACHE = ".cache/interop"
# Before busybox on the path: its `ip` knows no xfrm, and its shell would prefer its own applets.
PROGRAMS = ["bash", "ip", "ping", "iperf3"]
# Built here: they are of use on this side of the wire, too.
C_PROGRAMS = ["attend", "encapsulate", "probe"]
# Where the first process mounts something, and where scripts come in.
PLACES = ["applets", "dev", "lib/modules", "proc", "run", "scripts", "sys", "tmp", "var"]


def things():
    yield from (f"{name}=/usr/bin/{name}" for name in PROGRAMS)
    yield from (f"{compiled(name)}=/usr/bin/{name}" for name in C_PROGRAMS)


def kept_image():
    """Paths of the kernel and the initial file system for QEMU, made now if they are not there."""
    return base(CACHE, os.path.join(HERE, "init"), list(things()))


def initial_file_system(folder, programs=()):
    """The same with further programs, in a second archive behind the first: the kernel unpacks both."""
    kernel, initramfs = kept_image()
    if not programs:
        return kernel, initramfs
    path = os.path.join(folder, "initramfs")
    with tempfile.TemporaryDirectory(prefix="esplanade-overlay-") as root, open(path, "wb") as out:
        for program in programs:
            add(root, placed(program))
        with open(initramfs, "rb") as file:
            out.write(file.read())
        write_cpio(root, out)
    return kernel, path


def root_folder(root, programs=()):
    """A folder that User Mode Linux takes for its root."""
    for place in PLACES:
        os.makedirs(f"{root}/{place}")
    for thing in [BUSYBOX, f"{HERE}/init=/init", *things(), *map(placed, programs)]:
        add(root, thing)
    return root


def placed(program):
    """A program goes to /usr/bin, unless it says where: HERE=THERE."""
    return program if "=" in program else f"{program}=/usr/bin/{os.path.basename(program)}"


def compiled(name, folder=HERE):
    """The path of a program of our own."""
    os.makedirs(CACHE, exist_ok=True)
    program = os.path.abspath(os.path.join(CACHE, name))
    source = os.path.join(folder, f"{name}.c")
    # Two runs at once build the same thing: each apart, and the last one's is kept.
    with tempfile.TemporaryDirectory(dir=CACHE) as place:
        draft = os.path.join(place, name)
        subprocess.run(["cc", "-static", "-O1", "-Wall", "-Werror", "-o", draft, source], check=True)
        os.rename(draft, program)
    return program


if __name__ == "__main__":
    print(*kept_image())
