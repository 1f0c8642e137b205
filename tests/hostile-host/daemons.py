"""Daemons that exchange keys for the kernel's own IPsec, started and stopped beside the gateway: strongSwan's and
Libreswan's.

Debian lets only one of the two be installed, so Libreswan's package and the libraries that it names are unpacked into a
folder of their own, and laid over /usr/libexec for the daemon alone:

    daemons.py        fetches them while there is an Internet
"""

import glob
import os
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [HERE, os.path.dirname(HERE)]

from network.expect import expect  # noqa: E402

CHARON = "/usr/lib/ipsec/charon"
LIBRESWAN = os.path.join(os.path.dirname(os.path.dirname(HERE)), ".cache/libreswan")
PLUTO = "usr/libexec/ipsec/pluto"
PACKAGES = ["libreswan", "libcurl3-nss", "libevent-2.1-7", "libevent-core-2.1-7", "libevent-pthreads-2.1-7", "libldns3",
            "libnspr4", "libnss3", "libnss3-tools", "libunbound8"]
# Seconds until a daemon has started, or has ended.
START_TIMEOUT, HELD_FOR = 20, 0.05
# What only such a daemon has in the kernel: charon's routing rule, and pluto's policies for neighbour discovery.
RULE, POLICIES = "ip rule | grep 'lookup 220'", "ip xfrm policy | grep 'type 135'"


def has_charon(_):
    return os.path.exists(CHARON)


def has_pluto(_):
    return os.path.exists(f"{LIBRESWAN}/{PLUTO}")


def charon(bench):
    """With a /run and a configuration of its own."""
    with tempfile.TemporaryDirectory(prefix="esplanade-charon-") as folder:
        with open(f"{folder}/strongswan.conf", "w") as file:
            file.write("charon { load = random nonce openssl kdf hmac kernel-netlink socket-default }")
        start_and_stop(bench, f"mount -t tmpfs run /run; STRONGSWAN_CONF={folder}/strongswan.conf exec {CHARON}", RULE)


def pluto(bench):
    """With a /run, keys and a configuration of its own."""
    with tempfile.TemporaryDirectory(prefix="esplanade-pluto-") as folder:
        for name, text in (("ipsec.conf", "config setup\n"), ("ipsec.secrets", "")):
            with open(f"{folder}/{name}", "w") as file:
                file.write(text)
        libraries, = (os.path.basename(path) for path in glob.glob(f"{LIBRESWAN}/usr/lib/*-linux-gnu"))
        # The programs that pluto starts get no LD_LIBRARY_PATH from it.
        start_and_stop(bench, f"""mount -t tmpfs run /run; mkdir /run/pluto
            for folder in libexec lib/{libraries}; do
                mount -t overlay -o lowerdir={LIBRESWAN}/usr/$folder:/usr/$folder overlay /usr/$folder
            done
            mkdir {folder}/nss
            {LIBRESWAN}/usr/bin/certutil -N -d sql:{folder}/nss --empty-password
            exec /{PLUTO} --nofork --config {folder}/ipsec.conf --nssdir {folder}/nss --rundir /run/pluto \\
                --secretsfile {folder}/ipsec.secrets --nhelpers 1""", POLICIES)


def start_and_stop(bench, script, evidence):
    """What a daemon has in the kernel shows that it is up, and has gone again."""
    expect(bench.attempt(evidence)[0] != 0, f"the control failed before the daemon starts: {evidence} succeeds")
    with tempfile.TemporaryFile("w+") as log:
        daemon = bench.sites.left.start(["unshare", "-m", "sh", "-c", script], stdout=log, stderr=log)
        try:
            deadline = time.monotonic() + START_TIMEOUT
            while bench.attempt(evidence)[0] != 0:
                expect(time.monotonic() < deadline and daemon.poll() is None,
                       f"the daemon does not start: {words(log)}")
                time.sleep(0.05)
            time.sleep(HELD_FOR)
            expect(daemon.poll() is None, f"the daemon has ended: {words(log)}")
            daemon.terminate()
            daemon.wait(START_TIMEOUT)
        finally:
            daemon.kill()
            daemon.wait()
    bench.sh(f"if {evidence}; then ip xfrm policy flush; ip xfrm state flush; fi")
    expect(bench.attempt(evidence)[0] != 0, f"the control failed: {evidence} still succeeds")


def words(log):
    log.seek(0)
    return log.read()[-1500:]


def fetch():
    """Libreswan, unpacked and not installed."""
    if has_pluto(None):
        return
    os.makedirs(LIBRESWAN, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="esplanade-libreswan-") as folder:
        download = ["apt-get", "download", "-q", *PACKAGES]
        if subprocess.run(download, cwd=folder, stdout=subprocess.DEVNULL).returncode != 0:
            # The index may be older than the archive, or not be there.
            subprocess.run(["apt-get", "update"], check=True, stdout=subprocess.DEVNULL)
            subprocess.run(download, cwd=folder, check=True, stdout=subprocess.DEVNULL)
        # The daemon comes last, and says that all is there.
        for archive in sorted(glob.glob(f"{folder}/*.deb"), key=lambda path: "libreswan" in path):
            subprocess.run(["dpkg-deb", "-x", archive, LIBRESWAN], check=True)


if __name__ == "__main__":
    fetch()
