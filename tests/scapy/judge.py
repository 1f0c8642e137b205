#!/usr/bin/env python3
"""scapy as an independent ESP and AH: what we seal it opens, and what it seals we open. For AES-GMAC in AH, which scapy
does not have, gmac.py.

    tests/scapy/run [--packets N] [--seed N] [--self] [WORD...]    only lines that have every WORD

One line for every suite, shape and key length: `packets N mismatches 0 tampered-rejected N`. Any of
the Ns being 0 fails. Keys, addresses inside, lengths and contents come from the seed. `--self` puts
scapy on both ends, which shows that the comparison itself is right.
"""

import argparse
import contextlib
import ipaddress
import os
import random
import struct
import subprocess
import sys
import tempfile
import tomllib
import zlib
from dataclasses import dataclass

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.append(os.path.dirname(HERE))

import aggfrag  # noqa: E402
import gmac  # noqa: E402
import ipcomp  # noqa: E402
from network import pcap  # noqa: E402
from network.gateway import program  # noqa: E402
from scapy.error import Scapy_Exception  # noqa: E402
from scapy.layers.inet import ICMP, IP, IPOption_RR, IPOption_Router_Alert, TCP, UDP  # noqa: E402
from scapy.layers.inet6 import IPv6, IPv6ExtHdrHopByHop, RouterAlert  # noqa: E402
from scapy.layers.ipsec import AH, ESP, IPSecIntegrityError, SecurityAssociation  # noqa: E402
from scapy.packet import Raw, bind_layers, split_layers  # noqa: E402

OUTER = {4: ("192.0.2.1", "192.0.2.2"), 6: ("2001:db8::1", "2001:db8::2")}
NETS = {4: ("10.1.0.0/24", "10.2.0.0/24"), 6: ("fd00:1::/64", "fd00:2::/64")}
INNER = {4: ("10.1.0.{}", "10.2.0.{}"), 6: ("fd00:1::{:x}", "fd00:2::{:x}")}
LENGTHS = [0, 1, 2, 3, 4, 15, 16, 17, 1300, 1400, 4000]
PROTOCOLS = {"esp": ESP, "ah": AH}
# Bytes to the end of the sequence number.
HEADER = {"esp": 8, "ah": 12}
# What is put around the first layer of a bundle.
AROUND = {"setkey": "-A hmac-sha2-256 {A}", "integrity": "SHA2-256-128", "key": 32}


@dataclass
class Suite:
    """One combination of algorithms and key length, in both languages."""
    name: str
    setkey: str
    scapy: dict


@dataclass
class Shape:
    """Mode, families and encapsulation."""
    name: str
    mode: str
    outer: int
    inner: int
    udp: bool = False
    esn: bool = False
    first: str = "esp"
    around: str | None = None
    rare: bool = False
    aggfrag: str | None = None
    # The mode of IPComp, which is inside everything else.
    compressed: str | None = None

    def outermost(self):
        return self.around or self.first

    def first_mode(self):
        """The mode of ESP or AH: where IPComp makes the tunnel they only protect it."""
        return "transport" if self.compressed else self.mode


