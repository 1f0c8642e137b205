"""`esplanade plane move` of a gateway with keys of IKE: each child SA is rekeyed straight onto the other plane."""

import signal
import threading
import time
from collections import Counter

from ike import config, start_files_of_the_readme
from keyed import UDP_ALONE, start, start_both
from live_change import Stream
from moving import CHOSEN_WRITES, Transfers, move, move_with_a_refused_write, writes_of_a_move
from network.expect import Unmet, expect
from network.holding_back import CREATE_CHILD_SA, held_back
from network.refuser import Refuser
from network.timeout import slowed
from network.wire import ESP, UDP
from planes import (STAND_IN, PlaneSites, canaries, carried, faults, no_faults, options_of, says_its_plane, secret,
                    seen_without_a_tunnel, states, words)
from restarting import gaps

import devices

PACE = slowed(0.008)
SAMPLE_SECONDS = 0.3
# The last steps of a move, whose failures lead back.
LAST_WRITES = 24
OTHER = {"user": "kernel", "kernel": "user"}


class KernelStates:
    """The SPIs that the kernel of a gateway's host has, looked up over and over until it ends."""

    def __init__(self, gateway):
        self.host, self.seen, self.stopped = gateway.host, [], False
        self.thread = threading.Thread(target=self.work, daemon=True)
        self.thread.start()

    def work(self):
        while not self.stopped:
            self.seen.append({state["spi"] for state in states(self.host)})
            time.sleep(SAMPLE_SECONDS)

    def finish(self):
        self.stopped = True
        self.thread.join()
        return set().union(*self.seen)


def spis(gateway, *names):
    """Of these peers, or of all."""
    peers = gateway.status()["peers"]
    children = [child for peer in peers if not names or peer["name"] in names for child in peer["children"]]
    return {int(child[name], 16) for child in children for name in ("inbound_spi", "outbound_spi")}


def moved_by_rekeys(gateway, to):
    """A key is on one plane alone: what was before never comes to the kernel, or nothing new does."""
    before, there = spis(gateway), KernelStates(gateway)
    move(gateway, to)
    seen, after = there.finish(), spis(gateway)
    if STAND_IN:
        return
    expect(before and after and not before & after, f"not rekeyed: {before}, then {after}")
    other = before if to == "kernel" else after
    expect(not seen & other, f"on both planes on the way to {to}: {seen & other}")
    expected = after if to == "kernel" else before
    expect(seen & expected, f"the control failed: the kernel had {seen}, of {expected} nothing")


def flows(sites, pairs, wire):
    """The first packets of new keys may wait, on an emulated processor for long."""
    for pair in pairs:
        pair.pings()
    carried(sites, pairs, wire, (ESP, UDP))


def ends_of(streams, sites):
    """Datagrams sent and reordered; none is lost or came twice."""
    sent, lost, reordered = (sum(column) for column in zip(*(stream.finish() for stream in streams)))
    doubled = sum(stream.duplicated() for stream in streams)
    expect((lost, doubled) == (0, 0),
           f"of {sent} lost {lost}, twice {doubled}, gaps {[gaps(stream) for stream in streams]}\n{words(sites)}")
    for stream in streams:
        stream.receiver.close()
        stream.sender.close()
    return sent, reordered


def under_traffic(other, moves, more=""):
    def test():
        with PlaneSites("mi", left="user", right=other) as sites:
            pairs, wire, left, _ = brought_up(sites, lambda sites: start_both(sites, more))
            known, sockets = faults(sites), sockets_of_port_4500(left)
            wire.clear()
            streams = [Stream(sites, family, back, pace=PACE) for family in (4, 6) for back in (False, True)]
            for turn in range(moves):
                moved_by_rekeys(left, ("kernel", "user")[turn % 2])
                time.sleep(slowed(0.2))
            sent, reordered = ends_of(streams, sites)
            secret(wire.settle())
            no_faults(sites, known)
            carried(sites, pairs, wire, (UDP,) if UDP_ALONE in more else (ESP, UDP))
            left_behind(left, ("user", "kernel")[moves % 2])
            expect((now := sockets_of_port_4500(left)) == sockets, f"sockets of port 4500: {sockets}, then {now}")
            return f"{moves} moves, {sent} datagrams, lost 0, twice 0, reordered {reordered}"
    return test


