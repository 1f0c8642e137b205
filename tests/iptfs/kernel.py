#!/usr/bin/env python3
"""Linux as a program (ARCH=um) with IPTFS, which Debian's own kernels leave out: made once, kept under .cache/iptfs.

    tests/iptfs/kernel.py        prints its path; the first time it takes five minutes of two processors

The source is Debian unstable's package `linux-source`, fetched through apt with an index of its own; the programs that
the build needs and this machine may not have (flex, bison, m4) are unpacked beside it, not installed.
"""

import glob
import hashlib
import os
import shutil
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
sys.path.append(os.path.join(ROOT, "lab", "guest"))

import initramfs  # noqa: E402

CACHE = os.path.join(ROOT, ".cache", "iptfs")
SOURCE = "linux-source"
TOOLS = ["bc", "bison", "flex", "libfl2", "m4"]
CONFIG = os.path.join(HERE, "um.config")


def kernel():
    """The path of the program."""
    with open(CONFIG, "rb") as file:
        place = os.path.join(CACHE, f"linux-{hashlib.sha256(file.read()).hexdigest()[:12]}")
    if not os.path.exists(place):
        build(place)
    return place


def build(place):
    work = os.path.join(CACHE, "work")
    shutil.rmtree(work, ignore_errors=True)
    os.makedirs(work)
    print("building Linux with IPTFS: five minutes of two processors, 3 GB of disk until it is done", file=sys.stderr)
    tools = fetch_tools(work)
    source = fetch_source(work)
    hide_vdso(source)
    environment = {**os.environ, **tools}
    make = ["nice", "-n", "15", "make", "-s", "ARCH=um", f"O={work}/build"]
    run([*make, f"KCONFIG_ALLCONFIG={CONFIG}", "allnoconfig"], source, environment)
    run([*make, f"-j{os.cpu_count()}", "linux"], source, environment)
    os.rename(f"{work}/build/linux", place)
    shutil.rmtree(work)


def fetch_source(work):
    """The folder of the unpacked source."""
    initramfs.take_from("sid", CACHE)
    run(["apt-get", *initramfs.APT, "-q", "update"], work)
    package, = initramfs.depends(SOURCE, "linux-source")
    run(["apt-get", *initramfs.APT, "-q", "download", package], work)
    unpack(work, f"{package}_*.deb", "source")
    archive, = glob.glob(f"{work}/source/usr/src/linux-source-*.tar.xz")
    run(["tar", "-xf", archive], work)
    folder, = glob.glob(f"{work}/linux-source-*/")
    return folder


def hide_vdso(source):
    """Programs are not told of the vDSO, and make system calls instead: it has no `getcpu`, without which rustix, which
    Esplanade uses, does not start."""
    path = f"{source}/arch/x86/um/asm/elf.h"
    with open(path) as file:
        text = file.read()
    told = "#define ARCH_DLINFO	NEW_AUX_ENT(AT_SYSINFO_EHDR, um_vdso_addr)"
    if told not in text:
        raise SystemExit(f"{path} does not say `{told}` any more: see there how programs learn of the vDSO")
    with open(path, "w") as file:
        file.write(text.replace(told, "#define ARCH_DLINFO"))


def fetch_tools(work):
    """What the environment must have for the tools to be found."""
    missing = [tool for tool in TOOLS if shutil.which(tool) is None]
    if not {*missing} - {"libfl2"}:
        return {}
    run(["apt-get", "-q", "download", *TOOLS], work)
    unpack(work, "*.deb", "tools")
    base = f"{work}/tools/usr"
    return {"PATH": f"{base}/bin:{os.environ['PATH']}", "LD_LIBRARY_PATH": f"{base}/lib/x86_64-linux-gnu",
            "BISON_PKGDATADIR": f"{base}/share/bison", "M4": f"{base}/bin/m4"}


def unpack(work, pattern, folder):
    for archive in glob.glob(f"{work}/{pattern}"):
        run(["dpkg-deb", "-x", archive, f"{work}/{folder}"], work)
        os.remove(archive)


def run(command, folder, environment=None):
    """Its output goes to the log, whose end is shown if it fails."""
    with open(f"{CACHE}/build.log", "ab") as log:
        done = subprocess.run(command, cwd=folder, env=environment, stdin=subprocess.DEVNULL, stdout=log,
                              stderr=subprocess.STDOUT)
    if done.returncode:
        raise SystemExit(f"{' '.join(command)}: exit status {done.returncode}; see {CACHE}/build.log. Without the "
                         "Internet, or where Debian's archive is out of reach, this kernel cannot be made.")


if __name__ == "__main__":
    print(kernel())
