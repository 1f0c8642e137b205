"""AH and bundles between two gateways: pings and TCP pass, and the wire shows nothing but the outermost layer."""

from network.expect import expect
from network.sites import CLIENT, NETS, OUTER, SERVER, Sites
from network.wire import Packet
from path_mtu import fetch, serve

AH_NUMBER = 51
SHA256 = "-A hmac-sha2-256 0x" + "7c" * 32
SHA1 = "-A hmac-sha1 0x" + "6b" * 20
# No kernel has it: these gateways have each other alone.
GMAC = "-A aes-128-gmac 0x" + "4d" * 20
CBC = "-E aes-cbc 0x" + "5a" * 16 + " " + SHA1


def text(name, outer, layers, selectors):
    """The same layers, innermost first, both ways. A layer is (protocol, mode, suite)."""
    lines = []
    for way, ends in enumerate((OUTER[outer], OUTER[outer][::-1])):
        for number, (protocol, mode, suite) in enumerate(layers):
            lines.append(f"add {ends[0]} {ends[1]} {protocol} {0x1001 + 16 * way + number:#x} "
                         f"-m {mode} -r 1024 {suite};")
        direction = "out" if (way == 0) == (name == "left") else "in"
        templates = " ".join(f"{protocol}/{mode}/{'-'.join(ends) if mode == 'tunnel' else ''}/require"
                             for protocol, mode, _ in layers)
        for sides in selectors:
            source, destination = sides if way == 0 else sides[::-1]
            lines.append(f"spdadd {source} {destination} any -P {direction} ipsec {templates};")
    return "\n".join(lines) + "\n"


def start(sites, outer, layers, selectors):
    for name in ("left", "right"):
        sites.start(name, setkey=text(name, outer, layers, selectors))


def tunnel(outer, *layers):
    """Sites behind gateways."""
    def test():
        with Sites("ly") as sites:
            wire = sites.listen(sites.wire, "left")
            start(sites, outer, layers, list(NETS.values()))
            wire.clear()
            serve(sites)
            for family in (4, 6):
                expect(sites.ping(family) == 3, f"no ping, IPv{family} inside: {words(sites)}")
                # Over IPv6 the first is lost to the news that it was too big, and the first answer as well.
                sites.ping(family, count=2, size=3000)
                expect(sites.ping(family, size=3000) == 3, f"no large ping, IPv{family} inside: {words(sites)}")
                fetch(sites, family)
            only_ah(wire.settle(), outer, {*CLIENT.values(), *SERVER.values()})
            nothing_dropped(sites)
    return test


def transport(outer, *layers):
    """The gateways themselves."""
    def test():
        with Sites("ly") as sites:
            wire = sites.listen(sites.wire, "left")
            start(sites, outer, layers, [OUTER[outer]])
            wire.clear()
            for size in (56, 1200, 3000):
                _, said = sites.left.attempt(f"ping -q -n -c 3 -i 0.05 -W 1 -s {size} {OUTER[outer][1]}")
                expect(" 3 received" in said, f"ping of {size} bytes: {said} {words(sites)}")
            only_ah(wire.settle(), outer, set())
            nothing_dropped(sites)
    return test


def only_ah(frames, outer, inside):
    """Between the gateways: AH, and no inner address."""
    carried = 0
    for packet in filter(None, map(Packet.of, frames)):
        ends = {packet.source, packet.destination}
        expect(not ends & inside, f"in clear: {packet.source} to {packet.destination}")
        if ends == set(OUTER[outer]) and not packet.is_neighbour_discovery():
            expect(packet.protocol == AH_NUMBER, f"protocol {packet.protocol} where AH was due")
            carried += len(packet.frame)
    expect(carried > 10_000, f"only {carried} protected bytes were seen")


def nothing_dropped(sites):
    for name, gateway in sites.gateways.items():
        for reason in ("bad-icv", "replayed", "policy-mismatch", "no-sa", "malformed", "unsupported", "bad-inner"):
            expect(gateway.drops(reason) == 0, f"the {name} gateway dropped packets: {gateway.ask('drops')}")