class Pair:
    """Two associations, one each way, and their policies: ours seals on `out` and opens on `in`."""

    def __init__(self, suite, shape, dice):
        self.suite, self.shape, self.dice = suite, shape, dice
        self.keys = {way: {kind: dice.randbytes(n) for kind, n in suite.scapy["lengths"].items()}
                     for way in ("out", "in")}
        self.around_keys = {way: dice.randbytes(AROUND["key"]) for way in ("out", "in")}
        self.spis = {way: dice.randrange(256, 1 << 32) for way in ("out", "in")}
        self.deflates = {way: self.deflate(way) for way in ("out", "in") if shape.compressed}

    def ends(self, way):
        first, second = OUTER[self.shape.outer]
        return (first, second) if way == "out" else (second, first)

    def selectors(self, way):
        """The two sides of a policy: the networks inside, or the hosts themselves."""
        first, second = NETS[self.shape.inner] if self.shape.mode == "tunnel" else OUTER[self.shape.outer]
        return (first, second) if way == "out" else (second, first)

    def setkey(self):
        return "\n".join([self.add("out"), self.add("in"), self.policy("out"), self.policy("in")]) + "\n"

    def add(self, way):
        keys = {kind: "0x" + key.hex() for kind, key in self.keys[way].items()}
        source, destination = self.ends(way)
        esn = "-o esn=yes " if self.shape.esn else ""
        if self.shape.aggfrag is not None:
            esn += f"-o aggfrag {self.shape.aggfrag} "
        lines = (f"add {source} {destination} {self.shape.first}{'-udp' if self.shape.udp else ''} "
                 f"{self.spis[way]:#x} -m {self.shape.first_mode()} -r 64 {esn}{self.suite.setkey.format(**keys)};")
        if self.shape.around:
            suite = AROUND["setkey"].format(A="0x" + self.around_keys[way].hex())
            lines += (f"\nadd {source} {destination} {self.shape.around} {self.spis[way]:#x} "
                      f"-m transport -r 64 {esn}{suite};")
        if self.shape.compressed:
            lines += (f"\nadd {source} {destination} ipcomp {self.deflates[way].cpi} "
                      f"-m {self.shape.compressed} -C deflate;")
        return lines

    def policy(self, way):
        hops = "-".join(self.ends(way)) if self.shape.mode == "tunnel" else ""
        source, destination = self.selectors(way)
        around = f" {self.shape.around}/transport//require" if self.shape.around else ""
        if self.shape.compressed:
            return (f"spdadd {source} {destination} any -P {way} ipsec ipcomp/{self.shape.compressed}/{hops}/require "
                    f"{self.shape.first}/transport//require{around};")
        return (f"spdadd {source} {destination} any -P {way} "
                f"ipsec {self.shape.first}/{self.shape.mode}/{hops}/require{around};")

    def associations(self, way):
        """The same associations as scapy has them, innermost first."""
        inside = [self.deflates[way]] if self.shape.compressed else []
        return inside + [self.association(way)] + ([self.around(way)] if self.shape.around else [])

    def deflate(self, way):
        ends = [ipaddress.ip_address(end).packed for end in self.ends(way)]
        return ipcomp.Deflate(self.dice.randrange(256, 61440), self.dice,
                              ends if self.shape.compressed == "tunnel" else None)

    def around(self, way):
        return SecurityAssociation(
            PROTOCOLS[self.shape.around], spi=self.spis[way], esn_en=self.shape.esn, esn=0,
            auth_algo=AROUND["integrity"], auth_key=self.around_keys[way])

    def association(self, way):
        keys = self.keys[way]
        source, destination = self.ends(way)
        header = {4: IP, 6: IPv6}[self.shape.outer](src=source, dst=destination)
        if self.suite.scapy.get("gmac"):
            outer = bytes(header) if self.shape.mode == "tunnel" else None
            return gmac.Association(self.spis[way], keys["A"], outer, 0 if self.shape.esn else None,
                                    self.dice.getrandbits(64))
        return SecurityAssociation(
            PROTOCOLS[self.shape.first], spi=self.spis[way], esn_en=self.shape.esn, esn=0,
            crypt_algo=self.suite.scapy["cipher"], crypt_key=keys.get("E") or None,
            auth_algo=self.suite.scapy["integrity"], auth_key=keys.get("A"),
            # An AGGFRAG payload is, to scapy, an upper layer it does not know.
            tunnel_header=header if self.shape.first_mode() == "tunnel" and self.shape.aggfrag is None else None,
            nat_t_header=UDP(sport=4500, dport=4500) if self.shape.udp else None)

    def packets(self, way, count):
        return [self.packet(way, LENGTHS[n] if n < len(LENGTHS) else self.dice.randrange(1401)) for n in range(count)]

    def packet(self, way, length):
        dice, family = self.dice, self.shape.inner
        if self.shape.mode == "tunnel":
            names = INNER[family] if way == "out" else INNER[family][::-1]
            source, destination = (name.format(dice.randrange(1, 255)) for name in names)
        else:
            source, destination = self.ends(way)
        header = (IP(src=source, dst=destination, id=dice.randrange(1, 1 << 16), ttl=64, tos=dice.choice([0, 0xB8]))
                  if family == 4 else IPv6(src=source, dst=destination, hlim=64, fl=0))
        if self.shape.rare and family == 4:
            header.options = [IPOption_Router_Alert(), IPOption_RR(routers=["10.9.8.7", "0.0.0.0"], pointer=8)]
        elif self.shape.rare:
            header = header / IPv6ExtHdrHopByHop(options=[RouterAlert(value=dice.randrange(8))])
        ports = {"sport": dice.randrange(1024, 65536), "dport": dice.randrange(1, 1024)}
        above = [UDP(**ports), TCP(**ports, seq=dice.randrange(1 << 32))] + ([ICMP()] if family == 4 else [])
        content = dice.randbytes(length)
        if self.shape.compressed and (length == 1300 or dice.random() < 0.7):
            content = (dice.randbytes(dice.randrange(1, 40)) * (length + 1))[:length]
        return bytes(header / dice.choice(above) / Raw(content))


