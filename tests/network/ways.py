"""Every way by which a packet in clear can pass a gateway, one of each: which of them passed."""

import os
import socket
import struct

from network.clear import LOCAL
from network.sites import CLIENT, MACS, SERVER
from network.wire import ETHERNET, checksum

TCP, UDP, ICMP, ICMP6 = 6, 17, 1, 58
KINDS = {4: socket.AF_INET, 6: socket.AF_INET6}
PORT = 5001
SYN_PORT = 7000
# More than one packet's worth on every wire here.
LARGE = 2800
FRAGMENT = 1000


class Ways:
    """On `Sites`, around its left gateway. `passed` sends one packet each way and names those that passed."""

    def __init__(self, sites):
        self.sites = sites
        self.wire, self.lan = sites.listen(sites.wire, "left"), sites.listen(sites.client, "lan")
        self.out, self.into = sites.listen(sites.left, "wan"), sites.listen(sites.client, "lan")
        self.lan_mac = mac(sites.left, "lan")
        self.taps = [tap for family in (4, 6) for tap in self.taps_of(family)]
        self.sends = [send for family in (4, 6) for send in (*self.leaving(family), *self.arriving(family))]

    def passed(self):
        self.forget()
        for _, send, _ in self.sends:
            try:
                send()
            except OSError:
                pass
        wire, lan = self.wire.settle(), self.lan.settle()
        # What was put on the wire toward the gateway is seen there too, so the others' place is asked for each.
        seen = {"wire": wire, "lan": lan, "here": self.delivered()}
        return [name for name, _, (place, mark) in self.sends if any(mark in frame for frame in seen[place])]

    def names(self):
        return [name for name, *_ in self.sends]

    def forget(self):
        self.wire.clear()
        self.lan.clear()
        self.delivered()

    def taps_of(self, family):
        """What the gateway itself is given: after the drop rules of its own kernel."""
        datagrams = self.sites.left.socket(KINDS[family], socket.SOCK_DGRAM)
        datagrams.bind((LOCAL[family], PORT))
        raws = [self.sites.left.socket(KINDS[family], socket.SOCK_RAW, protocol)
                for protocol in (TCP, ICMP if family == 4 else ICMP6)]
        for tap in (datagrams, *raws):
            tap.setblocking(False)
        return (datagrams, *raws)

    def delivered(self):
        seen = []
        for tap in self.taps:
            while True:
                try:
                    seen.append(tap.recv(65536))
                except BlockingIOError:
                    break
        return seen

    def leaving(self, family):
        host, to = self.sites.left, SERVER[family]
        ways = []

        def way(kind, send, mark=None):
            name = f"IPv{family} leaving, {kind}"
            ways.append((name, send(mark or marker(name)), ("wire", mark or marker(name))))

        def from_socket(source, size=0):
            def send(mark):
                sender = host.socket(KINDS[family], socket.SOCK_DGRAM)
                if source:
                    sender.bind((source, 0))
                return lambda: sender.sendto(mark.ljust(size, b"."), (to, PORT))
            return send

        def raw_header(mark):
            sender = host.socket(KINDS[family], socket.SOCK_RAW, socket.IPPROTO_RAW)
            if family == 6:
                sender.setsockopt(socket.IPPROTO_IPV6, 36, 1)  # IPV6_HDRINCL
            packet = ip(family, LOCAL[family], to, UDP, udp(family, LOCAL[family], to, mark))
            return lambda: sender.sendto(packet, (to, 0))

        def echo(mark):
            protocol = ICMP if family == 4 else socket.IPPROTO_ICMPV6
            sender = host.socket(KINDS[family], socket.SOCK_RAW, protocol)
            sender.bind((LOCAL[family], 0))
            return lambda: sender.sendto(icmp(family, LOCAL[family], to, mark), (to, 0))

        def connect(_):
            def send():
                sender = host.socket(KINDS[family], socket.SOCK_STREAM)
                sender.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                sender.bind((LOCAL[family], SYN_PORT + family))
                sender.setblocking(False)
                try:
                    sender.connect((to, PORT))
                finally:
                    self.sites.left.attempt("sleep 0.05")
                    # Without a trace, so that the same ports serve again.
                    sender.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                    sender.close()
            return send

        def frames(out, source_mac, target_mac, build):
            def send(mark):
                whole = [ethernet(family, source_mac, target_mac, packet) for packet in build(mark)]
                return lambda: [out.inject(frame) for frame in whole]
            return send

        here = LOCAL[family]
        way("local, bound", from_socket(here))
        way("local, unbound", from_socket(""))
        way("local, fragments", from_socket(here, LARGE))
        way("local, raw with a header of its own", raw_header)
        way("local, ICMP", echo)
        way("local, TCP", connect, struct.pack("!HH", SYN_PORT + family, PORT))
        datagram = crafted(family, here, to)["UDP"]
        way("local, packet socket", frames(self.out, MACS["left"], MACS["right"], datagram))
        for kind, build in crafted(family, CLIENT[family], to).items():
            way(f"forwarded, {kind}", frames(self.into, mac(self.sites.client, "lan"), self.lan_mac, build))
        return ways

    def arriving(self, family):
        ways = []
        for place, target in (("lan", CLIENT[family]), ("here", LOCAL[family])):
            for kind, build in crafted(family, SERVER[family], target).items():
                whose = "forwarded" if place == "lan" else "local"
                name = f"IPv{family} arriving, {whose}, {kind}"
                whole = [ethernet(family, MACS["right"], MACS["left"], packet) for packet in build(marker(name))]
                ways.append((name, lambda whole=whole: [self.wire.inject(frame) for frame in whole],
                             (place, marker(name))))
        return ways