class Refused:
    """Pings of one way, over and over until it ends; how many have come back."""

    def __init__(self, pair):
        self.pair, self.came, self.rounds, self.stopped = pair, 0, 0, False
        self.thread = threading.Thread(target=self.work, daemon=True)
        self.thread.start()

    def work(self):
        (near, source), (_, target) = self.pair.ends
        while not self.stopped:
            self.came += self.pair.ping(near, source, target, 20, 56)
            self.rounds += 1

    def finish(self):
        self.stopped = True
        self.thread.join()
        return self.came


def exceptions_hold():
    """A policy in front of the peer's, which the file discards, holds while the peer's own is still on the other
    plane."""
    with PlaneSites("mi", left="user", right="user") as sites:
        pairs, wire, left, _ = brought_up(sites)
        (near, source), (_, target) = pairs[0].ends
        left.setkey_text(f"spdadd {source} {target} icmp -P out discard;")
        expect(pairs[0].ping(near, source, target, 3, 56) == 0, "the control failed: pings come back")
        refused = Refused(pairs[0])
        for to in ("kernel", "user"):
            move(left, to)
            trouble = pairs[0].transfer()
            expect(trouble is None, f"on {to}: no TCP: {trouble}\n{words(sites)}")
        came = refused.finish()
        expect(came == 0, f"{came} pings came back that a policy discards")
        secret(wire.settle())
        left.setkey_text(f"spddelete {source} {target} icmp -P out;")
        expect(pairs[0].ping(near, source, target, 3, 56) == 3, f"no ping without that policy: {words(sites)}")
        left_behind(left, "user")
        return f"2 moves, {refused.rounds} times 20 pings, of which none came back"


def sockets_of_port_4500(gateway):
    return len(gateway.host.sh("ss -Hulan 'sport = :4500'").splitlines())


def left_behind(gateway, plane):
    """Nothing is left on the other plane, and nothing of the move in the policies."""
    if STAND_IN:
        return
    # The kernel notes with SPI 0 that it has asked for keys.
    there = {state["spi"] for state in states(gateway.host)} - {0}
    expect(there == (spis(gateway) if plane == "kernel" else set()), f"in the kernel are {there}")
    policies = gateway.host.sh("ip xfrm policy | grep -v socket || true")
    expect("level use" not in policies, f"policies that need not be applied:\n{policies}")
    expect(plane == "kernel" or "tmpl" not in policies, f"left in the kernel:\n{policies}")
    expect((gateway.host.attempt("ip link show esp0")[0] == 0) == (plane == "user"), "the TUN device")


def soon(check, what):
    deadline = time.monotonic() + slowed(25)
    while True:
        try:
            return check()
        except Unmet as unmet:
            expect(time.monotonic() < deadline, f"{what}: {unmet}")
        time.sleep(1)


def brought_up(sites, begin=start_both):
    """Both gateways with tunnels that carry, behind the control: what passes without a tunnel is seen on the wire."""
    pairs = sites.pairs()
    wire = seen_without_a_tunnel(sites, pairs)
    left, right = begin(sites)
    flows(sites, pairs, wire)
    return pairs, wire, left, right


def not_answered(plane, more=""):
    """The peer does not answer rekeys: the move is undone, the tunnel goes on by the keys of before, and once the peer
    answers the gateway moves."""
    def test():
        if STAND_IN:
            return None
        other = OTHER[plane]
        with PlaneSites("mi", left=plane, right="user") as sites:
            pairs, wire, left, _ = brought_up(sites, lambda sites: start_both(sites, more))
            before = spis(left)
            wire.clear()
            streams = [Stream(sites, 4, back, pace=PACE) for back in (False, True)]
            with held_back(left.host, CREATE_CHILD_SA):
                status, output = left.attempt("plane", "move", "--to", other)
                expect(status not in (0, 101) and "site" in output and "the one that it was" in output,
                       f"exit status {status}: {output}")
                says_its_plane(left, plane)
                expect(spis(left) == before, f"keys before {before}, after {spis(left)}")
                left_behind(left, plane)
            sent, reordered = ends_of(streams, sites)
            secret(wire.settle())
            deadline = time.monotonic() + slowed(60)
            while spis(left) & before:
                expect(time.monotonic() < deadline, f"never rekeyed: {left.peer()}\n{left.words()}")
                time.sleep(0.5)
            carried(sites, pairs, wire, (ESP, UDP))
            moved_by_rekeys(left, other)
            carried(sites, pairs, wire, (ESP, UDP))
            return f"{sent} datagrams, lost 0, twice 0, reordered {reordered}"
    return test