def words(sites):
    return " ".join(gateway.ask("drops") + gateway.words() for gateway in sites.gateways.values())


def added_while_it_runs():
    """A gateway that has given its privileges up takes AH and bundles, and tells of them in each of its ways."""
    with Sites("ly") as sites:
        for name in ("left", "right"):
            gateway = sites.start(name, setkey="spdflush;\n")
            has_dropped_privileges(gateway)
            gateway.setkey_text(text(name, 4, [("ah", "tunnel", SHA256)], [NETS[4]]))
        expect(sites.ping(4) == 3, f"no ping through AH that was added late: {words(sites)}")
        for name, gateway in sites.gateways.items():
            gateway.setkey_text("flush; spdflush;\n" + text(name, 4, STUDY_3, [OUTER[4]]))
        wire = sites.listen(sites.wire, "left")
        for size in (56, 3000):
            _, said = sites.left.attempt(f"ping -q -n -c 3 -i 0.05 -W 1 -s {size} {OUTER[4][1]}")
            expect(" 3 received" in said, f"ping of {size} bytes through a bundle added late: {said} {words(sites)}")
        only_ah(wire.settle(), 4, set())
        nothing_dropped(sites)
        told_of_both(sites.gateways["left"])


STUDY_3 = [("esp", "transport", CBC), ("ah", "transport", SHA256)]


def has_dropped_privileges(gateway):
    with open(f"/proc/{gateway.process.pid}/status") as file:
        facts = dict(line.split(":\t") for line in file.read().splitlines() if ":\t" in line)
    # CAP_NET_ADMIN, CAP_NET_RAW and perhaps CAP_NET_BIND_SERVICE: none of the other forty.
    expect(bin(int(facts["CapEff"], 16)).count("1") <= 3, f"it still has capabilities {facts['CapEff']}")
    expect(facts["NoNewPrivs"] == "1" and facts["Seccomp"] == "2", f"no filter on system calls: {facts['Seccomp']}")


def told_of_both(gateway):
    """`status`, `setkey -D` and `-DP`, `explain`."""
    told = gateway.status()["associations"]
    for protocol in ("esp", "ah"):
        busy = [each for each in told if each["protocol"] == protocol and each["packets"] > 0]
        expect(len(busy) == 2, f"status tells of {protocol}: {told}")
    dump = gateway.setkey_text("dump;\n")
    for word in ("\tah mode=transport spi=4098(0x00001002)", "\tesp mode=transport spi=4097(0x00001001)"):
        expect(word in dump, f"setkey -D: {dump}")
    policies = gateway.setkey_text("spddump;\n")
    expect("\tesp/transport//require\n\tah/transport//require\n" in policies, f"setkey -DP: {policies}")
    told = gateway.ask("explain", *OUTER[4], "icmp")
    expect("sent protected" in told and "0x00001001" in told and "0x00001002" in told, f"explain: {told}")


CASES = {
    "AH and a bundle are added while the gateway runs without privileges": added_while_it_runs,
    "an AH tunnel over IPv4": tunnel(4, ("ah", "tunnel", SHA256)),
    "an AH tunnel over IPv6": tunnel(6, ("ah", "tunnel", SHA256)),
    "AH in transport mode over IPv4": transport(4, ("ah", "transport", SHA1)),
    "AH in transport mode over IPv6": transport(6, ("ah", "transport", SHA256)),
    "an AH tunnel by AES-GMAC over IPv4": tunnel(4, ("ah", "tunnel", GMAC)),
    "AH by AES-GMAC in transport mode over IPv6": transport(6, ("ah", "transport", GMAC)),
    "ESP then AH, both in transport mode": transport(4, ("esp", "transport", CBC), ("ah", "transport", SHA256)),
    "an ESP tunnel with AH around it": tunnel(4, ("esp", "tunnel", CBC), ("ah", "transport", SHA256)),
}