class Ours:
    """The engine over captures: what users have as `esplanade capture`."""

    def __init__(self, pair):
        self.pair = pair
        self.folder = tempfile.TemporaryDirectory(prefix="esplanade-scapy-")
        self.setkey = f"{self.folder.name}/sa.setkey"
        with open(self.setkey, "w") as file:
            file.write(pair.setkey())

    def seal(self, packets):
        return self.capture("seal", packets, complete=True)

    def open(self, packets, complete):
        return self.capture("open", packets, complete)

    def capture(self, verb, packets, complete):
        source, target = (f"{self.folder.name}/{verb}-{name}.pcap" for name in ("in", "out"))
        pcap.write(source, packets)
        if os.path.exists(target):
            os.remove(target)
        done = subprocess.run([program(), "capture", verb, "--sa", self.setkey, source, target],
                              capture_output=True, text=True, timeout=60, stdin=subprocess.DEVNULL)
        if complete != (done.returncode == 0):
            raise Disagreement(f"capture {verb}: exit status {done.returncode}: {done.stdout}{done.stderr}")
        return pcap.read(target)[1] if os.path.exists(target) else []


class Scapy:
    """scapy in our place."""

    def __init__(self, pair):
        self.pair = pair

    def seal(self, packets):
        return seal_with_scapy(self.pair, "out", packets)

    def open(self, packets, complete):
        opened = [open_with_scapy(self.pair, "in", packet) for packet in packets]
        return [packet for packet in opened if packet is not None]


class Disagreement(Exception):
    """We and scapy see it differently."""


def seal_with_scapy(pair, way, packets):
    kinds = [{4: IP, 6: IPv6}[family] for family in (pair.shape.inner, pair.shape.outer, pair.shape.outer)]
    for association, kind in zip(pair.associations(way), kinds):
        with as_mere_bytes(association):
            packets = [bytes(association.encrypt(kind(packet), seq_num=number))
                       for number, packet in enumerate(packets, 1)]
    return packets


@contextlib.contextmanager
def as_mere_bytes(association):
    """Where AH goes around ESP scapy would sign the ESP it sees inside; so it must not see any."""
    pairs = [(IP, {"proto": 50}), (IPv6, {"nh": 50}), (AH, {"nh": 50})] if association.proto is AH else []
    for below, named in pairs:
        split_layers(below, ESP, **named)
    try:
        yield
    finally:
        for below, named in pairs:
            bind_layers(below, ESP, **named)


def open_with_scapy(pair, way, packet):
    """The plaintext, or None where scapy refuses the packet."""
    kind = {4: IP, 6: IPv6}[pair.shape.outer]
    try:
        for association in reversed(pair.associations(way)):
            with as_mere_bytes(association):
                packet = bytes(association.decrypt(kind(bytes(packet))))
        return packet
    except (IPSecIntegrityError, Scapy_Exception, IndexError, ValueError, TypeError, zlib.error):
        return None


