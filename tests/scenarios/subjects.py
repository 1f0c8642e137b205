"""Who is put to the test: a router on one wire, with our user plane, with our kernel plane, or the kernel alone.

                 one wire
   runner ════════════════════ subject      192.0.2.1  2001:db8::1  toward the peer
   as LAN host 10.1.0.9, fd00:1::9          10.1.0.1   fd00:1::1    toward the LAN
   as peer     192.0.2.2, 2001:db8::2       routes to 10.2.0.0/24, fd00:2::/64 by way of the peer

    gateway        `esplanade run`, in a network namespace of this machine
    kernel         a guest's kernel, told by `setkey --plane kernel`; no gateway runs
    kernel-plane   `esplanade run --plane kernel`, in a guest whose kernel has nftables' family `inet`

The same addresses, neighbours and routes for all, and a hardware address for each; which of its two parts the runner
plays shows in the frame's hardware address.
"""

import base64
import json

from crafting import LAN_MAC, PEER_MAC
from guest_gateway import GuestGateway
from network.gateway import Gateway, GatewayError

MACS = {"gateway": "02:00:00:00:00:51", "kernel": "02:00:00:00:00:52", "kernel-plane": "02:00:00:00:00:53"}
ADDRESSES = f"""
ip link set DEV address MAC up
ip addr add 192.0.2.1/24 dev DEV; ip addr add 10.1.0.1/24 dev DEV
ip addr add 2001:db8::1/64 dev DEV nodad; ip addr add fd00:1::1/64 dev DEV nodad
ip neigh add 192.0.2.2 lladdr {PEER_MAC} dev DEV nud permanent
ip neigh add 2001:db8::2 lladdr {PEER_MAC} dev DEV nud permanent
ip neigh add 10.1.0.9 lladdr {LAN_MAC} dev DEV nud permanent
ip neigh add fd00:1::9 lladdr {LAN_MAC} dev DEV nud permanent
ip route add 10.2.0.0/24 via 192.0.2.2; ip -6 route add fd00:2::/64 via 2001:db8::2
"""
# A router that sends everything back where it came from would otherwise announce that to all hosts.
SETTINGS = ["net.ipv4.ip_forward=1", "net.ipv6.conf.all.forwarding=1", "net.ipv4.conf.all.rp_filter=0",
            "net.ipv4.conf.default.rp_filter=0", "net.ipv4.conf.DEV.rp_filter=0",
            "net.ipv4.conf.all.send_redirects=0", "net.ipv4.conf.DEV.send_redirects=0",
            "net.ipv6.conf.DEV.accept_dad=0"]


def build_script(device, kind):
    lines = [f"sysctl -w {setting} > /dev/null" for setting in SETTINGS] + ADDRESSES.strip().splitlines()
    return "set -e\n" + "\n".join(lines).replace("DEV", device).replace("MAC", MACS[kind])


class GuestSubject:
    """In a network namespace of a guest."""

    def __init__(self, shell, wire):
        self.shell, self.wire = shell, wire
        self.mac = MACS[self.kind]

    def sh(self, script, limit=60):
        if not script:
            return ""
        status, output = self.shell.run(script, limit)
        if status != 0:
            raise RuntimeError(f"in the guest: exit status {status}\n{output}")
        return output

    def explain(self, question):
        return None


class KernelSubject(GuestSubject):
    """The guest's kernel, told by `setkey --plane kernel`."""

    kind = "kernel"

    def up(self, setkey):
        text = base64.b64encode(setkey.encode()).decode()
        self.sh(f"echo {text} | base64 -d > /tmp/subject.conf; setkey --plane kernel -f /tmp/subject.conf")
        self.before = self.counts()

    def counts(self):
        lines = self.sh("cat /proc/net/xfrm_stat").splitlines()
        return {name: int(count) for name, count in (line.split() for line in lines)}

    def drops(self):
        after = self.counts()
        return {name: after[name] - self.before[name] for name in after if after[name] != self.before[name]}

    def down(self):
        self.sh("setkey --plane kernel -F; setkey --plane kernel -FP")


class KernelPlaneSubject(GuestSubject):
    """Our gateway, with its barriers and its watch, in the guest; the kernel's IPsec carries the packets."""

    kind = "kernel-plane"

    def __init__(self, *what):
        super().__init__(*what)
        self.gateway = GuestGateway(self.sh, "/tmp/kernel-plane")
        self.up, self.down, self.drops = self.gateway.start, self.gateway.down, self.gateway.drops

    def refusal(self, setkey):
        """What it says where it refuses to start, which has to change nothing; nothing where it starts."""
        said = self.gateway.refusal(setkey)
        self.gateway.expect_nothing_left()
        return said

    def explain(self, question):
        return " ".join(self.gateway.ask(f"explain {question}").split())


class GatewaySubject:
    """Our gateway on a host of this machine."""

    kind = "gateway"

    def __init__(self, host, wire):
        self.host, self.wire = host, wire
        self.mac = MACS[self.kind]
        self.gateway = None

    def sh(self, script):
        return self.host.sh(script) if script else ""

    def up(self, setkey):
        self.gateway = Gateway(self.host, setkey)
        self.gateway.ready()

    def drops(self):
        reasons = json.loads(self.gateway.ask("drops", "--json"))["reasons"]
        return {name: count for name, count in reasons.items() if count}

    def explain(self, question):
        return " ".join(self.gateway.ask("explain", *question.split()).split())

    def down(self):
        if self.gateway is None:
            return
        gateway, self.gateway = self.gateway, None
        try:
            gateway.stop()
        except GatewayError:
            pass
        gateway.attempt("down")
