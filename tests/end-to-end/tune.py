"""`esplanade tune` on a host of its own: what is set is set, what is put back is as it was, also if it was killed
in between."""

import contextlib
import json
import os
import random
import shutil
import subprocess
import tempfile
import time

from network.expect import expect, expect_refusal
from network.gateway import program
from network.namespace import Network

# Settings that a network namespace has to itself.
NAMES = ("tcp.buffer_bytes", "tcp.sack", "ip_early_demux", "offloads", "rx_udp_gro_forwarding", "gro_flush_timeout_ns",
         "rps_cpus")
FEATURES = ("scatter-gather", "generic-receive-offload", "rx-udp-gro-forwarding", "rx-gro-list")
FILES = ("/proc/sys/net/ipv4/tcp_rmem", "/proc/sys/net/ipv4/tcp_wmem", "/proc/sys/net/ipv4/tcp_sack",
         "/proc/sys/net/ipv4/ip_early_demux", "/sys/class/net/wan/gro_flush_timeout",
         "/sys/class/net/wan/queues/rx-0/rps_cpus", "/sys/class/net/wan/tx_queue_len")


class Tuned:
    """A host with the device `wan`, and what it remembers."""

    def __init__(self, network):
        self.host = network.host("left")
        other = network.host("right")
        network.link(self.host, "wan", other, "wan")
        # Another program has spoilt it.
        self.host.sh("sysctl -qw net.ipv4.tcp_sack=0; ip link set wan up")
        self.folder = tempfile.mkdtemp(prefix="esplanade-tune-")
        self.state = f"{self.folder}/state/tune.json"

    def argv(self, *words):
        devices = ["--device", "wan"] if words[0] != "revert" else []
        return [program(), "tune", *words, *devices, "--state", self.state]

    def attempt(self, *words, before=()):
        done = subprocess.run(self.host.argv([*before, *self.argv(*words)]), capture_output=True, text=True, timeout=60,
                              stdin=subprocess.DEVNULL)
        return done.returncode, done.stdout + done.stderr

    def ask(self, *words):
        status, output = self.attempt(*words)
        expect(status == 0, f"tune {' '.join(words)}: exit status {status}:\n{output}")
        return output

    def rows(self):
        return {row["name"]: row for row in json.loads(self.ask("show", "--json"))["settings"]}

    def values(self):
        """What the host says by itself."""
        features = self.host.sh("ethtool -k wan")
        lines = [line.strip() for line in features.splitlines() if line.strip().split(":")[0] in FEATURES]
        return [self.host.sh(f"cat {path}").split() for path in FILES] + lines


@contextlib.contextmanager
def tuned():
    with Network("tu") as network:
        one = Tuned(network)
        try:
            yield one
        finally:
            shutil.rmtree(one.folder)


def what_is_applied_is_set_and_what_is_reverted_is_as_it_was():
    with tuned() as one:
        before = one.values()
        rows = one.rows()
        expect(rows["tcp.sack"]["verdict"] == "proposed", f"{rows['tcp.sack']}")
        expect(rows["rps_cpus"]["verdict"] in ("on-request", "good"), f"{rows['rps_cpus']}")
        # This kernel has them, but no network namespace of its own does.
        expect(rows["netdev_budget"]["verdict"] == "absent", f"{rows['netdev_budget']}")
        expect("not measured here" in rows["tcp.sack"]["measured"], f"{rows['tcp.sack']}")
        one.ask("apply", *NAMES)
        expect(one.host.sh("cat /proc/sys/net/ipv4/tcp_sack").strip() == "1", "tcp_sack is not set")
        expect(one.host.sh("cat /proc/sys/net/ipv4/tcp_wmem").split()[2] == "16777216", "tcp_wmem is not set")
        expect("rx-udp-gro-forwarding: on" in one.host.sh("ethtool -k wan"), "the feature is not on")
        after = one.rows()
        expect(all(after[name]["verdict"] == "good" for name in NAMES), f"{[(n, after[n]['verdict']) for n in NAMES]}")
        expect("set by `tune apply`, before: 0" in one.ask("show"), "it does not say what was there")
        expect(os.stat(one.state).st_mode & 0o777 == 0o600, "others may read the file")
        one.ask("revert", "tcp.sack")
        expect(one.rows()["tcp.sack"]["verdict"] == "proposed", "it was not put back alone")
        one.ask("revert")
        expect(one.values() == before, f"{before} became {one.values()}")
        expect(not os.path.exists(one.state), "the file stays although nothing is changed any more")
        expect("nothing to change" in one.ask("revert"), "a second time finds something")


