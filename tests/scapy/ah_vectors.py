#!/usr/bin/env python3
"""What scapy takes for mutable before an Authentication Header, as vectors for ipsec/src/ah/tests.rs.

    tests/scapy/ah_vectors.py > ipsec/tests/vectors/ah-mutable.json

Every line is one packet's headers up to AH as they are sent, and as the ICV covers them. From a fixed
seed. Left out is where scapy and RFC 4302 part: it never turns an IPv4 source route, so ours have
arrived, and it looks at no option behind a routing header that has arrived.
"""

import json
import random

from scapy.layers.inet import IP
from scapy.layers.inet6 import (HBHOptUnknown, IPv6, IPv6ExtHdrDestOpt, IPv6ExtHdrHopByHop,
                                IPv6ExtHdrRouting, Pad1, PadN, RouterAlert)
from scapy.layers.ipsec import AH, zero_mutable_fields
from scapy.packet import Raw

CASES = 120
NOP = b"\x01"
ROUTES = (131, 137)


def main():
    """Prints the vectors, one a line."""
    pick = random.Random(4302)
    cases = [case(pick, number) for number in range(CASES)]
    print("[\n" + ",\n".join(json.dumps(one) for one in cases) + "\n]")


def case(pick, number):
    """One packet before and after, headers only."""
    sending, packet = (True, ipv4(pick)) if number % 2 else ipv6(pick)
    raw = bytes(packet)
    parsed = type(packet)(raw)
    length = raw.index(bytes(packet[AH]))
    if bytes(parsed) != raw:
        raise SystemExit(f"scapy reads its own packet in another way: {raw.hex()}")
    zeroed = bytes(zero_mutable_fields(parsed, sending=sending))
    return {"headers": raw[:length].hex(), "covered": zeroed[:length].hex()}


def authentication(pick):
    """An AH with something recognisable behind it."""
    return AH(nh=59, spi=pick.getrandbits(32), seq=pick.getrandbits(32), icv=b"\xa5" * 12) / Raw(b"payload")


def ipv4(pick):
    """IPv4 with up to 40 bytes of options."""
    options = b""
    for _ in range(pick.randrange(5)):
        option = ipv4_option(pick)
        if len(options) + len(option) <= 40:
            options += option
    options += NOP * (-len(options) % 4)
    ip = IP(tos=pick.getrandbits(8), id=pick.getrandbits(16), flags=pick.choice(["", "DF"]),
            ttl=pick.getrandbits(8), proto=51, src=address4(pick), dst=address4(pick))
    body = bytes(authentication(pick))
    head = bytearray(bytes(ip))
    head[0] = 0x45 + len(options) // 4
    head[2:4] = (20 + len(options) + len(body)).to_bytes(2, "big")
    return IP(bytes(head) + options + body)


def ipv4_option(pick):
    """An option of a kind that RFC 4302 A1 lists, or of none."""
    kind = pick.choice([1, 7, 68, 82, 130, 131, 133, 134, 136, 137, 147, 148, 149, 11, 12, 205])
    if kind == 1:
        return NOP
    fixed = {11: 4, 12: 4, 82: 12, 130: 11, 136: 4, 147: 10, 148: 4, 149: 10, 68: 12}
    length = fixed.get(kind, 3 + 4 * pick.randrange(1, 3))
    body = bytearray(pick.randbytes(length - 2))
    if kind in ROUTES:
        body[0] = length + 1
    if kind == 68:
        body[:2] = b"\x05\x01"
    return bytes([kind, length]) + bytes(body)


def ipv6(pick):
    """IPv6 with extension headers; also whether it is seen by its sender."""
    packet = IPv6(tc=pick.getrandbits(8), fl=pick.getrandbits(20), hlim=pick.getrandbits(8),
                  src=address6(pick), dst=address6(pick))
    sending = pick.random() < 0.7
    if pick.random() < 0.6:
        packet /= IPv6ExtHdrHopByHop(options=ipv6_options(pick))
    if sending and pick.random() < 0.4:
        packet /= IPv6ExtHdrDestOpt(options=ipv6_options(pick))
    if pick.random() < 0.6:
        route = [address6(pick) for _ in range(pick.randrange(1, 4))]
        packet /= IPv6ExtHdrRouting(type=0, addresses=route, segleft=len(route) if sending else 0)
    if sending and pick.random() < 0.4:
        packet /= IPv6ExtHdrDestOpt(options=ipv6_options(pick))
    return sending, packet / authentication(pick)


def ipv6_options(pick):
    """Known options, and unknown ones that may change or may not."""
    kinds = [
        lambda: Pad1(),
        lambda: PadN(optdata=pick.randbytes(pick.randrange(6))),
        lambda: RouterAlert(value=pick.getrandbits(16)),
        lambda: HBHOptUnknown(otype=0x3E, optdata=pick.randbytes(pick.randrange(12))),
        lambda: HBHOptUnknown(otype=0x1E, optdata=pick.randbytes(pick.randrange(12))),
    ]
    return [pick.choice(kinds)() for _ in range(pick.randrange(1, 4))]


def address4(pick):
    """Any unicast address."""
    return f"10.{pick.randrange(256)}.{pick.randrange(256)}.{pick.randrange(1, 255)}"


def address6(pick):
    """Any unicast address."""
    return f"2001:db8::{pick.getrandbits(16):x}:{pick.getrandbits(16):x}"


if __name__ == "__main__":
    main()
