"""Packets of every kind that must not pass in clear. Each kind bears a number by which it is known again on a wire.

The number is the destination port of UDP and TCP, the identifier of ICMP, and the identification of fragments.
"""

import socket
import struct

from network.sites import CLIENT, MACS, OUTER, SERVER
from network.wire import FRAGMENT, IP4, IP6, UDP, checksum

TCP, ICMP, ICMP6 = 6, 1, 58
MARKER = b"esplanade-canary-in-clear"
LOCAL = {4: "10.1.0.1", 6: "fd00:1::1"}
# A host that was sent nothing: what bears this source was put on the wire in clear.
STRANGER = {4: "10.2.0.66", 6: "fd00:2::66"}
FAMILIES = (4, 6)
FIRST_NUMBER = 5100
# Bytes that no frame holds, so that the kernel cuts them.
LARGE = 2000

LEAVING_FORWARDED = ["udp", "tcp", "icmp", "fragments"]
LEAVING_LOCAL = ["udp bound", "udp unbound", "udp cut by the kernel", "tcp bound", "tcp unbound", "icmp bound",
                 "icmp unbound",
                 "raw udp", "raw tcp", "raw icmp"]
KINDS = ([f"forwarded {kind}" for kind in LEAVING_FORWARDED] + [f"local {kind}" for kind in LEAVING_LOCAL])
NUMBERS = {kind: FIRST_NUMBER + position for position, kind in enumerate(KINDS)}
NAMES = {number: kind for kind, number in NUMBERS.items()}


def packed(family, address):
    return socket.inet_pton(socket.AF_INET if family == 4 else socket.AF_INET6, address)


def ip(family, source, destination, protocol, payload, number, fragment=None):
    """A packet; `fragment` is offset in bytes and whether more follow."""
    source, destination = packed(family, source), packed(family, destination)
    offset, more = fragment or (0, False)
    if family == 4:
        header = bytearray(struct.pack("!BBHHHBBH4s4s", 0x45, 0, 20 + len(payload), number, offset // 8 | more << 13,
                                       64, protocol, 0, source, destination))
        struct.pack_into("!H", header, 10, checksum(header))
        return bytes(header) + payload
    if fragment:
        payload = struct.pack("!BBHI", protocol, 0, offset | more, number) + payload
        protocol = FRAGMENT
    return struct.pack("!IHBB", 6 << 28, len(payload), protocol, 64) + source + destination + payload


def summed(family, source, destination, protocol, payload, where):
    """The payload with its checksum in place."""
    pseudo = packed(family, source) + packed(family, destination) + struct.pack("!IHBB", len(payload), 0, 0, protocol)
    plain = protocol == ICMP
    value = checksum(payload if plain else pseudo + payload)
    return payload[:where] + struct.pack("!H", value or 0xFFFF) + payload[where + 2:]


def udp(family, source, destination, number):
    payload = struct.pack("!HHHH", number, number, 8 + len(MARKER), 0) + MARKER
    return UDP, summed(family, source, destination, UDP, payload, 6)


def tcp(family, source, destination, number):
    """The first segment of a connection."""
    payload = struct.pack("!HHIIBBHHH", number, number, 1, 0, 0x50, 2, 1024, 0, 0)
    return TCP, summed(family, source, destination, TCP, payload, 16)


def icmp(family, source, destination, number):
    """An echo request."""
    protocol, kind = (ICMP, 8) if family == 4 else (ICMP6, 128)
    payload = struct.pack("!BBHHH", kind, 0, 0, number, 1) + MARKER
    return protocol, summed(family, source, destination, protocol, payload, 2)


UPPER = {"udp": udp, "tcp": tcp, "icmp": icmp}


def packets(family, kind, source, destination, number):
    """One packet, or the fragments of one."""
    if kind != "fragments":
        protocol, payload = UPPER[kind](family, source, destination, number)
        return [ip(family, source, destination, protocol, payload, number)]
    protocol, payload = udp(family, source, destination, number)
    return [ip(family, source, destination, protocol, payload[:16], number, (0, True)),
            ip(family, source, destination, protocol, payload[16:], number, (16, False))]


def frames(destination_mac, source_mac, family, *rest):
    ethernet = b"".join(bytes.fromhex(mac.replace(":", "")) for mac in (destination_mac, source_mac))
    kind = struct.pack("!H", IP4 if family == 4 else IP6)
    return [(ethernet + kind + packet).hex() for packet in packets(family, *rest)]


def leaving_forwarded(router_mac):
    """What the client sends, as lines for `flood`."""
    return [f"frame lan {frame}" for family in FAMILIES for kind in LEAVING_FORWARDED
            for frame in frames(router_mac, "02:00:00:00:00:09", family, kind, CLIENT[family], SERVER[family],
                                NUMBERS[f"forwarded {kind}"])]


def leaving_local():
    """What the left gateway's host sends itself, by sockets."""
    lines = []
    for family in FAMILIES:
        own, server = LOCAL[family], SERVER[family]
        number = {kind: NUMBERS[f"local {kind}"] for kind in LEAVING_LOCAL}
        lines += [f"udp {own} {server} {number['udp bound']} 25", f"udp - {server} {number['udp unbound']} 25",
                  f"udp {own} {server} {number['udp cut by the kernel']} {LARGE}",
                  f"connect {own} {server} {number['tcp bound']}", f"connect - {server} {number['tcp unbound']}"]
        for kind, source in (("icmp bound", own), ("icmp unbound", "-")):
            # The kernel sums ICMPv6 itself, for the source that it chooses.
            protocol, payload = icmp(family, own, server, number[kind])
            lines.append(f"raw {protocol} {source} {server} {payload.hex()}")
        for kind in UPPER:
            whole, = packets(family, kind, own, server, number[f"raw {kind}"])
            lines.append(f"header {server} {whole.hex()}")
    return lines


def arriving(device="left"):
    """What an attacker on the wire sends to the client and to the left gateway itself."""
    return [f"frame {device} {frame}" for family in FAMILIES for kind in LEAVING_FORWARDED
            for to in (CLIENT[family], LOCAL[family])
            for frame in frames(MACS["left"], MACS["right"], family, kind, STRANGER[family], to,
                                NUMBERS[f"forwarded {kind}"])]


def seen(packet):
    """Family and kind of a packet that starts with its IP header, or nothing where its number is none of ours."""
    family, number = packet[0] >> 4, 0
    if family == 4:
        fragment, at, protocol = struct.unpack_from("!H", packet, 6)[0] & 0x3FFF, 4 * (packet[0] & 15), packet[9]
        number = struct.unpack_from("!H", packet, 4)[0]
        offset = fragment & 0x1FFF
    else:
        protocol, at, fragment, offset = packet[6], 40, 0, 0
        if protocol == FRAGMENT:
            protocol, at, fragment = packet[40], 48, 1
            offset, number = struct.unpack_from("!HI", packet, 42)
            offset &= 0xFFF8
    if not (fragment and offset) and len(packet) >= at + 8:
        number, = struct.unpack_from("!H", packet, at + (4 if protocol in (ICMP, ICMP6) else 2))
    return (family, NAMES[number]) if number in NAMES else None


# What the control must see: without a gateway all of it leaves, and all of it arrives.
LEAVE = {(family, kind) for family in FAMILIES for kind in KINDS}
ARRIVE = {(family, f"forwarded {kind}") for family in FAMILIES for kind in LEAVING_FORWARDED}
OUTER_SOURCE = {family: ends[0] for family, ends in OUTER.items()}
