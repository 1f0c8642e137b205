"""What the pairwise cover is made of: the factors, what cannot stand together, and what one combination means
for each side: its associations layer by layer, its policies, its addresses.

    esp          ESP alone                      tunnel 4in6    IPv4 inside, IPv6 outside
    ah           AH alone                       nested         the inner association joins the inner addresses in
    esp+ah       ESP inside, AH outside                        transport mode, the outer one is the tunnel; without
    ah+esp       AH inside, ESP outside                        it the inner one is the tunnel
"""

import hashlib
import os
import tomllib
from dataclasses import dataclass

from pairs import Rules, cover

HERE = os.path.dirname(os.path.abspath(__file__))
SEED = 20040
with open(os.path.join(HERE, "algorithms.toml"), "rb") as _file:
    ALGORITHMS = tomllib.load(_file)
CIPHERS, INTEGRITY = ALGORITHMS["cipher"], ALGORITHMS["integrity"]
NONE = "-"
BUNDLES = ("esp+ah", "ah+esp")
FACTORS = {
    "cipher": [*CIPHERS, NONE],
    "integrity": [*INTEGRITY, NONE],
    "protocol": ["esp", "ah", *BUNDLES],
    "shape": ["tunnel 4in4", "tunnel 6in6", "tunnel 4in6", "tunnel 6in4", "transport 4", "transport 6"],
    "nesting": ["plain", "nested"],
    "encap": ["native", "udp"],
    "esn": [False, True],
    "window": [0, 32, 64, 1024, 4096],
}


def is_aead(cipher):
    return "aead" in CIPHERS.get(cipher, {})


def partner(cipher):
    """The integrity algorithm of AH beside a cipher that authenticates by itself: each in turn."""
    return list(INTEGRITY)[list(CIPHERS).index(cipher) % len(INTEGRITY)]


# What cannot stand together, or need not, and why. The page of outcomes prints the reasons.
LEFT_OUT = [
    (["protocol", "cipher"], lambda protocol, cipher: (protocol == "ah") == (cipher == NONE),
     "AH alone has no cipher; ESP and bundles always have one, be it `null`"),
    (["protocol", "integrity"], lambda protocol, integrity: protocol == "esp" or integrity != NONE,
     "AH always has an integrity algorithm"),
    (["protocol", "cipher", "integrity"],
     lambda protocol, cipher, integrity: protocol != "esp" or not is_aead(cipher) or integrity == NONE,
     "a cipher that authenticates takes no integrity algorithm beside it"),
    (["protocol", "cipher", "integrity"],
     lambda protocol, cipher, integrity: protocol != "esp" or cipher != "null" or integrity != NONE,
     "ESP with neither cipher nor integrity protects nothing (RFC 4301 4.2)"),
    (["protocol", "cipher", "integrity"],
     lambda protocol, cipher, integrity: (protocol not in BUNDLES or not is_aead(cipher)
                                          or integrity == partner(cipher)),
     "in a bundle a cipher that authenticates and the algorithm of AH never meet in one transform, so each such cipher "
     "has one partner"),
    (["esn", "protocol", "cipher", "integrity"],
     lambda esn, protocol, cipher, integrity: not esn or protocol != "esp" or is_aead(cipher) or integrity != NONE,
     "extended sequence numbers without integrity: the half that is not sent would be verified by nothing"),
    (["esn", "window"], lambda esn, window: not esn or window > 0,
     "extended sequence numbers without a window: the half that is not sent is inferred from it"),
    (["window", "protocol", "cipher", "integrity"],
     lambda window, protocol, cipher, integrity:
     window == 0 or protocol != "esp" or is_aead(cipher) or integrity != NONE,
     "a window without integrity: any host on the path can write the number (RFC 4303 3.4.3)"),
    (["nesting", "protocol"], lambda nesting, protocol: nesting == "plain" or protocol in BUNDLES,
     "one association is not nested"),
    (["nesting", "shape"], lambda nesting, shape: nesting == "plain" or shape.startswith("tunnel"),
     "transport mode has one header, in which nothing is nested"),
    (["nesting", "protocol"], lambda nesting, protocol: nesting == "nested" or protocol != "ah+esp",
     "AH inside ESP on one IP header: Linux gives the header its next protocol only after the last layer, so its AH "
     "check fails. As two headers (the inner one in transport mode, the outer one a tunnel) it is judged"),
    (["nesting", "protocol", "shape"], lambda nesting, protocol, shape:
     nesting == "nested" or protocol not in BUNDLES or shape not in ("tunnel 4in6", "tunnel 6in4"),
     "a tunnel from one family to the other inside a second association of transport mode: Linux refuses it (\"Only "
     "tunnel modes can accommodate an AF_UNSPEC selector\")"),
    (["nesting", "shape"], lambda nesting, shape: nesting == "plain" or shape != "tunnel 4in6",
     "transport mode over IPv4 inside a tunnel over IPv6: Linux sends small packets as fragments of their own, which its "
     "own AH refuses"),
    (["encap", "protocol"], lambda encap, protocol: encap == "native" or protocol == "esp",
     "AH in UDP, alone or in a bundle: RFC 3948 is for ESP"),
]
RULES = Rules(FACTORS, [(names, holds) for names, holds, _ in LEFT_OUT])


