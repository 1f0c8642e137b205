"""Traffic in clear of every kind that a gateway must hold back, running all the time, and how much of it passed.

    leaving    forwarded for the client · local, from a bound and from an unbound socket
    arriving   to be forwarded to the client · for the gateway itself
"""

import os
import socket
import struct
import sys
import time

from network import sender
from network.expect import expect
from network.sites import CLIENT, MACS, NETS, OUTER, SERVER
from network.wire import ETHERNET, UDP, Packet, checksum

# Packets of each kind that the control must see within a second, and how many seconds it has for that.
MIN_PACKETS, TIMEOUT_SECONDS = 20, 15
LOCAL = {4: "10.1.0.1", 6: "fd00:1::1"}


def also_from_outer_addresses(families=(4, 6)):
    """Policies for unbound sockets of the left gateway, which take its outer address; for both gateways."""
    left, right = [], []
    for family in families:
        length = 32 if family == 4 else 128
        selector = f"{OUTER[family][0]}/{length} {NETS[family][1]}"
        ways = "ipsec esp/tunnel/192.0.2.1-192.0.2.2/require;"
        left.append(f"spdadd {selector} any -P out {ways}")
        right.append(f"spdadd {selector} any -P in {ways}")
    return "\n".join(left) + "\n", "\n".join(right) + "\n"


def datagram(family, source, destination):
    """A marked UDP datagram from beyond, as the right gateway would forward it if it did not protect it."""
    ethernet = bytes.fromhex(MACS["left"].replace(":", "")) + bytes.fromhex(MACS["right"].replace(":", ""))
    kind = socket.AF_INET if family == 4 else socket.AF_INET6
    source, destination = socket.inet_pton(kind, source), socket.inet_pton(kind, destination)
    length = 8 + len(sender.MARKER)
    udp = struct.pack("!HHHH", 5000, sender.PORT, length, 0) + sender.MARKER
    if family == 4:
        header = bytearray(struct.pack("!BBHHHBBH4s4s", 0x45, 0, 20 + length, 1, 0, 64, 17, 0, source, destination))
        struct.pack_into("!H", header, 10, checksum(header))
        return ethernet + b"\x08\x00" + bytes(header) + udp
    pseudo = source + destination + struct.pack("!IHBB", length, 0, 0, 17)
    udp = udp[:6] + struct.pack("!H", checksum(pseudo + udp) or 0xFFFF) + udp[8:]
    header = struct.pack("!IHBB", 6 << 28, length, 17, 64) + source + destination
    return ethernet + b"\x86\xdd" + header + udp


class ClearTraffic:
    """All kinds at once, on `Sites`, around its left gateway. `passed` counts since it was last asked."""

    def __init__(self, sites):
        self.wire = sites.listen(sites.wire, "left")
        self.lan = sites.listen(sites.client, "lan")
        self.local = [self.listener(sites.left, family) for family in (4, 6)]
        frames = [datagram(family, SERVER[family], to[family]).hex() for family in (4, 6) for to in (CLIENT, LOCAL)]
        self.processes = [
            self.run(sites.wire, "frame", "left", *frames),
            self.run(sites.client, "udp", *(f",{SERVER[family]}" for family in (4, 6))),
            self.run(sites.left, "udp", *(f"{source},{SERVER[family]}" for family in (4, 6)
                                          for source in (LOCAL[family], ""))),
        ]

    @staticmethod
    def run(host, *arguments):
        return host.start([sys.executable, os.path.abspath(sender.__file__), *arguments])

    @staticmethod
    def listener(host, family):
        listener = host.socket(socket.AF_INET if family == 4 else socket.AF_INET6, socket.SOCK_DGRAM)
        listener.bind((LOCAL[family], sender.PORT))
        listener.setblocking(False)
        return listener

    def passed(self, settle=0.3):
        """How many packets of each kind have passed in clear."""
        time.sleep(settle)
        counts = {f"IPv{family} {way} {kind}": 0
                  for family in (4, 6) for way in ("leaving", "arriving") for kind in ("forwarded", "local")}
        wire, self.wire.frames = self.wire.frames, []
        for packet in self.marked(wire, SERVER):
            counts[f"{version(packet)} leaving {'forwarded' if packet.source in CLIENT.values() else 'local'}"] += 1
        lan, self.lan.frames = self.lan.frames, []
        for packet in self.marked(lan, CLIENT):
            counts[f"{version(packet)} arriving forwarded"] += 1
        for family, listener in zip((4, 6), self.local):
            counts[f"IPv{family} arriving local"] = self.drain(listener)
        return counts

    def expect_all_pass(self):
        """The control: without a gateway every kind passes."""
        deadline = time.monotonic() + TIMEOUT_SECONDS
        while time.monotonic() < deadline:
            passed = self.passed(settle=1)
            if all(count > MIN_PACKETS for count in passed.values()):
                return
        expect(False, f"the control failed: without gateways passed {passed}")

    @staticmethod
    def marked(frames, destinations):
        """The datagrams in clear among the frames that go to one of the destinations; not what ICMP quotes of them."""
        return [packet for packet in filter(None, map(Packet.of, frames))
                if packet.destination in destinations.values() and packet.protocol == UDP
                and sender.MARKER in packet.frame[ETHERNET:]]

    @staticmethod
    def drain(listener):
        count = 0
        while True:
            try:
                listener.recv(2048)
            except BlockingIOError:
                return count
            count += 1

    def stop(self):
        for process in self.processes:
            process.kill()
            process.wait()
        for listener in self.local:
            listener.close()


def version(packet):
    return "IPv6" if ":" in packet.destination else "IPv4"
