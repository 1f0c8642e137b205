#!/usr/bin/env python3
"""The runner of `make deep` itself, on slices that cost nothing: what counts as passed, and what is not run again."""

import contextlib
import importlib.machinery
import importlib.util
import io
import os
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [HERE, os.path.dirname(HERE)]

import mutants  # noqa: E402
import parts  # noqa: E402

TESTS = "echo 'test result: ok. {} passed; {} failed; 0 ignored'"


def runner():
    loader = importlib.machinery.SourceFileLoader("deep_run", os.path.join(HERE, "run"))
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader("deep_run", loader))
    loader.exec_module(module)
    module.PLACE = "."
    module.RECORDS = "outcomes.jsonl"
    module.revision = lambda: "commit"
    return module


def passes(command, judge, limit=20, missing=""):
    run = runner()
    with contextlib.redirect_stdout(io.StringIO()):
        run.run_all([parts.Slice("part", "slice", command, limit, judge, missing)], False)
    return run.records()[-1]["passed"]


def runs_again(first):
    """Whether a slice whose first outcome is this one is run again with --resume."""
    run, mark = runner(), "again"
    slices = [parts.Slice("part", "resumed", command, 20, parts.by_status) for command in (first, f"touch {mark}")]
    with contextlib.redirect_stdout(io.StringIO()):
        run.run_all(slices[:1], False)
        run.run_all(slices[1:], True)
    there = os.path.exists(mark)
    with contextlib.suppress(FileNotFoundError):
        os.remove(mark)
    os.remove(run.RECORDS)
    return there


def on_unstable(*outcomes, is_unstable=True):
    """The last verdict of a slice that was run on these releases; each with whether it passed. None: no package."""
    run = runner()
    with contextlib.redirect_stdout(io.StringIO()):
        for release, good in outcomes:
            said = f"guest (unstable) up after 9.1 s: {release}" if release else "none of [...] is in the package index"
            command = f"echo '{said}'; echo {'ok a' if good else 'not ok a'}; exit {0 if good else 1}"
            run.run_all([parts.Slice("part", "news", command, 20, parts.by_lines, is_unstable=is_unstable)], False)
    row = run.records()[-1]
    os.remove(run.RECORDS)
    return "passed" if row["passed"] else "new" if row["new"] else "failed"


def judged(caught, missed, explained=()):
    folder = "mutants/slice/mutants.out"
    os.makedirs(folder, exist_ok=True)
    for name, lines in (("caught", caught), ("missed", missed)):
        with open(f"{folder}/{name}.txt", "w") as file:
            file.write("".join(f"{line}\n" for line in lines))
    mutants.survivors = lambda: dict.fromkeys(explained, "why")
    return mutants.judge(".", "slice")(2 if missed else 0, [])[0]


CASES = {
    "lines that are all ok pass": lambda: passes("echo ok a; echo ok b", parts.by_lines),
    "one line that is not ok fails": lambda: not passes("echo ok a; echo not ok b", parts.by_lines),
    "no lines fail": lambda: not passes("true", parts.by_lines),
    "a bad exit status fails though all lines are ok": lambda: not passes("echo ok a; exit 3", parts.by_lines),
    "tests of cargo pass": lambda: passes(TESTS.format(3, 0), parts.by_cargo),
    "a failed test of cargo fails": lambda: not passes(TESTS.format(3, 1), parts.by_cargo),
    "no tests of cargo fail": lambda: not passes(TESTS.format(0, 0), parts.by_cargo),
    "a slice that hangs is stopped and fails": lambda: not passes("sleep 60", parts.by_status, limit=1),
    "a slice that cannot be here fails": lambda: not passes("true", parts.by_status, missing="it is not there"),
    "what has passed at this commit is not run again": lambda: not runs_again("true"),
    "what has failed is run again": lambda: runs_again("false"),
    "what a new kernel fails and its predecessor passed is new":
        lambda: on_unstable(("7.2", True), ("7.3", False)) == "new",
    "what it fails again is failed": lambda: on_unstable(("7.2", True), ("7.3", False), ("7.3", False)) == "failed",
    "what the same kernel passed before is failed": lambda: on_unstable(("7.2", True), ("7.2", False)) == "failed",
    "what never passed is failed": lambda: on_unstable(("7.2", False), ("7.3", False)) == "failed",
    "a kernel without a package is new": lambda: on_unstable((None, False)) == "new",
    "a release that does not change has no news":
        lambda: on_unstable(("6.1", True), ("6.2", False), is_unstable=False) == "failed",
    "mutants that were all caught pass": lambda: judged(["a.rs:1:2: x"], []),
    "no mutants fail": lambda: not judged([], []),
    "a survivor fails": lambda: not judged(["a.rs:1:2: x"], ["a.rs:3:4: y"]),
    "a survivor that is explained passes, wherever it stands": lambda: judged(["a.rs:1:2: x"], ["a.rs:3:4: y"], ["a.rs: y"]),
    "every part has slices of different names": lambda: every_part_has_slices(),
}


def every_part_has_slices():
    os.chdir(os.path.dirname(os.path.dirname(HERE)))
    plan = parts.Plan("place", 1, 1)
    names = [(each.part, each.name) for part in parts.PARTS.values() for each in part(plan)]
    return len(set(names)) == len(names) and {part for part, _ in names} == set(parts.PARTS)


def main():
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        os.makedirs("logs")
        outcomes = [(name, check()) for name, check in CASES.items()]
    for name, good in outcomes:
        print(f"ok {name}" if good else f"not ok {name}: the outcome is wrong")
    return 0 if all(good for _, good in outcomes) else 1


if __name__ == "__main__":
    sys.exit(main())
