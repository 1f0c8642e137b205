"""Native ESP by each of its ways: what is asked for is what carries, and the kernel is left out of it."""

from network.expect import expect
from network.sites import OUTER, Sites, setkey_text
from path_mtu import fetch, serve

WAYS = {"raw": "by raw socket", "packet": "sent by packet (", "xdp": "sent by xdp ("}


def carries(way, outer):
    def test():
        with Sites("ni") as sites:
            for name in ("left", "right"):
                text = setkey_text(name, outer=outer, udp=False)
                sites.start(name, text, ["--native-io", way])
            serve(sites)
            for family in (4, 6):
                expect(sites.ping(family) == 3, f"no ping, IPv{family} inside")
                fetch(sites, family)
            for name, gateway in sites.gateways.items():
                lines = [line for line in gateway.status()["sockets"] if line.startswith("ESP over")]
                expect(WAYS[way] in lines[0], f"the {name} gateway uses another way: {lines}")
                expect(("received by a ring on wan" in lines[0]) == (way != "raw"),
                       f"the {name} gateway's ring: {lines}")
                for reason in ("bad-icv", "replayed", "policy-mismatch", "no-sa", "malformed", "fragment"):
                    expect(gateway.drops(reason) == 0, f"the {name} gateway dropped packets: {gateway.ask('drops')}")
                host = gateway.host
                expect(("ingress" in host.sh("nft list ruleset")) == (way != "raw"), "the drop rule behind the ring")
                gateway.ask("down")
                expect("ingress" not in host.sh("nft list ruleset"), "the drop rule stays after `down`")
    return test


def neighbour_moves():
    """The peer's network card is replaced by another: what is sent has to find it without being told."""
    with Sites("ni") as sites:
        for name in ("left", "right"):
            sites.start(name, setkey_text(name, udp=False), ["--native-io", "packet"])
        expect(sites.ping() == 3, "no ping before")
        sites.right.sh("ip link set wan address 02:00:00:00:02:99")
        # Its own traffic tells the new address, as ARP does; a host that moves announces itself.
        sites.right.attempt(f"ping -q -c 1 -W 2 {OUTER[4][0]}")
        expect(sites.ping() == 3, "no ping after the neighbour's address changed")


def shaped_device():
    """A queue that the administrator chose is not bypassed."""
    with Sites("ni") as sites:
        sites.left.sh("tc qdisc add dev wan root tbf rate 1gbit burst 100kb latency 50ms")
        for name in ("left", "right"):
            sites.start(name, setkey_text(name, udp=False), [])
        expect(sites.ping() == 3, "no ping")
        lines = " ".join(sites.gateways["left"].status()["sockets"])
        expect("sent by raw socket" in lines and "ring" not in lines, f"the shaped device: {lines}")


CASES = {
    **{f"native ESP by {way} over IPv{outer}": carries(way, outer) for way in WAYS for outer in (4, 6)},
    "a neighbour with another link address is found": neighbour_moves,
    "a device whose queue was chosen gets its packets through that queue": shaped_device,
}
