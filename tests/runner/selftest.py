#!/usr/bin/env python3
"""The runner itself: what it must not let through."""

import contextlib
import io
import os
import subprocess
import sys
import tempfile
import time

TESTS = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.path.insert(0, TESTS)

from runner.absent import Absences  # noqa: E402
from runner.suite import Suite, run_suite, run_suites  # noqa: E402

LISTED = [{"id": "proven", "why": "w", "probe": "true"}, {"id": "unproven", "why": "w", "probe": "false"}]


def tally(command, counts, limit=20, **more):
    suite = Suite("selftest", "sample", command, counts, limit, **more)
    with contextlib.redirect_stdout(io.StringIO()):
        found = run_suite(suite, Absences(LISTED))
    return found.passed, found.failed


def cargo(passed, failed, ignored, status=0):
    return tally(f"echo 'test result: x. {passed} passed; {failed} failed; {ignored} ignored; 0 measured'; "
                 f"exit {status}", "cargo")


def beside():
    """Two suites, each of which waits for the other one, and a third: run at a time, told in the order of the table."""
    meet = "touch {0}; until [ -e {1} ]; do sleep 0.05; done; echo ok {0}"
    commands = [meet.format("here", "there"), meet.format("there", "here"), "echo 'not ok third: why'"]
    suites = [Suite("selftest", f"beside-{number}", command, "lines", 20, beside=True)
              for number, command in enumerate(commands)]
    with contextlib.redirect_stdout(io.StringIO()) as shown:
        found = run_suites(suites, Absences(LISTED))
    blocks = shown.getvalue().split("==== ")[1:]
    are_whole = all(name in next(block for block in blocks if block.startswith(f"selftest: beside-{number}"))
                    for number, name in enumerate(["ok here", "ok there", "not ok third"]))
    return are_whole and [(t.passed, t.failed) for t in found] == [(1, 0), (1, 0), (0, 1)]


def ended_from_outside():
    """Suites that run at a time end when the runner is ended."""
    program = ("import os, signal, sys; sys.path.insert(0, sys.argv[1]); signal.signal(15, lambda *_: sys.exit(1))\n"
               "from runner.absent import Absences; from runner.suite import Suite, run_suites\n"
               "run_suites([Suite('selftest', f'hangs-{n}', f'echo $$ > pid-{n}; exec sleep 60', 'lines', 50, "
               "beside=True) for n in range(3)], Absences([]))")
    runner = subprocess.Popen([sys.executable, "-c", program, TESTS], stdout=subprocess.DEVNULL)
    while not all(os.path.exists(f"pid-{number}") for number in range(2)):
        time.sleep(0.05)
    time.sleep(0.2)
    runner.terminate()
    runner.wait(20)
    with open("pid-0") as first, open("pid-1") as second:
        gone = [not os.path.exists(f"/proc/{file.read().strip()}") for file in (first, second)]
    return all(gone) and not os.path.exists("pid-2")


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
    "suites beside each other run at a time, and each is counted and shown whole": beside,
    "suites beside each other are ended with the runner": ended_from_outside,
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
