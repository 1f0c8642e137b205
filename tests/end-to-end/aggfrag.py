"""AGGFRAG mode (RFC 9347) between two gateways: many small packets in one, large ones across several, a constant
rate."""

import socket
import time

from network.expect import expect
from network.sites import CLIENT, NETS, OUTER, SERVER, Sites, setkey_text
from network.wire import ETHERNET, ESP, UDP, Packet
from path_mtu import fetch, is_from_left, serve

LOSSES = ("bad-icv", "bad-inner", "incomplete", "malformed", "no-buffer", "no-sa", "policy-mismatch", "replayed")
DATAGRAMS = 200
RATE, SIZE = 200, 600


def packed(name, options="", **shape):
    """The associations and policies of one gateway, all in this mode; those that leave the left one have `options`
    too."""
    text = setkey_text(name, **shape).replace("-r 1024", "-r 1024 -o aggfrag")
    line, rest = text.split("\n", 1)
    return line.replace("-o aggfrag", f"-o aggfrag {options}") + "\n" + rest


def start(sites, options="", **shape):
    return [sites.start(name, packed(name, options, **shape)) for name in ("left", "right")]


def lost_nothing(sites):
    for name, gateway in sites.gateways.items():
        for reason in LOSSES:
            expect(gateway.drops(reason) == 0, f"the {name} gateway dropped packets: {gateway.ask('drops')}")


def all_traffic_passes(outer, udp):
    def test():
        with Sites("af") as sites:
            wire = sites.listen(sites.wire, "left")
            start(sites, outer=outer, udp=udp)
            serve(sites)
            for family, header in ((4, 28), (6, 48)):
                expect(sites.ping(family) == 3, f"no ping, IPv{family} inside")
                # In any other mode the path's own MTU is more than the tunnel carries.
                expect(sites.ping(family, size=1500 - header, more="-M do") == 3,
                       f"1500 bytes do not pass, IPv{family}")
                fetch(sites, family)
            only_protected(wire.settle(), outer, UDP if udp else ESP)
            lost_nothing(sites)
    return test


def only_protected(frames, outer, protocol):
    inner = {*CLIENT.values(), *SERVER.values()}
    for packet in filter(None, map(Packet.of, frames)):
        ends = {packet.source, packet.destination}
        expect(not ends & inner, f"in clear: {packet.source} to {packet.destination}")
        if ends == set(OUTER[outer]) and not packet.is_neighbour_discovery():
            expect(packet.protocol == protocol, f"protocol {packet.protocol} where {protocol} was due")


def small_packets_share_outer_ones(family):
    """While the left gateway is held still its device collects them: how fast they are sent does not matter."""
    def test():
        with Sites("af") as sites:
            # Native: every frame on this wire is one packet, never a train.
            left, _ = start(sites, udp=False)
            expect(sites.ping(family) == 3, "no ping before")
            receiver, sender = ends(sites, family)
            wire = sites.listen(sites.wire, "left")
            sent = [number.to_bytes(4, "big") * (1 + number % 12) for number in range(DATAGRAMS)]
            with left.held():
                for datagram in sent:
                    sender.send(datagram)
            got = [receiver.recv(2000) for _ in sent]
            expect(got == sent, "other bytes or another order arrived")
            frames = [frame for frame in wire.settle() if is_from_left(frame, 4)]
            expect(all(len(frame) <= ETHERNET + 1500 for frame in frames), "a frame is longer than the path takes")
            expect(0 < len(frames) <= DATAGRAMS // 4, f"{len(frames)} outer packets for {DATAGRAMS} inner ones")
            lost_nothing(sites)
            # The control: one by one they need as many.
            wire.clear()
            for datagram in sent[:10]:
                sender.send(datagram)
                expect(receiver.recv(2000) == datagram, "a single one is lost")
            frames = [frame for frame in wire.settle() if is_from_left(frame, 4)]
            expect(len(frames) == 10, f"{len(frames)} outer packets for 10 single ones")
    return test


def ends(sites, family):
    """UDP sockets of the server and of the client, joined."""
    kind = socket.AF_INET if family == 4 else socket.AF_INET6
    receiver, sender = sites.server.socket(kind, socket.SOCK_DGRAM), sites.client.socket(kind, socket.SOCK_DGRAM)
    receiver.settimeout(20)
    receiver.bind((SERVER[family], 9000))
    sender.connect((SERVER[family], 9000))
    return receiver, sender


def a_rate_is_kept_whatever_is_sent(udp):
    """Equal packets when idle and when busy, never more than the rate; how many fewer is the machine's affair."""
    def test():
        with Sites("af") as sites:
            # Trains are cut before this wire, so that every frame on it is one packet.
            sites.left.sh("ethtool -K wan tx-udp-segmentation off")
            wire = sites.listen(sites.wire, "left")
            started = time.monotonic()
            left, right = start(sites, f"-o aggfrag-rate={RATE} -o aggfrag-size={SIZE}", udp=udp)
            idle = collect(wire, 100)
            expect(len({len(frame) for frame in idle}) == 1, f"lengths when idle: {sorted(set(map(len, idle)))}")
            expect(SIZE - 4 < len(idle[0]) - ETHERNET <= SIZE,
                   f"{len(idle[0]) - ETHERNET} bytes where {SIZE} were asked for")
            # The control: the other direction has no rate, and is silent.
            back = [frame for frame in wire.frames if is_from_right(frame)]
            expect(not back, f"{len(back)} packets from the gateway that has nothing to send")
            expect(right.drops("dummy") > 0, "padding was not taken for what it is")
            for family in (4, 6):
                expect(sites.ping(family, size=1000) == 3, f"no ping at a constant rate, IPv{family}")
            busy = collect(wire, 100)
            expect({len(frame) for frame in busy} == {len(idle[0])}, "a busy tunnel looks different from an idle one")
            most = RATE * (time.monotonic() - started) + 1
            count = len([frame for frame in wire.frames if is_from_left(frame, 4)])
            expect(count <= most, f"{count} packets where the rate allows {most:.0f}")
            lost_nothing(sites)
            left.setkey_text("deleteall 192.0.2.1 192.0.2.2 esp;")
            wire.settle()
            wire.clear()
            expect(not [frame for frame in wire.settle() if is_from_left(frame, 4)],
                   "it goes on without its association")
    return test


def is_from_right(frame):
    packet = Packet.of(frame)
    return packet is not None and packet.source == OUTER[4][1] and packet.protocol in (ESP, UDP)


def collect(wire, count, limit=60):
    """The next so many outer packets of the left gateway."""
    before, deadline = len(wire.frames), time.monotonic() + limit
    while True:
        frames = [frame for frame in wire.frames[before:] if is_from_left(frame, 4)]
        if len(frames) >= count:
            return frames
        expect(time.monotonic() < deadline, f"only {len(frames)} packets in {limit} s")
        time.sleep(0.05)


CASES = {
    **{f"pings and TCP pass, and packets of the path's own length, {'UDP' if udp else 'native'} over IPv{outer}":
       all_traffic_passes(outer, udp) for outer, udp in ((4, True), (4, False), (6, True))},
    **{f"small packets share outer ones, in order, IPv{family} inside": small_packets_share_outer_ones(family) for family in (4, 6)},
    **{f"a constant rate shows equal packets, idle or busy, {'UDP' if udp else 'native'}": a_rate_is_kept_whatever_is_sent(udp)
       for udp in (False, True)},
}
