"""Another program moves an association and the policy that it serves to other addresses (migrate, RFC 4555), or changes
a policy in its place: what was there is restored, an event says so, and nothing passes in clear meanwhile."""

import re
import socket
import struct
import time

from attributes import NETLINK_XFRM
from keyed import start_both
from live_change import Stream
from network.expect import Unmet, expect
from network.sites import NETS, OUTER
from network.timeout import slowed
from network.wire import ESP, UDP
from planes import STAND_IN, PlaneSites, carried, ended, secret, seen_without_a_tunnel, states
from policies import Events

PACE = slowed(0.004)
IPV4 = (4,)
RESTORED_LIMIT_SECONDS = slowed(10)
ELSEWHERE = "192.0.2.9"
# Of linux/xfrm.h: a message, its attribute, and numbers in them.
MIGRATE, MIGRATE_ATTRIBUTE, REQUEST_ACK = 0x21, 17, 5
TUNNEL, DIRECTIONS = 1, {"in": 0, "out": 1}
TEMPLATE = re.compile(r"^src (\S+) dst (\S+) \n\s+dir (\w+) .*\n(?:\s+(?!tmpl|src).*\n)*"
                      r"\s+tmpl src (\S+) dst (\S+)\n\s+proto (\w+) .*?reqid (\d+) mode (\w+)", re.MULTILINE)


def templates(host):
    """Of each policy its networks and direction, and the tunnel that it wants."""
    found = TEMPLATE.findall(host.sh("ip xfrm policy list nosock"))
    return {(*name, *tunnel) for *name, source, target, protocol, reqid, mode in found
            for tunnel in [(source, target, protocol, int(reqid), mode)]}


def in_kernel(host):
    """Associations without those by which the kernel notes that it has asked for keys, and policies."""
    return ({(state["source"], state["destination"], state["spi"]) for state in states(host) if state["spi"]},
            templates(host))


def turned(way, pair):
    return pair if way == "out" else pair[::-1]


def without_protection(host, way):
    """The policy lets its traffic pass in clear from now on."""
    source, target = turned(way, NETS[4])
    host.sh(f"ip xfrm policy update src {source} dst {target} dir {way}")


def migrate(host, way):
    """What is between the gateways goes on between the left one and an address that no host has."""
    networks, ends = turned(way, NETS[4]), turned(way, OUTER[4])
    reqid, = {found[6] for found in templates(host) if found[:3] == (*networks, way)}
    moved = tuple(ELSEWHERE if end == OUTER[4][1] else end for end in ends)
    addresses = b"".join(padded(end) for end in (*ends[::-1], *moved[::-1]))
    body = selector(networks) + struct.pack("=IB3x", 0, DIRECTIONS[way])
    change = addresses + struct.pack("=BBHIHH", ESP, TUNNEL, 0, reqid, socket.AF_INET, socket.AF_INET)
    body += struct.pack("=HH", 4 + len(change), MIGRATE_ATTRIBUTE) + change
    with host.socket(socket.AF_NETLINK, socket.SOCK_RAW, NETLINK_XFRM) as link:
        link.send(struct.pack("=IHHII", 16 + len(body), MIGRATE, REQUEST_ACK, 1, 0) + body)
        refusal, = struct.unpack_from("=i", link.recv(4096), 16)
    expect(refusal == 0, f"the control failed: the kernel moves nothing, error {-refusal}")


def padded(address):
    return socket.inet_aton(address) + bytes(12)


def selector(networks):
    """struct xfrm_selector: the destination comes first, and any protocol and ports are zero."""
    (source, source_length), (target, target_length) = (network.split("/") for network in networks)
    return padded(target) + padded(source) + struct.pack("=8xHBBB3xiI", socket.AF_INET, int(target_length),
                                                         int(source_length), 0, 0, 0)


def by_hand(sites):
    return sites.start_both(inner=IPV4, udp=False)[0]


def by_ike(sites):
    return start_both(sites)[0]


def restored(begin, attack, way):
    def test():
        if STAND_IN:
            return None
        with PlaneSites("mg", right="user") as sites:
            pairs = sites.pairs(IPV4)
            wire = seen_without_a_tunnel(sites, pairs)
            left = begin(sites)
            carried(sites, pairs, wire, (ESP, UDP))
            events, before = Events(left), in_kernel(left.host)
            wire.clear()
            streams = [Stream(sites, back=back, pace=PACE) for back in (False, True)]
            time.sleep(slowed(0.1))
            attack(left.host, way)
            # Whether it is restored or not.
            time.sleep(slowed(0.1))
            secret(list(wire.frames))
            told = events.wait("restored", RESTORED_LIMIT_SECONDS)
            as_before(left, before)
            time.sleep(slowed(0.2))
            sent, lost, _ = ended(streams)
            secret(wire.settle())
            carried(sites, pairs, wire, (ESP, UDP))
            left.ask("down")
            left.process.wait(slowed(10))
            rest = [state for state in states(left.host) if state["spi"]]
            expect(not rest, f"`down` leaves {rest}")
            return f"told: {told['what']}; of {sent} datagrams {lost} were lost"
    return test


def as_before(gateway, before):
    deadline = time.monotonic() + RESTORED_LIMIT_SECONDS
    while (now := in_kernel(gateway.host)) != before:
        if time.monotonic() > deadline:
            raise Unmet(f"in the kernel were {before}, and now are {now}")
        time.sleep(0.2)


ATTACKS = {
    "moves what is outbound to another address": (migrate, "out"),
    "moves what is inbound to another address": (migrate, "in"),
    "takes the protection out of an out policy": (without_protection, "out"),
    "takes the protection out of an in policy": (without_protection, "in"),
}
CASES = {}
LONG = {f"restored when another program {name}, {keyed}": restored(begin, *attack)
        for keyed, begin in (("keys by hand", by_hand), ("IKE", by_ike)) for name, attack in ATTACKS.items()}