def one_of_two_is_not_answered(plane, more=""):
    """The peer that had passed over is rekeyed back, the other one keeps its keys."""
    def test():
        if STAND_IN:
            return None
        other = OTHER[plane]
        with PlaneSites("mi", left=plane, right="user") as sites:
            pairs, wire, left, _, before = two_peers_up(sites, more)
            streams = [Stream(sites, family, back, pace=PACE) for family in (4, 6) for back in (False, True)]
            with held_back(left.host, CREATE_CHILD_SA, "meta nfproto ipv4"):
                status, output = left.attempt("plane", "move", "--to", other)
                expect(status not in (0, 101) and "four" in output and "six" not in output,
                       f"exit status {status}: {output}")
                says_its_plane(left, plane)
                expect(spis(left, "four") == before["four"], f"{left.peer('four')}")
                expect(spis(left, "six") and not spis(left, "six") & before["six"], f"{left.peer('six')}")
                left_behind(left, plane)
            sent, reordered = ends_of(streams, sites)
            secret(wire.settle())
            carried(sites, pairs, wire, (ESP, UDP))
            return f"{sent} datagrams, lost 0, twice 0, reordered {reordered}"
    return test


def not_answered_on_the_way_back(plane):
    """One peer is not rekeyed at all, and the other one, which has passed over, not on the way back: it gets a Delete
    and is negotiated anew on the plane that was."""
    def test():
        if STAND_IN:
            return None
        other = OTHER[plane]
        with PlaneSites("mi", left=plane, right="user") as sites:
            pairs, wire, left, right, before = two_peers_up(sites)
            stream = Stream(sites, 4, False, pace=PACE)
            answers = []
            with held_back(left.host, CREATE_CHILD_SA, "meta nfproto ipv4"):
                asking = threading.Thread(
                    target=lambda: answers.append(left.attempt("plane", "move", "--to", other)), daemon=True)
                asking.start()
                passed_over(left, "six", before["six"])
                moved = spis(left, "six")
                with held_back(left.host, CREATE_CHILD_SA, "meta nfproto ipv6", table="held_back_too"):
                    asking.join()
                status, output = answers[0]
                expect(status not in (0, 101) and "four" in output and "the one that it was" in output,
                       f"exit status {status}: {output}")
                says_its_plane(left, plane)
                for gateway in (left, right):
                    gateway.wait("up", "six")
                expect(spis(left, "four") == before["four"], f"{left.peer('four')}")
                anew = spis(left, "six")
                expect(anew and not anew & (before["six"] | moved), f"{left.peer('six')}")
                left_behind(left, plane)
            sent, reordered = ends_of([stream], sites)
            secret(wire.settle())
            flows(sites, pairs, wire)
            return f"of the peer that stayed {sent} datagrams, lost 0, twice 0, reordered {reordered}"
    return test


def passed_over(gateway, name, before):
    """Waits until the keys of a peer are other ones, and those of before are gone."""
    deadline = time.monotonic() + slowed(20)
    while spis(gateway, name) & before or len(spis(gateway, name)) != 2:
        expect(time.monotonic() < deadline, f"{name} was not rekeyed: {gateway.peer(name)}\n{gateway.words()}")
        time.sleep(0.2)


def two_peers_up(sites, more=""):
    """Gateways with two peers each, and the SPIs of both."""
    pairs, wire, left, right = brought_up(sites, lambda sites: devices.start_both(sites, two_peers(more)))
    wire.clear()
    return pairs, wire, left, right, {name: spis(left, name) for name in ("four", "six")}


def two_peers(more):
    def text(name):
        return "".join(devices.table(name, peer, f'mode = "policy"\n{more}', families=(family,), outer=family)
                       for peer, family in (("four", 4), ("six", 6)))
    return text


def after_a_restart():
    """The process before has opened the sockets of port 4500, and said in which order."""
    with PlaneSites("mi", left="user", right="user") as sites:
        pairs, wire, left, _ = brought_up(sites, lambda sites: start_both(sites, IN_UDP))
        left.replace()
        deadline = time.monotonic() + slowed(60)
        while left.peer()["state"] != "up" or any(child["state"] != "active" for child in left.peer()["children"]):
            expect(time.monotonic() < deadline, f"never negotiated again: {left.peer()}\n{left.words()}")
            time.sleep(0.5)
        wire.clear()
        streams = [Stream(sites, 4, back, pace=PACE) for back in (False, True)]
        for plane in ("kernel", "user"):
            moved_by_rekeys(left, plane)
        sent, reordered = ends_of(streams, sites)
        secret(wire.settle())
        carried(sites, pairs, wire, (UDP,))
        left_behind(left, "user")
        return f"{sent} datagrams, lost 0, twice 0, reordered {reordered}"


