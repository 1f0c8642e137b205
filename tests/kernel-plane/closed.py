"""Fail closed on the kernel's plane: nothing passes in clear, whatever is missing, stopped, killed or taken away."""

import signal
import time

import taken_away
from fail_closed import STATE
from live_change import Stream
from network.clear import ClearTraffic, also_from_outer_addresses
from network.expect import expect
from network.sites import Sites, setkey_text
from network.timeout import slowed
from network.wire import Esp
from planes import STAND_IN, PlaneSites, closed, ended, options_of, seen_without_a_tunnel, states, words

PACE = slowed(0.002)
# Of an association or a policy, what time and traffic change.
POLICIES = "ip xfrm policy | grep -v index"
RULES = "ip rule; ip -6 rule; ip route show table all; ip -6 route show table all"
# Filters of ours have chains that come and go with the restorations, but not their devices.
FOREIGN = """ip xfrm state add src 203.0.113.1 dst 203.0.113.2 proto esp spi 0x77 reqid 77 mode tunnel \
        aead 'rfc4106(gcm(aes))' 0x7777777777777777777777777777777777777777 128
    ip xfrm policy add src 198.51.100.0/24 dst 198.51.101.0/24 dir out priority 77 \
        tmpl src 203.0.113.1 dst 203.0.113.2 proto esp reqid 77 mode tunnel
    nft add table inet another; ip rule add pref 9 from 203.0.113.0/24 lookup 77"""
EVERYTHING = f"ip xfrm state; ip xfrm policy; {STATE}"

ATTACKS = {
    "ip xfrm policy flush": ("ip xfrm policy flush", POLICIES),
}
LONG_ATTACKS = {
    "ip xfrm state flush": ("ip xfrm state flush", "ip xfrm state | grep '^src' | sort"),
    "routing rules deleted one by one": (taken_away.EACH_RULE, RULES),
    "a routing table that was flushed": (taken_away.TABLE, RULES),
    "device filters taken away": ("tc qdisc del dev wan clsact; tc qdisc del dev lan clsact; true", "tc qdisc show dev wan"),
    "policies and rules at once": ("ip xfrm policy flush; nft flush ruleset", POLICIES),
    "policies, associations and rules at once": ("ip xfrm policy flush; ip xfrm state flush; nft flush ruleset", POLICIES),
}


def texts():
    """Of both gateways, with policies for their own unbound sockets too."""
    return [setkey_text(name) + more for name, more in zip(("left", "right"), also_from_outer_addresses())]


def policies_alone():
    """Traffic of every kind runs from before the start on; there are policies, and no associations."""
    with PlaneSites("cl") as sites:
        clear = ClearTraffic(sites)
        clear.expect_all_pass()
        for name, text in zip(("left", "right"), texts()):
            sites.start(name, "".join(line + "\n" for line in text.splitlines() if line.startswith("spdadd")))
        clear.passed()
        passed = clear.passed(settle=2)
        clear.stop()
        expect(not any(passed.values()), f"in clear: {passed}")


def from_the_start():
    """Traffic of every kind runs while the gateway starts and is stopped: from `ready` on nothing passes."""
    with PlaneSites("cl") as sites:
        clear = ClearTraffic(sites)
        clear.expect_all_pass()
        left, right = texts()
        gateway = sites.start("left", left)
        sites.start("right", right)
        clear.passed()
        running = clear.passed(settle=1)
        gateway.stop(signal.SIGTERM)
        stopped = clear.passed(settle=1)
        gateway.start().ready()
        again = clear.passed(settle=1)
        gateway.stop(signal.SIGKILL)
        killed = clear.passed(settle=1)
        clear.stop()
        for when, passed in (("running", running), ("stopped", stopped), ("started again", again), ("killed", killed)):
            expect(not any(passed.values()), f"in clear, {when}: {passed}")


def restored(attack, shown):
    """Another program takes it away: nothing in clear meanwhile, put back, and an event says so."""
    def test():
        with PlaneSites("cl") as sites:
            watched = taken_away.Watched(sites)
            told, summary = watched.holds_against(attack, lambda: sites.left.sh(shown))
            expect(told, f"no event says it: {watched.events.all()}")
            return f"{summary}; told: {told[-1]}"
    return test


