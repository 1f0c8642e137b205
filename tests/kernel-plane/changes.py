"""Changes of a running gateway on the kernel's plane: reloads, another process in its place, nothing in clear."""

import time

from live_change import Stream
from network.clear import ClearTraffic, also_from_outer_addresses
from network.expect import expect
from network.sites import AES_GCM, setkey_text
from network.timeout import slowed
from planes import STAND_IN, PlaneSites, carried, counted_by_the_kernel, states, words
from reload import by_signal

PACE = slowed(0.002)
ROUNDS = 3
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
        for turn in range(ROUNDS):
            first = 0x2001 + 16 * turn
            for gateway, text in zip(gateways, texts(OTHER_KEYS, first)):
                told = by_signal(gateway, text)
                expect("2 associations added" in told and "2 deleted" in told, told)
        passed = clear.passed(settle=1)
        clear.stop()
        expect(not any(passed.values()), f"in clear: {passed}")
        wire = sites.listen(sites.wire, "left")
        carried(sites, sites.pairs(), wire)
        counted_by_the_kernel(sites, ["esp"])
        for gateway in sites.on_kernel().values():
            spis = {state["spi"] for state in states(gateway.host)}
            expect(spis == {first, first + 1}, f"SPIs in the kernel: {sorted(map(hex, spis))}")


def policies_reloaded():
    """A policy more, then one less: traffic that it names is closed, then open, then in clear again as it was."""
    with PlaneSites("cg") as sites:
        wire = sites.listen(sites.wire, "left")
        four = [setkey_text(name, inner=(4,)) for name in ("left", "right")]
        gateways = [sites.start(name, text) for name, text in zip(("left", "right"), four)]
        expect(sites.ping(4) == 3 and sites.ping(6) == 3, f"the control failed: {words(sites)}")
        for gateway, name in zip(gateways, ("left", "right")):
            told = by_signal(gateway, setkey_text(name))
            expect("2 policies changed" in told, told)
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
}
LONG = {
    "policies come and go by SIGHUP": policies_reloaded,
    "another process takes the place of each gateway under traffic": replaced,
}
