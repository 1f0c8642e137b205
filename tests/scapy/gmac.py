"""AH with AES-GMAC (RFC 4543 4) by the RFCs' text alone: neither scapy nor any kernel has it.

Written from RFC 4302, its appendix A, and RFC 4543; shares nothing with the engine, and takes AES-GCM from the package
`cryptography`. An `Association` seals and opens whole packets, as scapy's associations do.

    tests/scapy/gmac.py > ipsec/tests/vectors/ah-gmac.json    the vectors for ipsec/src/ah/tests.rs
"""

import json
import random
import struct

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

AH, IPV4, IPV6 = 51, 4, 41
FIXED, IV, ICV, SALT = 12, 8, 16, 4
HOP_BY_HOP, ROUTING, DESTINATION = 0, 43, 60
# RFC 4302 A1: options of IPv4 that do not change on the way. The end, no-operation and these are covered as they are.
KEPT_OPTIONS = {0, 1, 130, 133, 134, 148, 149}


class Association:
    """Seals and opens packets; in tunnel mode within `outer`, the bytes of an IP header without options."""

    def __init__(self, spi, key, outer=None, esn=None, iv=0):
        self.spi, self.outer, self.esn, self.iv = spi, outer, esn, iv
        # RFC 4543 5.4: the salt stands behind the key.
        self.key, self.salt = AESGCM(key[:-SALT]), key[-SALT:]
        # The judge asks for it: it is scapy's class of the outermost header.
        self.proto = None

    def encrypt(self, packet, seq_num):
        """The packet with an authentication header, as bytes."""
        packet = bytes(packet)
        if self.outer is None:
            ip, next_header, payload = divided(packet)
        else:
            ip, payload = bytearray(self.outer), packet
            next_header = IPV4 if packet[0] >> 4 == 4 else IPV6
            name_ah(ip, AH)
        iv = struct.pack(">Q", (self.iv + seq_num) % 2**64)
        length = padded(ip, FIXED + IV + ICV)
        header = struct.pack(">BBHII", next_header, length // 4 - 2, 0, self.spi, seq_num & 0xFFFFFFFF)
        padding = bytes(length - FIXED - IV - ICV)
        ip = with_length(ip, length + len(payload))
        icv = self.key.encrypt(self.salt + iv, b"", self.covered(ip, header, iv, padding, payload))
        return bytes(ip) + header + iv + icv + padding + payload

    def decrypt(self, packet):
        """The plaintext; ValueError if the packet is not authentic or not as the RFCs want it."""
        packet = bytes(packet)
        ip, next_header, rest = divided(packet)
        if next_header != AH:
            raise ValueError("no authentication header")
        length = 4 * (rest[1] + 2)
        if length != padded(ip, FIXED + IV + ICV) or len(rest) < length:
            raise ValueError("a length that RFC 4302 2.2 and 2.6 do not allow")
        next_header, _, reserved, spi, _ = struct.unpack(">BBHII", rest[:FIXED])
        if spi != self.spi or reserved:
            raise ValueError("another association, or a reserved field that is not zero")
        iv, icv = rest[FIXED:FIXED + IV], rest[FIXED + IV:FIXED + IV + ICV]
        padding, payload = rest[FIXED + IV + ICV:length], rest[length:]
        covered = self.covered(with_length(ip, len(rest)), rest[:FIXED], iv, padding, payload)
        try:
            self.key.decrypt(self.salt + iv, icv, covered)
        except InvalidTag as error:
            raise ValueError("the ICV is wrong") from error
        if self.outer is not None:
            if next_header not in (IPV4, IPV6):
                raise ValueError(f"a tunnel with {next_header} inside")
            return payload
        name_ah(ip, next_header)
        return bytes(with_length(ip, len(payload))) + payload

    def covered(self, ip, header, iv, padding, payload):
        """RFC 4302 3.1, 3.3.3: mutable fields and the ICV are zero; RFC 4543 7: the IV is covered; the high half of
        an extended number stands behind everything."""
        high = b"" if self.esn is None else struct.pack(">I", self.esn)
        return bytes(immutable(ip)) + header + iv + bytes(ICV) + padding + payload + high


def padded(ip, length):
    """RFC 4302 2.6: the header is a multiple of 4 bytes over IPv4, of 8 over IPv6."""
    unit = 4 if ip[0] >> 4 == 4 else 8
    return -(-length // unit) * unit


def divided(packet):
    """The IP header with what stands before AH, already naming AH as next; what is next now; and the rest."""
    if packet[0] >> 4 == 4:
        ip = bytearray(packet[:4 * (packet[0] & 15)])
        next_header = ip[9]
    else:
        ip, next_header = bytearray(packet[:40]), packet[6]
        while next_header in (HOP_BY_HOP, ROUTING, DESTINATION):
            at = len(ip)
            ip += packet[at:at + 8 * (packet[at + 1] + 1)]
            next_header = packet[at]
    rest = packet[len(ip):]
    name_ah(ip, AH)
    return ip, next_header, rest


def name_ah(ip, next_header):
    """Writes what follows into the last header."""
    if ip[0] >> 4 == 4:
        ip[9] = next_header
        return
    at, place, kind = 40, 6, ip[6]
    while kind in (HOP_BY_HOP, ROUTING, DESTINATION) and at < len(ip):
        place, kind = at, ip[at]
        at += 8 * (ip[at + 1] + 1)
    ip[place] = next_header


def with_length(ip, behind):
    """The header with its length and, over IPv4, its checksum."""
    ip = bytearray(ip)
    if ip[0] >> 4 == 6:
        ip[4:6] = struct.pack(">H", len(ip) - 40 + behind)
        return ip
    ip[2:4], ip[10:12] = struct.pack(">H", len(ip) + behind), bytes(2)
    total = sum(struct.unpack(f">{len(ip) // 2}H", ip))
    total = (total & 0xFFFF) + (total >> 16)
    ip[10:12] = struct.pack(">H", ~(total + (total >> 16)) & 0xFFFF)
    return ip


def immutable(ip):
    """The header with zeros where routers write."""
    ip = bytearray(ip)
    if ip[0] >> 4 == 4:
        # DSCP and ECN, flags and offset, TTL, checksum.
        ip[1], ip[6:8], ip[8], ip[10:12] = 0, bytes(2), 0, bytes(2)
        clear_options(ip)
    else:
        # DSCP, ECN and flow label; hop limit.
        ip[0:4], ip[7] = bytes([0x60, 0, 0, 0]), 0
        clear_extensions(ip)
    return ip


def clear_options(ip):
    at = 20
    while at < len(ip) and ip[at] != 0:
        size = 1 if ip[at] == 1 else ip[at + 1]
        if ip[at] not in KEPT_OPTIONS:
            ip[at:at + size] = bytes(size)
        at += size


def clear_extensions(ip):
    """RFC 4302 A2: the data of an option whose third highest bit is set may change on the way."""
    at, kind = 40, ip[6]
    while at < len(ip):
        end = at + 8 * (ip[at + 1] + 1)
        option = at + 2
        while kind != ROUTING and option < end:
            size = 0 if ip[option] == 0 else ip[option + 1]
            if ip[option] & 0x20:
                ip[option + 2:option + 2 + size] = bytes(size)
            option += 1 if ip[option] == 0 else 2 + size
        kind, at = ip[at], end


def vectors():
    """Packets of every length of key, over both versions, with and without extended numbers."""
    dice = random.Random(4543)
    for bits in (128, 192, 256):
        for version in (4, 6):
            for esn in (None, 0, 7):
                yield vector(dice, bits, version, esn)


def vector(dice, bits, version, esn):
    key, payload = dice.randbytes(bits // 8 + SALT), dice.randbytes(dice.randrange(1, 80))
    if version == 4:
        head = struct.pack(">BBHHHBBH4s4s", 0x45, 0xB8, 0, 4711, 0x4000, 63, 6, 0, b"\x0a\0\0\1", b"\x0a\0\0\2")
    else:
        ends = bytes.fromhex("20010db8000000000000000000000001" "20010db8000000000000000000000002")
        head = struct.pack(">IHBB", 0x6B812345, 0, 6, 63) + ends
    plain = bytes(with_length(head, len(payload))) + payload
    spi, sequence, iv = dice.randrange(256, 2**32), dice.randrange(1, 2**32), dice.getrandbits(63)
    association = Association(spi, key, esn=esn, iv=iv - sequence)
    sealed = association.encrypt(plain, sequence)
    assert association.decrypt(sealed) == plain
    return {"algorithm": f"aes-{bits}-gmac", "key": key.hex(), "spi": spi, "iv": f"{iv:016x}", "high": esn,
            "sequence": sequence, "payload": payload.hex(), "packet": sealed.hex()}


if __name__ == "__main__":
    print("[\n" + ",\n".join(json.dumps(one) for one in vectors()) + "\n]")