def with_files_of_the_readme():
    """Peers whose files say nothing of a mode: a gateway that was on the kernel's plane keeps to policies after the
    move, so that a reload negotiates nothing anew and the way back stays open."""
    if STAND_IN:
        return
    with PlaneSites("mi", right="user") as sites:
        pairs = sites.pairs((4,))
        wire = seen_without_a_tunnel(sites, pairs)
        left, _ = start_files_of_the_readme(sites, lambda name: options_of(sites.planes[name]))
        for plane in ("user", "kernel"):
            moved_by_rekeys(left, plane)
            says_its_plane(left, plane)
            before = spis(left)
            left.ask("reload")
            carried(sites, pairs, wire, (ESP, UDP))
            expect(spis(left) == before, f"a reload has negotiated anew: {left.words()}")


def in_transport_mode():
    """What the gateways themselves send each other."""
    with PlaneSites("mi", left="user", right="user") as sites:
        pairs = sites.gateways_themselves(4)
        wire = seen_without_a_tunnel(sites, pairs)
        right, left = (start(sites, name, text=transport(name)) for name in ("right", "left"))
        for gateway in (left, right):
            gateway.wait("up")
        flows(sites, pairs, wire)
        for plane in ("kernel", "user"):
            wire.clear()
            transfers = Transfers(pairs[0])
            moved_by_rekeys(left, plane)
            transfers.finish()
            secret(wire.settle())
            carried(sites, pairs, wire, (ESP, UDP))
            left_behind(left, plane)


def transport(name):
    lines = config(name, 'start = "wait"' if name == "right" else "").splitlines()
    lines = [line for line in lines if not line.startswith("networks")]
    return "\n".join(lines).replace('"policy"', '"transport"') + "\n"


def a_peer_that_is_down():
    """Its networks stay closed on the way there and back, and it comes up on the plane that is then."""
    with PlaneSites("mi", left="user", right="user") as sites:
        pairs = sites.pairs()
        wire = seen_without_a_tunnel(sites, pairs)
        left, right = start_both(sites)
        for plane in ("kernel", "user"):
            left.ask("down", "site")
            left.wait("down")
            wire.clear()
            move(left, plane)
            for pair in pairs:
                pair.pings(1)
            secret(wire.settle())
            left.ask("up", "site")
            left.wait("up")
            right.wait("up")
            flows(sites, pairs, wire)
            left_behind(left, plane)


