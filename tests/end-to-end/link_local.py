"""Under policies over all addresses a link still works: neighbours, leases, groups; nothing else passes beside."""

import socket
import struct

from network.expect import expect
from network.sites import MACS, Sites, setkey_text
from network.wire import Esp, Packet, checksum

ALL_NODES, ALL_AGENTS = "ff02::1", "ff02::1:2"
BROADCAST = "255.255.255.255"
NEIGHBOUR_TYPES, GROUP_TYPES = (133, 134, 135, 136, 137), (130, 131, 132, 143)
HOPS = {**dict.fromkeys(NEIGHBOUR_TYPES, 255), **dict.fromkeys(GROUP_TYPES, 1)}
ICMP6, IGMP, UDP = 58, 2, 17
NEAR = "fe80::9"
MARKER = b"esplanade-canary-in-clear"
ETHERNET = {4: b"\x08\x00", 6: b"\x86\xdd"}


def a_link_works_and_nothing_else_leaves():
    with Sites("ll") as sites:
        wire = sites.listen(sites.wire, "left")
        needed, others = needed_by_the_link(sites.left), other_packets(sites.left)
        for name, (action, matches) in {**needed, **others}.items():
            expect(seen(wire, action, matches), f"the control failed: {name} did not leave without a gateway")
        sites.start("left", over_everything())
        for name, (action, matches) in needed.items():
            expect(seen(wire, action, matches), f"{name} did not leave")
        for name, (action, matches) in others.items():
            expect(not seen(wire, action, matches), f"{name} left in clear")
        return f"{len(needed)} kinds leave, {len(others)} others are held"


def a_link_hears_what_it_needs_and_nothing_else():
    with Sites("ll") as sites:
        wire = sites.listen(sites.wire, "left")
        needed, others = heard_by_the_link(sites.left), other_arrivals(sites.left)
        for name, (frame, ear) in {**needed, **others}.items():
            expect(heard(wire, frame, ear), f"the control failed: {name} did not arrive without a gateway")
        sites.start("left", over_everything())
        for name, (frame, ear) in needed.items():
            expect(heard(wire, frame, ear), f"{name} did not arrive")
        for name, (frame, ear) in others.items():
            expect(not heard(wire, frame, ear), f"{name} came in clear")
        return f"{len(needed)} kinds arrive, {len(others)} others are held"


def over_everything():
    """All that there is, both ways, by associations over IPv4."""
    lines = [setkey_text("left", inner=())]
    for any_host in ("0.0.0.0/0", "::/0"):
        lines += [f"spdadd {any_host} {any_host} any -P {direction} ipsec esp/tunnel/{ends}/require;"
                  for direction, ends in (("out", "192.0.2.1-192.0.2.2"), ("in", "192.0.2.2-192.0.2.1"))]
    return "\n".join(lines) + "\n"


# What leaves: each an action on the host, and what it shows on the wire.

def needed_by_the_link(host):
    def address_added():
        host.sh("""sysctl -qw net.ipv6.conf.wan.accept_dad=1 net.ipv6.conf.wan.router_solicitation_delay=0
            ip addr add 2001:db8::77/64 dev wan; sleep 1.2; ip addr del 2001:db8::77/64 dev wan""")

    def group_joined():
        host.sh("ip addr add 233.252.0.9/32 dev wan autojoin; sleep 0.2; ip addr del 233.252.0.9/32 dev wan")

    cases = {f"ICMPv6 of type {kind}": (lambda kind=kind, hops=hops: icmp6(host, kind, hops), of_icmp6(kind))
             for kind, hops in HOPS.items()}
    return cases | {
        "the kernel's search for a duplicate address": (address_added, of_icmp6(135)),
        "the kernel's report of a group, IPv6": (address_added, of_icmp6(143)),
        "the kernel's report of a group, IPv4": (group_joined, lambda packet: packet.protocol == IGMP),
        "a request for a lease, IPv4": (lambda: datagram(host, 68, BROADCAST, 67), of_udp(68, 67)),
        "a request for a lease, IPv6": (lambda: datagram(host, 546, ALL_AGENTS, 547), of_udp(546, 547)),
    }


