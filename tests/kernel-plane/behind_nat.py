"""A NAT in front of the left gateway: traffic passes, the NAT is kept from forgetting it, and where it gives another
port the gateway outside is told by its kernel and follows."""

import time

import nat
from ike import of_one_family
from keyed import start
from live_change import Stream
from network.expect import expect
from network.nat import INSIDE, OUTSIDE, Nat
from network.sites import AES_GCM, OUTER, setkey_text
from network.timeout import slowed
from network.wire import UDP, Esp, Packet
from planes import PlaneSites, carried, ended, on_planes, secret, seen_without_a_tunnel, words
from policies import Events

PACE = slowed(0.004)
IPV4 = (4,)
# RFC 3948 2.3: one byte behind the header of UDP. IKE's own interval is 20 s.
KEEPALIVE = b"\x00\x09"
KEEPALIVES, KEEPALIVES_LIMIT_SECONDS = 2, 50
# By hand.
KEEPALIVE_SECONDS = 3
FOLLOWED_LIMIT_SECONDS = slowed(20)
ENDS = (OUTSIDE, OUTER[4][1])
NEW_PORT = f"{OUTSIDE}[{nat.OUTSIDE}]"


class NatSites(PlaneSites, Nat):
    """Sites with a plane for each gateway, of which the left one is behind a NAT."""


def text(name, more=""):
    lines = of_one_family(name, 4, more)
    if name == "left":
        return lines.replace(f'local = "{OUTSIDE}"', f'local = "{INSIDE}"')
    # Where the left gateway is, the right one cannot know before it is asked.
    return lines.replace(f'remote = "{OUTSIDE}"\n', "")


def brought_up(sites, more=""):
    pairs = sites.pairs(IPV4)
    wire = seen_without_a_tunnel(sites, pairs)
    gateways = [start(sites, name, text=text(name, more)) for name in ("right", "left")]
    for gateway in gateways:
        gateway.wait("up")
    return pairs, wire, *gateways


def ports_of(frames, is_it):
    """From which ports of the NAT such datagrams came, one for each of them."""
    packets = [packet for packet in map(Packet.of, frames) if packet and packet.protocol == UDP]
    return [int.from_bytes(packet.frame[packet.offset:packet.offset + 2], "big") for packet in packets
            if packet.source == OUTSIDE and is_it(packet)]


def is_keepalive(packet):
    return packet.frame[packet.offset + 4:packet.offset + 6] == KEEPALIVE


def is_esp(packet):
    return Esp.find(packet.frame) is not None


def kept_open(left, right):
    """Nothing but keepalives leaves while there is no traffic, from the side behind the NAT alone, by the port of the
    tunnel. Afterwards the far side may be the first to speak."""
    def test():
        with NatSites("kn", left, right) as sites:
            pairs, wire, *_ = brought_up(sites)
            frames = carried(sites, pairs, wire, (UDP,))
            port, = set(ports_of(frames, is_esp))
            expect(port != 4500, "the control failed: the NAT left the port as it was")
            wire.clear()
            deadline = time.monotonic() + KEEPALIVES_LIMIT_SECONDS
            while len(kept := ports_of(wire.frames, is_keepalive)) < KEEPALIVES:
                expect(time.monotonic() < deadline, f"{len(kept)} keepalives in {KEEPALIVES_LIMIT_SECONDS} s")
                time.sleep(0.5)
            expect(set(kept) == {port}, f"keepalives from ports {kept}, where ESP came from {port}")
            others = [packet for packet in map(Packet.of, wire.frames)
                      if packet and packet.source != OUTSIDE and packet.protocol == UDP and is_keepalive(packet)]
            expect(not others, "the side that is behind no NAT sends keepalives, too")
            (near, source), (far, target) = pairs[0].ends
            expect(pairs[0].ping(far, target, source, 3, 56) == 3, f"the far side cannot speak first: {words(sites)}")
            carried(sites, pairs, wire, (UDP,))
            return f"{len(kept)} keepalives"
    return test


def followed(left, right):
    """The NAT forgets the tunnel under traffic and gives it another port. The gateway outside is told so by the packets
    that come from there, and sends there once IKE has spoken from it, after dead peer detection's time at most."""
    def test():
        with NatSites("kn", left, right) as sites:
            pairs, wire, outside, _ = brought_up(sites, f'dpd = "{int(slowed(1))}s"')
            port, = set(ports_of(carried(sites, pairs, wire, (UDP,)), is_esp))
            events = Events(outside)
            wire.clear()
            streams = [Stream(sites, back=back, pace=PACE) for back in (False, True)]
            time.sleep(slowed(0.2))
            sites.forget_mappings()
            told = events.wait("mapping", FOLLOWED_LIMIT_SECONDS)
            expect(told["from"].startswith(f"{OUTSIDE}:") and told["from"] != f"{OUTSIDE}:{port}",
                   f"the tunnel came from port {port}, and this is told: {told}")
            moved = events.wait("peer-moved", FOLLOWED_LIMIT_SECONDS)
            expect((moved["from"], moved["to"]) == (f"{OUTSIDE}:{port}", told["from"]), f"{moved}, after {told}")
            time.sleep(slowed(0.2))
            sent, lost, _ = ended(streams)
            secret(wire.settle())
            follows(sites, pairs, wire, outside, told["from"])
            return f"from port {port} to {told['from']}; of {sent} datagrams {lost} were lost until it was followed"
    return test


