"""Lifetimes and acquires of the kernel reach `events`, and traffic is closed afterwards."""

import time

from ike import config
from keyed import start
from lifetimes import limited
from live_change import Stream
from network.expect import expect
from network.sites import CLIENT, SERVER, Sites, setkey_text
from network.timeout import slowed
from planes import STAND_IN, PlaneSites, closed, on_planes, states, words
from policies import Events

LIMITS = {
    "bytes": "-bh 4000 -bs 1500",
    "packets": "-o hard-packets=12 -o soft-packets=5",
    "seconds": f"-lh {int(slowed(4))} -ls {int(slowed(2))}",
}
# A soft limit of a child SA, which IKE keeps by a rekey.
SOFT = {"packets": "packets = 300", "bytes": 'bytes = "60KB"'}
RENEWALS, PACE = 3, slowed(0.002)
RENEWED_LIMIT_SECONDS = slowed(20)
OF_LIVES = ("acquire", "sa-dying", "sa-expired", "sa-deleted")


def lives(sites, what):
    """The events of a gateway whose association reaches a limit, until after its end."""
    left = sites.start("left", limited(LIMITS[what]))
    sites.start("right", inner=(4,))
    events = Events(left)
    expect(sites.ping(count=2) == 2, f"no ping at first: {words(sites)}")
    deadline = time.monotonic() + slowed(12)
    while Sites.ping(sites, count=10) == 10:
        expect(time.monotonic() < deadline, f"it never ends: {words(sites)}")
    told = [events.wait(name, slowed(5), spi="0x00001001") for name in ("sa-dying", "sa-expired")]
    expect(told[0]["time"] <= told[1]["time"], f"the warning came after the end: {told}")
    return events


def ended(what):
    def test():
        with PlaneSites("en", right="user") as sites:
            lives(sites, what)
            left = sites.gateways["left"]
            expect("0x00001001" not in {sa["spi"] for sa in left.status()["associations"]}, "status still has it")
            expect("0x00001001" not in left.setkey_text("dump;"), "setkey -D still shows it")
            expect(0x1001 not in {state["spi"] for state in states(sites.left)}, "the kernel still has it")
            wire = sites.listen(sites.wire, "left")
            closed(sites, sites.pairs((4,)), wire)
    return test


def told_alike(what):
    """A gateway on either plane tells the same of an association's life and of what finds none afterwards, in the same
    order."""
    def test():
        if STAND_IN:
            return None
        user, kernel = (told_on(plane, what) for plane in ("user", "kernel"))
        expect(user == kernel, f"on the user plane {user}, on the kernel's {kernel}")
        return ", ".join(event["event"] for event in kernel)
    return test


def told_on(plane, what):
    """Each event once, without its time."""
    with PlaneSites("en", left=plane, right="user") as sites:
        events = lives(sites, what)
        expect(sites.ping(count=2) == 0, "pings come back after the end")
        events.wait("acquire", slowed(5))
        told = [{name: value for name, value in event.items() if name != "time"} for event in events.all()
                if event["event"] in OF_LIVES and event.get("spi") != "0x00007001"]
        return [event for place, event in enumerate(told) if event not in told[:place]]


def renewed(limit):
    """At a soft limit IKE renews the child SA, over and over, under traffic that loses nothing."""
    def of_planes(left, right):
        def test():
            with PlaneSites("en", left, right) as sites:
                other = start(sites, "right", text=config("right", 'start = "wait"'))
                gateway = start(sites, "left", text=config("left", f"rekey = {{ {SOFT[limit]} }}"))
                for each in (gateway, other):
                    each.wait("up")
                expect(sites.ping() == 3, f"no ping through the tunnel: {words(sites)}")
                return renewed_under_traffic(sites, Events(gateway))
        return test
    return of_planes


def renewed_under_traffic(sites, events):
    streams = [Stream(sites, back=back, pace=PACE) for back in (False, True)]
    deadline = time.monotonic() + RENEWALS * RENEWED_LIMIT_SECONDS
    while named(events, "rekeyed") < RENEWALS:
        expect(time.monotonic() < deadline, f"not renewed {RENEWALS} times: {events.all()}")
        time.sleep(0.2)
    sent, lost, _ = (sum(column) for column in zip(*(stream.finish() for stream in streams)))
    doubled = sum(stream.duplicated() for stream in streams)
    expect((lost, doubled) == (0, 0), f"of {sent} lost {lost}, twice {doubled}\n{words(sites)}")
    expect(named(events, "sa-dying") >= RENEWALS and not named(events, "sa-expired"), f"{events.all()}")
    return f"{named(events, 'rekeyed')} rekeys, {sent} datagrams, lost 0, twice 0"


def named(events, name):
    return sum(event["event"] == name for event in events.all())


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
LONG = {
    **{f"an association ends by {what}, told before and after": ended(what) for what in ("packets", "seconds")},
    **{f"an association ends by {what}, and both planes tell it alike": told_alike(what) for what in LIMITS},
    **on_planes({f"IKE, renewed at a soft limit in {limit} under traffic": renewed(limit) for limit in SOFT},
                ("kernel", "kernel"), ("kernel", "user")),
}
