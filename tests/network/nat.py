"""Two sites of which the left one is behind a NAT."""

import socket
import struct

from network.expect import expect
from network.sites import OUTER, Sites

# Where the left gateway is, and what the right one sees of it.
INSIDE, OUTSIDE = "203.0.113.2", OUTER[4][0]
NETLINK_NETFILTER = 12
# IPCTNL_MSG_CT_DELETE of the subsystem of connection tracking, as a request that is acknowledged.
FLUSH_CONNECTIONS, REQUEST_ACK = 1 << 8 | 2, 5


class Nat(Sites):
    """The left gateway has a private address; `nat` translates it to 192.0.2.1. IPv4 alone passes."""

    def build(self):
        super().build()
        self.nat = self.network.host("nat")
        self.left.sh("ip link del wan")
        self.network.link(self.left, "wan", self.nat, "inside")
        self.network.link(self.nat, "wan", self.wire, "left")
        self.wire.sh("ip link set left master br0 up")
        self.nat.sh(f"""sysctl -qw net.ipv4.ip_forward=1
            ip link set inside up; ip link set wan up
            ip addr add 203.0.113.1/24 dev inside; ip addr add {OUTSIDE}/24 dev wan
            ip route add 10.1.0.0/24 via {INSIDE}; ip route add 10.2.0.0/24 via 192.0.2.2
            nft add table ip nat; nft add chain ip nat out '{{ type nat hook postrouting priority 100; }}'
            nft add rule ip nat out oifname wan masquerade random""")
        self.left.sh(f"""ip link set wan up; ip addr add {INSIDE}/24 dev wan
            ip route add default via 203.0.113.1""")

    def forget_mappings(self):
        """What comes from inside gets another port from now on, for ports are drawn at random."""
        # The module may be part of the kernel.
        self.nat.attempt("modprobe nf_conntrack_netlink")
        with self.nat.socket(socket.AF_NETLINK, socket.SOCK_RAW, NETLINK_NETFILTER) as link:
            link.send(struct.pack("=IHHII4x", 20, FLUSH_CONNECTIONS, REQUEST_ACK, 1, 0))
            refusal, = struct.unpack_from("=i", link.recv(4096), 16)
        expect(refusal == 0, f"the NAT forgets nothing: error {-refusal}")
