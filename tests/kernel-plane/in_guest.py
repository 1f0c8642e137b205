"""The cases, in a guest whose kernel has ESP: `kernel-plane/in_guest.py [--all] [--plane user] [--part K/N] [WORD...]`."""

import argparse
import importlib
import os
import sys
import time
import traceback

HERE = os.path.dirname(os.path.abspath(__file__))
TESTS = os.path.dirname(HERE)
# This folder's modules go first.
sys.path[:0] = [HERE, os.path.join(TESTS, "end-to-end"), TESTS]

# The last of them takes modules out of the kernel.
MODULES = ["readme_tunnel", "shapes", "listed", "closed", "refusing", "ends", "keyed", "restarting", "devices",
           "changes", "samples", "moving", "moving_ike", "extensions", "choice"]


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
    arguments.add_argument("--plane", choices=["kernel", "user"], default="kernel")
    arguments.add_argument("--part", help=argparse.SUPPRESS)
    arguments.add_argument("words", nargs="*")


def chosen_cases(chosen):
    """Names and functions; of a part K/N each N-th, from K on."""
    every = [(name, case) for name, case in cases(chosen.all or chosen.words)
             if all(word in name for word in chosen.words)]
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
