"""Traffic that a policy protects never leaves in clear and never enters in clear."""

import signal
import socket
import struct

from network.expect import expect
from network.sites import CLIENT, MACS, SERVER, Sites
from network.wire import Esp, Packet, checksum

MARKER = b"esplanade-canary-in-clear"
STATE = ("nft list ruleset; ip rule; ip -6 rule; ip route show table all; ip -6 route show table all; "
         "ip -brief link | cut -d' ' -f1; tc qdisc; "
         "for device in lan wan; do for way in ingress egress; do tc filter show dev $device $way; done; done")


def traffic_is_protected():
    with Sites("fc") as sites:
        wire = sites.listen(sites.wire, "left")
        expect(sites.ping(4) == 3 and sites.ping(6) == 3, "the plain network itself does not work")
        expect(in_clear(wire.settle()), "the control failed: plain traffic was not seen on the wire")
        sites.start_both()
        wire.clear()
        for family in (4, 6):
            expect(sites.ping(family) == 3, f"no ping through the tunnel, IPv{family}")
        frames = wire.settle()
        expect(not in_clear(frames), "inner addresses in clear on the wire")
        protected = [frame for frame in frames if Esp.find(frame)]
        # Twelve packets, of which some may have gone together as one train.
        expect(len(protected) >= 6, f"{len(protected)} of {len(frames)} frames on the wire are ESP")


def clear_traffic_from_outside_is_dropped():
    with Sites("fc") as sites:
        outside, inside = sites.listen(sites.wire, "left"), sites.listen(sites.client, "lan")
        expect(arrives(sites, outside, inside, 4) and arrives(sites, outside, inside, 6),
               "the control failed: without gateways a packet in clear must arrive")
        sites.start_both()
        for family in (4, 6):
            expect(not arrives(sites, outside, inside, family), f"a packet in clear came in, IPv{family}")
        expect(sites.ping() == 3, "the tunnel carries nothing afterwards")


def nothing_leaks_after(how):
    def test():
        with Sites("fc") as sites:
            left, _ = sites.start_both()
            expect(sites.ping() == 3, "no ping through the tunnel")
            left.stop(how)
            wire, outside = sites.listen(sites.wire, "left"), sites.listen(sites.wire, "right")
            inside = sites.listen(sites.client, "lan")
            expect(sites.ping(4) == 0 and sites.ping(6) == 0, "pings were answered without a gateway")
            expect(not in_clear(wire.settle() + outside.settle()), "inner addresses in clear on the wire")
            for family in (4, 6):
                expect(not arrives(sites, wire, inside, family), f"a packet in clear came in, IPv{family}")
    return test


def a_gateway_that_died_can_start_again():
    with Sites("fc") as sites:
        left, _ = sites.start_both()
        left.stop(signal.SIGKILL)
        left.start().ready()
        expect(sites.ping(4) == 3 and sites.ping(6) == 3, "no ping through the tunnel after the restart")


def down_takes_everything_away():
    with Sites("fc") as sites:
        before = sites.left.sh(STATE)
        left = sites.start("left")
        expect(sites.left.sh(STATE) != before, "the control failed: a running gateway left no trace in the state")
        left.stop()
        expect(sites.left.sh(STATE) != before, "a stop took the rules away")
        left.ask("down")
        after = sites.left.sh(STATE)
        expect(after == before, f"before:\n{before}\nafter:\n{after}")
        expect(sites.ping() == 3, "plain traffic does not flow again")


def only_what_the_policy_names_is_held():
    """Traffic outside the policies stays in the kernel's own path, before, during and after."""
    with Sites("fc") as sites:
        left = sites.start("left")
        ping = "ping -q -c 2 -i 0.05 -W 1 192.0.2.2"
        expect(sites.left.attempt(ping)[0] == 0, "the gateway itself cannot reach its neighbour")
        left.stop()
        expect(sites.left.attempt(ping)[0] == 0, "nor can it after the stop")


def in_clear(frames):
    """Packets on the wire that show an inner address."""
    inner = {*CLIENT.values(), *SERVER.values()}
    packets = filter(None, map(Packet.of, frames))
    return [p for p in packets if {p.source, p.destination} & inner]


def arrives(sites, outside, inside, family):
    """Whether a UDP datagram in clear, put on the wire toward the left gateway, reaches the client."""
    inside.clear()
    outside.inject(datagram(family))
    return any(MARKER in frame for frame in inside.settle())


def datagram(family):
    """From the server to the client, as the right gateway would send it if it did not protect it."""
    ethernet = bytes.fromhex(MACS["left"].replace(":", "")) + bytes.fromhex(MACS["right"].replace(":", ""))
    kind = socket.AF_INET if family == 4 else socket.AF_INET6
    source, destination = socket.inet_pton(kind, SERVER[family]), socket.inet_pton(kind, CLIENT[family])
    length = 8 + len(MARKER)
    udp = struct.pack("!HHHH", 5000, 5001, length, 0) + MARKER
    if family == 4:
        header = bytearray(struct.pack("!BBHHHBBH4s4s", 0x45, 0, 20 + length, 1, 0, 64, 17, 0, source, destination))
        struct.pack_into("!H", header, 10, checksum(header))
        return ethernet + b"\x08\x00" + bytes(header) + udp
    pseudo = source + destination + struct.pack("!IHBB", length, 0, 0, 17)
    udp = udp[:6] + struct.pack("!H", checksum(pseudo + udp) or 0xFFFF) + udp[8:]
    header = struct.pack("!IHBB", 6 << 28, length, 17, 64) + source + destination
    return ethernet + b"\x86\xdd" + header + udp


CASES = {
    "protected traffic crosses the wire as ESP only": traffic_is_protected,
    "a packet in clear from outside is dropped": clear_traffic_from_outside_is_dropped,
    "nothing leaks after kill -9": nothing_leaks_after(signal.SIGKILL),
    "nothing leaks after a clean stop": nothing_leaks_after(signal.SIGTERM),
    "a gateway that was killed starts again": a_gateway_that_died_can_start_again,
    "down takes every rule, route and device away": down_takes_everything_away,
    "traffic outside the policies is left alone": only_what_the_policy_names_is_held,
}