def refused_writes(to, more=""):
    """Of the writes of a move to the kernel's configuration one fails each time, the last ones among them: it has moved
    or it has not, its tunnel carries, and nothing is left on the other plane."""
    def test():
        if STAND_IN:
            return None
        refuser, own = Refuser(), OTHER[to]
        try:
            with PlaneSites("mi", left=own, right="user") as sites:
                pairs, wire, left, right = brought_up(sites, lambda sites: start_both(sites, more, wrap=refuser.wrap))
                calls = writes_of_a_move(left, refuser, to)
                move(left, own)
                spread = {max(1, calls * part // CHOSEN_WRITES) for part in range(1, CHOSEN_WRITES + 1)}
                chosen = sorted(spread | set(range(max(1, calls - LAST_WRITES), calls + 1)))
                outcomes = Counter(refused_at(sites, refuser, call, to) for call in chosen)
                expect(sum(outcomes.values()) - outcomes["no such write"] >= len(chosen) // 2, f"{outcomes}")
                for gateway in (left, right):
                    gateway.wait("up")
                carried(sites, pairs, wire, (ESP, UDP))
                return f"writes {chosen}: {dict(outcomes)}"
        finally:
            refuser.close()

    def refused_at(sites, refuser, call, to):
        """What became of a move in which this write failed. Its gateway is on its own plane afterwards."""
        left, own = sites.gateways["left"], OTHER[to]
        was_refused, plane, output = move_with_a_refused_write(left, refuser, call, to)
        left.wait("up")
        # The first packets of new keys may wait.
        sites.pairs()[0].pings()
        expect(any(came := sites.pairs()[0].pings()), f"write {call}, {output}: of 3 pings came back {came}\n{words(sites)}")
        # What the kernel was to lose and kept is taken away by the next look, at the latest.
        soon(lambda: left_behind(left, plane), f"write {call}, {output}")
        if plane == to:
            move(left, own)
        if not was_refused:
            return "no such write"
        return "moved" if plane == to else "undone"

    return test


def ended_half_way(by, to):
    """While rekeys are waited for: nothing in clear, nothing is left of the move after a start, and it carries."""
    def test():
        if STAND_IN:
            return
        own = OTHER[to]
        with PlaneSites("mi", left=own, right="user") as sites:
            pairs, wire, left, right = brought_up(sites)
            wire.clear()
            with held_back(left.host, CREATE_CHILD_SA):
                asking = threading.Thread(target=left.attempt, args=("plane", "move", "--to", to), daemon=True)
                asking.start()
                deadline = time.monotonic() + slowed(20)
                while "in progress" not in left.ask("plane"):
                    expect(time.monotonic() < deadline, f"no move is in progress: {left.words()}")
                    time.sleep(0.2)
                status, output = left.attempt("reload")
                expect(status not in (0, 101) and "in progress" in output, f"a reload half-way: {output}")
                left.stop(by)
                asking.join()
            for pair in pairs:
                pair.pings(1)
            frames = wire.settle()
            expect(not canaries(frames), "in clear after it has ended")
            secret(frames)
            left.start().ready()
            for gateway in (left, right):
                gateway.wait("up")
            flows(sites, pairs, wire)
            left_behind(left, own)
    return test


IN_UDP = UDP_ALONE + "\n"
CASES = {
    "moved with keys of IKE there and back under traffic, beside user": under_traffic("user", 2),
    "moved with keys of IKE there and back under traffic, in UDP": under_traffic("user", 2, IN_UDP),
    "moved with keys of IKE, by README's files, and reloaded": with_files_of_the_readme,
}
LONG = {
    "moved with keys of IKE six times under traffic, beside user": under_traffic("user", 6),
    "moved with keys of IKE six times under traffic, beside kernel": under_traffic("kernel", 6),
    "moved with keys of IKE six times under traffic, in UDP, beside kernel": under_traffic("kernel", 6, IN_UDP),
    "moved with keys of IKE, in UDP, rekeys not answered, from user": not_answered("user", IN_UDP),
    "moved with keys of IKE, in UDP, rekeys not answered, from kernel": not_answered("kernel", IN_UDP),
    "moved with keys of IKE, in UDP, rekeys of one of two peers not answered, from user":
        one_of_two_is_not_answered("user", IN_UDP),
    "moved with keys of IKE, in UDP, rekeys of one of two peers not answered, from kernel":
        one_of_two_is_not_answered("kernel", IN_UDP),
    "moved with keys of IKE, in UDP, after a restart": after_a_restart,
    "moved with keys of IKE, in UDP, writes that fail, to the kernel": refused_writes("kernel", IN_UDP),
    "moved with keys of IKE, in UDP, writes that fail, to user": refused_writes("user", IN_UDP),
    "moved with keys of IKE, rekeys not answered, from user": not_answered("user"),
    "moved with keys of IKE, rekeys not answered, from kernel": not_answered("kernel"),
    "moved with keys of IKE, rekeys of one of two peers not answered, from user": one_of_two_is_not_answered("user"),
    "moved with keys of IKE, rekeys of one of two peers not answered, from kernel":
        one_of_two_is_not_answered("kernel"),
    "moved with keys of IKE, rekeys not answered on the way back either, from user":
        not_answered_on_the_way_back("user"),
    "moved with keys of IKE, rekeys not answered on the way back either, from kernel":
        not_answered_on_the_way_back("kernel"),
    "moved with keys of IKE, writes that fail, to the kernel": refused_writes("kernel"),
    "moved with keys of IKE, writes that fail, to user": refused_writes("user"),
    "moved with keys of IKE, a policy in front of the peer's": exceptions_hold,
    "moved with keys of IKE, in transport mode": in_transport_mode,
    "moved with keys of IKE, a peer that is down": a_peer_that_is_down,
    "moved with keys of IKE, killed half-way to kernel": ended_half_way(signal.SIGKILL, "kernel"),
    "moved with keys of IKE, killed half-way to user": ended_half_way(signal.SIGKILL, "user"),
    "moved with keys of IKE, stopped half-way to kernel": ended_half_way(signal.SIGTERM, "kernel"),
}