def other_packets(host):
    return {
        "a datagram to all hosts on the link, IPv4": (lambda: datagram(host, 68, BROADCAST, 5001), of_udp(68, 5001)),
        "a datagram to all hosts on the link, IPv6": (lambda: datagram(host, 546, ALL_NODES, 5001), of_udp(546, 5001)),
        "a datagram to a neighbour from the port of leases":
            (lambda: datagram(host, 68, "192.0.2.2", 67), of_udp(68, 67)),
        "an echo request to all hosts on the link": (lambda: icmp6(host, 128, 255), of_icmp6(128)),
        "ICMPv6 of type 135 from further away": (lambda: icmp6(host, 135, 254), of_icmp6(135)),
        "ICMPv6 of type 143 that goes further": (lambda: icmp6(host, 143, 64), of_icmp6(143)),
    }


def icmp6(host, kind, hops):
    with on_link(host, socket.AF_INET6, socket.SOCK_RAW, socket.IPPROTO_ICMPV6) as one:
        one.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_MULTICAST_HOPS, hops)
        send(one, bytes([kind, 0, 0, 0]) + bytes(20), (ALL_NODES, 0))


def datagram(host, source_port, destination, port):
    family = socket.AF_INET6 if ":" in destination else socket.AF_INET
    with on_link(host, family, socket.SOCK_DGRAM, 0) as one:
        one.bind(("", source_port))
        send(one, MARKER, (destination, port))


def on_link(host, *arguments):
    one = host.socket(*arguments)
    one.setsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, b"wan")
    one.setsockopt(socket.SOL_SOCKET, socket.SO_BROADCAST, 1)
    return one


def send(one, data, address):
    """What the host refuses is not sent; whether anything left shows on the wire."""
    try:
        one.sendto(data, address)
    except OSError:
        pass


def of_icmp6(kind):
    return lambda packet: packet.protocol == ICMP6 and packet.frame[packet.offset] == kind


def of_udp(*ports):
    return lambda packet: (packet.protocol == UDP and Esp.find(packet.frame) is None
                           and struct.unpack_from("!HH", packet.frame, packet.offset) == ports)


def seen(wire, action, matches):
    wire.clear()
    action()
    return any(matches(packet) for packet in map(packet_of, wire.settle()) if packet)


def packet_of(frame):
    """Groups are reported behind a header of hop-by-hop options."""
    packet = Packet.of(frame)
    if packet and packet.protocol == 0 and frame[12:14] == ETHERNET[6]:
        packet.protocol, packet.offset = frame[packet.offset], packet.offset + 8 * (1 + frame[packet.offset + 1])
    return packet


# What arrives: each a frame, and the socket that hears it.

def heard_by_the_link(host):
    here = link_address(host)
    to = {1: ALL_NODES, 255: here}
    cases = {f"ICMPv6 of type {kind}": (icmp6_frame(to[hops], kind, hops), lambda: icmp6_ear(host))
             for kind, hops in HOPS.items()}
    return cases | {
        "a query for groups, IPv4": (frame4(IGMP, "192.0.2.9", "224.0.0.1", 1, igmp_query()),
                                     lambda: ear(host, socket.AF_INET, socket.SOCK_RAW, IGMP)),
        "a lease, IPv4": (frame4(UDP, "192.0.2.9", BROADCAST, 64, udp4(67, 68)),
                          lambda: udp_ear(host, socket.AF_INET, 68)),
        "a lease, IPv6": (frame6(UDP, NEAR, here, 64, udp4(547, 546)), lambda: udp_ear(host, socket.AF_INET6, 546)),
    }