def after_it_was_killed_everything_can_be_put_back():
    """Anywhere between the first look and the last write; every place must come to the same end."""
    with tuned() as one:
        before, chance, half_way = one.values(), random.Random(9347), 0
        for _ in range(25):
            process = one.host.start(one.argv("apply", *NAMES), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            time.sleep(chance.random() * 0.12)
            process.kill()
            process.wait()
            half_way += os.path.exists(one.state)
            one.ask("revert")
            expect(one.values() == before, f"{before} became {one.values()}")
            expect(not os.path.exists(one.state), "the file stays")
        return f"{half_way} of 25 were killed after they had begun"


def what_another_program_has_set_since_is_left_alone():
    with tuned() as one:
        one.ask("apply", "tcp.buffer_bytes", "tcp.sack")
        one.host.sh("sysctl -qw net.ipv4.tcp_wmem='4096 16384 5000000'")
        status, output = one.attempt("revert")
        expect_refusal(status, output, "tcp_wmem", "was changed to", "5000000", "--force")
        expect(one.host.sh("cat /proc/sys/net/ipv4/tcp_sack").strip() == "0", "the rest was not put back")
        one.ask("revert", "--force")
        expect(one.host.sh("cat /proc/sys/net/ipv4/tcp_wmem").split()[2] != "5000000", "not even by force")


def without_privileges_it_shows_and_says_what_it_needs():
    with tuned() as one:
        shutil.copy(program(), one.folder)
        os.chmod(one.folder, 0o755)
        unprivileged = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", f"{one.folder}/esplanade"]

        def attempt(*words):
            done = subprocess.run(one.host.argv([*unprivileged, *words]), capture_output=True, text=True, timeout=60,
                                  stdin=subprocess.DEVNULL)
            return done.returncode, done.stdout + done.stderr
        status, output = attempt("tune", "show", "--device", "wan")
        expect(status == 0 and "tcp.sack" in output, f"exit status {status}:\n{output}")
        expect_refusal(*attempt("tune", "apply", "tcp.sack"), "/var/lib/esplanade/tune.json", "root")
        expect_refusal(*attempt("tune", "apply", "tcp.sack", "--state", f"{one.folder}/x.json"), "root")
        expect(one.host.sh("cat /proc/sys/net/ipv4/tcp_sack").strip() == "0", "it was changed")


def mistakes_are_answered():
    with tuned() as one:
        expect_refusal(*one.attempt("apply", "rmem_mx"), "rmem_mx", "did you mean `rmem_max`")
        expect_refusal(*one.attempt("apply", "mitigations"), "shown only")
        expect_refusal(*one.attempt("apply", "netdev_budget"), "does not exist")
        expect_refusal(*one.attempt("show", "--from", one.folder), "no records", "lab run tune")
        expect_refusal(*one.attempt("show", "--device", "nosuch0"), "no device `nosuch0`")


CASES = {
    "what is applied is set, and what is reverted is as it was": what_is_applied_is_set_and_what_is_reverted_is_as_it_was,
    "after it was killed everything can be put back": after_it_was_killed_everything_can_be_put_back,
    "what another program has set since is left alone": what_another_program_has_set_since_is_left_alone,
    "without privileges it shows, and says what it needs": without_privileges_it_shows_and_says_what_it_needs,
    "mistakes are answered": mistakes_are_answered,
}
