"""What the outer header takes from the inner one, and gives back (RFC 4301 5.1.2, RFC 6040, RFC 4303 2.7)."""

import socket
import struct
import time

from network.expect import expect
from network.sites import AES_GCM, CLIENT, OUTER, SERVER, Sites
from network.wire import ETHERNET, Packet, checksum
from path_mtu import is_from_left, learnt, too_big

NOT_ECT, ECT_1, ECT_0, CE = range(4)
# AES-GCM in UDP in IPv4: 20 and 8 of headers, 8 of ESP, 8 of IV, 2 of trailer, 16 of ICV.
# IPv6 never hears of less than 1280 (RFC 8200 5).
INSIDE_1500, INSIDE_1300 = 1438, {4: 1238, 6: 1280}
# Marks everything that the left gateway sends outside, as a router on the way might.
CONGESTION = {
    4: "nft add table ip jam; nft add chain ip jam out '{ type filter hook postrouting priority 0; }'; "
       "nft add rule ip jam out oifname wan ip daddr 192.0.2.2 ip ecn set ce",
    6: "nft add table ip6 jam; nft add chain ip6 jam out '{ type filter hook postrouting priority 0; }'; "
       "nft add rule ip6 jam out oifname wan ip6 daddr 2001:db8::2 ip6 ecn set ce",
}


def change(gateway, options, outer=4):
    """The association to the right gets other options, and keeps its numbers."""
    source, destination = OUTER[outer]
    gateway.setkey_text(f"update {source} {destination} esp-udp 0x1001 -m tunnel -r 1024 {options} {AES_GCM.format(1)};")


def outside(sites, wire, family=4, outer=4, more="", size=56):
    """The outer headers of what one ping makes the left gateway send."""
    wire.clear()
    expect(sites.ping(family, count=1, size=size, more=more) == 1, f"no ping, IPv{family}, {more}")
    frames = [frame for frame in wire.settle(0.15) if is_from_left(frame, outer)]
    expect(frames, "nothing of it on the wire")
    return frames


def traffic_class(frame):
    if frame[12:14] == b"\x08\x00":
        return frame[ETHERNET + 1]
    return int.from_bytes(frame[ETHERNET:ETHERNET + 2], "big") >> 4 & 0xFF


def dont_fragment(frame):
    return bool(frame[ETHERNET + 6] & 0x40)


def df_is_copied_set_or_cleared():
    with Sites("ru") as sites:
        left, _ = sites.start_both()
        wire = sites.listen(sites.wire, "left")
        for option, expected in (("copy", (False, True)), ("set", (True, True)), ("clear", (False, False))):
            change(left, f"-o df={option}")
            for inner, wanted in zip(("-M dont", "-M do"), expected):
                for frame in outside(sites, wire, more=inner):
                    expect(dont_fragment(frame) == wanted, f"df={option}, inside {inner}: outside {not wanted}")


def dscp_is_copied_or_set():
    with Sites("ru") as sites:
        left, _ = sites.start_both()
        wire = sites.listen(sites.wire, "left")
        for option, wanted in (("copy", 46), ("10", 10), ("0", 0)):
            change(left, f"-o dscp={option}")
            for family in (4, 6):
                for frame in outside(sites, wire, family, more="-Q 184"):
                    found = traffic_class(frame) >> 2
                    expect(found == wanted, f"dscp={option}: {found} outside, IPv{family} inside")


def congestion_crosses_the_tunnel(outer):
    """RFC 6040 4.1 and 4.2, with a router on the way that marks whatever passes."""
    def test():
        with Sites("ru") as sites:
            left, right = sites.start_both(outer=outer)
            wire, arrived = sites.listen(sites.wire, "left"), sites.listen(sites.server, "lan")
            for family in (4, 6):
                for mark in (NOT_ECT, ECT_0, ECT_1):
                    for frame in outside(sites, wire, family, outer, f"-Q {mark}"):
                        expect(traffic_class(frame) & 3 == mark, f"{mark} inside, IPv{family}: {traffic_class(frame)}")
            sites.left.sh(CONGESTION[outer])
            for family in (4, 6):
                for mark in (ECT_0, ECT_1):
                    arrived.clear()
                    outside(sites, wire, family, outer, f"-Q {mark}")
                    marks = inner_marks(arrived.settle(0.15), family)
                    expect(marks == {CE}, f"{mark} inside, CE outside, IPv{family}: {marks} arrived")
                # Who knows nothing of ECN learns of congestion by loss alone.
                before = right.drops("congested")
                expect(sites.ping(family, count=2, more="-Q 0") == 0, f"a marked packet was let in, IPv{family}")
                expect(right.drops("congested") == before + 2, f"drops: {right.ask('drops', '--json')}")
            sites.left.sh(f"nft delete table {'ip' if outer == 4 else 'ip6'} jam")
            change(left, "-o ecn=no", outer)
            for frame in outside(sites, wire, 4, outer, f"-Q {ECT_0}"):
                expect(traffic_class(frame) & 3 == NOT_ECT, "ecn=no, and a mark outside")
    return test


