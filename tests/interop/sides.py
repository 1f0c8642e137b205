"""The two ends of a case. The right one is always the Linux kernel in the guest; the left one is
the same kernel once more (which proves the case itself), our gateway, or (in the pairwise cover) our gateway on the
kernel plane, in a guest that has what its barriers need.

        on this machine                 │           in the guest
   client ── gateway ── bridge ── tap0 ─┼─ eth0 ── bridge ──┬── namespace "right"
                          │             │                   └── namespace "left"
                          └────── tap1 ─┼─ eth0 ── bridge ───── namespace "plane"

All bridges forget what they learn and flood every frame, so tap0 sees all the wires. With --guest qemu one guest has
all namespaces, and there is no tap1.
"""

import os
import tempfile
from dataclasses import dataclass

from network.gateway import Gateway

FILE_SIZE = 300_000


@dataclass(frozen=True)
class Ends:
    """Addresses of one side: outside, inside, and the network that the policy names."""
    outer: dict
    inner: dict
    net: dict
    mac: str


RIGHT = Ends({4: "192.0.2.2", 6: "2001:db8::2"}, {4: "10.2.0.1", 6: "fd00:2::1"},
             {4: "10.2.0.0/24", 6: "fd00:2::/64"}, "02:00:00:00:00:02")
KERNEL_LEFT = Ends({4: "192.0.2.3", 6: "2001:db8::3"}, {4: "10.3.0.1", 6: "fd00:3::1"},
                   {4: "10.3.0.0/24", 6: "fd00:3::/64"}, "02:00:00:00:00:03")
GATEWAY_LEFT = Ends({4: "192.0.2.1", 6: "2001:db8::1"}, {4: "10.1.0.2", 6: "fd00:1::2"},
                    {4: "10.1.0.0/24", 6: "fd00:1::/64"}, "02:00:00:00:00:01")
KERNEL_PLANE_LEFT = Ends({4: "192.0.2.4", 6: "2001:db8::4"}, {4: "10.4.0.1", 6: "fd00:4::1"},
                         {4: "10.4.0.0/24", 6: "fd00:4::/64"}, "02:00:00:00:00:04")


def selectors(case, ends):
    """What a policy selects on one side: its network, or the host itself in transport mode."""
    return ends.net[case.inner] if case.mode == "tunnel" else ends.outer[case.outer]


def target(case, ends):
    """The address to talk to on one side."""
    return ends.inner[case.inner] if case.mode == "tunnel" else ends.outer[case.outer]


class KernelSide:
    """The guest's kernel as one end, by `ip xfrm`, in a namespace of the guest."""

    def __init__(self, shell, ends):
        self.shell, self.ends = shell, ends
        self.data = f"/tmp/{ends.mac[-2:]}"

    def prepare(self):
        """Addresses and servers that stay for all cases."""
        for family, length in ((4, 24), (6, 64)):
            self.sh(f"ip -{family} addr add {self.ends.inner[family]}/{32 if family == 4 else 128} dev lo")
        self.sh(f"mkdir -p {self.data} && head -c {FILE_SIZE} /dev/urandom > {self.data}/file")
        self.background(f"httpd -f -p 80 -h {self.data}")
        self.background("encapsulate")

    def sh(self, script, limit=60):
        status, output = self.shell.run("set -e; " + script, limit)
        if status != 0:
            raise RuntimeError(f"in the guest: {script}: exit status {status}\n{output}")
        return output

    def attempt(self, script, limit=60):
        return self.shell.run(script, limit)

    def background(self, command):
        self.sh(f"setsid {command} > /dev/null 2>&1 < /dev/null &")

    def up(self, case, other):
        mine, theirs = self.ends, other.ends
        pairs = ((mine, theirs), (theirs, mine))
        script = [f"ip xfrm state add {self.state(case, *pair)}" for pair in pairs]
        if case.ipcomp:
            script += [f"ip xfrm state add {self.compression(case, *pair)}" for pair in pairs]
        script += [f"ip xfrm policy add src {selectors(case, source)} dst {selectors(case, destination)} "
                   f"dir {direction} {self.templates(case, direction, source, destination)}"
                   for direction, source, destination in (("out", mine, theirs), ("in", theirs, mine))]
        self.sh("\n".join(script))

    @staticmethod
    def templates(case, direction, source, destination):
        ends = f"src {source.outer[case.outer]} dst {destination.outer[case.outer]}"
        esp = f"tmpl {ends} proto esp reqid 1 mode {case.esp_mode}"
        # What arrives need not be compressed.
        level = "use" if direction == "in" else "required"
        return f"tmpl {ends} proto comp reqid 2 mode {case.mode} level {level} {esp}" if case.ipcomp else esp

    @staticmethod
    def compression(case, source, destination):
        return (f"src {source.outer[case.outer]} dst {destination.outer[case.outer]} proto comp "
                f"spi {case.cpi(source.mac)} reqid 2 mode {case.mode} comp deflate")

    def state(self, case, source, destination):
        words = [f"src {source.outer[case.outer]} dst {destination.outer[case.outer]} proto esp",
                 f"spi {case.spi(source.mac)} reqid 1 mode {case.esp_mode}"]
        flags = ["af-unspec"] if case.esp_mode == "tunnel" and case.inner != case.outer else []
        words.append("replay-window 1024")
        if case.esn:
            flags.append("esn")
        if flags:
            words.append("flag " + " ".join(flags))
        words.append(case.algorithms("kernel", source.mac))
        if case.encap == "udp":
            words.append(f"encap espinudp 4500 4500 {'0.0.0.0' if case.outer == 4 else '::'}")
        return " ".join(words)

    def down(self):
        self.attempt("ip xfrm state flush; ip xfrm policy flush")

    def counters(self):
        """What this side refused so far: (replayed, not authentic, everything else)."""
        counts = {}
        for line in self.sh("cat /proc/net/xfrm_stat").splitlines():
            name, value = line.split()
            counts[name] = int(value)
        replayed = counts.pop("XfrmInStateSeqError")
        forged = counts.pop("XfrmInStateProtoError")
        return {"replayed": replayed, "forged": forged, "other": sum(counts.values())}

    def dropped(self):
        """What this side has counted, for a case that fails."""
        return self.attempt("grep -v ' 0$' /proc/net/xfrm_stat; cat /proc/net/dev /proc/net/softnet_stat")[1]


