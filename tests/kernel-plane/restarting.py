"""`esplanade restart` of gateways with peers on the kernel's plane: the kernel carries on by what it has, and the next
process takes it over."""

import contextlib
import os
import shutil
import signal
import subprocess
import time

from fail_closed import in_clear
from ike_hooks import LAST_LINE, HookFolder, told_over_restarts, with_hooks
from ike_restart import changed, spis, turns
from keyed import UDP_ALONE, start_both
from keyed import start as start_keyed
from live_change import Stream
from network.expect import Unmet, expect
from network.holding_back import IKE_SA_INIT, held_back
from network.timeout import slowed
from network.wire import ESP, UDP, Packet
from planes import STAND_IN, PlaneSites, counted_by_the_kernel, seen_without_a_tunnel, states, words
from replaced import MOMENTS_MS, carried_on, goes_on

import devices

# Four streams at a time, which an emulated processor has to carry beside two key exchanges.
PACE = slowed(0.008)
ROUNDS = 2
KERNEL = {} if STAND_IN else {"max_loss_share": 0}
# Of the documentation's networks: nothing leads there.
STRANGER = "203.0.113"
CONTROL = (f"ip xfrm policy add src {STRANGER}.1 dst {STRANGER}.2 dir out; "
           f"ip xfrm policy delete src {STRANGER}.1 dst {STRANGER}.2 dir out")


def in_policy_mode(more=""):
    def started(sites):
        return start_both(sites, more + "\n")
    return started


def in_route_mode(more=""):
    def started(sites):
        return devices.start_both(sites, lambda name: devices.table(name, more=f'mode = "route"\n{more}\n'))
    return started


def streams_of(sites):
    return [Stream(sites, family, back, pace=PACE) for family in (4, 6) for back in (False, True)]


def by_turns(started, protocol, rounds=ROUNDS):
    """Numbered datagrams both ways: none lost, twice, out of order or in clear, and no number of an association twice."""
    def test():
        with PlaneSites("kr") as sites:
            wire = seen_without_a_tunnel(sites, sites.pairs())
            left, right = started(sites)
            expect(sites.ping(4) == sites.ping(6) == 3, f"no ping through the tunnel: {words(sites)}")
            wire.clear()
            streams = streams_of(sites)
            turns(left, right, rounds, replaced_without_a_change)
            try:
                told = carried_on(streams, wire, 2 * rounds, **KERNEL)
            except Unmet as failure:
                raise Unmet(f"{failure}; gaps {[gaps(stream) for stream in streams]}, "
                            f"{sites.left.sh('cut -c1-30 /proc/net/softnet_stat')}\n{words(sites)}")
            seen = {packet.protocol for packet in map(Packet.of, wire.settle()) if packet} & {ESP, UDP}
            expect(seen == {protocol, UDP}, f"protocols on the wire: {seen}")
            counted_by_the_kernel(sites, ["esp"])
            return told
    return test


def gaps(stream):
    """Where datagrams are missing: the first of each row, and how many."""
    found, came = [], set(stream.stamps)
    for number in range(stream.sent):
        if number in came:
            continue
        if found and sum(found[-1]) == number:
            found[-1][1] += 1
        else:
            found.append([number, 1])
    return found


def replaced_without_a_change(gateway):
    """Nothing of the kernel's associations and policies is touched before it begins anew, as the kernel's notifications
    show."""
    if STAND_IN:
        return gateway.replace()
    with told_by_the_kernel(gateway) as told, held_back(gateway.host, IKE_SA_INIT):
        before = gateway.host.sh("ip -d link show type xfrm")
        gateway.replace()
        expect(gateway.peer()["state"] == "orphaned", f"{gateway.peer()}\n{gateway.words()}")
        after = gateway.host.sh("ip -d link show type xfrm")
        expect(before == after, f"devices before:\n{before}\nafter:\n{after}")
        expect(not told(), f"changed in the kernel: {told()}")


