#!/usr/bin/env python3
"""Which of the ciphers' kernels this processor could run in these tests, by what `esplanade speed` says of it.

A kernel that the processor has instructions for and that computed something wrong there is a failure. What the
processor lacks is named at the end of a run: a release must have been tested where it is there.
"""

import json
import os
import subprocess
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

from network.gateway import program  # noqa: E402


def main():
    machine = states()
    for name in machine["used"]:
        print(f"ok kernels for {name}")
    for name in machine["missing"]:
        print(f"not here kernels for {name}: processor-{name}")
    for name in machine["unproven"]:
        print(f"not ok kernels for {name}: they computed something wrong on this processor")
    for name in machine["switched_off"]:
        print(f"not ok kernels for {name}: switched off by MULTIBUFFER_WITHOUT")
    return 1 if machine["unproven"] or machine["switched_off"] else 0


def states():
    argv = [program(), "speed", "aes-128-gcm", "--size", "64", "--seconds", "0.01", "--json"]
    return json.loads(subprocess.run(argv, capture_output=True, text=True, check=True).stdout)["machine"]


if __name__ == "__main__":
    sys.exit(main())
