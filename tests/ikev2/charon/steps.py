"""What is done with a tunnel that is up; after each step it must carry traffic as before."""

import threading
import time

from bench import until
from dissected import dissected
from network.expect import expect
from network.holding_back import IKE_AUTH, held_back
from network.timeout import slowed

# Seconds for an exchange of SAs, for a collision to settle, and for a dead peer to be noticed.
EXCHANGE_TIMEOUT, SETTLE_TIMEOUT, DEAD_TIMEOUT = slowed(6), slowed(12), slowed(30)
# Seconds without a change of child SAs after which none is expected any more.
STEADY_SECONDS = slowed(3)
# Seconds that a flow of datagrams lasts while SAs are exchanged, while one of two IKE SAs goes, and while another
# process takes the place of an end.
FLOW_SECONDS, BEGINNING_SECONDS, REPLACED_SECONDS = 1.5, 5, 5
# What may be lost of it then.
REPLACED_LOSS_SHARE = 0.05
# How often both ends begin at the same moment; after so long the left end waits for an answer to IKE_AUTH.
BEGINNINGS, BEGINNING_GAP_SECONDS = 4, 0.3


class Flow:
    """Datagrams in both directions and back while something is done."""

    def __init__(self, bench, seconds=FLOW_SECONDS):
        self.came, self.interval = {}, bench.left.flow_interval
        self.count = round(slowed(seconds) / self.interval)
        self.threads = [threading.Thread(target=self.run, args=(bench, way)) for way in ("out", "in")]

    def run(self, bench, way):
        self.came[way] = bench.echoed(way, self.count, self.interval)

    def __enter__(self):
        for thread in self.threads:
            thread.start()
        time.sleep(0.3)
        return self

    def __exit__(self, *_):
        for thread in self.threads:
            thread.join()

    def lost(self):
        return {way: f"{self.count - came} of {self.count}" for way, came in self.came.items() if came != self.count}

    def lost_share(self):
        return max(self.count - came for came in self.came.values()) / self.count


def spis(bench):
    return {child["spi-in"] for child in bench.right.children()}


def ike_spis(bench):
    return {ike["initiator-spi"] for ike in bench.right.associations()}


def established(bench):
    """Without those that are on the way."""
    return {ike["initiator-spi"] for ike in bench.right.associations() if ike["state"] == "ESTABLISHED"}


CURRENT = {"child": spis, "ike": ike_spis}


def exchanged(bench, what, before):
    """One new SA and none of those of before."""
    now = CURRENT[what](bench)
    return len(now) == 1 and not now & before


def rekey(bench, case, what, which):
    before = CURRENT[what](bench)
    with Flow(bench) as flow:
        bench.end(which).rekey(what)
        until(lambda: exchanged(bench, what, before), lambda: f"{what} SAs: {before}, then {CURRENT[what](bench)}",
              EXCHANGE_TIMEOUT)
    expect(not flow.lost(), f"lost during the exchange: {flow.lost()}")
    if what == "child":
        child, = bench.right.children()
        wrong = bench.child_differences(case, child)
        expect(not wrong, f"the new child SA: {wrong}")


def collide(bench, case, what):
    """Both ends begin at the same moment; one SA must be left, and no packet lost."""
    before = CURRENT[what](bench)
    with Flow(bench) as flow:
        threads = [threading.Thread(target=bench.end(which).rekey, args=(what,)) for which in ("left", "right")]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        until(lambda: exchanged(bench, what, before), lambda: f"{what} SAs: {before}, then {CURRENT[what](bench)}",
              SETTLE_TIMEOUT)
    expect(not flow.lost(), f"lost during the collision: {flow.lost()}")


def restart(bench, case, which):
    """Killed and started again, it begins anew; the other end gives up what it had."""
    before = ike_spis(bench)
    end = bench.end(which)
    end.kill()
    end.start()
    answer = end.initiate(case.childless)
    expect(answer is None, f"it does not come up again: {answer}")
    until(lambda: exchanged(bench, "ike", before) and len(spis(bench)) == 1,
          lambda: f"IKE SAs {before}, then {ike_spis(bench)} with children {spis(bench)}", EXCHANGE_TIMEOUT)
    # An end goes on sending by the keys of before until it has received by the new ones, or for 2 s.
    until(lambda: all(bench.echoed(way, 1, patience=0.5) == 1 for way in ("in", "out")), "no traffic by the new keys",
          EXCHANGE_TIMEOUT)


