"""`esplanade restart` of gateways with peers: what was negotiated carries on in the new process."""

import time

from fail_closed import in_clear
from ike import NAMES, Keyed, bring_first_peer, config, ike_ports, of_one_family, start, start_by_hand
from ike_routes import peer as routed
from live_change import Stream
from network.expect import expect
from network.sites import Sites, setkey_text
from network.timeout import slowed
from replaced import MAX_LOSS_SHARE, carried_on, recorded_is_refused

PACE = 0.002
ORPHAN_SECONDS = slowed(20)
CHANGES = ('dpd = "77s"\n', 'retransmit = { first = "1s" }\n')


def in_policy_mode(more=""):
    def text(name):
        return config(name, more + ('start = "wait"\n' if name == "right" else ""))
    return text


def in_route_mode(more=""):
    def text(name):
        return routed(name, more=more)
    return text


def started(sites, text):
    """Both gateways, once their peers are up."""
    right, left = (start(sites, name, text(name)) for name in NAMES[::-1])
    left.wait("up")
    right.wait("up")
    return left, right


def spis(gateway):
    return {(child["inbound_spi"], child["outbound_spi"]) for child in gateway.peer()["children"]}


def let_orphans_go(*gateways):
    deadline = time.monotonic() + ORPHAN_SECONDS
    for gateway in gateways:
        while len(spis(gateway)) > 1:
            expect(time.monotonic() < deadline, f"orphans stay: {gateway.peer()}")
            time.sleep(0.1)


def by_turns(text, rounds=3):
    """The right one waits for peers, but begins where its child SAs have lost their IKE SA."""
    def test():
        with Sites("is") as sites:
            wire = sites.listen(sites.wire, "left")
            expect(sites.ping() == 3 and in_clear(wire.settle()),
                   "the control failed: nothing is seen in clear without a gateway")
            left, right = started(sites, text)
            expect(sites.ping(4) == sites.ping(6) == 3, "no ping through the tunnel")
            wire.clear()
            streams = [Stream(sites, family, back, pace=PACE) for family in (4, 6) for back in (False, True)]
            turns(left, right, rounds)
            return carried_on(streams, wire, 2 * rounds)
    return test


def turns(left, right, rounds, replace=Keyed.replace):
    """Each begins anew when it has been replaced, also the right one, which is configured to wait."""
    for replaced in rounds * (right, left):
        before = spis(replaced)
        replace(replaced)
        expect(before <= spis(replaced), f"of {before} the new process has {replaced.peer()}:\n{replaced.words()}")
        begun_anew(left, right)
        expect(not spis(replaced) & before, f"{spis(replaced)} after {before}")


def begun_anew(*gateways):
    for gateway in gateways:
        gateway.wait("up")
    let_orphans_go(*gateways)


def changed(left, right, change):
    """A line more in the right one's file, before it is replaced: the other side is told, so that it begins anew at
    once."""
    before = spis(right)
    right.replace()
    expect(before <= spis(right), "the control failed: not taken over without a change")
    begun_anew(left, right)
    before = spis(left)
    with open(right.setkey, "a") as file:
        file.write(change)
    right.replace()
    expect(not spis(right) & before, f"taken over although its configuration has changed: {right.peer()}")
    for gateway in (left, right):
        gateway.wait("up")
    expect(not spis(left) & before, f"the other side still has {before}: {left.words()}")


def a_changed_peer_is_negotiated_again():
    with Sites("is") as sites:
        wire = sites.listen(sites.wire, "right")
        left, right = started(sites, in_policy_mode())
        for change in CHANGES:
            changed(left, right, change)
        wire.clear()
        expect(sites.ping(4) == 3 and not in_clear(wire.settle()), "in clear, or no ping")


def recorded_packets_stay_refused():
    with Sites("is") as sites:
        wire = sites.listen(sites.wire, "left")
        _, right = started(sites, in_policy_mode('encapsulation = "force"\n'))
        [(spi, _)] = spis(right)
        recorded_is_refused(sites, right, wire, int(spi, 16))


def without_peers_the_sockets_are_taken_over_and_the_first_peer_shares_them():
    with Sites("is") as sites:
        gateways = [start_by_hand(sites, name, setkey_text(name, inner=(6,))) for name in NAMES]
        left, right = gateways
        expect(sites.ping(6) == 3, "the control failed: the tunnel by hand does not work")
        streams = [Stream(sites, 6, back, pace=PACE) for back in (False, True)]
        for _ in range(2):
            for gateway in gateways:
                gateway.replace()
                time.sleep(0.2)
        expect(not ike_ports(left), "the ports of IKE are taken without a peer")
        bring_first_peer(sites)
        left.wait("up")
        right.wait("up")
        for gateway in (right, left):
            gateway.replace()
        for gateway in gateways:
            gateway.wait("up")
        expect(sites.ping(4) == 3, f"no ping through the peer's tunnel: {left.words()}")
        figures = [stream.finish() for stream in streams]
        sent, lost = (sum(column) for column in list(zip(*figures))[:2])
        told = f"{sent} datagrams by hand, lost {lost}"
        expect(lost <= sent * MAX_LOSS_SHARE, told)
        return told


def a_start_with_a_file_and_peers_opens_neither():
    """After a kill the rules of the gateway before stand; the next start replaces them, and no network is open then."""
    with Sites("is") as sites:
        wire = sites.listen(sites.wire, "left")
        expect(sites.ping(4) == 3 and in_clear(wire.settle()), "the control failed: nothing is seen in clear")
        by_hand = "flush;\nspdflush;\n" + setkey_text("left", inner=(6,))
        left = start_by_hand(sites, "left", by_hand, of_one_family("left", 4, 'start = "wait"\n'))
        wire.clear()
        # Not back: on the right there is no gateway.
        streams = [Stream(sites, family, pace=PACE / 4) for family in (4, 6)]
        starts = 8
        for _ in range(starts):
            left.process.kill()
            left.process.wait()
            left.start().ready()
        sent = sum(stream.finish()[0] for stream in streams)
        expect(not in_clear(wire.settle()), "inner addresses in clear on the wire")
        return f"{starts} starts, {sent} datagrams, none in clear"


CASES = {
    "restart by turns, mode policy, in UDP": by_turns(in_policy_mode('encapsulation = "force"\n')),
    "restart by turns, mode policy, native": by_turns(in_policy_mode()),
    "restart by turns, mode route, in UDP": by_turns(in_route_mode('encapsulation = "force"\n')),
    "restart by turns, mode route, native": by_turns(in_route_mode()),
    "a peer whose configuration has changed is negotiated again": a_changed_peer_is_negotiated_again,
    "recorded packets of before a restart are refused after it": recorded_packets_stay_refused,
    "without peers a restart takes the sockets over, and the first peer shares them":
        without_peers_the_sockets_are_taken_over_and_the_first_peer_shares_them,
    "a start with a setkey file and peers opens neither": a_start_with_a_file_and_peers_opens_neither,
}
