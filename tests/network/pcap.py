"""Capture files in the classic pcap format, read and written."""

import struct

ETHERNET, RAW_IP = 1, 101
MAGIC = 0xA1B2C3D4


def write(path, packets, link=RAW_IP):
    with open(path, "wb") as file:
        file.write(struct.pack("<IHHiIII", MAGIC, 2, 4, 0, 0, 262144, link))
        for number, packet in enumerate(packets):
            file.write(struct.pack("<IIII", 1_700_000_000, number % 1_000_000, len(packet), len(packet)))
            file.write(packet)


def read(path):
    """The link type and the packets."""
    with open(path, "rb") as file:
        data = file.read()
    order = "<" if data[:4] in (b"\xd4\xc3\xb2\xa1", b"\x4d\x3c\xb2\xa1") else ">"
    link, = struct.unpack_from(order + "I", data, 20)
    packets, offset = [], 24
    while offset + 16 <= len(data):
        length, = struct.unpack_from(order + "I", data, offset + 8)
        packets.append(data[offset + 16:offset + 16 + length])
        offset += 16 + length
    return link & 0xFFFF, packets