def other_arrivals(host):
    here = link_address(host)
    return {
        "a datagram to all hosts on the link": (frame4(UDP, "192.0.2.9", BROADCAST, 64, udp4(67, 5001)),
                                                lambda: udp_ear(host, socket.AF_INET, 5001)),
        "a datagram from a neighbour": (frame6(UDP, NEAR, here, 64, udp4(547, 5001)),
                                        lambda: udp_ear(host, socket.AF_INET6, 5001)),
        "a lease from further away, IPv6": (frame6(UDP, "2001:db8::9", "2001:db8::1", 64, udp4(547, 546)),
                                            lambda: udp_ear(host, socket.AF_INET6, 546)),
        "an echo reply": (icmp6_frame(here, 129, 255), lambda: icmp6_ear(host)),
        "ICMPv6 of type 136 from further away": (icmp6_frame(here, 136, 254), lambda: icmp6_ear(host)),
        "ICMPv6 of type 130 from further away": (icmp6_frame(ALL_NODES, 130, 64), lambda: icmp6_ear(host)),
    }


def link_address(host):
    for line in host.sh("ip -6 -oneline addr show dev wan scope link").splitlines():
        return line.split("inet6 ")[1].split("/")[0]


def ear(host, *arguments):
    one = host.socket(*arguments)
    one.settimeout(0.5)
    return one


def udp_ear(host, family, port):
    one = ear(host, family, socket.SOCK_DGRAM, 0)
    one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    one.bind(("", port))
    return one


def icmp6_ear(host):
    return ear(host, socket.AF_INET6, socket.SOCK_RAW, socket.IPPROTO_ICMPV6)


def heard(wire, frame, ear_of):
    """Whether a socket gets what a frame carries, among whatever else it gets."""
    with ear_of() as one:
        wire.inject(frame)
        try:
            while one.recv(2048)[-8:] != frame[-8:]:
                pass
        except TimeoutError:
            return False
        return True


def ethernet(family, station):
    left, right = (bytes.fromhex(MACS[name].replace(":", "")) for name in ("left", "right"))
    return (station or left) + right + ETHERNET[family]


def frame4(protocol, source, destination, hops, body):
    addresses = socket.inet_aton(source) + socket.inet_aton(destination)
    header = bytearray(struct.pack("!BBHHHBBH", 0x45, 0, 20 + len(body), 1, 0, hops, protocol, 0) + addresses)
    struct.pack_into("!H", header, 10, checksum(header))
    return ethernet(4, b"\xff" * 6) + bytes(header) + body


def frame6(protocol, source, destination, hops, body):
    addresses = socket.inet_pton(socket.AF_INET6, source) + socket.inet_pton(socket.AF_INET6, destination)
    pseudo = addresses + struct.pack("!IHBB", len(body), 0, 0, protocol)
    place = 6 if protocol == UDP else 2
    body = body[:place] + bytes(2) + body[place + 2:]
    body = body[:place] + struct.pack("!H", checksum(pseudo + body) or 0xFFFF) + body[place + 2:]
    station = bytes.fromhex("333300000001") if destination == ALL_NODES else None
    return ethernet(6, station) + struct.pack("!IHBB", 6 << 28, len(body), protocol, hops) + addresses + body


def icmp6_frame(destination, kind, hops):
    return frame6(ICMP6, NEAR, destination, hops, bytes([kind, 0, 0, 0]) + bytes(20) + b"esplanad")


def udp4(source_port, port):
    return struct.pack("!HHHH", source_port, port, 8 + len(MARKER), 0) + MARKER


def igmp_query():
    query = bytes([0x11, 1, 0, 0]) + bytes(4)
    return query[:2] + struct.pack("!H", checksum(query)) + query[4:]


CASES = {
    "what a link needs leaves under policies over everything, and nothing else": a_link_works_and_nothing_else_leaves,
    "what a link needs arrives under policies over everything, and nothing else":
        a_link_hears_what_it_needs_and_nothing_else,
}
