#!/usr/bin/env python3
"""Words and paths that have no place in the repository, searched in every tracked text file."""

import re
import subprocess
import sys

# A bracket in each word keeps this table from matching itself.
FORBIDDEN = [
    (r"(?<![\w.])/[w]ork/|/[h]ome/\w|/[r]oot/\.", "a path of one machine; make it relative or a parameter"),
    (r"\b[T]ODO\b|\b[F]IXME\b|\bX[X]X\b", "promised work; do it or describe the gap in docs/status.md"),
    (r"#\[[i]gnore", "a test that never runs; make it run or list it in tests/not-here.toml"),
    (r"(?i)(?<!`)\b[h]elpers?\b", "says nothing; name what the thing does"),
    (r"(?i)\bsub[-]?[a]gents?\b", "not a word of this project's glossary"),
    (r"(?i)\b[a]nthropic\b|\b[c]laude\b|\bopen[a]i\b", "credits go to people and sources of facts"),
]
FOLDER_NAMES = re.compile(r"(^|/)(utils?|common|core|types|[h]elpers?|misc)(\.rs|/)|(^|/)mod\.rs$")
# Text that others wrote, kept byte for byte.
FOREIGN = re.compile(r"(^|/)(vectors|corpora|corpus)/|^Cargo\.lock$|^LICENSE|^fuzz/Cargo\.lock$")


def main():
    tracked = subprocess.run(["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
                             capture_output=True, check=True, text=True).stdout.split("\0")
    complaints = [c for path in tracked if path and not FOREIGN.search(path) for c in complaints_about(path)]
    print("\n".join(complaints) if complaints else f"{len(tracked)} files are clean")
    return 1 if complaints else 0


def complaints_about(path):
    if FOLDER_NAMES.search(path):
        yield f"{path}: a name that shows that a module is missing"
    try:
        with open(path, encoding="utf-8") as file:
            lines = file.read().splitlines()
    except (UnicodeDecodeError, FileNotFoundError, IsADirectoryError):
        return
    for number, line in enumerate(lines, 1):
        for pattern, why in FORBIDDEN:
            if found := re.search(pattern, line):
                yield f"{path}:{number}: '{found[0]}': {why}"


if __name__ == "__main__":
    sys.exit(main())
