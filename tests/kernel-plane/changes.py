"""Changes of a running gateway on the kernel's plane: reloads, another process in its place, nothing in clear."""

import time

from live_change import Stream
from network.clear import ClearTraffic, also_from_outer_addresses
from network.expect import expect
from network.sites import AES_GCM, setkey_text
from network.timeout import slowed
from planes import STAND_IN, PlaneSites, carried, counted_by_the_kernel, drops, ended, faults, states, words
from reload import by_signal

PACE = slowed(0.002)
ROUNDS = 3
# While one side has other keys than the other under the same SPI, and while an association is exchanged.
WHILE_KEYS_DIFFER = ("bad-icv", "replayed", "too-old", "no-sa", "acquire")
OTHER_KEYS = AES_GCM.replace("5a", "b7")


def texts(suite=AES_GCM, first=0x1001, more=("", "")):
    both = []
    for name, also in zip(("left", "right"), also_from_outer_addresses()):
        text = setkey_text(name, suite=suite) + also
        both.append(text.replace("0x1001", f"{first:#x}").replace("0x1002", f"{first + 1:#x}") + more[name == "right"])
    return both


def reloaded():
    """Other keys by SIGHUP, under traffic of every kind: nothing in clear; old associations are gone, new ones carry."""
    with PlaneSites("cg") as sites:
        clear = ClearTraffic(sites)
        clear.expect_all_pass()
        gateways = [sites.start(name, text) for name, text in zip(("left", "right"), texts())]
        clear.passed()
        expect(gateways[0].drops("policy-mismatch") > 0, "the control failed: what comes in clear is not counted")
        for turn in range(ROUNDS):
            first = 0x2001 + 16 * turn
            for gateway, text in zip(gateways, texts(OTHER_KEYS, first)):
                told = by_signal(gateway, text)
                expect("2 associations added" in told and "2 deleted" in told, told)
        passed = clear.passed(settle=1)
        clear.stop()
        expect(not any(passed.values()), f"in clear: {passed}")
        wire = sites.listen(sites.wire, "left")
        # Without the clear traffic nothing is counted any more.
        carried(sites, sites.pairs(), wire)
        counted_by_the_kernel(sites, ["esp"])
        for gateway in sites.on_kernel().values():
            spis = {state["spi"] for state in states(gateway.host)}
            expect(spis == {first, first + 1}, f"SPIs in the kernel: {sorted(map(hex, spis))}")


def reloaded_under_the_same_spis():
    """Other keys, the left side first: what one side sealed that the other cannot open is lost, and nothing else."""
    with PlaneSites("cg") as sites:
        gateways = sites.start_both(inner=(4,))
        expect(sites.ping() == 3, f"no ping through the tunnel: {words(sites)}")
        before = lost_by_reason(gateways)
        streams = [Stream(sites, back=back, pace=PACE) for back in (False, True)]
        for turn in range(ROUNDS):
            for gateway, name in zip(gateways, ("left", "right")):
                told = by_signal(gateway, setkey_text(name, inner=(4,), suite=AES_GCM.replace("5a", f"{turn + 1:02x}")))
                expect("2 associations added, 0 changed, 2 deleted" in told, told)
                time.sleep(slowed(0.1))
        sent, lost, _ = ended(streams)
        counted = sum(lost_by_reason(gateways)) - sum(before)
        expect(0 < lost == counted, f"of {sent} lost {lost}, {counted} of them by keys that differ: {words(sites)}")
        others = {key: count for key, count in faults(sites).items() if key[1] not in WHILE_KEYS_DIFFER}
        expect(not others, f"dropped for other reasons: {others}")
        at_rest(sites, gateways)
        return f"of {sent} datagrams lost {lost}, as many as were counted"


def lost_by_reason(gateways):
    return [drops(gateway).get(reason, 0) for gateway in gateways for reason in WHILE_KEYS_DIFFER]


def at_rest(sites, gateways):
    """Once both have the same keys nothing is lost or counted any more."""
    before = [drops(gateway) for gateway in gateways]
    streams = [Stream(sites, back=back, pace=PACE) for back in (False, True)]
    time.sleep(slowed(0.2))
    sent, lost, _ = ended(streams)
    after = [drops(gateway) for gateway in gateways]
    expect(sent > 50 and lost == 0, f"afterwards of {sent} lost {lost}: {words(sites)}")
    expect(before == after, f"drops before {before}, after {after}")


def policies_reloaded():
    """Policies more, `out`, `in` and the `fwd` beside it, then less: traffic that they name is protected, then in clear
    again as it was."""
    with PlaneSites("cg") as sites:
        wire = sites.listen(sites.wire, "left")
        four = [setkey_text(name, inner=(4,)) for name in ("left", "right")]
        gateways = [sites.start(name, text) for name, text in zip(("left", "right"), four)]
        expect(sites.ping(4) == 3 and sites.ping(6) == 3, f"the control failed: {words(sites)}")
        for gateway, name in zip(gateways, ("left", "right")):
            told = by_signal(gateway, setkey_text(name))
            expect("3 policies changed" in told, told)
        carried(sites, sites.pairs(), wire)
        stream = Stream(sites, pace=PACE)
        for gateway, text in zip(gateways, four):
            by_signal(gateway, text)
        sent, lost, _ = stream.finish()
        expect(lost == 0, f"of {sent} of another policy lost {lost}")
        expect(sites.ping(6) == 3, "what no policy names any more does not pass")


def replaced():
    """Another process takes the place of each gateway, under traffic of every kind."""
    with PlaneSites("cg") as sites:
        clear = ClearTraffic(sites)
        clear.expect_all_pass()
        gateways = [sites.start(name, text) for name, text in zip(("left", "right"), texts())]
        clear.passed()
        stream = Stream(sites, pace=PACE)
        for gateway in gateways * ROUNDS:
            gateway.replace()
            time.sleep(slowed(0.2))
        sent, lost, reordered = stream.finish()
        passed = clear.passed()
        clear.stop()
        expect(not any(passed.values()), f"in clear: {passed}")
        if not STAND_IN:
            expect((lost, reordered) == (0, 0), f"of {sent} lost {lost}, reordered {reordered}: {words(sites)}")
        for gateway in gateways:
            expect(gateway.drops("replayed") + gateway.drops("bad-icv") == 0, gateway.ask("drops"))
        return f"{2 * ROUNDS} restarts, {sent} datagrams, lost {lost}"


CASES = {
    "other keys by SIGHUP under traffic, nothing in clear": reloaded,
    "other keys under the same SPIs, lost is what the peer cannot open": reloaded_under_the_same_spis,
}
LONG = {
    "policies come and go by SIGHUP": policies_reloaded,
    "another process takes the place of each gateway under traffic": replaced,
}
