"""One folder of scenarios/: what is sent, what should come of it, and the peer's associations as scapy has them."""

import os
import random
import re
import socket
import sys
import tomllib
from dataclasses import dataclass, field

from scapy.layers.inet import IP, UDP
from scapy.layers.inet6 import IPv6
from scapy.layers.ipsec import AH, ESP, SecurityAssociation

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
sys.path.append(os.path.join(ROOT, "tests", "scapy"))

import gmac  # noqa: E402
import ipcomp  # noqa: E402

FOLDER = os.path.join(ROOT, "scenarios")
KNOWN = {"name", "send", "src", "dst", "proto", "sport", "dport", "type", "code", "ttl", "tos", "df", "size", "part",
         "sequence", "repeat", "tamper", "outer", "run", "expect", "by", "shows", "why", "kernel", "because", "plane",
         "plane-because"}
EXPECTATIONS = {"lan", "protected", "clear", "answered", "nothing"}


class Mistake(Exception):
    """A scenario that does not make sense; the text says which and why."""


@dataclass(frozen=True)
class Packet:
    """One row of a scenario: one packet, or several equal ones."""
    number: int
    row: dict

    def __getattr__(self, key):
        return self.row.get(key)

    def due(self, kind):
        """What should come of it through this subject."""
        words = {"gateway": [], "kernel": ["kernel"], "kernel-plane": ["plane", "kernel"]}[kind]
        return next((self.row[word] for word in words if word in self.row), self.expect)

    def reason(self, kind):
        """Why this subject differs from our user plane, where it does."""
        is_apart = kind == "kernel-plane" and "plane" in self.row
        return self.row.get("plane-because") if is_apart else self.because


@dataclass
class Situation:
    name: str
    title: str
    setkey: str
    packets: list
    peer: dict = field(default_factory=dict)
    explain: list = field(default_factory=list)
    setup: str = ""
    cleanup: str = ""
    guest: str = ""
    no_kernel: str = ""


def load(words):
    names = sorted(name for name in os.listdir(FOLDER) if os.path.exists(f"{FOLDER}/{name}/scenario.toml"))
    return [read(name) for name in names if all(word in name for word in words)]


def read(name):
    with open(f"{FOLDER}/{name}/scenario.toml", "rb") as file:
        table = tomllib.load(file)
    texts = {}
    for side in ("left", "right"):
        with open(f"{FOLDER}/{name}/{side}.setkey") as file:
            texts[side] = file.read()
    packets = [Packet(number, row) for number, row in enumerate(table.get("packet", []), 10)]
    for packet in packets:
        check(name, packet)
    return Situation(name, table["title"], texts["left"], packets, associations(texts["right"]),
                     table.get("explain", []), table.get("setup", ""), table.get("cleanup", ""), table.get("guest", ""),
                     table.get("no-kernel", ""))


def check(name, packet):
    if unknown := set(packet.row) - KNOWN:
        raise Mistake(f"{name}: no such word for a packet: {', '.join(sorted(unknown))}")
    if packet.expect not in EXPECTATIONS:
        raise Mistake(f"{name}: `expect` is one of {', '.join(sorted(EXPECTATIONS))}, not {packet.expect!r}")
    for word, reason in (("kernel", "because"), ("plane", "plane-because")):
        if word in packet.row and reason not in packet.row:
            raise Mistake(f"{name}: where `{word}` differs, `{reason}` says why, and docs/deviations.md too")


def associations(text):
    """The peer's associations by SPI, read from setkey's language by a reader that shares nothing with ours."""
    text = re.sub(r"#.*", "", text)
    found = {}
    for statement in text.split(";"):
        words = statement.split()
        if words[:1] == ["add"]:
            found[int(words[4], 0)] = Association(words)
    return found


class Association:
    def __init__(self, words):
        self.source, self.destination, self.protocol = words[1:4]
        self.spi = int(words[4], 0)
        options = words[5:]
        self.mode = self.value(options, "-m") or "transport"
        self.esn = "esn=yes" in options
        self.compression = self.value(options, "-C")
        self.cipher = self.algorithm(options, "-E")
        self.mac = self.algorithm(options, "-A")
        self.family = 6 if ":" in self.source else 4

    @staticmethod
    def value(options, flag):
        return options[options.index(flag) + 1] if flag in options else None

    @staticmethod
    def algorithm(options, flag):
        if flag not in options:
            return None
        at = options.index(flag)
        key = options[at + 2] if options[at + 2:at + 3] not in ([], ["-A"]) else ""
        return options[at + 1], bytes.fromhex(key[2:]) if key.startswith("0x") else key.strip('"').encode()

    def header(self, **fields):
        kind = IPv6 if self.family == 6 else IP
        names = {"tos": "tc", "ttl": "hlim"} if self.family == 6 else {}
        return kind(src=self.source, dst=self.destination, **{names.get(k, k): v for k, v in fields.items()})

    def scapy(self, esn=0, mode=None, **outer):
        if self.protocol == "ipcomp":
            return self.ipcomp()
        table = names()
        if self.mac and self.mac[0] in table["gmac"]:
            return self.gmac(esn, self.header(**outer) if self.mode == "tunnel" else None)
        more = {"tunnel_header": self.header(**outer) if (mode or self.mode) == "tunnel" else None}
        if self.protocol == "esp-udp":
            more["nat_t_header"] = UDP(sport=4500, dport=4500)
        if self.mac:
            more.update(auth_algo=table["integrity"][self.mac[0]], auth_key=self.mac[1])
        if self.protocol != "ah":
            more.update(crypt_algo=table["cipher"][self.cipher[0]], crypt_key=self.cipher[1] or None)
        return SecurityAssociation(AH if self.protocol == "ah" else ESP, spi=self.spi, esn_en=self.esn, esn=esn, **more)

    def ipcomp(self):
        """IPComp; what it is told to leave out travels without its header (RFC 3173 2.2)."""
        family = socket.AF_INET6 if self.family == 6 else socket.AF_INET
        ends = [socket.inet_pton(family, end) for end in (self.source, self.destination)]
        kind = ipcomp.LeftOut if self.compression == "left-out" else ipcomp.Deflate
        return kind(self.spi, random.Random(self.spi), ends if self.mode == "tunnel" else None)

    def gmac(self, esn, header):
        """The peer that scapy does not have. Each association has its own key, so any start of the IVs will do."""
        outer = header and bytes(header)
        return gmac.Association(self.spi, self.mac[1], outer, esn if self.esn else None, self.spi << 32)


def names():
    """What scapy calls what setkey calls something else."""
    with open(os.path.join(ROOT, "tests/scapy/suites.toml"), "rb") as file:
        table = tomllib.load(file)
    return {kind: {row["setkey"]: row.get("scapy") for row in table[kind].values()}
            for kind in ("cipher", "integrity", "gmac")}