class GatewaySide:
    """Our gateway as one end, with a client behind it."""

    def __init__(self, gateway_host, client_host):
        self.ends = GATEWAY_LEFT
        self.host, self.client = gateway_host, client_host
        self.folder = tempfile.TemporaryDirectory(prefix="esplanade-interop-")
        self.data = self.folder.name
        self.gateway = None
        self.case = None

    def prepare(self):
        with open(f"{self.data}/file", "wb") as file:
            file.write(os.urandom(FILE_SIZE))
        for host in (self.client, self.host):
            host.start(["busybox", "httpd", "-f", "-p", "80", "-h", self.data])

    def attempt(self, script, limit=60):
        """In transport mode the gateway itself is the end; in tunnel mode the client behind it."""
        host = self.client if self.case.mode == "tunnel" else self.host
        return host.attempt(script, limit)

    def up(self, case, other):
        self.case = case
        self.gateway = Gateway(self.host, self.setkey(case, other.ends))
        self.gateway.ready()

    def setkey(self, case, theirs):
        lines = []
        protocol = "esp-udp" if case.encap == "udp" else "esp"
        options = " -o esn=yes" if case.esn else ""
        for source, destination in ((self.ends, theirs), (theirs, self.ends)):
            lines.append(f"add {source.outer[case.outer]} {destination.outer[case.outer]} {protocol} "
                         f"{case.spi(source.mac):#x} -m {case.esp_mode} -r 64{options} "
                         f"{case.algorithms('setkey', source.mac)};")
            if case.ipcomp:
                lines.append(f"add {source.outer[case.outer]} {destination.outer[case.outer]} ipcomp "
                             f"{case.cpi(source.mac):#x} -m {case.mode} -C deflate;")
        for direction, source, destination in (("out", self.ends, theirs), ("in", theirs, self.ends)):
            hops = f"{source.outer[case.outer]}-{destination.outer[case.outer]}" if case.mode == "tunnel" else ""
            layers = f"ipcomp/{case.mode}/{hops}/require esp/transport//require" if case.ipcomp else \
                f"esp/{case.mode}/{hops}/require"
            lines.append(f"spdadd {selectors(case, source)} {selectors(case, destination)} any "
                         f"-P {direction} ipsec {layers};")
        return "\n".join(lines) + "\n"

    def down(self):
        if self.gateway is None:
            return
        gateway, self.gateway = self.gateway, None
        gateway.stop()
        gateway.attempt("down")

    def dropped(self):
        """What this side has counted, for a case that fails."""
        told = self.host.attempt("cat /proc/net/dev /proc/net/softnet_stat; nft list ruleset | grep counter")[1]
        return f"{self.gateway.attempt('drops')[1]}{self.gateway.words()}{told}"

    def counters(self):
        drops = self.gateway.drops
        return {"replayed": drops("replayed") + drops("too-old"), "forged": drops("bad-icv"), "other": drops("no-sa")}
