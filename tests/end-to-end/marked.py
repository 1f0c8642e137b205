"""Our own packets are told from another program's by more than a mark, and the kernel's own IPsec lets them be."""

import os
import sys

import network
from fail_closed import in_clear
from network.expect import expect
from network.sites import OUTER, SERVER, Sites
from network.wire import Esp

MARK = "0x10000000"
INNER = {4: "10.1.0.1", 6: "fd00:1::1"}
KINDS = ("udp", "tcp", "raw:17", "raw:253", "raw:50", "raw:51", "port:4500")
ESP_AND_AH = (50, 51)
OTHER_USER = ("setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", "--inh-caps=+net_admin,+net_raw",
              "--ambient-caps=+net_admin,+net_raw")
with open(os.path.join(os.path.dirname(network.__file__), "marking.py")) as source:
    PROGRAM = source.read()


def another_program_with_our_mark(who, shape):
    """Everything that a policy protects, sent with our mark by a user, is held back; before the gateway it leaves."""
    def test():
        with Sites("mk") as sites:
            wire = sites.listen(sites.wire, "left")
            for family in (4, 6):
                for kind in KINDS:
                    expect(leaves(sites, wire, who, family, kind), f"the control before failed: IPv{family} {kind}")
            sites.start_both(**shape)
            for family in (4, 6):
                expect(sites.ping(family) == 3, f"no ping through the tunnel, IPv{family}")
                for kind in KINDS:
                    left = leaves(sites, wire, who, family, kind)
                    expect(not left, f"IPv{family} {kind}: {left} packets left in clear")
            expect(sites.ping(4) == 3 and sites.ping(6) == 3, "the tunnel carries nothing afterwards")
    return test


def leaves(sites, wire, who, family, kind):
    """How many packets in clear a user's program with our mark got out to the wire."""
    wire.clear()
    send(sites.left, who, kind, INNER[family], SERVER[family])
    return len(in_clear(wire.settle(0.15)))


def send(host, who, *words, mark=MARK):
    output = host.sh(" ".join([*who, sys.executable, "-", mark, *words]) + f" <<'PROGRAM'\n{PROGRAM}\nPROGRAM\n")
    expect("sent" in output, f"the program that sets the mark: {output}")


def what_is_not_between_gateways(family):
    """Where hosts protect all between themselves, only what our own user's sockets send as ESP and AH passes."""
    def test():
        near, far = OUTER[family]
        with Sites("mk") as sites:
            wire = sites.listen(sites.wire, "left")
            expect(raw_packets(sites, wire, OTHER_USER, near, far, 50), "the control failed: nothing left before")
            sites.start("left", transport_text(near, far, "left"))
            sites.start("right", transport_text(near, far, "right"))
            ping = f"ping -q -n -c 3 -i 0.05 -W 1 {far}"
            expect(sites.left.attempt(ping)[0] == 0, "no ping in transport mode")
            for protocol in (*ESP_AND_AH, 17, 253):
                left = raw_packets(sites, wire, OTHER_USER, near, far, protocol)
                expect(not left, f"{left} packets of protocol {protocol} by another user left with our mark")
            for protocol in (17, 253):
                left = raw_packets(sites, wire, (), near, far, protocol)
                expect(not left, f"{left} packets of protocol {protocol} by our user left in clear")
            expect(sites.left.attempt(ping)[0] == 0, "no ping in transport mode afterwards")
    return test


def raw_packets(sites, wire, who, source, destination, protocol):
    wire.clear()
    send(sites.left, who, f"raw:{protocol}", source, destination)
    mine = [frame for frame in wire.settle(0.15) if b"esplanade-canary-in-clear" in frame]
    return len(mine)


def transport_text(near, far, name):
    """ESP in AH between two hosts, so that both protocols have to pass."""
    keys = "-E aes-gcm-16 0x" + "5a" * 20, "-A hmac-sha1 0x" + "33" * 20
    lines = []
    for way, (source, destination) in enumerate(((near, far), (far, near))):
        lines += [f"add {source} {destination} esp {0x2001 + way:#x} -m transport -r 64 {keys[0]};",
                  f"add {source} {destination} ah {0x2003 + way:#x} -m transport -r 64 {keys[1]};"]
        direction = "out" if (way == 0) == (name == "left") else "in"
        lines.append(f"spdadd {source} {destination} any -P {direction} ipsec "
                     "esp/transport//require ah/transport//require;")
    return "\n".join(lines) + "\n"


def the_kernels_own_policies_do_not_hold_our_packets(shape):
    def test():
        with Sites("mk") as sites:
            wire = sites.listen(sites.wire, "left")
            sites.start_both(**shape)
            near, far = OUTER[shape["outer"]]
            plain = f"ping -q -n -c 1 -W 1 {far}"
            expect(sites.left.attempt(plain)[0] == 0, "the gateways do not reach each other")
            sites.left.sh(f"""ip xfrm policy add src {near} dst {far} dir out action block
                ip xfrm policy add src {far} dst {near} dir in action block""")
            expect(sites.left.attempt(plain)[0] != 0, "the control failed: the kernel's policies block nothing")
            wire.clear()
            answered = sites.ping(shape["outer"])
            esp = sum(Esp.find(frame) is not None for frame in wire.settle())
            expect(answered == 3 and esp, f"{answered} of 3 pings, {esp} ESP packets on the wire")
    return test


CASES = {
    "another user's program with our mark gets nothing out in clear, UDP":
        another_program_with_our_mark(OTHER_USER, {}),
    "another user's program with our mark gets nothing out in clear, native over IPv6":
        another_program_with_our_mark(OTHER_USER, {"udp": False, "outer": 6}),
    "a program of our user with our mark gets nothing out in clear": another_program_with_our_mark((), {}),
    "between hosts that protect everything, ours alone passes, IPv4": what_is_not_between_gateways(4),
    "between hosts that protect everything, ours alone passes, IPv6": what_is_not_between_gateways(6),
    "policies of the kernel's own IPsec hold nothing of ours, UDP":
        the_kernels_own_policies_do_not_hold_our_packets({"outer": 4}),
    "policies of the kernel's own IPsec hold nothing of ours, native over IPv6":
        the_kernels_own_policies_do_not_hold_our_packets({"outer": 6, "udp": False}),
}
