"""IPComp inside ESP and AH between two gateways: what can be compressed makes the wire quieter, the rest passes too."""

from layers import CBC, SHA256, nothing_dropped, start, words
from network.expect import expect
from network.sites import NETS, OUTER, Sites
from network.wire import Packet
from path_mtu import fetch, serve

DEFLATE = "-C deflate"
PROTECTED = {50, 51}


def tunnel(outer, around):
    """Sites behind gateways, whose IPComp makes the tunnel."""
    def test():
        with Sites("ic") as sites:
            wire = sites.listen(sites.wire, "left")
            start(sites, outer, [("ipcomp", "tunnel", DEFLATE), around], list(NETS.values()))
            serve(sites)
            for family in (4, 6):
                expect(sites.ping(family) == 3, f"no ping, IPv{family} inside: {words(sites)}")
                fetch(sites, family)
            wire.clear()
            # A ping repeats the numbers from 0 to 255.
            expect(sites.ping(4, count=10, size=1200) == 10, f"no large ping: {words(sites)}")
            quieter(wire.settle(), outer, 20 * 1200)
            carried(sites)
            nothing_dropped(sites)
    return test


def transport(outer, around):
    """The gateways themselves."""
    def test():
        with Sites("ic") as sites:
            wire = sites.listen(sites.wire, "left")
            start(sites, outer, [("ipcomp", "transport", DEFLATE), around], [OUTER[outer]])
            wire.clear()
            for size in (16, 1200, 3000):
                command = f"ping -q -n -c 10 -i 0.05 -W 1 -s {size} {OUTER[outer][1]}"
                _, said = sites.left.attempt(command)
                expect(" 10 received" in said, f"ping of {size} bytes: {said} {words(sites)}")
            quieter(wire.settle(), outer, 20 * 4200)
            carried(sites)
            nothing_dropped(sites)
    return test


def quieter(frames, outer, plain):
    """Nothing but ESP or AH between the gateways, and less than half of what is inside."""
    seen = 0
    for packet in filter(None, map(Packet.of, frames)):
        if {packet.source, packet.destination} == set(OUTER[outer]) and not packet.is_neighbour_discovery():
            expect(packet.protocol in PROTECTED, f"protocol {packet.protocol} in clear")
            seen += len(packet.frame)
    expect(0 < seen < plain / 2, f"{seen} bytes on the wire for {plain}")


def carried(sites):
    """`status` and `setkey -D` show the associations of IPComp."""
    for gateway in sites.gateways.values():
        told = gateway.status()["associations"]
        busy = [each for each in told if each["protocol"] == "ipcomp" and each["packets"] > 0]
        expect(len(busy) == 2, f"status tells of ipcomp: {told}")
        dump = gateway.setkey_text("dump ipcomp;\n")
        expect("\tC: deflate\n" in dump, f"setkey -D: {dump}")


CASES = {
    "an IPComp tunnel inside ESP": tunnel(4, ("esp", "transport", CBC)),
    "an IPComp tunnel inside AH over IPv6": tunnel(6, ("ah", "transport", SHA256)),
    "IPComp and ESP in transport mode over IPv4": transport(4, ("esp", "transport", CBC)),
    "IPComp and ESP in transport mode over IPv6": transport(6, ("esp", "transport", CBC)),
}
