"""Every shape of tunnel carries pings and TCP, and the wire shows nothing else."""

import itertools

from network.expect import expect
from network.sites import CLIENT, OUTER, SERVER, Sites
from network.wire import ESP, UDP, Packet
from path_mtu import FILE_SIZE, fetch, serve

SUITES = {
    "null-sha1": "-E null -A hmac-sha1 0x{:02x}" + "5a" * 19,
    "aes128-gcm": "-E aes-gcm-16 0x{:02x}" + "5a" * 19,
    "chacha20": "-E chacha20-poly1305 0x{:02x}" + "5a" * 35,
    "aes128-sha1": "-E aes-cbc 0x{:02x}" + "5a" * 15 + " -A hmac-sha1 0x" + "6b" * 20,
    "3des-sha1": "-E 3des-cbc 0x{:02x}" + "1f2e3d4c5b6a79" + "8897a6b5c4d3e2f1" + "0123456789abcdef" +
                 " -A hmac-sha1 0x" + "6b" * 20,
}


def shape(outer, udp, suite):
    def test():
        with Sites("tr") as sites:
            wire = sites.listen(sites.wire, "left")
            sites.start_both(outer=outer, udp=udp, suite=SUITES[suite])
            wire.clear()
            serve(sites)
            for family in (4, 6):
                expect(sites.ping(family) == 3, f"no ping, IPv{family} inside")
                fetch(sites, family)
            only_esp(wire.settle(), outer, UDP if udp else ESP)
            for name, gateway in sites.gateways.items():
                for reason in ("bad-icv", "replayed", "policy-mismatch", "no-sa", "malformed"):
                    expect(gateway.drops(reason) == 0, f"the {name} gateway dropped packets: {gateway.ask('drops')}")
    return test


def only_esp(frames, outer, protocol):
    """Between the gateways: the one protocol that was asked for, and no inner address."""
    inner = {*CLIENT.values(), *SERVER.values()}
    carried = 0
    for packet in filter(None, map(Packet.of, frames)):
        ends = {packet.source, packet.destination}
        expect(not ends & inner, f"in clear: {packet.source} to {packet.destination}")
        if ends == set(OUTER[outer]) and not packet.is_neighbour_discovery():
            expect(packet.protocol == protocol, f"protocol {packet.protocol} where {protocol} was due")
            carried += len(packet.frame)
    expect(carried > 2 * FILE_SIZE, f"only {carried} protected bytes were seen")


CASES = {
    f"{suite}, {'UDP' if udp else 'native'} over IPv{outer}": shape(outer, udp, suite)
    for outer, udp, suite in itertools.chain(
        itertools.product((4, 6), (True, False), ["aes128-gcm"]),
        ((4, True, suite) for suite in SUITES if suite != "aes128-gcm"))
}
