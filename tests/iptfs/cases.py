"""Situations of AGGFRAG mode (RFC 9347), in the words of both sides, and packets by a seed."""

import os
import random
import socket
import struct
import sys
from dataclasses import asdict, dataclass

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.append(os.path.dirname(HERE))

# Ours is the first of each pair, the kernel the second.
ENDS = {4: ("192.0.2.1", "192.0.2.2"), 6: ("2001:db8::1", "2001:db8::2")}
NETS = {4: ("10.1.0.0", "10.2.0.0"), 6: ("fd00:1::", "fd00:2::")}
LENGTHS = {4: 24, 6: 64}
# Around the smallest and largest headers, around the size of payloads, and far beyond it.
SIZES = [0, 1, 2, 3, 40, 41, 42, 43, 350, 500, 501, 502, 503, 504, 700, 1280, 1392]


@dataclass
class Case:
    """`size`: bytes of an outer packet; `delay`: microseconds that the kernel collects packets."""
    name: str
    outer: int
    inner: tuple
    size: int
    delay: int = 0
    fragments: bool = True
    esn: bool = False
    count: int = 40

    def dice(self):
        return random.Random(f"9347/{self.name}")

    def associations(self):
        """One for each way, ours first."""
        dice, ends = self.dice(), ENDS[self.outer]
        for way, (source, destination) in (("out", ends), ("in", ends[::-1])):
            yield way, {"source": source, "destination": destination, "spi": dice.randrange(0x1000, 0x10000),
                        "key": dice.randbytes(20).hex()}

    def setkey(self):
        lines = []
        for way, sa in self.associations():
            options = f"-o aggfrag -o aggfrag-size={self.size}"
            options += ("" if self.fragments else " -o dont-frag") + (" -o esn=yes" if self.esn else "")
            lines.append(f"add {sa['source']} {sa['destination']} esp {sa['spi']:#x} -m tunnel -r 256 {options} "
                         f"-E aes-gcm-16 0x{sa['key']};")
        for family in self.inner:
            nets = [f"{net}/{LENGTHS[family]}" for net in NETS[family]]
            for direction, (first, second), (start, end) in (("out", nets, ENDS[self.outer]),
                                                             ("in", nets[::-1], ENDS[self.outer][::-1])):
                lines.append(f"spdadd {first} {second} any -P {direction} ipsec esp/tunnel/{start}-{end}/require;")
        return "\n".join(lines) + "\n"

    def for_guest(self):
        facts = asdict(self)
        facts.update({way: {**sa, **facts} for way, sa in self.associations()})
        facts["nets"] = [NETS[family] for family in self.inner]
        return facts

    def packets(self, way):
        dice = random.Random(f"{way}/{self.name}")
        sizes = [*SIZES, *(dice.randrange(1393) for _ in range(self.count))][:self.count]
        if not self.fragments:
            sizes = [min(size, self.size - 120) for size in sizes]
        return [packet(dice, dice.choice(self.inner), way, size, number) for number, size in enumerate(sizes)]


CASES = [
    Case("v4-in-v4", 4, (4,), size=1500),
    Case("small-v4-in-v4", 4, (4,), size=600, delay=3000),
    Case("both-in-v6-esn", 6, (4, 6), size=700, delay=3000, esn=True),
    Case("v6-in-v4-collected", 4, (6,), size=1500, delay=3000),
    Case("whole-v4-in-v4", 4, (4,), size=1400, delay=3000, fragments=False),
]


def packet(dice, family, way, size, number):
    """A UDP datagram with a right checksum."""
    first, second = NETS[family] if way == "out" else NETS[family][::-1]
    data = dice.randbytes(size)
    if family == 4:
        source, destination = (bytes([*map(int, net.split(".")[:3]), dice.randrange(2, 255)])
                               for net in (first, second))
        fixed = struct.pack(">BBHHHBBH", 0x45, 0, 28 + size, number + 1, 0x4000, 64, 17, 0)
        header = bytearray(fixed + source + destination)
        header[10:12] = checksum(header)
    else:
        source, destination = (socket.inet_pton(socket.AF_INET6, f"{net}{dice.randrange(2, 0x10000):x}")
                               for net in (first, second))
        header = struct.pack(">IHBB", 0x60000000, 8 + size, 17, 64) + source + destination
    udp = bytearray(struct.pack(">HHHH", 1000 + number, 2000, 8 + size, 0)) + data
    udp[6:8] = checksum(source + destination + struct.pack(">II", len(udp), 17) + bytes(udp))
    return bytes(header) + bytes(udp)


def checksum(data):
    total = sum(struct.unpack(f">{(len(data) + 1) // 2}H", bytes(data) + bytes(len(data) % 2)))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return struct.pack(">H", (~total & 0xFFFF) or 0xFFFF)