def survives_a_flush_of_nftables():
    """The drop rules have an owner, so a flush by another program leaves them; a table without one is gone."""
    with PlaneSites("cl") as sites:
        watched = taken_away.Watched(sites)
        shown = "nft -s list ruleset"
        before = sites.left.sh(shown)
        expect("drop" in before, f"the control failed: there are no drop rules:\n{before}")
        for _ in range(taken_away.TIMES):
            sites.left.sh("nft add table inet control; nft flush ruleset")
            after = sites.left.sh(shown)
            expect("control" not in after, "the control failed: the flush removed nothing")
            expect(after == before, f"before:\n{before}\nafter:\n{after}")
        watched.goes_again()
        passed = watched.clear.passed()
        watched.clear.stop()
        expect(not any(passed.values()), f"in clear: {passed}")
        restored = [event for event in watched.events.all() if event["event"] == "restored"]
        expect(not restored, f"told of a restoration: {restored}")
        return f"{taken_away.TIMES} flushes"


def numbers_after_a_flush():
    """Associations that were flushed come back with numbers that are all new."""
    with PlaneSites("cl") as sites:
        left, _ = sites.start_both(inner=(4,))
        wire = sites.listen(sites.wire, "left")
        expect(sites.ping(count=20) == 20, f"no ping through the tunnel: {words(sites)}")
        for _ in range(3):
            sites.left.sh("ip xfrm state flush")
            goes_again(sites)
            expect(sites.ping(count=10) == 10, f"pings are lost after the flush: {words(sites)}")
        numbers_rise(wire)
        expect(left.drops("replayed") == 0, left.ask("drops"))


def goes_again(sites):
    deadline = time.monotonic() + slowed(5)
    while sites.ping(count=1) != 1:
        expect(time.monotonic() < deadline, f"no ping comes back any more: {words(sites)}")


def numbers_rise(wire):
    """In the order of the wire, for each association."""
    last = {}
    seen = [esp for esp in map(Esp.find, wire.settle()) if esp]
    expect(len(seen) > 10, f"only {len(seen)} packets were seen")
    for esp in seen:
        before = last.get(esp.spi, 0)
        expect(esp.sequence > before, f"SPI {esp.spi:#x}: number {esp.sequence} after {before}")
        last[esp.spi] = esp.sequence
    return len(seen)


def both_stopped(how):
    def test():
        with PlaneSites("cl") as sites:
            pairs = sites.pairs()
            wire = seen_without_a_tunnel(sites, pairs)
            for gateway in sites.start_both(udp=False):
                gateway.stop(how)
            if how == signal.SIGTERM or STAND_IN:
                closed(sites, pairs, wire)
            else:
                expect([pair.pings() for pair in pairs] == [[3, 3], [3, 3]], "the kernel does not carry on")
    return test


def killed_and_started_again():
    """Native ESP under traffic: the kernel carries on, the next start takes the associations over, and no number comes
    twice."""
    with PlaneSites("cl") as sites:
        left, right = sites.start_both(inner=(4,), udp=False)
        expect(sites.ping() == 3, f"no ping through the tunnel: {words(sites)}")
        wire = sites.listen(sites.wire, "left")
        streams = [Stream(sites, back=back, pace=PACE) for back in (False, True)]
        killed_in_turn(left, right, left)
        sent, lost, reordered = ended(streams)
        if not STAND_IN:
            expect((lost, reordered) == (0, 0), f"of {sent} lost {lost}, reordered {reordered}: {words(sites)}")
        packets = numbers_rise(wire)
        for gateway in (left, right):
            expect(gateway.drops("replayed") == 0, gateway.ask("drops"))
        return f"{sent} datagrams, lost {lost}; {packets} numbers on the wire"


def killed_in_turn(*gateways):
    for gateway in gateways:
        gateway.stop(signal.SIGKILL)
        time.sleep(0.5)
        gateway.start().ready()
        time.sleep(0.5)


def killed_without_its_socket():
    """ESP in UDP: what arrives while the gateway is dead has no socket; from the next start on nothing is lost."""
    with PlaneSites("cl") as sites:
        left, right = sites.start_both(inner=(4,))
        expect(sites.ping() == 3, f"no ping through the tunnel: {words(sites)}")
        wire = sites.listen(sites.wire, "left")
        right.stop(signal.SIGKILL)
        expect(sites.ping() == 0, "the control failed: pings are answered without a socket")
        right.start().ready()
        killed_in_turn(left)
        streams = [Stream(sites, back=back, pace=PACE) for back in (False, True)]
        time.sleep(slowed(0.2))
        sent, lost, _ = ended(streams)
        expect(sent > 50 and lost == 0, f"after the starts of {sent} lost {lost}: {words(sites)}")
        numbers_rise(wire)
        for gateway in (left, right):
            expect(gateway.drops("replayed") == 0, gateway.ask("drops"))
        return f"{sent} datagrams, lost {lost}"