def inner_marks(frames, family):
    """ECN of the requests that reached the server."""
    packets = [packet for packet in map(Packet.of, frames) if packet and packet.source == CLIENT[family]]
    return {traffic_class(packet.frame) & 3 for packet in packets if not packet.is_neighbour_discovery()}


def hops_are_counted_by_the_gateways_alone():
    """The tunnel is one hop for each gateway that forwards; the wire between them costs the inner packet nothing."""
    with Sites("ru") as sites:
        sites.start_both()
        wire, arrived = sites.listen(sites.wire, "left"), sites.listen(sites.server, "lan")
        for family, place in ((4, 8), (6, 7)):
            arrived.clear()
            for frame in outside(sites, wire, family, more="-t 10"):
                expect(frame[ETHERNET + 8] == 64, f"{frame[ETHERNET + 8]} hops outside")
            packets = [p for p in map(Packet.of, arrived.settle(0.15)) if p and p.source == CLIENT[family]]
            hops = {p.frame[ETHERNET + place] for p in packets if not p.is_neighbour_discovery()}
            expect(hops == {8}, f"of 10 hops {hops} are left, IPv{family}")
            for limit, who in ((1, "left"), (2, "right")):
                _, output = sites.client.attempt(f"ping -n -c 1 -W 2 -t {limit} {SERVER[family]}")
                net = (".1.0.1", "::1") if limit == 1 else (".2.", "2:")
                expect("exceeded" in output or "Hop limit" in output, f"{who} sends no answer:\n{output}")
                expect(any(part in output for part in net), f"not {who}:\n{output}")


def short_packets_are_padded_to_one_length():
    with Sites("ru") as sites:
        left, _ = sites.start_both()
        wire = sites.listen(sites.wire, "left")
        lengths = {len(frame) for size in (0, 56, 300) for frame in outside(sites, wire, size=size)}
        expect(len(lengths) == 3, f"the control failed: lengths {lengths}")
        change(left, "-o tfc=600")
        lengths = {len(frame) for family in (4, 6) for size in (0, 56, 300)
                   for frame in outside(sites, wire, family, size=size)}
        expect(lengths == {ETHERNET + 20 + 8 + 8 + 8 + 600 + 4 + 16}, f"lengths {lengths}")
        expect(max(map(len, outside(sites, wire, size=900))) > 900, "a longer packet does not pass as it is")


def senders_of_udp_hear_what_fits():
    with Sites("ru") as sites:
        sites.start_both()
        for family in (4, 6):
            with udp(sites, family) as sender:
                told = largest(sender, family)
                expect(told == INSIDE_1500, f"{told} bytes fit, it hears, IPv{family}")
                header = 28 if family == 4 else 48
                for size, fits in ((told - header, True), (told - header + 1, False)):
                    expect(is_sent(sender, size) == fits, f"{size} bytes of UDP, fits: {fits}, IPv{family}")


def udp(sites, family):
    sender = sites.client.socket(socket.AF_INET if family == 4 else socket.AF_INET6, socket.SOCK_DGRAM)
    discover(sender, family)
    sender.connect((SERVER[family], 9))
    sender.settimeout(3)
    return sender


def discover(sender, family):
    """IP_MTU_DISCOVER, IPV6_MTU_DISCOVER: never fragment, and tell what fits."""
    sender.setsockopt(*((socket.IPPROTO_IP, 10) if family == 4 else (socket.IPPROTO_IPV6, 23)), 2)


def largest(sender, family):
    """Sends until what is too long is refused here, and asks for the path MTU."""
    header = 28 if family == 4 else 48
    for _ in range(20):
        try:
            sender.send(bytes(1500 - header))
        except OSError:
            pass
        told = path_mtu(sender, family)
        if told < 1500:
            return told
        time.sleep(0.05)
    return path_mtu(sender, family)


def is_sent(sender, size):
    """Whether the kernel takes it; the error of an earlier one is asked for first."""
    sender.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
    try:
        return sender.send(bytes(size)) == size
    except OSError:
        return False


def path_mtu(sender, family):
    """IP_MTU, IPV6_MTU."""
    return sender.getsockopt(*((socket.IPPROTO_IP, 14) if family == 4 else (socket.IPPROTO_IPV6, 24)))


def a_connection_follows_a_path_that_narrows(family):
    """The MSS was agreed for 1500 bytes outside; then a router there takes 1300 alone."""
    def test():
        with Sites("ru") as sites:
            left, _ = sites.start_both()
            wire = sites.listen(sites.wire, "left")
            kind = socket.AF_INET if family == 4 else socket.AF_INET6
            listener = sites.server.socket(kind, socket.SOCK_STREAM)
            listener.bind((SERVER[family], 8081))
            listener.listen(1)
            sender = sites.client.socket(kind, socket.SOCK_STREAM)
            sender.settimeout(10)
            sender.connect((SERVER[family], 8081))
            receiver, _ = listener.accept()
            receiver.settimeout(10)
            carried(sender, receiver)
            seen = next(frame for frame in reversed(wire.settle(0.15)) if is_from_left(frame, 4))
            wire.inject(too_big(seen, 1300))
            expect(learnt(left, 4, timeout=3) == 1300, "the path MTU was not learnt")
            wire.clear()
            carried(sender, receiver)
            told = path_mtu(sender, family)
            expect(told == INSIDE_1300[family], f"the sender believes in {told} bytes")
            for each in (sender, receiver, listener):
                each.close()
    return test


