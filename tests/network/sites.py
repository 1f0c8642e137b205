"""Two sites joined by a wire that is not to be trusted.

    client ── left ── wire ── right ── server
    10.1.0.2   192.0.2.1   192.0.2.2   10.2.0.2
    fd00:1::2  2001:db8::1 2001:db8::2 fd00:2::2

`wire` is a bridge in a host of its own: what is captured there is what every host on the path sees,
and what is put there comes from outside. Plain routing works in both families, so a packet that no
gateway holds back does arrive: that is the control of every test of secrecy.
"""

from network.gateway import Gateway
from network.namespace import Network
from network.wire import Wire

MACS = {"left": "02:00:00:00:01:01", "right": "02:00:00:00:02:01"}
OUTER = {4: ("192.0.2.1", "192.0.2.2"), 6: ("2001:db8::1", "2001:db8::2")}
NETS = {4: ("10.1.0.0/24", "10.2.0.0/24"), 6: ("fd00:1::/64", "fd00:2::/64")}
CLIENT = {4: "10.1.0.2", 6: "fd00:1::2"}
SERVER = {4: "10.2.0.2", 6: "fd00:2::2"}
AES_GCM = "-E aes-gcm-16 0x{:02x}" + "5a" * 19


class Sites:
    """The five hosts; as a context manager it removes them and stops the gateways."""

    def __init__(self, purpose):
        self.network = Network(purpose)
        self.gateways = {}
        self.wires = []

    def __enter__(self):
        self.network.__enter__()
        try:
            self.build()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_):
        for wire in self.wires:
            wire.close()
        self.network.__exit__()

    def build(self):
        host, link = self.network.host, self.network.link
        self.client, self.left, self.wire, self.right, self.server = map(
            host, ["client", "left", "wire", "right", "server"])
        link(self.client, "lan", self.left, "lan")
        link(self.left, "wan", self.wire, "left")
        link(self.right, "wan", self.wire, "right")
        link(self.server, "lan", self.right, "lan")
        self.wire.sh("""ip link add br0 type bridge mcast_snooping 0
            for port in left right; do ip link set $port master br0 up; done; ip link set br0 up""")
        self.router(self.left, 1, 2)
        self.router(self.right, 2, 1)
        self.end(self.client, 1)
        self.end(self.server, 2)

    def router(self, host, mine, theirs):
        mac = MACS["left" if mine == 1 else "right"]
        # In few processes: an emulated processor takes its time for each.
        host.sh(f"""sysctl -qw net.ipv4.ip_forward=1 net.ipv6.conf.all.forwarding=1 net.ipv4.conf.all.rp_filter=0 \\
                net.ipv4.conf.default.rp_filter=0 net.ipv6.conf.wan.accept_dad=0 net.ipv6.conf.lan.accept_dad=0
            ip -batch - <<'END'
            link set wan address {mac} up
            link set lan up
            addr add 192.0.2.{mine}/24 dev wan
            addr add 2001:db8::{mine}/64 dev wan nodad
            addr add 10.{mine}.0.1/24 dev lan
            addr add fd00:{mine}::1/64 dev lan nodad
            route add 10.{theirs}.0.0/24 via 192.0.2.{theirs}
            route add fd00:{theirs}::/64 via 2001:db8::{theirs}
END""")

    def end(self, host, mine):
        host.sh(f"""sysctl -qw net.ipv6.conf.lan.accept_dad=0
            ip -batch - <<'END'
            link set lan up
            addr add 10.{mine}.0.2/24 dev lan
            addr add fd00:{mine}::2/64 dev lan nodad
            route add default via 10.{mine}.0.1
            route add ::/0 via fd00:{mine}::1
END""")

    def listen(self, host, device):
        wire = Wire(host, device)
        self.wires.append(wire)
        return wire

    def start(self, name, setkey=None, options=(), wrap=(), keep=True, **shape):
        """Starts a gateway, by way of another program if one is named, and waits until it answers."""
        gateway = Gateway(getattr(self, name), setkey or setkey_text(name, **shape), options, wrap, keep=keep)
        self.gateways[name] = gateway
        return gateway.ready()

    def start_both(self, **shape):
        return self.start("left", **shape), self.start("right", **shape)

    def ping(self, family=4, count=3, size=56, more=""):
        """How many pings from the client to the server come back."""
        _, output = self.client.attempt(f"ping -q -n -c {count} -i 0.05 -W 1 -s {size} {more} {SERVER[family]}")
        return int(output.split(" received")[0].rsplit(" ", 1)[-1]) if " received" in output else 0


def setkey_text(name, outer=4, inner=(4, 6), udp=True, suite=AES_GCM):
    """The associations and policies of one gateway; the other one's are the same with `in` and `out` exchanged."""
    ends, lines = OUTER[outer], []
    for way, (source, destination) in enumerate((ends, ends[::-1])):
        lines.append(f"add {source} {destination} {'esp-udp' if udp else 'esp'} {0x1001 + way:#x} "
                     f"-m tunnel -r 1024 {suite.format(way + 1)};")
    for family in inner:
        for way, (source, destination) in enumerate((NETS[family], NETS[family][::-1])):
            direction = "out" if (way == 0) == (name == "left") else "in"
            hops = "-".join((ends, ends[::-1])[way])
            lines.append(f"spdadd {source} {destination} any -P {direction} ipsec esp/tunnel/{hops}/require;")
    return "\n".join(lines) + "\n"
