"""A host that refuses a program one single write to the kernel's configuration: which, and by which error."""

import errno
import functools
import mmap
import os
import shutil
import signal
import struct
import subprocess
import tempfile

# Kills the program: the signal that no process can block would end the one that stands between alone.
KILL = signal.SIGUSR1
# In place of an error: the program is killed instead of its call being made.
AND_KILL = 0xFFFFFFFF
ERRORS = (errno.EPERM, errno.ENOMEM, errno.ENOBUFS)
NUMBERS = struct.Struct("4I")


@functools.cache
def program():
    """`refuse.c`, built for this run of the tests; a guest has been given it."""
    if there := shutil.which("refuse"):
        return there
    folder = tempfile.mkdtemp(prefix="esplanade-refuse-")
    source = os.path.join(os.path.dirname(os.path.abspath(__file__)), "refuse.c")
    subprocess.run(["cc", "-O2", "-Wall", "-Wextra", "-Werror", "-o", f"{folder}/refuse", source], check=True)
    return f"{folder}/refuse"


class Refuser:
    """`wrap` goes before the program's own words; the rest may be called while it runs."""

    def __init__(self):
        self.folder = tempfile.mkdtemp(prefix="esplanade-order-")
        path = f"{self.folder}/order"
        with open(path, "wb") as file:
            file.write(bytes(NUMBERS.size))
        with open(path, "r+b") as file:
            self.order = mmap.mmap(file.fileno(), NUMBERS.size)
        self.wrap = (program(), path)

    def refuse(self, call, error=errno.EPERM):
        """The call of this number from now on is refused, and none where it is 0."""
        NUMBERS.pack_into(self.order, 0, call, error, 0, 0)

    def counted(self):
        """How many calls there were since."""
        return NUMBERS.unpack_from(self.order)[2]

    def refused(self):
        """How many of them were refused: one or none."""
        return NUMBERS.unpack_from(self.order)[3]

    def close(self):
        self.order.close()
        shutil.rmtree(self.folder)
