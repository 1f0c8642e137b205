"""Makes what QEMU boots: a Debian kernel that has ESP, AH and WireGuard, and a root file system in memory.

    initramfs.py base FOLDER INIT   the kernel, its modules, busybox and INIT as first process; made once and
                                    kept in FOLDER; prints the paths of the kernel and the file system
    initramfs.py add THING...       more for that file system, on standard output: the kernel takes one archive
                                    after another. A THING is a program or a folder, with all libraries it needs,
                                    or a file; HERE=THERE puts it elsewhere; what is not there is left out

The kernel comes from Debian's archive and is only unpacked, never installed.
"""

import glob
import hashlib
import lzma
import os
import re
import shutil
import stat
import subprocess
import sys
import tempfile

# Newest first; the second is the one of Debian 12 itself.
KERNELS = ["linux-image-6.12-cloud-amd64", "linux-image-cloud-amd64"]
MODULES = ["arch/x86/crypto", "crypto", "lib", "net/802", "net/bridge", "net/core", "net/ipv4", "net/ipv6",
           "net/key", "net/llc", "net/netfilter", "net/packet", "net/sched", "net/unix", "net/xfrm",
           "drivers/net/dummy", "drivers/net/net_failover", "drivers/net/veth", "drivers/net/virtio_net",
           "drivers/net/wireguard", "drivers/net/tun", "drivers/virtio", "drivers/char/virtio_console"]
BUSYBOX = "/bin/busybox"
# A program that was built for debugging is mostly that; without it the guest boots sooner.
LARGE = 8 << 20
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


# Options of apt by which packages come from another release of Debian than this machine's.
APT = []


def take_from(release, folder):
    """From now on kernels come from this release of Debian, whose index is kept in the folder."""
    place = os.path.abspath(f"{folder}/apt-{release}")
    for part in ("lists", "archives"):
        os.makedirs(f"{place}/{part}/partial", exist_ok=True)
    with open(f"{place}/sources.list", "w") as file:
        file.write(f"deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] http://deb.debian.org/debian {release} main\n")
    places = {"Etc::SourceList": f"{place}/sources.list", "Etc::SourceParts": "-", "State::Lists": f"{place}/lists",
              "Cache": place}
    APT[:] = [word for name, path in places.items() for word in ("-o", f"Dir::{name}={path}")]


def base(folder, init, things=()):
    """Paths of the kernel and the initial file system, made now if they are not there."""
    package = kernel_package()
    place = os.path.join(folder, fingerprint(package, [init, *things]))
    if not os.path.exists(f"{place}/ready"):
        os.makedirs(folder, exist_ok=True)
        # Two that build at once must not meet: each builds apart, and one of them is kept.
        half = tempfile.mkdtemp(prefix="half-", dir=folder)
        try:
            build(package, half, init, things)
            shutil.rmtree(place, ignore_errors=True)
            os.rename(half, place)
        finally:
            shutil.rmtree(half, ignore_errors=True)
    return f"{place}/vmlinuz", f"{place}/initramfs"


def fingerprint(package, things):
    sources = [package.encode()]
    for path in [__file__, *map(found, things)]:
        with open(path, "rb") as file:
            sources.append(file.read())
    return hashlib.sha256(b"\0".join(sources)).hexdigest()[:12]


def found(thing):
    """Where a thing is on this machine, if it is."""
    here = thing.partition("=")[0]
    here = here if "/" in here else shutil.which(here, path=PATH)
    return here if here and os.path.exists(here) else None


def kernel_package():
    """The name of the newest kernel package that the archive's index knows."""
    for attempt in range(2):
        for meta in KERNELS:
            if found := depends(meta, "linux-image"):
                return found[0]
        if attempt == 0 and os.geteuid() == 0:
            subprocess.run(["apt-get", *APT, "update"], check=True, stdout=subprocess.DEVNULL)
    raise SystemExit(f"none of {KERNELS} is in the package index; run: sudo apt-get update")


def depends(package, kinds):
    """Packages that one depends on, of these kinds."""
    text = subprocess.run(["apt-cache", *APT, "depends", package], capture_output=True, text=True).stdout
    return re.findall(rf"Depends: ((?:{kinds})-\S+)", text)


def build(package, place, init, things):
    folder = os.path.abspath(place)
    # From Linux 7 on Debian's kernel is several packages.
    packages = [package, *depends(package, "linux-base|linux-binary|linux-modules")]
    subprocess.run(["apt-get", *APT, "download", "-q", *packages], cwd=folder, check=True,
                   stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    archives = glob.glob(f"{folder}/*.deb")
    for archive in archives:
        subprocess.run(["dpkg-deb", "-x", archive, f"{folder}/kernel"], check=True)
    vmlinuz, = glob.glob(f"{folder}/kernel/boot/vmlinuz-*") or glob.glob(f"{folder}/kernel/usr/lib/modules/*/vmlinuz")
    shutil.move(vmlinuz, f"{folder}/vmlinuz")
    root = f"{folder}/root"
    install(init, f"{root}/init")
    install(BUSYBOX, f"{root}{BUSYBOX}")
    install_modules(root, f"{folder}/kernel")
    for thing in things:
        add(root, thing)
    with open(f"{folder}/initramfs", "wb") as out:
        write_cpio(root, out)
    for archive in archives:
        os.remove(archive)
    shutil.rmtree(f"{folder}/kernel")
    shutil.rmtree(root)
    open(f"{folder}/ready", "w").close()


def add(root, thing):
    """A program, file or folder where the guest finds it under the same path, with its libraries."""
    here = found(thing)
    if not here:
        return
    there = os.path.abspath(thing.partition("=")[2] or here)
    for path in [here] if os.path.isfile(here) else files(here):
        target = root + there + path.removeprefix(here)
        install(path, target)
        if os.path.getsize(path) > LARGE and shutil.which("strip"):
            subprocess.run(["strip", target], stderr=subprocess.DEVNULL)
        for library in libraries(path):
            install(library, root + library)


def files(folder):
    return [os.path.join(place, name) for place, _, names in os.walk(folder) for name in names
            if os.path.isfile(os.path.join(place, name))]


def install(source, target):
    os.makedirs(os.path.dirname(target), exist_ok=True)
    if not os.path.exists(target):
        shutil.copyfile(source, target)
        os.chmod(target, 0o755)


def libraries(path):
    """What the loader would load; nothing for a text or a static program."""
    with open(path, "rb") as file:
        if file.read(4) != b"\x7fELF":
            return []
    listing = subprocess.run(["ldd", path], capture_output=True, text=True).stdout
    return [library for library in re.findall(r"(/\S+)", listing) if os.path.isfile(library)]


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


def main(words):
    match words:
        case ["base", folder, init]:
            print(*base(folder, init), sep="\n")
        case ["add", *things]:
            with tempfile.TemporaryDirectory() as root:
                for thing in things:
                    add(root, thing)
                write_cpio(root, sys.stdout.buffer)
        case _:
            sys.exit(__doc__.strip())


if __name__ == "__main__":
    main(sys.argv[1:])