@contextlib.contextmanager
def told_by_the_kernel(gateway):
    """Gives a function that tells which associations and policies were added, changed or deleted."""
    path = f"{gateway.folder}/monitor"
    with open(path, "w") as file:
        monitor = gateway.host.start(["ip", "xfrm", "monitor", "SA", "policy"], stdout=file, stderr=subprocess.STDOUT)

    def lines():
        with open(path) as file:
            return [line for line in file.read().splitlines() if line and not line[0].isspace()]

    try:
        deadline = time.monotonic() + slowed(5)
        while not any(STRANGER in line for line in lines()):
            expect(time.monotonic() < deadline, f"the control failed: the kernel tells nothing: {lines()}")
            gateway.host.sh(CONTROL)
            time.sleep(0.2)
        yield lambda: [line for line in lines() if STRANGER not in line]
    finally:
        monitor.kill()
        monitor.wait()


def a_changed_peer():
    """It is told, its associations and policies go, and it is negotiated anew; nothing passes in clear."""
    with PlaneSites("kr") as sites:
        wire = seen_without_a_tunnel(sites, sites.pairs())
        left, right = start_both(sites, UDP_ALONE + "\n")
        wire.clear()
        streams = streams_of(sites)
        before = spis(right)
        changed(left, right, 'dpd = "77s"\n')
        gone_from_the_kernel(right, before)
        sent = sum(stream.finish()[0] for stream in streams)
        expect(not in_clear(wire.settle()), "inner addresses in clear on the wire")
        expect(sites.ping(4) == sites.ping(6) == 3, f"no ping through the tunnel: {words(sites)}")
        return f"{sent} datagrams, none in clear"


def gone_from_the_kernel(gateway, before):
    if STAND_IN:
        return
    there = {state["spi"] for state in states(gateway.host)}
    left = {int(spi, 16) for pair in before for spi in pair} & there
    expect(there and not left, f"in the kernel are {there}, of before {left}")


def a_peer_that_is_gone():
    """Its associations, policies and device go; the other peer's stay."""
    with PlaneSites("kr") as sites:
        left, right = devices.start_both(sites, devices.two_peers)
        expect(sites.ping(4) == sites.ping(6) == 3, f"no ping through the tunnels: {words(sites)}")
        stream = Stream(sites, 4, pace=PACE)
        gone = {(child["inbound_spi"], child["outbound_spi"]) for child in right.peer("six")["children"]}
        devices.write(right, devices.peer("right", "four", families=(4,)))
        right.replace()
        expect([peer["name"] for peer in right.status()["peers"]] == ["four"], f"{right.status()['peers']}")
        gone_from_the_kernel(right, gone)
        devices.within(lambda: not devices.has_device(sites.right, "ike-six"), "the device of the peer stays")
        sent, lost, _ = stream.finish()
        expect(lost == 0 or STAND_IN, f"the peer that did not change lost {lost} of {sent}: {words(sites)}")
        expect(not right.host.attempt("ip xfrm policy | grep fd00:1::/64")[1], right.host.sh("ip xfrm policy"))
        return f"{sent} datagrams of the other peer, lost {lost}"


def what_another_program_has_deleted():
    """It does so after the old process has ended, and before the new one has looked: the pair is not taken over."""
    if STAND_IN:
        return None
    with PlaneSites("kr") as sites:
        wire = seen_without_a_tunnel(sites, sites.pairs())
        left, right = start_both(sites)
        for attempt in range(1, 6):
            wire.clear()
            before = spis(left)
            deleted_in_between(left)
            expect(not in_clear(wire.settle()), "inner addresses in clear on the wire")
            if "cannot be taken over" in left.words():
                left.wait("up")
                expect(not spis(left) & before, f"taken over: {before}\n{left.words()}")
                pings_by_new_keys(sites)
                return f"at attempt {attempt}"
            left.wait("up")
        raise AssertionError(f"the new process has always looked before: {left.words()}")


def pings_by_new_keys(sites):
    """The other gateway moves to the new keys at the first packet; its answer may still leave by those of before, which
    are not here any more."""
    sites.ping(4)
    expect(sites.ping(4) == sites.ping(6) == 3, f"no ping by the new keys: {words(sites)}")