def as_arrived(packet, mode):
    """The packet as it must arrive: a gateway may have counted it as one hop; in transport mode, where the sending
    system numbers and labels the outer header, neither its identification nor its flow label is the inner one's
    (docs/deviations.md)."""
    packet = bytearray(packet)
    if packet[0] >> 4 == 4:
        packet[8] = 0
        packet[10:12] = bytes(2)
        if mode == "transport":
            packet[4:6] = bytes(2)
    else:
        packet[7] = 0
        if mode == "transport":
            packet[1:4] = bytes([packet[1] & 0xF0, 0, 0])
    return bytes(packet)


def mismatches(expected, got, mode):
    wrong = sum(as_arrived(a, mode) != as_arrived(b or bytes(40), mode) for a, b in zip(expected, got))
    return wrong + abs(len(expected) - len(got))


def tampered(pair, packet):
    """One bit turned anywhere behind the sequence number; the outer headers stay right."""
    packet = bytearray(packet)
    header = 4 * (packet[0] & 15) if pair.shape.outer == 4 else 40 + (8 if pair.shape.rare else 0)
    header += (8 if pair.shape.udp else 0) + HEADER[pair.shape.outermost()]
    packet[pair.dice.randrange(header, len(packet))] ^= 1 << pair.dice.randrange(8)
    return bytes(packet)


def judge(suite, shape, arguments):
    """Both directions of one line; gives packets compared, mismatches and tampered packets refused."""
    pair = Pair(suite, shape, random.Random(f"{arguments.seed}/{suite.name}/{shape.name}"))
    if shape.aggfrag is not None:
        return judge_aggfrag(pair, arguments)
    us = Scapy(pair) if arguments.self else Ours(pair)
    plain = pair.packets("out", arguments.packets)
    sealed = us.seal(plain)
    if len(sealed) != len(plain):
        raise Disagreement(f"{len(sealed)} packets sealed of {len(plain)}")
    wrong = mismatches(plain, [open_with_scapy(pair, "out", packet) for packet in sealed], shape.mode)
    plain = pair.packets("in", arguments.packets)
    sealed = seal_with_scapy(pair, "in", plain)
    wrong += mismatches(plain, us.open(sealed, complete=True), shape.mode)
    if shape.compressed and not (pair.deflates["out"].opened and pair.deflates["in"].compressed):
        raise Disagreement("nothing was compressed")
    forged = [tampered(pair, packet) for packet in sealed]
    passed = us.open(forged, complete=False)
    return 2 * len(plain), wrong + len(passed), (len(forged) - len(passed), len(forged))


def judge_aggfrag(pair, arguments):
    """The same where packets share payloads (RFC 9347): ours taken apart and others' put together by aggfrag.py."""
    us, dice = Ours(pair), pair.dice
    plain = pair.packets("out", arguments.packets)
    sealed = us.seal(plain)
    opened = [open_with_scapy(pair, "out", packet) for packet in sealed]
    wrong = mismatches(plain, aggfrag.unpack([payload_of(packet) for packet in opened]), "tunnel")
    plain = pair.packets("in", arguments.packets)
    payloads = aggfrag.padded(aggfrag.pack(plain, 500, dice), 500, dice)
    sealed = seal_payloads_with_scapy(pair, "in", payloads)
    wrong += mismatches(plain, us.open(aggfrag.overtaken(sealed, dice), complete=True), "tunnel")
    forged = [tampered(pair, packet) for packet in sealed]
    passed = us.open(forged, complete=False)
    return 2 * len(plain), wrong + len(passed), (len(forged) - len(passed), len(forged))


def payload_of(packet):
    """The AGGFRAG payload behind an outer header."""
    if packet is None:
        raise Disagreement("scapy cannot open what we sealed")
    protocol, start = (packet[9], 20) if packet[0] >> 4 == 4 else (packet[6], 40)
    if protocol != aggfrag.PROTOCOL:
        raise Disagreement(f"next header {protocol}")
    return packet[start:]


