"""The cases, in a guest whose kernel has ESP: `kernel-plane/in_guest.py [--all | --draw N] [--plane user] [--part K/N]
[WORD...]`."""

import argparse
import importlib
import os
import sys
import time
import traceback

HERE = os.path.dirname(os.path.abspath(__file__))
TESTS = os.path.dirname(HERE)
# This folder's modules go first.
sys.path[:0] = [HERE, os.path.join(TESTS, "end-to-end"), os.path.join(TESTS, "ikev2", "charon"), TESTS]

# The last of them takes modules out of the kernel.
MODULES = ["readme_tunnel", "shapes", "listed", "closed", "refusing", "ends", "keyed", "restarting", "devices",
           "changes", "samples", "moving", "moving_ike", "full_load", "behind_nat", "migrated", "with_charon",
           "extensions", "choice"]


# What each commit is judged by. Of the other cases of a choice each commit has a third, by its hash.
ALWAYS = {
    "README's tunnel, kernel and user",
    "README's tunnel by IKE, kernel and user",
    "an ESP tunnel with AH around it, kernel and user",
    "policies without associations let nothing pass",
    "restored under traffic, ip xfrm policy flush",
    "killed under traffic and started again, nothing is lost and numbers rise",
    "a change that the plane cannot carry out is refused as a whole",
    "what the kernel cannot carry is refused before anything changes",
    "IKE, from down to up to down, kernel and user",
    "a move leaves nothing behind on the plane that it leaves",
    "a move that the kernel cannot carry is refused by name",
    "moved there and back under traffic, from the kernel's plane",
    "moved with keys of IKE there and back under traffic, in UDP",
}


def main():
    arguments = argparse.ArgumentParser()
    options(arguments)
    chosen = arguments.parse_args()
    if chosen.plane == "user":
        os.environ["ESPLANADE_PLANES"] = "user"
    outcomes = [prove(name, case) for name, case in chosen_cases(chosen)]
    return 0 if outcomes and all(outcomes) else 1


def options(arguments):
    arguments.add_argument("--all", action="store_true", help="every case")
    arguments.add_argument("--draw", type=int, help=argparse.SUPPRESS)
    arguments.add_argument("--plane", choices=["kernel", "user"], default="kernel")
    arguments.add_argument("--part", help=argparse.SUPPRESS)
    arguments.add_argument("words", nargs="*")


def chosen_cases(chosen):
    """Names and functions; of a part K/N each N-th, from K on."""
    every = [(name, case) for name, case in cases(chosen.all or chosen.words)
             if all(word in name for word in chosen.words)]
    if not chosen.all and not chosen.words and chosen.draw is not None:
        drawn = [name for name, _ in every if name not in ALWAYS][chosen.draw % 3::3]
        every = [(name, case) for name, case in every if name in ALWAYS or name in drawn]
    number, count = map(int, (chosen.part or "0/1").split("/"))
    return every[number::count]


def cases(everything):
    for name in MODULES:
        module = importlib.import_module(name)
        yield from module.CASES.items()
        if everything:
            yield from module.LONG.items()


def prove(name, case):
    started = time.monotonic()
    try:
        said = case()
    except Exception as error:
        traceback.print_exc()
        print(f"not ok {name}: {type(error).__name__}: {' '.join(str(error).split())[:900]}", flush=True)
        return False
    print(f"ok {name}: {said + ', ' if said else ''}{time.monotonic() - started:.1f} s", flush=True)
    return True


if __name__ == "__main__":
    sys.exit(main())