def replace(bench, case):
    """Another process takes the place of the left end: the child SA carries on, and the new process begins, though it
    is configured to wait. Charon, which has no reason to, would give its IKE SA up when the next request is not
    answered. By INITIAL_CONTACT it drops the old child SA before it has a new one: what is on the way then is lost."""
    before = ike_spis(bench)
    with Flow(bench, REPLACED_SECONDS) as flow:
        bench.left.replace()
        until(lambda: exchanged(bench, "ike", before) and len(spis(bench)) == len(bench.left.children()) == 1,
              lambda: f"IKE SAs {before}, then {ike_spis(bench)}, left end {bench.left.children()}", SETTLE_TIMEOUT)
    expect(flow.lost_share() <= REPLACED_LOSS_SHARE, f"lost meanwhile: {flow.lost()}")


def silence(bench, case):
    """The wire is cut: both ends notice that the peer is gone, and come up again when it is joined."""
    before = ike_spis(bench)
    bench.sites.wire.sh("ip link set right nomaster")
    try:
        until(lambda: not bench.left.is_up() and not bench.right.is_up(),
              lambda: f"still up: left {bench.left.is_up()}, right {bench.right.is_up()}", DEAD_TIMEOUT)
    finally:
        bench.sites.wire.sh("ip link set right master br0")
    until(lambda: bench.left.is_up() and bench.right.is_up() and not ike_spis(bench) & before,
          "it does not come up again", DEAD_TIMEOUT)
    until(lambda: bench.echoed("out", 1, patience=0.5) == 1, "no traffic", DEAD_TIMEOUT)
    # Both may have begun; what is too much goes.
    settle(bench)


def begin(bench, case):
    """Both ends begin at the same moment, again and again. The left end's IKE_AUTH request is kept back until the right
    end's IKE SA is up. Charon drops that one without a Delete when the request comes, by its INITIAL_CONTACT."""
    dropped = 0
    for number in range(BEGINNINGS):
        bench.left.terminate()
        until(lambda: not bench.left.is_up() and not bench.right.is_up(), "an end is still up", EXCHANGE_TIMEOUT)
        beginning = threading.Thread(target=bench.left.initiate)
        with held_back(bench.sites.left, IKE_AUTH):
            beginning.start()
            time.sleep(BEGINNING_GAP_SECONDS)
            answer = bench.right.initiate()
            expect(answer is None, f"beginning {number}: {answer}")
            before = established(bench)
        beginning.join()
        until(lambda: established(bench) - before, "the left end's IKE SA does not come up", DEAD_TIMEOUT)
        dropped += not before & established(bench)
        with Flow(bench, BEGINNING_SECONDS) as flow:
            pass
        expect(not flow.lost(), f"lost after beginning {number}: {flow.lost()}")
        # The one that charon has dropped is dead to the left end after some time, and goes.
        until(lambda: len(bench.left.children()) == len(bench.right.children()) == 1, "two pairs are left",
              DEAD_TIMEOUT)
    expect(dropped, "charon has dropped none of its IKE SAs")


def settle(bench):
    """Waits until child SAs have neither come nor gone for a while."""
    present, since, begun = spis(bench), time.monotonic(), time.monotonic()
    while time.monotonic() - since < STEADY_SECONDS:
        expect(time.monotonic() - begun < DEAD_TIMEOUT, "child SAs come and go")
        time.sleep(0.1)
        if (now := spis(bench)) != present:
            present, since = now, time.monotonic()


def delete(bench, case, which):
    """One end deletes the tunnel, the other end has none either, and a new one comes up."""
    bench.end(which).terminate()
    until(lambda: not bench.left.is_up() and not bench.right.is_up(), "an end is still up", EXCHANGE_TIMEOUT)
    if bench.left.fails_closed:
        bench.tap.clear()
        bench.echoed("out", patience=0.3)
        clear = bench.in_clear()
        expect(not clear, f"{len(clear)} frames in clear without a tunnel")
    answer = bench.end(which).initiate(case.childless)
    expect(answer is None, f"it does not come up again: {answer}")


def fragmented(bench, case):
    """Both ends must have sent encrypted fragments."""
    counts = bench.fragments
    expect(all(count >= 2 for count in counts.values()), f"encrypted fragments: {counts}")


def narrowed(bench, case):
    child, = bench.right.children()
    found = child["local-ts"], child["remote-ts"]
    expect(found == (["10.2.0.0/24"], ["10.1.0.0/24"]), f"the selectors are {found}")


STEPS = {"begin": begin, "rekey": rekey, "collide": collide, "replace": replace, "restart": restart,
         "silence": silence, "delete": delete, "fragmented": fragmented, "narrowed": narrowed, "dissected": dissected}


def perform(bench, case, step):
    """A step is a name and its arguments: `rekey child left`."""
    name, *arguments = step.split()
    STEPS[name](bench, case, *arguments)
