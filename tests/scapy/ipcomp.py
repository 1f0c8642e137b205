"""IPComp (RFC 3173) by Python's zlib, in the form of one of scapy's associations."""

import struct
import zlib

PROTOCOL = 108
HEADERS = {4: (20, 9), 6: (40, 6)}


class Deflate:
    """Compresses and decompresses packets without options and extension headers, and counts both."""

    proto = None

    def __init__(self, cpi, dice, ends=None):
        """`ends` are the addresses of a tunnel's header, packed; without them the mode is transport."""
        self.cpi, self.dice, self.ends = cpi, dice, ends
        self.compressed = self.opened = 0

    def encrypt(self, packet, seq_num):
        del seq_num
        packet = bytes(packet)
        if self.ends:
            packet = self.header({4: 4, 6: 41}[packet[0] >> 4], len(packet)) + packet
        start, named = HEADERS[packet[0] >> 4]
        payload = packet[start:]
        engine = zlib.compressobj(self.dice.randrange(1, 10), zlib.DEFLATED, -15)
        data = struct.pack("!BBH", packet[named], 0, self.cpi) + engine.compress(payload) + engine.flush()
        if len(data) >= len(payload):
            return packet
        self.compressed += 1
        return renamed(packet[:start] + data, PROTOCOL)

    def decrypt(self, packet):
        packet = bytes(packet)
        start, named = HEADERS[packet[0] >> 4]
        if packet[named] == PROTOCOL:
            following, flags, cpi = struct.unpack("!BBH", packet[start:start + 4])
            if (flags, cpi) != (0, self.cpi):
                raise ValueError("flags or CPI")
            engine = zlib.decompressobj(-15)
            text = engine.decompress(packet[start + 4:])
            if not engine.eof or engine.unused_data or len(text) <= len(packet) - start:
                raise ValueError("not what DEFLATE makes, or no gain")
            self.opened += 1
            packet = renamed(packet[:start] + text, following)
        return packet[start:] if self.ends else packet

    def header(self, following, length):
        source, destination = self.ends
        if len(source) == 4:
            start = struct.pack("!BBHHHBBH", 0x45, 0, 20 + length, 0, 0, 64, following, 0)
            return finished(start + source + destination)
        return struct.pack("!IHBB", 6 << 28, length, following, 64) + source + destination


class LeftOut(Deflate):
    """Leaves every packet as it is, as RFC 3173 2.2 wants it where compression gains nothing."""

    def encrypt(self, packet, seq_num):
        packet = bytes(packet)
        return self.header({4: 4, 6: 41}[packet[0] >> 4], len(packet)) + packet if self.ends else packet


def cpi_of(packet):
    """The CPI, if IPComp follows the IP header."""
    start, named = HEADERS[packet[0] >> 4]
    return struct.unpack_from("!H", packet, start + 2)[0] if packet[named] == PROTOCOL else None


def renamed(packet, following):
    """The packet with this next header and its present length."""
    packet = bytearray(packet)
    if packet[0] >> 4 == 6:
        packet[4:6] = struct.pack("!H", len(packet) - 40)
        packet[6] = following
        return bytes(packet)
    packet[2:4] = struct.pack("!H", len(packet))
    packet[9] = following
    return finished(bytes(packet[:20])) + bytes(packet[20:])


def finished(header):
    """An IPv4 header with its checksum."""
    words = struct.unpack("!10H", header[:10] + bytes(2) + header[12:])
    total = sum(words)
    total = (total & 0xFFFF) + (total >> 16)
    total = (total & 0xFFFF) + (total >> 16)
    return header[:10] + struct.pack("!H", total ^ 0xFFFF) + header[12:]
