"""Keys by IKE on the kernel's plane: closed, up, rekeyed, through a NAT's UDP, a dead peer, down."""

import signal
import time

from ike import Keyed, config
from live_change import Stream
from network.expect import expect
from network.timeout import slowed
from network.wire import ESP, UDP
from planes import (STAND_IN, PlaneSites, carried, closed, counted_by_the_kernel, ended, options_of,
                    seen_without_a_tunnel, words)

PACE = slowed(0.002)


def start(sites, name, more="", text=None, wrap=()):
    text = text or config(name, more)
    sites.gateways[name] = Keyed(getattr(sites, name), text, options_of(sites.planes[name]), wrap)
    return sites.gateways[name].ready()


def start_both(sites, more="", wrap=()):
    """`wrap` goes before the words of the left one."""
    right = start(sites, "right", 'start = "wait"\n' + more)
    left = start(sites, "left", more, wrap=wrap)
    left.wait("up")
    right.wait("up")
    return left, right


def from_down_to_down(left, right, more="", protocols=(ESP, UDP)):
    """Closed before the peer is there, open while it is up, closed again after `down`."""
    def test():
        with PlaneSites("ke", left, right) as sites:
            pairs = sites.pairs()
            wire = seen_without_a_tunnel(sites, pairs)
            gateway = start(sites, "left", more)
            closed(sites, pairs, wire, far_side=False)
            # One side begins. Where both do, one of two pairs goes, and with it what is on its way.
            other = start(sites, "right", 'start = "wait"\n' + more)
            for each in (gateway, other):
                each.wait("up")
            carried(sites, pairs, wire, protocols)
            counted_by_the_kernel(sites, ["esp"])
            gateway.ask("down", "site")
            gateway.wait("down")
            closed(sites, pairs, wire)
            gateway.ask("up", "site")
            gateway.wait("up")
            other.wait("up")
            carried(sites, pairs, wire, protocols)
    return test


def both_begin(left, right):
    """Both sides begin at once: one of two pairs goes under traffic, which loses nothing."""
    def test():
        with PlaneSites("ke", left, right) as sites:
            gateways = [start(sites, name) for name in ("left", "right")]
            for gateway in gateways:
                gateway.wait("up")
            time.sleep(slowed(0.2))
            streams = [Stream(sites, back=back, pace=PACE) for back in (False, True)]
            # The redundant one is closed after two to three seconds.
            time.sleep(slowed(5))
            sent, lost, _ = ended(streams)
            expect(sent > 50 and lost == 0, f"of {sent} lost {lost}\n{words(sites)}")
            counted_by_the_kernel(sites, ["esp"])
            return f"{sent} datagrams, lost 0"
    return test


def rekeyed(left, right):
    def test():
        with PlaneSites("ke", left, right) as sites:
            gateways = start_both(sites)
            expect(sites.ping() == 3, f"no ping through the tunnel: {words(sites)}")
            return rekeys_lose_nothing(sites, gateways)
    return test


def rekeys_lose_nothing(sites, gateways):
    """Each gateway rekeys its child SA and its IKE SA under traffic."""
    streams = [Stream(sites, back=back, pace=PACE) for back in (False, True)]
    before = gateways[0].peer()["children"][0]["inbound_spi"]
    for gateway in gateways:
        gateway.ask("rekey", "site")
        time.sleep(slowed(0.5))
        gateway.ask("rekey", "site", "--ike")
        time.sleep(slowed(0.5))
    sent, lost, _ = ended(streams)
    expect(gateways[0].peer()["children"][-1]["inbound_spi"] != before, "the keys are the old ones")
    doubled = sum(stream.duplicated() for stream in streams)
    expect((lost, doubled) == (0, 0), f"of {sent} lost {lost}, twice {doubled}\n{words(sites)}")
    counted_by_the_kernel(sites, ["esp"])
    return f"2 rekeys of the child, 2 of the IKE SA, {sent} datagrams, lost 0"


def a_dead_peer(left, right):
    """The peer's host is cut off: dead peer detection ends the tunnel, which stays closed, and comes up again after."""
    def test():
        with PlaneSites("ke", left, right) as sites:
            pairs = sites.pairs((4,))
            wire = seen_without_a_tunnel(sites, pairs)
            gateway, _ = start_both(sites, f'dpd = "{int(slowed(1))}s"')
            expect(pairs[0].pings() == [3, 3], f"no ping through the tunnel: {words(sites)}")
            sites.gateways["right"].stop(signal.SIGKILL)
            sites.right.sh("ip link set wan down")
            deadline = time.monotonic() + slowed(60)
            while gateway.peer()["state"] == "up":
                expect(time.monotonic() < deadline, f"never told: {gateway.peer()}")
                time.sleep(0.2)
            closed(sites, pairs, wire)
            sites.right.sh("ip link set wan up; ip route replace 10.1.0.0/24 via 192.0.2.1; "
                           "ip -6 route replace fd00:1::/64 via 2001:db8::1; true")
            sites.gateways["right"].start().ready()
            gateway.wait("up")
            carried(sites, pairs, wire, (ESP, UDP))
    return test


PAIRS = [("kernel", "kernel"), ("kernel", "user")]
UDP_ALONE = 'encapsulation = "force"'
CASES = {
    "IKE, from down to up to down, kernel and user": from_down_to_down("kernel", "user"),
    "IKE, rekeys lose nothing, kernel and kernel": rekeyed("kernel", "kernel"),
}
LONG = {
    "IKE, from down to up to down, kernel and kernel": from_down_to_down("kernel", "kernel"),
    "IKE, rekeys lose nothing, kernel and user": rekeyed("kernel", "user"),
    "IKE, ESP in UDP, kernel and user": from_down_to_down("kernel", "user", more=UDP_ALONE, protocols=(UDP,)),
    "IKE, from down to up to down, user and kernel": from_down_to_down("user", "kernel"),
    "IKE, rekeys lose nothing, user and kernel": rekeyed("user", "kernel"),
    "IKE, ESP in UDP, kernel and kernel": from_down_to_down("kernel", "kernel", more=UDP_ALONE, protocols=(UDP,)),
    **{f"IKE, both begin at once, {left} and {right}": both_begin(left, right) for left, right in PAIRS},
    **{f"IKE, a dead peer, {left} and {right}": a_dead_peer(left, right) for left, right in PAIRS},
}
