"""Packets as a scenario wants them, and what was seen in words that can be compared."""

import re
import struct

from scapy.layers.inet import ICMP, IP, TCP, UDP
from scapy.layers.inet6 import ICMPv6EchoRequest, IPv6, IPv6ExtHdrFragment
from scapy.layers.ipsec import AH, ESP
from scapy.layers.l2 import ARP, Ether
from scapy.packet import Raw
from situation import gmac, ipcomp

LAN_MAC, PEER_MAC = "02:00:00:00:00:1a", "02:00:00:00:00:9e"
FIRST_SEQUENCE = 1
MARK = re.compile(rb"packet (\d\d)\|")
# Later fragments of these never come: what counts is whether this piece passes.
OFFSET = 64
NO_NEXT_HEADER = 59
IPV4_INSIDE, IPV6_INSIDE = 4, 41
REDIRECT = 137


class Crafter:
    """Makes the frames of one scenario for a subject; sequence numbers count for each association."""

    def __init__(self, situation, mac):
        self.situation, self.mac = situation, mac
        self.sequences = {}

    def frames(self, packet):
        return [self.frame(packet) for _ in range(packet.repeat or 1)]

    def frame(self, packet):
        inner = self.plaintext(packet)
        if packet.send == "lan":
            return self.ether(LAN_MAC, inner)
        if packet.send == "wire":
            return self.ether(PEER_MAC, inner)
        spis = packet.send if isinstance(packet.send, list) else [packet.send]
        for spi in spis:
            inner = self.sealed(packet, spi, inner)
        data = bytearray(bytes(inner))
        if packet.tamper:
            data[-1] ^= 0x10
        return self.ether(PEER_MAC, type(inner)(bytes(data)))

    def ether(self, source, packet):
        return bytes(Ether(src=source, dst=self.mac) / packet)

    def sealed(self, packet, spi, inner):
        association = self.situation.peer[spi]
        sequence = packet.sequence
        if sequence is None:
            sequence = self.sequences.get(spi, FIRST_SEQUENCE)
        self.sequences[spi] = sequence + 1
        # A dummy packet is what stands behind ESP alone: no header of its own travels (RFC 4303 2.6).
        mode = "transport" if packet.proto == "dummy" else None
        sealer = association.scapy(esn=sequence >> 32, mode=mode, **(packet.outer or {}))
        if isinstance(sealer, (gmac.Association, ipcomp.Deflate)):
            return (IPv6 if association.family == 6 else IP)(sealer.encrypt(inner, sequence & 0xFFFFFFFF))
        kind = IPv6 if inner.version == 6 else IP
        # By its own counter: an argument of 0 would not be taken for a number.
        sealer.seq_num = sequence & 0xFFFFFFFF
        if association.protocol == "ah":
            sealer.auth_algo = OverBytes(sealer.auth_algo)
        return sealer.encrypt(kind(bytes(inner)))

    def plaintext(self, packet):
        header = self.header(packet)
        mark = f"packet {packet.number:02}|".encode()
        body = (mark * (packet.size // len(mark) + 1))[:packet.size] if packet.size else mark * 3
        above = self.above(packet, header)
        if packet.part == "later":
            # Behind a first fragment that is not sent: no ports are to be seen.
            if header.version == 6:
                return IPv6(bytes(header / IPv6ExtHdrFragment(nh=17, offset=OFFSET, m=0, id=7) / Raw(body)))
            header.frag, header.proto = OFFSET, 17
            return IP(bytes(header / Raw(body)))
        whole = header / above / Raw(body) if above is not None else header / Raw(body)
        return type(header)(bytes(whole))

    @staticmethod
    def header(packet):
        if ":" in packet.src:
            return IPv6(src=packet.src, dst=packet.dst, hlim=packet.ttl or 64, tc=packet.tos or 0)
        return IP(src=packet.src, dst=packet.dst, ttl=packet.ttl or 64, tos=packet.tos or 0, id=4711,
                  flags="DF" if packet.df else 0)

    @staticmethod
    def above(packet, header):
        ports = {"sport": packet.sport or 1000, "dport": packet.dport or 2000}
        match packet.proto or "udp":
            case "udp":
                return UDP(**ports)
            case "tcp":
                return TCP(**ports, flags="S", seq=1)
            case "icmp":
                return ICMP(type=8 if packet.type is None else packet.type, code=packet.code or 0, id=1, seq=1)
            case "echo":
                return ICMPv6EchoRequest(id=1, seq=1) if header.version == 6 else ICMP(type=8, id=1, seq=1)
            case "dummy":
                if header.version == 6:
                    header.nh = NO_NEXT_HEADER
                else:
                    header.proto = NO_NEXT_HEADER
                return None
            case number:
                header.proto = number
                return None


class OverBytes:
    """An integrity algorithm for AH. scapy's own would put the check value into an ESP that it sees inside."""

    def __init__(self, algorithm):
        self.algorithm = algorithm

    def __getattr__(self, name):
        return getattr(self.algorithm, name)

    def sign(self, packet, *arguments, **options):
        inside = Raw(bytes(packet[AH].payload))
        packet[AH].remove_payload()
        packet[AH].add_payload(inside)
        return self.algorithm.sign(packet, *arguments, **options)


def question():
    """An ARP request: a host that answers it has received everything sent before."""
    return bytes(Ether(src=LAN_MAC, dst="ff:ff:ff:ff:ff:ff") /
                 ARP(op=1, hwsrc=LAN_MAC, psrc="10.1.0.9", hwdst="00:00:00:00:00:00", pdst="10.1.0.1"))


def is_answer(frame, mac):
    return frame[12:14] == b"\x08\x06" and frame[20:22] == b"\0\2" and frame[6:12] == raw_mac(mac)


def raw_mac(text):
    return bytes.fromhex(text.replace(":", ""))


class Reader:
    """Reads what a subject sent: by which packet it was caused, and what it was."""

    def __init__(self, situation, mac):
        self.peer, self.mac = situation.peer, raw_mac(mac)

    def read(self, frame):
        """The number of the packet that it comes from and its description, or nothing for the link's own chatter."""
        if frame[6:12] != self.mac or frame[12:14] not in (b"\x08\x00", b"\x86\xdd"):
            return None
        packet = (IPv6 if frame[12:14] == b"\x86\xdd" else IP)(frame[14:])
        place = "lan" if frame[:6] == raw_mac(LAN_MAC) else "clear"
        outer = []
        while (spi := spi_of(packet)) is not None:
            opened = self.open(packet, spi)
            if opened is None:
                return None, f"protected by {spi:#x}, cannot be opened"
            outer.append(f"{spi:#x} in {headers(packet)}")
            # What scapy takes for other than IP is judged by its first four bits.
            packet = (IPv6 if bytes(opened)[0] >> 4 == 6 else IP)(bytes(opened))
            place = "protected"
        if place == "protected" and inside(packet) is not None:
            # Of an IPComp tunnel, but not compressed (RFC 3173 2.2).
            outer.append(f"IP in {headers(packet)}")
            packet = inside(packet)
        if is_complaint(packet):
            return None
        found = MARK.search(bytes(packet))
        return found and (int(found[1]), ", ".join([place, *outer, plain(packet)]))

    def open(self, packet, spi):
        association = self.peer.get(spi)
        if association is None:
            return None
        try:
            return association.scapy().decrypt(packet.__class__(bytes(packet)))
        except Exception:  # scapy has no single word for "not authentic"
            return None


def spi_of(packet):
    if packet.haslayer(ESP):
        return packet[ESP].spi
    if packet.haslayer(AH):
        return packet[AH].spi
    return ipcomp.cpi_of(bytes(packet))


def inside(packet):
    """The IP packet right behind the IP header, if one is there."""
    data = bytes(packet)
    start, named = ipcomp.HEADERS[data[0] >> 4]
    kind = {IPV4_INSIDE: IP, IPV6_INSIDE: IPv6}.get(data[named])
    return kind and kind(data[start:])


def headers(packet):
    if packet.version == 6:
        return f"{packet.src}>{packet.dst} tos={packet.tc:02x} ttl={packet.hlim}"
    return f"{packet.src}>{packet.dst} tos={packet.tos:02x} df={int(packet.flags.DF)} ttl={packet.ttl}"


def plain(packet):
    """What is inside, checksums included: only the hop count may differ from what was sent."""
    protocol = packet.nh if packet.version == 6 else packet.proto
    whole = bytes(packet)
    return f"{headers(packet)} proto={protocol} len={len(whole)} sum={sum(struct.unpack(f'{len(whole)}B', whole))}"


def is_complaint(packet):
    """An ICMP message about a packet quotes it, mark and all; a redirect does so too."""
    if packet.version == 4:
        return packet.proto == 1 and packet.frag == 0 and bytes(packet)[packet.ihl * 4] in (3, 5, 11, 12)
    return packet.nh == 58 and (bytes(packet)[40] < 128 or bytes(packet)[40] == REDIRECT)
