"""The table of cases, read and multiplied out, and the keys and SPIs of each."""

import hashlib
import itertools
import os
import tomllib
from dataclasses import dataclass

HERE = os.path.dirname(os.path.abspath(__file__))
AXES = {"suite": None, "mode": "tunnel", "outer": 4, "inner": None, "encap": "native", "esn": False,
        "ipcomp": False}
# RFC 3173 3.3: of the negotiated ones, so many.
FIRST_CPI, CPIS = 256, 61_000


@dataclass(frozen=True)
class Case:
    suite: str
    mode: str
    outer: int
    inner: int
    encap: str
    esn: bool
    ipcomp: bool
    words: dict
    secret: str = ""

    @property
    def name(self):
        inside = f"v{self.inner} in v{self.outer}" if self.mode == "tunnel" else f"v{self.outer}"
        extras = [self.encap] + (["esn"] if self.esn else []) + (["ipcomp"] if self.ipcomp else [])
        return f"{self.mode} {inside} {self.suite} {' '.join(extras)}"

    def spi(self, sender):
        """The SPI of the direction that starts at a side; above the 255 that are reserved."""
        return 256 + int.from_bytes(self.bytes_of(sender, "spi", 3), "big")

    def cpi(self, sender):
        """What IPComp has in place of an SPI."""
        return FIRST_CPI + int.from_bytes(self.bytes_of(sender, "cpi", 3), "big") % CPIS

    @property
    def esp_mode(self):
        """With IPComp the tunnel is its own, and ESP protects what it makes."""
        return "transport" if self.ipcomp else self.mode

    def algorithms(self, language, sender):
        """The words that name the suite, with the keys of one direction in them."""
        cipher, integrity = self.words["keys"]
        keys = {"E": self.key(sender, "cipher", cipher), "A": self.key(sender, "integrity", integrity)}
        return self.words[language].format(**keys)

    def key(self, sender, purpose, length):
        return "0x" + self.bytes_of(sender, purpose, self.secret, length).hex()

    def bytes_of(self, *what):
        *words, length = what
        return hashlib.shake_256("/".join([self.name, *words]).encode()).digest(length)


def load_cases():
    with open(os.path.join(HERE, "cases.toml"), "rb") as file:
        table = tomllib.load(file)
    return [case for row in table["case"] for case in multiply(row, table["suites"])]


def multiply(row, suites):
    unknown = set(row) - set(AXES) - {"mixed"}
    if unknown:
        raise SystemExit(f"cases.toml: no such column: {', '.join(unknown)}")
    lists = [row.get(axis, default) for axis, default in AXES.items()]
    for values in itertools.product(*(v if isinstance(v, list) else [v] for v in lists)):
        case = dict(zip(AXES, values))
        case["inner"] = case["inner"] or case["outer"]
        if row.get("mixed") and case["inner"] == case["outer"]:
            continue
        yield Case(words=suites[case["suite"]], **case)