def deleted_in_between(gateway):
    old, gateway.process = gateway.process, gateway.launch("restart")
    while old.poll() is None:
        expect(gateway.process.poll() is None, gateway.words())
        time.sleep(0.001)
    os.kill(gateway.process.pid, signal.SIGSTOP)
    gateway.host.sh("ip xfrm state deleteall proto esp")
    os.kill(gateway.process.pid, signal.SIGCONT)
    gateway.ready()


def killed_at_any_moment():
    """The old one goes on as it was, with its IKE SA; or the kernel carries on by what it has. Nothing is in clear."""
    with PlaneSites("kr") as sites:
        wire = seen_without_a_tunnel(sites, sites.pairs())
        left, right = start_both(sites)
        wire.clear()
        streams, survived = streams_of(sites), 0
        for moment in MOMENTS_MS:
            left.wait("up")
            before = left.peer()
            new = left.launch("restart")
            time.sleep(slowed(moment / 1000))
            new.kill()
            new.wait()
            if goes_on(left):
                survived += 1
                after = left.peer()
                expect(after["state"] == "up" and after["children"][0]["inbound_spi"] ==
                       before["children"][0]["inbound_spi"], f"{before}\n{after}")
            else:
                left.start().ready()
        for stream in streams:
            stream.finish()
        expect(not in_clear(wire.settle()), "inner addresses in clear on the wire")
        left.wait("up")
        pings_by_new_keys(sites)
        expect(survived > 0, "the control failed: no old gateway has survived")
        return f"killed {survived} times before the old one had given way, {len(MOMENTS_MS) - survived} times after"


def from_plane_to_plane():
    """What was negotiated does not go along: the new process says so, the peer is told, nothing is in clear."""
    with PlaneSites("kr", left="user") as sites:
        wire = seen_without_a_tunnel(sites, sites.pairs())
        left, right = start_both(sites)
        wire.clear()
        streams = streams_of(sites)
        for plane in ("kernel", "user"):
            before = spis(right)
            left.options = () if STAND_IN else ("--plane", plane)
            left.replace()
            for gateway in (left, right):
                gateway.wait("up")
            expect(not spis(right) & before, f"the peer was not told: {before}")
            expect(STAND_IN or f"to the {plane} plane" in left.words() and "Delete" in left.words(), left.words())
            expect(STAND_IN or left.status()["plane"] == plane, left.status()["plane"])
            expect(sites.ping(4) == sites.ping(6) == 3, f"no ping through the tunnel: {words(sites)}")
        for stream in streams:
            stream.finish()
        expect(not in_clear(wire.settle()), "inner addresses in clear on the wire")


def hooks_are_told_nothing():
    with PlaneSites("kr") as sites, HookFolder() as place:
        start_keyed(sites, "right", 'start = "wait"\n')
        # A hook has ten seconds, which are few for an emulated processor.
        shell = shutil.which("bash")
        place.tells = place.program("tells", f'#!{shell}\nprintf "run $ESPLANADE_EVENT\\n{LAST_LINE}\\n" >> "$1/log"\n')
        left = start_keyed(sites, "left", text=with_hooks("left", place.keys()))
        left.wait("up")
        try:
            told_over_restarts(left, place)
        except Unmet as failure:
            raise Unmet(f"{failure}: {left.attempt('why', 'site')[1]}\n{left.words()}")


CASES = {
    "IKE, restarts by turns, native": by_turns(in_policy_mode(), ESP),
}
LONG = {
    "IKE, restarts by turns, in UDP": by_turns(in_policy_mode(UDP_ALONE), UDP),
    "IKE, restarts by turns, mode route, native": by_turns(in_route_mode(), ESP),
    "IKE, restarts by turns, mode route, in UDP": by_turns(in_route_mode(UDP_ALONE), UDP),
    "IKE, a restart with a changed peer negotiates it anew": a_changed_peer,
    "IKE, a restart without a peer takes away what was its own": a_peer_that_is_gone,
    "IKE, a restart does not take over what another program has deleted": what_another_program_has_deleted,
    "IKE, a restart that is killed at any moment": killed_at_any_moment,
    "IKE, a restart from one plane to the other": from_plane_to_plane,
    "IKE, hooks are told nothing of a restart": hooks_are_told_nothing,
}