def marker(name):
    """Text that no other way has in its packets."""
    return b"canary <" + name.encode() + b">"


def mac(host, device):
    return host.sh(f"cat /sys/class/net/{device}/address").strip()


def crafted(family, source, target):
    """Packets of each kind between two addresses, by a function of their marker."""
    between = (family, source, target)
    return {
        "UDP": lambda mark: [ip(*between, UDP, udp(*between, mark))],
        "TCP": lambda mark: [ip(*between, TCP, tcp(*between, mark))],
        "ICMP": lambda mark: [ip(*between, ICMP if family == 4 else ICMP6, icmp(*between, mark))],
        "fragments": lambda mark: fragments(*between, udp(*between, mark.ljust(LARGE // 2, b".") + mark)),
    }


def udp(family, source, target, payload):
    header = struct.pack("!HHHH", 5000, PORT, 8 + len(payload), 0)
    return with_checksum(family, source, target, UDP, header + payload, 6)


def tcp(family, source, target, payload):
    header = struct.pack("!HHIIBBHHH", 5000, PORT, 1, 0, 5 << 4, 2, 65535, 0, 0)
    return with_checksum(family, source, target, TCP, header + payload, 16)


def icmp(family, source, target, payload):
    """An echo request."""
    message = struct.pack("!BBHHH", 8 if family == 4 else 128, 0, 0, os.getpid() & 0xFFFF, 1) + payload
    if family == 4:
        return message[:2] + struct.pack("!H", checksum(message)) + message[4:]
    return with_checksum(family, source, target, ICMP6, message, 2)


def with_checksum(family, source, target, protocol, message, place):
    addresses = b"".join(socket.inet_pton(KINDS[family], end) for end in (source, target))
    # Both families' pseudo headers have the same sum.
    pseudo = addresses + struct.pack("!II", len(message), protocol)
    value = checksum(pseudo + message) or 0xFFFF
    return message[:place] + struct.pack("!H", value) + message[place + 2:]


def ip(family, source, target, protocol, payload, number=1, offset=0, more=False):
    """A packet, or a fragment of one where `offset` or `more` say so."""
    ends = b"".join(socket.inet_pton(KINDS[family], end) for end in (source, target))
    is_fragment = offset > 0 or more
    if family == 6:
        if is_fragment:
            payload = struct.pack("!BBHI", protocol, 0, offset | more, number) + payload
            protocol = 44
        return struct.pack("!IHBB", 6 << 28, len(payload), protocol, 64) + ends + payload
    fragment = more << 13 | offset >> 3
    header = struct.pack("!BBHHHBBH", 0x45, 0, 20 + len(payload), number, fragment, 64, protocol, 0) + ends
    return header[:10] + struct.pack("!H", checksum(header)) + header[12:] + payload


def fragments(family, source, target, message):
    number = int.from_bytes(os.urandom(2), "big") or 1
    return [ip(family, source, target, UDP, message[start:start + FRAGMENT], number, start,
               start + FRAGMENT < len(message)) for start in range(0, len(message), FRAGMENT)]


def ethernet(family, source, target, packet):
    header = bytes.fromhex((target + source).replace(":", "")) + (b"\x08\x00" if family == 4 else b"\x86\xdd")
    assert len(header) == ETHERNET
    return header + packet
