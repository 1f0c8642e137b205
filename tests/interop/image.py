"""Makes what QEMU boots: a Debian kernel that has ESP and AH, and a small root file system.

The kernel comes from Debian's archive and is only unpacked, never installed. The root file system
is busybox, bash, iproute2's `ip`, `ping` and `iperf3` with their libraries, and the kernel's modules.
Both are kept under .cache, named by what they were made from.
"""

import glob
import hashlib
import lzma
import os
import re
import shutil
import stat
import subprocess

HERE = os.path.dirname(os.path.abspath(__file__))
CACHE = ".cache/interop"
# Newest first; the second is the one of Debian 12 itself.
KERNELS = ["linux-image-6.12-cloud-amd64", "linux-image-cloud-amd64"]
MODULES = ["arch/x86/crypto", "crypto", "lib", "net/802", "net/bridge", "net/core", "net/ipv4", "net/ipv6",
           "net/key", "net/llc", "net/packet", "net/sched/sch_netem", "net/unix", "net/xfrm",
           "drivers/net/dummy", "drivers/net/net_failover", "drivers/net/veth", "drivers/net/virtio_net",
           "drivers/net/tun"]
# Before busybox on the path: its `ip` knows no xfrm, and its shell would prefer its own applets.
PROGRAMS = ["bash", "ip", "ping", "iperf3"]
BUSYBOX = "/bin/busybox"
# Built here: they are of use on this side of the wire too, so they stay beside the image.
C_PROGRAMS = ["encapsulate.c", "probe.c"]


def image():
    """Paths of the kernel and the initial file system, made now if they are not there."""
    package = kernel_package()
    place = os.path.join(CACHE, fingerprint(package))
    if not os.path.exists(f"{place}/ready"):
        shutil.rmtree(place, ignore_errors=True)
        os.makedirs(place)
        build(package, place)
        open(f"{place}/ready", "w").close()
    return f"{place}/vmlinuz", f"{place}/initramfs"


def fingerprint(package):
    sources = [package.encode()]
    for path in ["image.py", "init", "listen", *C_PROGRAMS]:
        with open(os.path.join(HERE, path), "rb") as file:
            sources.append(file.read())
    return hashlib.sha256(b"\0".join(sources)).hexdigest()[:12]


def kernel_package():
    """The name of the newest kernel package that the archive's index knows."""
    for attempt in range(2):
        for meta in KERNELS:
            text = subprocess.run(["apt-cache", "depends", meta], capture_output=True, text=True).stdout
            if found := re.search(r"Depends: (linux-image-\S+)", text):
                return found[1]
        if attempt == 0 and os.geteuid() == 0:
            subprocess.run(["apt-get", "update"], check=True, stdout=subprocess.DEVNULL)
    raise SystemExit(f"none of {KERNELS} is in the package index; run: sudo apt-get update")


def build(package, place):
    folder = os.path.abspath(place)
    subprocess.run(["apt-get", "download", "-q", package], cwd=folder, check=True,
                   stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    archive, = glob.glob(f"{folder}/*.deb")
    subprocess.run(["dpkg-deb", "-x", archive, f"{folder}/kernel"], check=True)
    vmlinuz, = glob.glob(f"{folder}/kernel/boot/vmlinuz-*")
    shutil.move(vmlinuz, f"{folder}/vmlinuz")
    root = f"{folder}/root"
    fill(root, f"{folder}/kernel")
    with open(f"{folder}/initramfs", "wb") as out:
        write_cpio(root, out)
    os.remove(archive)
    shutil.rmtree(f"{folder}/kernel")
    shutil.rmtree(root)


def fill(root, kernel):
    for script in ["init", "listen"]:
        install(os.path.join(HERE, script), f"{root}/{script}")
    install(BUSYBOX, f"{root}/bin/busybox")
    for name in PROGRAMS:
        path = shutil.which(name, path="/usr/sbin:/usr/bin:/sbin:/bin")
        install(path, f"{root}/usr/bin/{name}")
        for library in libraries(path):
            install(library, root + library)
    for source in C_PROGRAMS:
        program = source.removesuffix(".c")
        subprocess.run(["cc", "-static", "-O1", "-Wall", "-Werror", "-o", f"{root}/../{program}",
                        os.path.join(HERE, source)], check=True)
        install(f"{root}/../{program}", f"{root}/usr/bin/{program}")
    install_modules(root, kernel)


def install(source, target):
    os.makedirs(os.path.dirname(target), exist_ok=True)
    shutil.copyfile(source, target)
    os.chmod(target, 0o755)


def libraries(program):
    listing = subprocess.run(["ldd", program], capture_output=True, text=True, check=True).stdout
    return re.findall(r"(/\S+\.so\S*)", listing)


def install_modules(root, kernel):
    folder, = glob.glob(f"{kernel}/lib/modules/*") or glob.glob(f"{kernel}/usr/lib/modules/*")
    version = os.path.basename(folder)
    for prefix in MODULES:
        base = f"{folder}/kernel/{prefix}"
        for path in glob.glob(f"{base}.ko*") + glob.glob(f"{base}/**/*.ko*", recursive=True):
            unpack(path, f"{root}/lib/modules/{version}/{os.path.relpath(path, folder)}")
    for name in ["modules.builtin", "modules.order"]:
        shutil.copyfile(f"{folder}/{name}", f"{root}/lib/modules/{version}/{name}")
    subprocess.run([BUSYBOX, "depmod", "-b", root, version], check=True)


def unpack(path, target):
    """Modules are kept unpacked: busybox's modprobe need not know the compression of the day."""
    with open(path, "rb") as file:
        data = file.read()
    if path.endswith(".xz"):
        data, target = lzma.decompress(data), target.removesuffix(".xz")
    os.makedirs(os.path.dirname(target), exist_ok=True)
    with open(target, "wb") as file:
        file.write(data)


def write_cpio(root, out):
    """The "newc" archive that the kernel unpacks into its first file system."""
    for number, path in enumerate(sorted(walk(root)), 1):
        name = os.path.relpath(path, root).encode()
        mode = os.lstat(path).st_mode
        data = b""
        if stat.S_ISREG(mode):
            with open(path, "rb") as file:
                data = file.read()
        write_entry(out, number, name, mode, data)
    write_entry(out, 0, b"TRAILER!!!", 0, b"")


def walk(root):
    for folder, names, files in os.walk(root):
        yield from (os.path.join(folder, name) for name in names + files)


def write_entry(out, number, name, mode, data):
    fields = [number, mode, 0, 0, 1, 0, len(data), 0, 0, 0, 0, len(name) + 1, 0]
    header = b"070701" + b"".join(b"%08x" % field for field in fields) + name + b"\0"
    out.write(header + padding(header) + data + padding(data))


def padding(data):
    return bytes(-len(data) % 4)


if __name__ == "__main__":
    print(*image())
