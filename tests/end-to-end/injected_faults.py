"""Each write to the kernel's configuration is refused once: in a start, in a change, in a stop. Nothing passes in
clear.

A sample of the calls, another one in each commit; with ESPLANADE_EVERY_CALL=1 each call by each error.
"""

import os
import subprocess
import time

from network.clear import ClearTraffic, also_from_outer_addresses
from network.expect import expect
from network.gateway import GatewayError
from network.refuser import ERRORS, KILL, Refuser
from network.sample import commit, every
from network.sites import Sites, setkey_text

EVERY = os.environ.get("ESPLANADE_EVERY_CALL") == "1"
TIMEOUT_SECONDS = 10
TABLE = "nft list table inet esplanade"


def trials(calls, sample):
    """Numbers of calls, each with an error."""
    if EVERY:
        return [(call, error) for call in range(1, calls + 1) for error in ERRORS]
    return [(call, ERRORS[(call + commit()) % len(ERRORS)]) for call in every(calls, sample)]


class Refusing:
    """Two gateways, the left one on a host that refuses, with traffic of every kind around it."""

    def __init__(self, sites):
        self.sites, self.refuser = sites, Refuser()
        self.clear = ClearTraffic(sites)
        self.clear.expect_all_pass()
        left, right = also_from_outer_addresses()
        self.text = setkey_text("left") + left
        self.left = sites.start("left", self.text, wrap=self.refuser.wrap)
        sites.start("right", setkey_text("right") + right)
        self.goes()
        self.clear.passed()

    def nothing_passed(self, what, settle=0.05):
        passed = self.clear.passed(settle)
        expect(not any(passed.values()), f"in clear while {what}: {passed}\n{self.left.words()}")

    def goes(self):
        deadline = time.monotonic() + TIMEOUT_SECONDS
        while time.monotonic() < deadline:
            if self.sites.ping(4, count=1) == 1 and self.sites.ping(6, count=1) == 1:
                return
        raise AssertionError(f"no ping through the tunnel: {self.left.attempt('status')}\n{self.left.words()}")

    def close(self):
        self.clear.stop()
        self.refuser.close()


def refusing(test):
    def case():
        with Sites("if") as sites:
            situation = Refusing(sites)
            try:
                return test(situation)
            finally:
                situation.close()
    return case


def in_a_change(situation):
    left, refuser = situation.left, situation.refuser
    policies = [line for line in situation.text.splitlines() if line.startswith("spdadd")]
    more = ["spdadd 10.1.0.0/24 10.77.0.0/24 any -P out discard;", "spdadd fd00:1::/64 fd00:77::/64 any -P out none;"]
    texts = ["spdflush;\n" + "\n".join(lines) for lines in (more + policies[::-1], policies)]
    refuser.refuse(0)
    for text in texts:
        left.setkey_text(text)
    calls = refuser.counted() // 2
    expect(calls > 0, "the control failed: a change makes no call")
    refused = taken = 0
    for call, error in trials(calls, 24):
        refuser.refuse(call, error)
        try:
            left.setkey_text(texts[taken % 2])
            taken += 1
        except GatewayError:
            refused += 1
        refuser.refuse(0)
        situation.nothing_passed(f"call {call} of a change was refused by {error}")
    expect(refused > 0, "the control failed: no change was refused")
    situation.goes()
    left.setkey_text(texts[0])
    left.setkey_text(texts[1])
    situation.goes()
    situation.nothing_passed("all is well again")
    return f"{calls} calls a change, {refused} changes refused and {taken} taken, in clear 0"


def in_a_start(situation):
    """After a crash, whose rules still hold: a start that fails does not open what they close."""
    left, refuser = situation.left, situation.refuser

    def start():
        try:
            left.start().ready()
            return True
        except GatewayError:
            return False

    left.stop(KILL)
    refuser.refuse(0)
    expect(start(), f"the control failed: it does not start again:\n{left.words()}")
    calls = refuser.counted()
    expect(calls > 0, "the control failed: a start makes no call")
    failed = 0
    for call, error in trials(calls, 12):
        left.stop(KILL)
        refuser.refuse(call, error)
        failed += not start()
        situation.nothing_passed(f"call {call} of a start was refused by {error}")
    expect(failed > 0, "the control failed: no start was refused")
    left.stop(KILL)
    refuser.refuse(0)
    expect(start(), f"it does not start again:\n{left.words()}")
    situation.goes()
    situation.nothing_passed("all is well again")
    return f"{calls} calls a start, {failed} starts failed, in clear 0"


def in_a_stop(situation):
    """SIGTERM leaves the rules; `down` takes them away, and where that is refused, what is left still closes."""
    left, refuser, sites = situation.left, situation.refuser, situation.sites
    refuser.refuse(1)
    left.stop()
    situation.nothing_passed("it stopped")
    refuser.refuse(0)
    left.start().ready()
    refuser.refuse(0)
    left.ask("down")
    left.process.wait(TIMEOUT_SECONDS)
    calls = refuser.counted()
    expect(calls > 0, "the control failed: `down` makes no call")
    expect(any(situation.clear.passed().values()), "the control failed: nothing passes after `down`")
    kept = 0
    for call, error in trials(calls, 8):
        refuser.refuse(0)
        left.start().ready()
        situation.clear.passed()
        refuser.refuse(call, error)
        status, said = left.attempt("down")
        try:
            left.process.wait(TIMEOUT_SECONDS)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"call {call} refused by {error}, and it does not stop:\n{said}") from None
        if status != 0 and sites.left.attempt(TABLE)[0] == 0:
            kept += 1
            situation.nothing_passed(f"call {call} of `down` was refused by {error}")
        left.attempt("down")
        expect(sites.left.attempt(TABLE)[0] != 0, f"the second `down` left the table, after call {call}")
        left_over = sites.left.sh("tc qdisc")
        expect("clsact" not in left_over, f"the second `down` left filters, after call {call}: {left_over}")
    expect(kept > 0, "the control failed: no `down` was refused before its end")
    return f"{calls} calls a stop, {kept} refused before their end, in clear 0"


CASES = {
    "a change refused at any call lets nothing pass": refusing(in_a_change),
    "a start refused at any call opens nothing that was closed": refusing(in_a_start),
    "a stop refused at any call opens nothing by halves": refusing(in_a_stop),
}