def carried(sender, receiver, count=200_000):
    data = bytes(range(256)) * (count // 256)
    sender.sendall(data)
    got = bytearray()
    while len(got) < len(data):
        part = receiver.recv(65536)
        expect(part, "the connection broke")
        got += part
    expect(got == data, "other bytes arrived")


def fragments_of_protected_packets_are_joined():
    """A router on the way cuts what it may: it is reassembled before it is inspected (RFC 4303 3.4.1)."""
    with Sites("ru") as sites:
        left, right = sites.start_both(udp=False)
        source, destination = OUTER[4]
        left.setkey_text(f"update {source} {destination} esp 0x1001 -m tunnel -r 1024 -o df=clear {AES_GCM.format(1)};")
        wire, arrived = sites.listen(sites.wire, "left"), sites.listen(sites.server, "lan")
        (frame,) = outside(sites, wire, size=1000)
        arrived.clear()
        # Only once it is whole and authentic can it be told that it came before.
        before = right.drops("replayed")
        for pieces in (cut(frame), cut(frame)[::-1]):
            for piece in pieces:
                inject(sites, piece)
        arrived.settle(0.15)
        expect(right.drops("replayed") == before + 2, f"drops: {right.ask('drops', '--json')}")
        for piece in cut(frame)[:1]:
            inject(sites, piece)
        arrived.settle(0.15)
        expect(right.drops("replayed") == before + 2, "half a packet was taken for a whole one")


def inject(sites, frame):
    """Toward the right gateway."""
    wire = sites.listen(sites.wire, "right")
    wire.inject(frame)


def cut(frame):
    """An IPv4 packet as two fragments."""
    header, body = bytearray(frame[ETHERNET:ETHERNET + 20]), frame[ETHERNET + 20:]
    half = len(body) // 16 * 8
    pieces = []
    for start, end in ((0, half), (half, len(body))):
        struct.pack_into("!HHH", header, 2, 20 + end - start, 4711, start // 8 | (0x2000 if end < len(body) else 0))
        struct.pack_into("!H", header, 10, 0)
        struct.pack_into("!H", header, 10, checksum(header))
        pieces.append(frame[:ETHERNET] + bytes(header) + body[start:end])
    return pieces


def silence_is_filled_with_packets_that_carry_nothing(udp):
    def test():
        with Sites("ru") as sites:
            left, right = sites.start_both(udp=udp)
            protocol = "esp-udp" if udp else "esp"
            source, destination = OUTER[4]
            left.setkey_text(f"update {source} {destination} {protocol} 0x1001 -m tunnel -r 1024 -o dummy=1 {AES_GCM.format(1)};")
            wire, arrived = sites.listen(sites.wire, "left"), sites.listen(sites.server, "lan")
            deadline = time.monotonic() + 10
            while right.drops("dummy") < 2:
                expect(time.monotonic() < deadline, f"none came: {right.ask('drops', '--json')}")
                time.sleep(0.1)
            expect(len([frame for frame in wire.frames if is_from_left(frame, 4)]) >= 2,
                   "the control failed: none on the wire")
            expect(not any(packet.source == CLIENT[4] for packet in map(Packet.of, arrived.settle(0.1)) if packet),
                   "something came out on the far side")
            expect(sites.ping() == 3, "no ping among them")
            wrong = ("bad-icv", "bad-inner", "bad-padding", "malformed", "replayed", "policy-mismatch")
            expect(not any(map(right.drops, wrong)), f"drops: {right.ask('drops', '--json')}")
    return test


CASES = {
    "DF is copied, set or cleared": df_is_copied_set_or_cleared,
    "DSCP is copied or set": dscp_is_copied_or_set,
    "congestion crosses the tunnel, IPv4 outside": congestion_crosses_the_tunnel(4),
    "congestion crosses the tunnel, IPv6 outside": congestion_crosses_the_tunnel(6),
    "hops are counted by the gateways alone": hops_are_counted_by_the_gateways_alone,
    "short packets are padded to one length": short_packets_are_padded_to_one_length,
    "senders of UDP hear exactly what fits": senders_of_udp_hear_what_fits,
    "a connection follows a path that narrows, IPv4 inside": a_connection_follows_a_path_that_narrows(4),
    "a connection follows a path that narrows, IPv6 inside": a_connection_follows_a_path_that_narrows(6),
    "silence is filled with packets that carry nothing, in UDP": silence_is_filled_with_packets_that_carry_nothing(True),
    "silence is filled with packets that carry nothing, native": silence_is_filled_with_packets_that_carry_nothing(False),
    "fragments of protected packets are joined": fragments_of_protected_packets_are_joined,
}
