"""What passes in clear, counted by the kernel: taps on devices, and sockets that receive.

A filter of classic BPF lets a tap see clear packets alone, so where none pass it costs nothing and loses nothing, at
any rate; the kernel's own counter of a packet socket counts those that did not fit into its queue as well.
"""

import contextlib
import ctypes
import select
import socket
import struct
import time

from network.wire import ESP_PORT, ETH_P_ALL, ETHERNET, IP4, IP6, UDP
from packets import ICMP, ICMP6, NAMES, STRANGER, TCP, packed, seen

SO_ATTACH_FILTER, PACKET_STATISTICS, SOL_PACKET = 26, 6, 263
# Of <linux/filter.h>: the kind of a packet, and its bytes from the IP header on.
PACKET_KIND, FROM_IP_HEADER = 0xFFFFF004, 0xFFF00000
OUTGOING = 4
WHOLE, NOTHING = 128, 0
QUEUE = 4 << 20
# Frames of one read that are told apart by kind; the others are only counted.
MAX_CLASSIFIED = 4000
LOAD = {1: 0x30, 2: 0x28, 4: 0x20}
SAME, RETURN = 0x15, 0x06


class Filter:
    """A program of classic BPF in steps: one that is not met goes on at `otherwise`."""

    def __init__(self):
        self.code = []
        self.marks = {}

    def load(self, where, size):
        self.code.append((LOAD[size], 0, 0, where))
        return self

    def same(self, value, then=None, otherwise=None):
        self.code.append((SAME, then, otherwise, value))
        return self

    def give(self, what):
        self.code.append((RETURN, 0, 0, what))
        return self

    def mark(self, name):
        self.marks[name] = len(self.code)
        return self

    def attach(self, to):
        lines = [struct.pack("HBBI", code, self.far(at, yes), self.far(at, no), value)
                 for at, (code, yes, no, value) in enumerate(self.code)]
        room = ctypes.create_string_buffer(b"".join(lines))
        to.setsockopt(socket.SOL_SOCKET, SO_ATTACH_FILTER, struct.pack("HL", len(lines), ctypes.addressof(room)))

    def far(self, at, name):
        return self.marks[name] - at - 1 if isinstance(name, str) else 0


def with_inner_addresses():
    """Received on the wire, from or to an address behind the gateways: 10.1.0.0/16, 10.2.0.0/16, fd00::/16."""
    code = Filter().load(PACKET_KIND, 4).same(OUTGOING, then="pass").load(12, 2)
    code.same(IP4, then="four").same(IP6, then="six").mark("pass").give(NOTHING)
    code.mark("four")
    for where in (ETHERNET + 12, ETHERNET + 16):
        code.load(where, 2).same(0x0A01, then="clear").same(0x0A02, then="clear")
    code.give(NOTHING).mark("six")
    for where in (ETHERNET + 8, ETHERNET + 24):
        code.load(where, 2).same(0xFD00, then="clear")
    return code.give(NOTHING).mark("clear").give(WHOLE)


def from_the_stranger(base=ETHERNET, kind=True):
    """From the address that only clear packets put on the wire bear."""
    four, six = (packed(family, STRANGER[family]) for family in (4, 6))
    code = Filter()
    if kind:
        code.load(PACKET_KIND, 4).same(OUTGOING, then="pass")
    code.load(base + 12, 4).same(int.from_bytes(four, "big"), then="clear")
    for word in (0, 3):
        value = int.from_bytes(six[4 * word:4 * word + 4], "big")
        code.load(base + 8 + 4 * word, 4).same(value, otherwise="pass")
    return code.mark("clear").give(WHOLE).mark("pass").give(NOTHING)


def esp():
    """Received on the wire as ESP in UDP over IPv4, which is how these sites protect."""
    code = Filter().load(PACKET_KIND, 4).same(OUTGOING, then="pass").load(12, 2).same(IP4, otherwise="pass")
    code.load(ETHERNET + 9, 1).same(UDP, otherwise="pass").load(ETHERNET + 22, 2).same(ESP_PORT, then="esp")
    return code.mark("pass").give(NOTHING).mark("esp").give(WHOLE)


class Tap:
    """Clear packets on a device."""

    def __init__(self, host, device, code):
        self.socket = host.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)
        code.attach(self.socket)
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, QUEUE)
        self.socket.bind((device, ETH_P_ALL))
        self.socket.setblocking(False)

    def take(self):
        """How many since the last look, and their families and kinds."""
        kinds = set()
        with contextlib.suppress(BlockingIOError):
            for _ in range(MAX_CLASSIFIED):
                kinds.add(seen(self.socket.recv(WHOLE)[ETHERNET:]))
        drain(self.socket)
        count, _ = struct.unpack("II", self.socket.getsockopt(SOL_PACKET, PACKET_STATISTICS, 8))
        return count, kinds - {None}


class Receivers:
    """Sockets of the left gateway's host: raw ones, which see what is delivered there, whole again where it came in
    pieces."""

    PROTOCOLS = {4: (UDP, TCP, ICMP), 6: (UDP, TCP, ICMP6)}

    def __init__(self, host):
        self.sockets = [self.open(host, family, protocol)
                        for family, protocols in self.PROTOCOLS.items() for protocol in protocols]

    def open(self, host, family, protocol):
        kind = socket.AF_INET if family == 4 else socket.AF_INET6
        receiver = host.socket(kind, socket.SOCK_RAW, protocol)
        from_the_stranger(FROM_IP_HEADER, kind=False).attach(receiver)
        receiver.setblocking(False)
        return family, protocol, receiver

    def take(self):
        count, kinds = 0, set()
        for family, protocol, receiver in self.sockets:
            with contextlib.suppress(BlockingIOError):
                for _ in range(MAX_CLASSIFIED):
                    data, _ = receiver.recvfrom(2048)
                    count += 1
                    upper = data[20:] if family == 4 else data
                    kinds.add(self.kind(family, protocol, upper))
            count += drain(receiver)
        return count, kinds - {None}

    @staticmethod
    def kind(family, protocol, upper):
        number, = struct.unpack_from("!H", upper, 4 if protocol in (ICMP, ICMP6) else 2)
        return (family, NAMES[number]) if number in NAMES else None


def drain(full):
    count = 0
    with contextlib.suppress(BlockingIOError):
        # Without an end in sight while packets come as fast as they are read.
        while count < 100 * MAX_CLASSIFIED and select.select([full], [], [], 0)[0]:
            full.recv(16)
            count += 1
    return count


class Taps:
    """All places where a clear packet would be seen."""

    def __init__(self, sites):
        self.places = {
            "left on the wire": Tap(sites.wire, "left", with_inner_addresses()),
            "reached the client": Tap(sites.client, "lan", from_the_stranger()),
            "delivered to sockets": Receivers(sites.left),
        }

    def take(self):
        return {place: tap.take() for place, tap in self.places.items()}

    def reset(self, settle=0.2):
        """What is still under way does not count."""
        time.sleep(settle)
        self.take()

    def counts(self, settle=0.3):
        time.sleep(settle)
        return {place: count for place, (count, _) in self.take().items()}
