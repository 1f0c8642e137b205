"""What is done with a tunnel that is up; after each step it must carry traffic as before."""

import time

from bench import COUNT, Flow
from network.expect import expect

EXCHANGE_TIMEOUT = 15


def until(condition, otherwise, seconds=EXCHANGE_TIMEOUT):
    deadline = time.monotonic() + seconds
    while not condition():
        expect(time.monotonic() < deadline, otherwise())
        time.sleep(0.1)


def current(bench, what):
    """What tells the SAs of now from those before and after them."""
    if what == "child":
        return {child["spi-in"] for child in bench.right.children()}
    return {ike["initiator-spi"] for ike in bench.right.associations()}


def rekey(bench, case, what, which):
    before = current(bench, what)
    with Flow(bench, case) as flow:
        getattr(bench, which).rekey(what)
        until(lambda: len(now := current(bench, what)) == 1 and not now & before,
              lambda: f"{what} SAs: {before}, then {current(bench, what)}")
    flow.expect_nothing_lost()


def delete(bench, case, which):
    """Deleted here, neither end has the tunnel and its traffic stays closed until it is asked for again. Deleted by
    charon, it is brought up again at once, for it was asked for here."""
    before = current(bench, "child")
    getattr(bench, which).terminate()
    if which == "left":
        until(lambda: not bench.left.is_up() and not bench.right.children(), lambda: "an end is still up")
        bench.tap.clear()
        came, clear = bench.out(case, timeout=0.5), len(bench.in_clear())
        expect(came == 0 and clear == 0, f"{came} datagrams passed, {clear} packets in clear")
        answer = bench.left.initiate()
        expect(answer is None, f"it does not come up again: {answer}")
    until(lambda: bench.left.is_up() and len(now := current(bench, "child")) == 1 and not now & before,
          lambda: f"children {before}, then {current(bench, 'child')}")


def restart(bench, case, which):
    """Killed and started again, it begins anew; the other end gives up what it had."""
    before = current(bench, "ike")
    end = getattr(bench, which)
    end.kill()
    end.start()
    if which == "right":
        end.load(case)
    answer = end.initiate()
    expect(answer is None, f"it does not come up again: {answer}")
    until(lambda: len(now := current(bench, "ike")) == 1 and not now & before and len(current(bench, "child")) == 1,
          lambda: f"IKE SAs {before}, then {current(bench, 'ike')}, children {current(bench, 'child')}")
    # An end goes on sending by the keys of before until it has received by the new ones.
    until(lambda: bench.back(case) == bench.out(case) == COUNT, lambda: "no traffic by the new keys")


STEPS = {"rekey": rekey, "delete": delete, "restart": restart}


def perform(bench, case, step):
    """A step is a name and its arguments: `rekey child left`."""
    name, *arguments = step.split()
    STEPS[name](bench, case, *arguments)