def seal_payloads_with_scapy(pair, way, payloads):
    (association,), (source, destination) = pair.associations(way), pair.ends(way)
    header = (IP(src=source, dst=destination, proto=aggfrag.PROTOCOL) if pair.shape.outer == 4
              else IPv6(src=source, dst=destination, nh=aggfrag.PROTOCOL))
    return [bytes(association.encrypt(header / Raw(payload), seq_num=number))
            for number, payload in enumerate(payloads, 1)]


def load():
    with open(os.path.join(HERE, "suites.toml"), "rb") as file:
        table = tomllib.load(file)
    shapes = [Shape(name=name, **row) for name, row in table["shapes"].items()]
    return list(lines(table, shapes))


def lines(table, shapes):
    """Which suite is judged in which shape."""
    packed = [shape for shape in shapes if shape.aggfrag is not None]
    shapes = [shape for shape in shapes if shape.aggfrag is None]
    alone = [shape for shape in shapes if not (shape.first == "ah" or shape.around or shape.rare or shape.compressed)]
    yield from ((row, shape) for row in suites(table) for shape in alone)
    bundled = [row for row in suites(table) if row.name in table["pairs"]["bundled"]]
    yield from ((row, shape) for row in bundled for shape in shapes
                if shape.first == "esp" and shape not in alone)
    yield from ((row, shape) for row in bundled for shape in packed)
    yield from ((ah_suite(name, row), shape) for kind in ("integrity", "gmac") for name, row in table[kind].items()
                for shape in shapes if shape.first == "ah")


def ah_suite(name, row):
    scapy = {"cipher": None, "integrity": row.get("scapy"), "gmac": "scapy" not in row, "lengths": {"A": row["key"]}}
    return Suite(f"AH {name}", f"-A {row['setkey']} {{A}}", scapy)


def suites(table):
    every, default = table["pairs"]["every"], table["pairs"]["default"]
    for name, cipher in table["cipher"].items():
        macs = [None] if cipher.get("aead") else list(table["integrity"]) if name == every else [default]
        for mac in macs:
            for length in cipher["keys"]:
                yield suite(name, cipher, length, mac, table["integrity"].get(mac))


def suite(name, cipher, length, mac, row):
    bits = f"-{8 * length}" if len(cipher["keys"]) > 1 else ""
    setkey, lengths = f"-E {cipher['setkey']}" + (" {E}" if length else ""), {"E": length}
    if row:
        setkey, lengths = f"{setkey} -A {row['setkey']} {{A}}", {"E": length, "A": row["key"]}
    scapy = {"cipher": cipher["scapy"], "integrity": row and row["scapy"], "lengths": lengths}
    return Suite(name + bits + (f"+{mac}" if mac else ""), setkey, scapy)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--packets", type=int, default=24)
    parser.add_argument("--seed", default="esplanade")
    parser.add_argument("--self", action="store_true")
    parser.add_argument("words", nargs="*")
    arguments = parser.parse_args()
    print(f"seed {arguments.seed}, {arguments.packets} packets each way")
    chosen = [(row, shape) for row, shape in load()
              if all(word in f"{row.name} {shape.name}" for word in arguments.words)
              and not (arguments.self and shape.aggfrag is not None)]
    outcomes = [line(row, shape, arguments) for row, shape in chosen]
    return 0 if outcomes and all(outcomes) else 1


def line(row, shape, arguments):
    name = f"scapy {row.name} {shape.name}"
    try:
        packets, wrong, (refused, forged) = judge(row, shape, arguments)
    except (Disagreement, aggfrag.Broken, struct.error, subprocess.TimeoutExpired) as error:
        print(f"not ok {name}: {' '.join(str(error).split())}", flush=True)
        return False
    counts = f"packets {packets} mismatches {wrong} tampered-rejected {refused}"
    good = packets > 0 and wrong == 0 and refused == forged > 0
    print(f"{'ok' if good else 'not ok'} {name}: {counts}", flush=True)
    return good


if __name__ == "__main__":
    sys.exit(main())