def follows(sites, pairs, wire, outside, there):
    """All that is sent goes to the new port, nothing is lost, and `status` knows no other."""
    frames = carried(sites, pairs, wire, (UDP,))
    found = {f"{OUTSIDE}:{port}" for port in ports_of(frames, is_esp)}
    expect(found == {there}, f"ESP comes from {found}, where {there} was told")
    moved = {sa["moved_to"] for sa in outside.status()["associations"]}
    expect(moved == {None}, f"`status` still shows {moved}")
    expect([ike["remote"] for ike in outside.peer()["ike"]] == [there], f"{outside.peer()}")


def told_by_hand(left, right):
    """With keys by hand the new port is told, and shown until `update` says it."""
    def test():
        with PlaneSites("kn", left, right) as sites:
            sites.start("left", nat.text(True))
            # To its keys' manager the left gateway has port 4500.
            outside = sites.start("right", turned(nat.text(True)))
            events = Events(outside)
            expect(sites.ping() == 3, f"no ping before: {words(sites)}")
            expect(nat.moved(outside, "0x00001001") is None, "the control failed: it has moved already")
            nat.translate(sites)
            sites.ping()
            told = events.wait("mapping", slowed(5), spi="0x00001001")
            expect(told["from"] == f"{OUTSIDE}:{nat.OUTSIDE}", f"what is told: {told}")
            expect(nat.moved(outside, "0x00001001") == told["from"], "`status` does not show it")
            outside.setkey_text("".join(
                f"update {source} {destination} esp-udp {spi:#x} -m tunnel -r 1024 {AES_GCM.format(key)};"
                for source, destination, spi, key in ((NEW_PORT, ENDS[1], 0x1001, 1), (ENDS[1], NEW_PORT, 0x1002, 2))))
            expect(sites.ping() == 3, f"no ping once the association says so: {words(sites)}")
            expect(nat.moved(outside, "0x00001001") is None, "it still counts as moved")
    return test


def kept_open_by_hand(left, right):
    """`-o keepalive=`: while there is no traffic one byte leaves after so many seconds, by the ports of the tunnel."""
    def test():
        with PlaneSites("kn", left, right) as sites:
            pairs = sites.pairs(IPV4)
            wire = seen_without_a_tunnel(sites, pairs)
            keys = setkey_text("left", inner=IPV4)
            outbound = keys.replace("-r 1024", f"-r 1024 -o keepalive={KEEPALIVE_SECONDS}", 1)
            sites.start("left", outbound)
            sites.start("right", setkey_text("right", inner=IPV4))
            carried(sites, pairs, wire, (UDP,))
            kept, deadline = [], time.monotonic() + KEEPALIVES_LIMIT_SECONDS
            while len(kept) < KEEPALIVES:
                expect(time.monotonic() < deadline, f"{len(kept)} keepalives in {KEEPALIVES_LIMIT_SECONDS} s")
                time.sleep(0.5)
                kept = [packet for packet in map(Packet.of, wire.frames)
                        if packet and packet.protocol == UDP and is_keepalive(packet)]
            expect({(packet.source, packet.destination) for packet in kept} == {OUTER[4]},
                   f"keepalives from {[packet.source for packet in kept]}")
            ports = {packet.frame[packet.offset:packet.offset + 4].hex() for packet in kept}
            expect(ports == {"11941194"}, f"by other ports than 4500: {ports}")
            frames = carried(sites, pairs, wire, (UDP,))
            return f"{len(kept)} keepalives, then {len(frames)} frames"
    return test


def turned(setkey):
    """With the directions of the other side."""
    return setkey.replace("-P out", "-P x").replace("-P in", "-P out").replace("-P x", "-P in")


TESTS = {
    "IKE, behind a NAT, kept open by keepalives": kept_open,
    "IKE, behind a NAT that gives another port under traffic": followed,
}
BY_HAND = {
    "keys by hand, a NAT that gives another port": told_by_hand,
    "keys by hand, kept open by keepalives": kept_open_by_hand,
}
CASES = {}
LONG = {
    **on_planes(TESTS, ("kernel", "kernel"), ("kernel", "user"), ("user", "kernel")),
    **on_planes(BY_HAND, ("kernel", "kernel"), ("user", "kernel")),
}
