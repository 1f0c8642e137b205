"""What is really on the wire: frames seen on a device, and frames put there."""

import socket
import struct
import threading
import time

ETH_P_ALL = 3
ETHERNET = 14
IP4, IP6 = 0x0800, 0x86DD
UDP, FRAGMENT, ESP, ICMP6 = 17, 44, 50, 58
ESP_PORT = 4500
NON_ESP_MARKER = bytes(4)
# Longer frames are trains that a device has yet to cut.
LONGEST_FRAME = 1514


class Wire:
    """Every frame on a device since it was opened, received or sent."""

    def __init__(self, host, device):
        self.socket = host.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(ETH_P_ALL))
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 8 << 20)
        self.socket.bind((device, ETH_P_ALL))
        self.socket.settimeout(0.2)
        self.frames = []
        self.closed = False
        self.thread = threading.Thread(target=self.listen, daemon=True)
        self.thread.start()

    def listen(self):
        while not self.closed:
            try:
                # Not in one expression: the list would be looked up before the wait, and `clear` may replace it.
                frame = self.socket.recv(65536)
                self.frames.append(frame)
            except TimeoutError:
                continue
            except OSError:
                return

    def inject(self, frame):
        self.socket.send(frame)

    def clear(self):
        self.frames = []

    def settle(self, seconds=0.3):
        """Waits until no frame has come for a while, then gives all of them."""
        seen = -1
        while seen != len(self.frames):
            seen = len(self.frames)
            time.sleep(seconds)
        return list(self.frames)

    def close(self):
        self.closed = True
        self.thread.join()
        self.socket.close()


class Packet:
    """An IP packet in an Ethernet frame, as far as tests care; `of` gives None for anything else."""

    def __init__(self, frame, family, source, destination, protocol, offset, fragment):
        self.frame, self.protocol, self.offset, self.fragment = frame, protocol, offset, fragment
        self.source, self.destination = socket.inet_ntop(family, source), socket.inet_ntop(family, destination)

    @classmethod
    def of(cls, frame):
        kind = int.from_bytes(frame[12:14], "big")
        if kind == IP4 and len(frame) >= ETHERNET + 20:
            header = frame[ETHERNET:]
            fragment = int.from_bytes(header[6:8], "big") & 0x3FFF != 0
            return cls(frame, socket.AF_INET, header[12:16], header[16:20], header[9],
                       ETHERNET + 4 * (header[0] & 15), fragment)
        if kind == IP6 and len(frame) >= ETHERNET + 48:
            header = frame[ETHERNET:]
            fragment = header[6] == FRAGMENT
            protocol, offset = (header[40], 48) if fragment else (header[6], 40)
            return cls(frame, socket.AF_INET6, header[8:24], header[24:40], protocol, ETHERNET + offset, fragment)
        return None

    def is_neighbour_discovery(self):
        return self.protocol == ICMP6 and self.frame[self.offset] in range(130, 138)


class Esp:
    """Where ESP stands in a single whole packet, native or in UDP; `find` gives None if it does not."""

    def __init__(self, frame, offset):
        self.frame, self.offset = frame, offset
        self.spi, self.sequence = struct.unpack_from("!II", frame, offset)

    @classmethod
    def find(cls, frame):
        packet = Packet.of(frame)
        if packet is None or packet.fragment or len(frame) > LONGEST_FRAME:
            return None
        offset = packet.offset
        if packet.protocol == ESP and len(frame) >= offset + 8:
            return cls(frame, offset)
        if packet.protocol == UDP and len(frame) >= offset + 16:
            ports = struct.unpack_from("!HH", frame, offset)
            if ESP_PORT in ports and frame[offset + 8:offset + 12] != NON_ESP_MARKER:
                return cls(frame, offset + 8)
        return None

    def again(self):
        """The frame as a network card would have sent it: captured before that, it lacks its UDP checksum."""
        return with_udp_checksum(self.frame)

    def tampered(self):
        """The frame with one bit of the ciphertext turned, and a UDP checksum that fits again."""
        frame = bytearray(self.frame)
        frame[self.offset + (len(frame) - self.offset) * 2 // 3] ^= 0x10
        return with_udp_checksum(frame)


def checksum(data):
    """The Internet checksum (RFC 1071)."""
    data = bytes(data) + bytes(len(data) % 2)
    total = sum(struct.unpack(f"!{len(data) // 2}H", data))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return total ^ 0xFFFF


def with_udp_checksum(frame):
    """The frame with the checksum of its UDP header made right: none in IPv4, the true one in IPv6."""
    frame = bytearray(frame)
    packet = Packet.of(bytes(frame))
    if packet.protocol != UDP:
        return bytes(frame)
    offset = packet.offset
    struct.pack_into("!H", frame, offset + 6, 0)
    if frame[12:14] == b"\x86\xdd":
        length = len(frame) - offset
        pseudo = bytes(frame[ETHERNET + 8:ETHERNET + 40]) + struct.pack("!IHBB", length, 0, 0, UDP)
        struct.pack_into("!H", frame, offset + 6, checksum(pseudo + frame[offset:]) or 0xFFFF)
    return bytes(frame)
