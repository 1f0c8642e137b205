#!/usr/bin/env python3
"""The runner itself: what it must not let through."""

import contextlib
import io
import os
import sys
import tempfile

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

from runner.absent import Absences  # noqa: E402
from runner.suite import Suite, run_suite  # noqa: E402

LISTED = [{"id": "proven", "why": "w", "probe": "true"}, {"id": "unproven", "why": "w", "probe": "false"}]


def tally(command, counts, limit=20, **more):
    suite = Suite("selftest", "sample", command, counts, limit, **more)
    with contextlib.redirect_stdout(io.StringIO()):
        found = run_suite(suite, Absences(LISTED))
    return found.passed, found.failed


def cargo(passed, failed, ignored, status=0):
    return tally(f"echo 'test result: x. {passed} passed; {failed} failed; {ignored} ignored; 0 measured'; "
                 f"exit {status}", "cargo")


CASES = {
    "lines are counted": lambda: tally("echo ok a; echo ok b; echo 'not ok c: why'", "lines") == (2, 1),
    "a suite without tests fails": lambda: tally("true", "lines") == (0, 1),
    "a bad exit status fails though every line is ok": lambda: tally("echo ok a; exit 3", "lines") == (1, 1),
    "a proven absence counts for nothing": lambda: tally("echo ok a; echo 'not here b: proven'", "lines") == (1, 0),
    "an absence without proof fails": lambda: tally("echo ok a; echo 'not here b: unproven'", "lines") == (1, 1),
    "an absence that is not listed fails": lambda: tally("echo ok a; echo 'not here b: other'", "lines") == (1, 1),
    "a suite whose tests are all left out fails": lambda: tally("echo 'not here b: proven'", "lines") == (0, 1),
    "cargo's sums are added": lambda: cargo(5, 2, 0, 101) == (5, 2),
    "an ignored cargo test fails": lambda: cargo(5, 0, 1) == (5, 1),
    "cargo that does not build fails": lambda: tally("echo error; exit 101", "cargo") == (0, 1),
    "an isolated suite sees no network but its own":
        lambda: tally("ip -brief link | wc -l | sed 's/^1$/ok a/'", "lines", isolated=True) == (1, 0),
    "a suite that cannot be prepared fails": lambda: tally("echo ok a", "lines", prepare="false") == (0, 1),
    "a command is one test": lambda: (tally("true", "exit"), tally("false", "exit")) == ((1, 0), (0, 1)),
    "a suite that hangs is stopped and fails": lambda: tally("echo ok a; sleep 60", "lines", limit=1) == (1, 1),
    "a child left behind is ended": lambda: tally("echo ok a; sleep 60 >/dev/null 2>&1 & echo ok b", "lines") == (2, 0),
}


def main():
    isolated = os.path.join(os.path.dirname(os.path.abspath(__file__)), "isolated")
    with tempfile.TemporaryDirectory() as folder:
        os.makedirs(f"{folder}/tests/runner")
        os.symlink(isolated, f"{folder}/tests/runner/isolated")
        os.chdir(folder)
        outcomes = [(name, check()) for name, check in CASES.items()]
    for name, good in outcomes:
        print(f"ok {name}" if good else f"not ok {name}: the tally is wrong")
    return 0 if all(good for _, good in outcomes) else 1


if __name__ == "__main__":
    sys.exit(main())
