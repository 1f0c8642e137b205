"""Lifetimes and acquires of the kernel reach `events`, and traffic is closed afterwards."""

import time

from lifetimes import limited
from network.expect import expect
from network.sites import CLIENT, SERVER, Sites, setkey_text
from network.timeout import slowed
from planes import PlaneSites, closed, states, words
from policies import Events

LIMITS = {
    "bytes": "-bh 4000 -bs 1500",
    "packets": "-o hard-packets=12 -o soft-packets=5",
    "seconds": f"-lh {int(slowed(4))} -ls {int(slowed(2))}",
}


def ended(what):
    def test():
        with PlaneSites("en", right="user") as sites:
            left = sites.start("left", limited(LIMITS[what]))
            sites.start("right", inner=(4,))
            events = Events(left)
            expect(sites.ping(count=2) == 2, f"no ping at first: {words(sites)}")
            deadline = time.monotonic() + slowed(12)
            while Sites.ping(sites, count=10) == 10:
                expect(time.monotonic() < deadline, f"it never ends: {words(sites)}")
            told = [events.wait(name, slowed(5), spi="0x00001001") for name in ("sa-dying", "sa-expired")]
            expect(told[0]["time"] <= told[1]["time"], f"the warning came after the end: {told}")
            expect("0x00001001" not in {sa["spi"] for sa in left.status()["associations"]}, "status still has it")
            expect("0x00001001" not in left.setkey_text("dump;"), "setkey -D still shows it")
            expect(0x1001 not in {state["spi"] for state in states(sites.left)}, "the kernel still has it")
            wire = sites.listen(sites.wire, "left")
            closed(sites, sites.pairs((4,)), wire)
    return test


def acquired():
    with PlaneSites("en") as sites:
        text = "".join(line + "\n" for line in setkey_text("left", inner=(4,)).splitlines() if line.startswith("spdadd"))
        left = sites.start("left", text)
        events = Events(left)
        expect(sites.ping(count=1) == 0, "the control failed: a ping came back")
        told = events.wait("acquire", slowed(5))
        expect((told["source"], told["destination"]) == (CLIENT[4], SERVER[4]), f"{told}")
        sites.start("right", inner=(4,))
        left.setkey_text("".join(line + "\n" for line in setkey_text("left").splitlines() if line.startswith("add")))
        deadline = time.monotonic() + slowed(5)
        while sites.ping(count=1) != 1:
            expect(time.monotonic() < deadline, f"no ping once there are associations: {words(sites)}")


CASES = {
    **{f"an association ends by {what}, told before and after": ended(what) for what in ("bytes",)},
    "traffic without an association is told": acquired,
}
LONG = {f"an association ends by {what}, told before and after": ended(what) for what in ("packets", "seconds")}