def stopped_and_started_again():
    """A clean stop closes; the next start opens, and no number comes twice."""
    with PlaneSites("cl") as sites:
        left, _ = sites.start_both(inner=(4,))
        wire = sites.listen(sites.wire, "left")
        expect(sites.ping(count=20) == 20, f"no ping through the tunnel: {words(sites)}")
        left.stop()
        expect(sites.ping() == 0, "pings are answered while the gateway is stopped")
        left.start().ready()
        expect(sites.ping(count=20) == 20, f"no ping after the start: {words(sites)}")
        numbers_rise(wire)


def left_by_a_killed_one(plane):
    """Associations of a gateway that was killed, and that the next start does not name, are gone with their keys."""
    def test():
        with PlaneSites("cl") as sites:
            left, _ = sites.start_both(inner=(4,), udp=False)
            expect(sites.ping() == 3, f"no ping through the tunnel: {words(sites)}")
            left.stop(signal.SIGKILL)
            kept = [state["spi"] for state in states(sites.left)]
            expect(STAND_IN or kept, "the control failed: the kernel has none")
            with open(left.setkey, "w") as file:
                file.write(setkey_text("left", inner=(4,), udp=False).replace("0x100", "0x200"))
            left.options = options_of(plane)
            left.start().ready()
            now = {state["spi"] for state in states(sites.left)}
            wanted = {0x2001, 0x2002} if plane == "kernel" and not STAND_IN else set()
            expect(now == wanted, f"the kernel has {[hex(spi) for spi in now]}")
            expect(sites.ping() == 0, "the old keys still carry")
    return test


def down(when):
    """What was ours is gone; what another program had put there before is as it was."""
    def test():
        with PlaneSites("cl") as sites:
            sites.left.sh(FOREIGN)
            before = sites.left.sh(EVERYTHING)
            left, _ = sites.start_both()
            expect(sites.ping(4) == 3 and sites.ping(6) == 3, f"no ping through the tunnel: {words(sites)}")
            expect(sites.left.sh(EVERYTHING) != before, "the control failed: a running gateway left no trace")
            if when != "runs":
                left.stop(signal.SIGKILL if when == "was killed" else signal.SIGTERM)
                expect(sites.left.sh(EVERYTHING) != before, "a stop took the rules away")
            left.ask("down")
            if when == "runs":
                left.process.wait(slowed(10))
            after = sites.left.sh(EVERYTHING)
            expect(after == before, f"before:\n{before}\nafter:\n{after}")
            sites.gateways["right"].ask("down")
            expect(Sites.ping(sites) == 3, "plain traffic does not flow again")
    return test


def another_policy_is_left_alone():
    """Restorations leave alone what is not ours."""
    with PlaneSites("cl") as sites:
        sites.left.sh(FOREIGN)
        sites.start_both()
        before = [state["text"] for state in states(sites.left) if state["spi"] == 0x77]
        ours = "; ".join(f"ip xfrm policy delete src {source} dst {target} dir {way}"
                         for source, target, way in (("10.1.0.0/24", "10.2.0.0/24", "out"),
                                                     ("10.2.0.0/24", "10.1.0.0/24", "in")))
        sites.left.sh(f"{ours}; true")
        goes_again(sites)
        after = [state["text"] for state in states(sites.left) if state["spi"] == 0x77]
        expect(len(before) == 1 and before == after, f"before:\n{before}\nafter:\n{after}")
        expect("198.51.100.0/24" in sites.left.sh("ip xfrm policy"), "another's policy is gone")


CASES = {
    "policies without associations let nothing pass": policies_alone,
    **{f"restored under traffic, {name}": restored(*what) for name, what in ATTACKS.items()},
    "killed under traffic and started again, nothing is lost and numbers rise": killed_and_started_again,
    "down takes away what was ours, of a gateway that was stopped": down("was stopped"),
    "associations of a gateway that was killed go with the next start": left_by_a_killed_one("kernel"),
}
LONG = {
    "nothing passes in clear while a gateway runs, is stopped, started and killed": from_the_start,
    "associations that were flushed go on with new numbers": numbers_after_a_flush,
    "killed and started again, ESP in UDP goes on": killed_without_its_socket,
    "nft flush ruleset leaves the drop rules": survives_a_flush_of_nftables,
    "both gateways stopped, closed": both_stopped(signal.SIGTERM),
    **{f"restored under traffic, {name}": restored(*what) for name, what in LONG_ATTACKS.items()},
    "both gateways killed, the kernel carries on": both_stopped(signal.SIGKILL),
    "stopped and started again, numbers rise": stopped_and_started_again,
    **{f"down takes away what was ours, of a gateway that {when}": down(when) for when in ("runs", "was killed")},
    "associations of a gateway that was killed go with the next start, on the user plane": left_by_a_killed_one("user"),
    "what another program put there stays": another_policy_is_left_alone,
}