@dataclass(frozen=True)
class Side:
    """One end: its number stands in all its addresses."""
    digit: int

    def outer(self, number, version):
        if version == 4:
            return f"198.18.{16 * self.digit + number // 200}.{1 + number % 200}"
        return f"2001:db8:{self.digit}::{number + 1:x}"

    def inner(self, number, version):
        if version == 4:
            return f"10.{self.digit}.{16 + number // 200}.{1 + number % 200}"
        return f"fd00:{self.digit}:1::{number + 1:x}"

    def networks(self):
        """The outer and inner addresses of all numbers, by version."""
        return {4: (f"198.18.{16 * self.digit}.0/20", f"10.{self.digit}.16.0/20"),
                6: (f"2001:db8:{self.digit}::/48", f"fd00:{self.digit}:1::/48")}


GATEWAY, RIGHT, KERNEL, KERNEL_PLANE = Side(1), Side(2), Side(3), Side(4)


@dataclass(frozen=True)
class Layer:
    """One association of one direction."""
    protocol: str
    mode: str
    source: str
    destination: str
    spi: int
    cipher: str
    integrity: str


@dataclass(frozen=True)
class Combination:
    number: int
    cipher: str
    integrity: str
    protocol: str
    shape: str
    nesting: str
    encap: str
    esn: bool
    window: int

    @property
    def name(self):
        suite = "/".join(word for word in (self.cipher, self.integrity) if word != NONE)
        extras = [word for word in (self.nesting, self.encap) if word not in ("plain", "native")]
        extras += ["esn"] if self.esn else []
        return " ".join([f"{self.number:03}", self.protocol, self.shape, suite, *extras, f"w{self.window}"])

    @property
    def mode(self):
        return self.shape.split()[0]

    @property
    def inner_version(self):
        return int(self.shape.split()[1][0])

    @property
    def outer_version(self):
        return int(self.shape[-1])

    @property
    def outermost(self):
        """The protocol that one sees on the wire."""
        return self.protocol.split("+")[-1]

    def inside(self, side):
        """The address that talks: in transport mode the outer one."""
        if self.mode == "transport":
            return side.outer(self.number, self.outer_version)
        return side.inner(self.number, self.inner_version)

    def outside(self, side):
        return side.outer(self.number, self.outer_version)

    def ends_at_host(self):
        """Whether the talking address belongs to who protects, not to a host behind it."""
        return self.mode == "transport" or self.nesting == "nested"

    def layers(self, source, destination):
        """The associations from one side to the other, the innermost first."""
        protocols = self.protocol.split("+")
        for depth, protocol in enumerate(protocols):
            tunnel = self.mode == "tunnel" and depth == (len(protocols) - 1 if self.nesting == "nested" else 0)
            below = self.nesting == "nested" and depth == 0
            ends = [self.inside(side) if below else self.outside(side) for side in (source, destination)]
            spi = 0x10000 + self.number * 16 + source.digit * 4 + depth
            yield Layer(protocol, "tunnel" if tunnel else "transport", *ends, spi,
                        NONE if protocol == "ah" else self.cipher, self.integrity_of(protocol))

    def integrity_of(self, protocol):
        """In a bundle AH authenticates for both, except where ESP could not stand without."""
        if protocol == "ah" or len(self.protocol) == 3:
            return self.integrity
        needs = not is_aead(self.cipher) and (self.cipher == "null" or self.esn or self.window > 0)
        return self.integrity if needs else NONE

    def authenticated(self):
        """Whether the outermost layer notices a change."""
        return is_aead(self.cipher) and self.outermost == "esp" or self.integrity_of(self.outermost) != NONE

    def key(self, layer, purpose, length, secret=""):
        words = f"{self.name}/{layer.spi}/{layer.protocol}/{purpose}/{secret}"
        return "0x" + hashlib.shake_256(words.encode()).digest(length).hex()


def combinations():
    return [Combination(number, **case) for number, case in enumerate(cover(RULES, SEED))]


if __name__ == "__main__":
    for each in combinations():
        print(each.name)
