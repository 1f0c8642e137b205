"""Two hosts with a wire between, and the initiators on one of them."""

import json
import os
import subprocess

from measuring import certificates
from measuring.kinds import SECRET
from network.gateway import program
from network.namespace import Network

# So many handshakes wait for the responder at a time: it always has work.
IN_FLIGHT = 64
LIMIT_SECONDS = 120


class Bench:
    def __init__(self, folder, cpus):
        self.folder = folder
        self.cpus = cpus.split(",")
        self.network = Network("rates")

    def __enter__(self):
        self.network.__enter__()
        self.left, self.right = self.network.host("left"), self.network.host("right")
        self.network.link(self.left, "wan", self.right, "wan")
        for host, address in ((self.left, "192.0.2.1"), (self.right, "192.0.2.2")):
            host.sh(f"ip link set wan up; ip addr add {address}/24 dev wan; sysctl -qw net.ipv4.ip_forward=1")
        # With thousands of networks the gateway reroutes what has a route already.
        self.right.sh("ip addr add 10.255.0.1/32 dev lo; ip route add default via 192.0.2.1")
        return self

    def __exit__(self, *_):
        self.network.__exit__()

    def certificates(self, kind, count):
        """Where they are; none for a pre-shared key."""
        if kind.key is None:
            return None
        folder = f"{self.folder}/certificates"
        if not os.path.exists(folder):
            certificates.make(folder, kind.key, count)
        return folder

    def initiators(self, kind, count, folder, hold=False, echo=True):
        """Starts so many initiators on the left host. Without `echo` they send no packet through their tunnels."""
        return self._many_peers(kind, count, folder, hold=hold, echo=echo)

    def responder(self, kind, count, folder):
        """Starts the other end of so many initiators, in one process without a data plane, on the right host."""
        process = self._many_peers(kind, count, folder, role="responder")
        process.stdout.readline()
        return process

    def _many_peers(self, kind, count, folder, role="initiator", **more):
        hosts = [(self.left, "192.0.2.1", self.cpus[0]), (self.right, "192.0.2.2", self.cpus[1])]
        (host, local, cpu), (_, remote, _) = hosts if role == "initiator" else hosts[::-1]
        settings = {"role": role, "local": local, "remote": remote, "count": count, "in_flight": IN_FLIGHT,
                    "limit_seconds": LIMIT_SECONDS, "ike": kind.ike, "esp": kind.esp, **more}
        settings |= {"folder": folder} if folder else {"psk": SECRET}
        argv = ["taskset", "-c", cpu, program("examples/many_peers"), json.dumps(settings)]
        return subprocess.Popen(host.argv(argv), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def bring_up(self, kind, count, folder, echo=True):
        """The report of initiators that end behind the last handshake."""
        process = self.initiators(kind, count, folder, echo=echo)
        output, _ = process.communicate(timeout=LIMIT_SECONDS + 60)
        report = json.loads(output)
        if report["answered"] != count:
            raise RuntimeError(f"not every tunnel carried a packet: {report}")
        return report
