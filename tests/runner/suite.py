"""One suite: a command, its time limit and the way its tests are counted."""

import contextlib
import io
import itertools
import os
import re
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

# Suites that wait more than they compute run at a time, where the table says so. CI has two processors.
SUITES_AT_A_TIME = 2

LOGS = ".cache/logs"
TAIL = 120
# The processes that lead a suite now.
RUNNING = set()
# Set when this program is ended from outside: what starts now is stopped at once.
IS_ENDING = threading.Event()
# Held while a suite that ran beside others shows its lines.
SHOWING = threading.Lock()
GRACE = 10

CARGO_SUM = re.compile(r"^test result: \w+\. (\d+) passed; (\d+) failed; (\d+) ignored")
CARGO_FAILED = re.compile(r"^test (.+) \.\.\. FAILED$")
LINE = re.compile(r"^(ok|not ok|not here) ([^:]+?)(?:: (.*))?$")


@dataclass
class Suite:
    tier: str
    name: str
    command: str
    counts: str
    limit: int
    isolated: bool = False
    beside: bool = False
    prepare: str = "true"

    def argv(self):
        shell = ["bash", "-c", self.command]
        return ["tests/runner/isolated", *shell] if self.isolated else shell


@dataclass
class Tally:
    passed: int = 0
    failed: int = 0
    failures: list = field(default_factory=list)

    def fail(self, name):
        self.failed += 1
        self.failures.append(name)


def run_suites(suites, absences):
    """Runs the suites in the order of the table and returns their tallies in the same order. Neighbours that may run
    beside others do so; each shows its lines when it has ended."""
    tallies = []
    for beside, group in itertools.groupby(suites, key=lambda suite: suite.beside):
        tallies += run_beside(list(group), absences) if beside else [run_suite(suite, absences) for suite in group]
    return tallies


def run_beside(suites, absences):
    """Several at a time. Where this program is ended meanwhile, so are they."""
    pool = ThreadPoolExecutor(SUITES_AT_A_TIME)
    outcomes = [pool.submit(run_suite, suite, absences, shows_at_once=False) for suite in suites]
    try:
        return [outcome.result() for outcome in outcomes]
    except BaseException:
        IS_ENDING.set()
        pool.shutdown(wait=False, cancel_futures=True)
        for process in list(RUNNING):
            # One that has ended by itself meanwhile is no child any more.
            with contextlib.suppress(ChildProcessError):
                stop(process)
        raise
    finally:
        pool.shutdown()


def run_suite(suite, absences, shows_at_once=True):
    """Runs the suite, shows its lines (cargo's only if it failed) and returns its tally."""
    screen = sys.stdout if shows_at_once else io.StringIO()
    print(f"==== {suite.tier}: {suite.name}", file=screen, flush=True)
    started = time.monotonic()
    prepared = subprocess.run(["bash", "-c", suite.prepare], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
    lines, status = execute(suite, screen) if prepared.returncode == 0 else ([], f"{suite.prepare}: failed")
    tally = COUNTERS[suite.counts](suite, lines, status, absences)
    if status == "timeout":
        tally.fail(f"stopped after {suite.limit} s")
    if tally.passed + tally.failed == 0:
        tally.fail("ran no test at all")
    if tally.failed and suite.counts != "lines":
        print("".join(lines[-TAIL:]), end="", file=screen)
    seconds = time.monotonic() - started
    print(f"     {suite.name}: {tally.passed} passed, {tally.failed} failed in {seconds:.0f} s", file=screen, flush=True)
    if not shows_at_once:
        with SHOWING:
            print(screen.getvalue(), end="", flush=True)
    return tally


def execute(suite, screen):
    """All output lines and the exit status, or "timeout"; the output also goes to a log file."""
    os.makedirs(LOGS, exist_ok=True)
    process = subprocess.Popen(suite.argv(), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                               stderr=subprocess.STDOUT, text=True, errors="replace",
                               start_new_session=True)
    RUNNING.add(process)
    if IS_ENDING.is_set():
        stop(process)
    expired = threading.Event()
    timer = threading.Timer(suite.limit, lambda: (expired.set(), stop(process)))
    timer.start()
    try:
        lines = list(follow(suite, process.stdout, screen))
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
    finally:
        timer.cancel()
        timer.join()
        stop(process)
        RUNNING.discard(process)
        process.wait()
    return lines, "timeout" if expired.is_set() else process.returncode


def follow(suite, stream, screen):
    with open(f"{LOGS}/{suite.tier}-{suite.name}.log", "w") as log:
        for line in stream:
            log.write(line)
            if suite.counts == "lines":
                screen.write(line)
                screen.flush()
            yield line


def stop(process):
    """Ends what the suite left running, first by asking so that it can clean up. It leads a group of
    its own, whose number cannot have been given away: the leader is reaped only afterwards."""
    if os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT | os.WNOHANG) is None:
        os.killpg(process.pid, signal.SIGTERM)
        wait_for_end(process, GRACE)
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass


def wait_for_end(process, seconds):
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT | os.WNOHANG) is not None:
            return
        time.sleep(0.05)


def count_exit(suite, _lines, status, _absences):
    tally = Tally()
    if status == 0:
        tally.passed = 1
    elif status != "timeout":
        tally.fail(f"{suite.command}: exit status {status}")
    return tally


def count_cargo(suite, lines, status, _absences):
    tally = Tally()
    for line in lines:
        if found := CARGO_SUM.match(line):
            passed, failed, ignored = map(int, found.groups())
            tally.passed += passed
            tally.failed += failed + ignored
            if ignored:
                tally.failures.append(f"{ignored} tests are ignored")
        elif found := CARGO_FAILED.match(line):
            tally.failures.append(found[1])
    if status not in (0, "timeout") and not tally.failed:
        tally.fail(f"{suite.command}: exit status {status}")
    return tally


def count_lines(suite, lines, status, absences):
    tally = Tally()
    for line in lines:
        if not (found := LINE.match(line.rstrip("\n"))):
            continue
        verdict, name, detail = found.groups()
        if verdict == "ok":
            tally.passed += 1
        elif verdict == "not ok":
            tally.fail(f"{name}: {detail or 'no reason given'}")
        elif wrong := absences.excuses(name, detail):
            tally.fail(f"{name}: {wrong}")
    if status not in (0, "timeout") and not tally.failed:
        tally.fail(f"{suite.command}: exit status {status}")
    return tally


COUNTERS = {"exit": count_exit, "cargo": count_cargo, "lines": count_lines}
