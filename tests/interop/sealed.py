"""Protected packets as they were seen on the wire, and what may be done to them on the way."""

import struct
from dataclasses import dataclass

from network.wire import (ESP, ESP_PORT, ETHERNET, LONGEST_FRAME, NON_ESP_MARKER, UDP, Packet, checksum,
                          with_udp_checksum)

AH = 51
ESP_SEQUENCE, AH_SEQUENCE = 4, 8


@dataclass(frozen=True)
class Sealed:
    """A whole packet whose outermost protection is ESP, ESP in UDP, or AH; `of` gives None for anything else."""
    frame: bytes
    protocol: str
    offset: int
    spi: int
    sequence: int

    @classmethod
    def of(cls, packet):
        frame, offset = packet.frame, packet.offset
        if packet.fragment or len(frame) > LONGEST_FRAME or len(frame) < offset + 24:
            return None
        if packet.protocol == ESP:
            return cls(frame, "esp", offset, *struct.unpack_from("!II", frame, offset))
        if packet.protocol == AH:
            return cls(frame, "ah", offset, *struct.unpack_from("!II", frame, offset + 4))
        ports = struct.unpack_from("!HH", frame, offset)
        if packet.protocol == UDP and ESP_PORT in ports and frame[offset + 8:offset + 12] != NON_ESP_MARKER:
            return cls(frame, "esp", offset + 8, *struct.unpack_from("!II", frame, offset + 8))
        return None

    def again(self):
        """As a network card would have sent it. What AH takes for mutable has changed on the way: hop limit and class."""
        frame = bytearray(self.frame)
        if self.protocol == "ah" and frame[ETHERNET] >> 4 == 4:
            frame[ETHERNET + 1] ^= 0x28
            frame[ETHERNET + 8] -= 3
        elif self.protocol == "ah":
            frame[ETHERNET + 1] ^= 0x20
            frame[ETHERNET + 7] -= 3
        return finished(frame)

    def turned(self, offset, bit=0x10):
        frame = bytearray(self.frame)
        frame[offset] ^= bit
        return finished(frame)

    def of_another_association(self):
        return self.turned(self.offset + (0 if self.protocol == "esp" else 4), 0x80)

    def forgeries(self):
        """Copies with one bit turned, by the region it lies in; the integrity check has to notice each of them."""
        end, offset = len(self.frame), self.offset
        if self.protocol == "esp":
            return {"sequence": self.turned(offset + ESP_SEQUENCE + 2), "first": self.turned(offset + 8),
                    "middle": self.turned((offset + 8 + end) // 2), "icv": self.turned(end - 1)}
        length = 4 * (self.frame[offset + 1] + 2)
        return {"sequence": self.turned(offset + AH_SEQUENCE + 2), "reserved": self.turned(offset + 3),
                "icv": self.turned(offset + 12), "data": self.turned((offset + length + end) // 2),
                "source": self.turned(ETHERNET + (15 if self.frame[ETHERNET] >> 4 == 4 else 23), 0x04)}


def finished(frame):
    """With checksums that fit again: a packet must not fail for another reason than the one meant."""
    frame = bytearray(frame)
    if frame[ETHERNET] >> 4 == 4:
        length = 4 * (frame[ETHERNET] & 15)
        struct.pack_into("!H", frame, ETHERNET + 10, 0)
        struct.pack_into("!H", frame, ETHERNET + 10, checksum(frame[ETHERNET:ETHERNET + length]))
    return with_udp_checksum(frame)


def sealed_packets(frames):
    """All of them, with their outer addresses."""
    for packet in filter(None, map(Packet.of, frames)):
        yield packet, Sealed.of(packet)
