"""Our programs for the guest, as a second archive behind the one that tests/interop made: the kernel unpacks both."""

import os
import subprocess
import tempfile

from initramfs import install, libraries, write_cpio
from network.gateway import program

PROGRAMS = ["setkey", "esplanade"]


def with_programs(initramfs, folder):
    """Path of an initial file system that has our programs too."""
    with tempfile.TemporaryDirectory(prefix="esplanade-overlay-") as root:
        for name in PROGRAMS:
            place = f"{root}/usr/bin/{name}"
            install(program(name), place)
            subprocess.run(["strip", place], check=True)
            for library in libraries(program(name)):
                install(os.path.realpath(library), root + library)
        path = os.path.join(folder, "initramfs")
        with open(path, "wb") as out:
            with open(initramfs, "rb") as file:
                out.write(file.read())
            write_cpio(root, out)
    return path
