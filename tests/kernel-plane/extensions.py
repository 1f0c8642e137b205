"""What newer kernels have: each kernel shows it, or does without it, or refuses it by name."""

import signal

from attributes import INBOUND, OUTBOUND, SA_DIR, associations, counter, kernel_is
from network.expect import expect
from network.sites import MACS, setkey_text
from network.wire import ESP, Esp
from planes import STAND_IN, PlaneSites, carried, seen_without_a_tunnel, states

HAS_DIRECTIONS = kernel_is(6, 10)
EXTENDED = "-r 4096 -o esn"


def bytes_of(mac):
    return bytes.fromhex(mac.replace(":", ""))


def direction_is_kept(window):
    """Each association shows its direction to the kernel, also after the next gateway has taken it over."""
    def test():
        with PlaneSites("xd") as sites:
            pairs = sites.pairs((4,))
            wire = seen_without_a_tunnel(sites, pairs)
            for name in ("left", "right"):
                sites.start(name, setkey_text(name, inner=(4,), udp=False).replace("-r 1024", window))
            carried(sites, pairs, wire, (ESP,))
            for name in sites.on_kernel():
                shown_with_directions(getattr(sites, name), name)
            left = sites.gateways["left"]
            before = {state["spi"]: state["packets"] for state in states(sites.left)} if not STAND_IN else {}
            left.stop(signal.SIGKILL)
            left.start().ready()
            for spi, packets in before.items():
                state = next(state for state in states(sites.left) if state["spi"] == spi)
                expect(state["packets"] >= packets > 0, f"SPI {spi:#x} was not taken over: {state['text']}")
            carried(sites, pairs, wire, (ESP,))
            return "directions kept" if HAS_DIRECTIONS else "this kernel keeps no direction"
    return test


def shown_with_directions(host, name):
    """0x1001 is from left to right, 0x1002 from right to left."""
    found = associations(host)
    outbound, inbound = (0x1001, 0x1002) if name == "left" else (0x1002, 0x1001)
    wanted = {outbound: bytes([OUTBOUND]), inbound: bytes([INBOUND])} if HAS_DIRECTIONS else {}
    kept = {spi: sa[SA_DIR] for spi, sa in found.items() if SA_DIR in sa}
    expect(kept == wanted, f"{name}: the kernel has directions {kept}, not {wanted}")


def outbound_opens_nothing():
    """A packet of an outbound association comes back to its sender, which has the receiver's address as well: it is
    not opened."""
    with PlaneSites("xd") as sites:
        wire = sites.listen(sites.wire, "left")
        left, _ = sites.start_both(inner=(4,), udp=False)
        expect(sites.ping() == 3, "no ping through the tunnel")
        sent = [esp for esp in filter(None, map(Esp.find, wire.settle())) if esp.spi == 0x1001]
        expect(len(sent) == 3, f"{len(sent)} packets of the outbound association on the wire")
        if STAND_IN:
            return None
        # Held, the gateway does not follow the address.
        with left.held():
            sites.left.sh("sysctl -qw net.ipv4.conf.all.accept_local=1 net.ipv4.conf.wan.accept_local=1; "
                          "ip addr add 192.0.2.2/32 dev lo")
            refused = counter(sites.left, "XfrmInStateDirError")
            packets = {state["spi"]: state["packets"] for state in states(sites.left)}
            wire.inject(bytes_of(MACS["left"]) + bytes_of(MACS["right"]) + sent[-1].frame[12:])
            wire.settle()
            more = {state["spi"]: state["packets"] - packets[state["spi"]] for state in states(sites.left)}[0x1001]
        refused = counter(sites.left, "XfrmInStateDirError") - refused
        wanted = (0, 1) if HAS_DIRECTIONS else (1, 0)
        expect((more, refused) == wanted, f"the association opened {more} packets, {refused} were refused for their "
                                          f"direction; wanted {wanted}")
        return f"opened {more}, refused {refused}"


CASES = {
    "associations have a direction where the kernel keeps it": direction_is_kept("-r 1024"),
    "an outbound association opens no packet where the kernel keeps its direction": outbound_opens_nothing,
}
LONG = {"associations with ESN have a direction where the kernel keeps it": direction_is_kept(EXTENDED)}
