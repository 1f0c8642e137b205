#!/usr/bin/env python3
"""docs/interop.md has what is judged: every cell of its tables, a reason for what is left out, every case by hand."""

import os
import re
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)

from case import load_cases  # noqa: E402
from combination import CIPHERS, INTEGRITY, LEFT_OUT, NONE, combinations  # noqa: E402
from report import COLUMNS  # noqa: E402

PAGE = os.path.join(HERE, "../../docs/interop.md")
ROWS = {"cipher": [*CIPHERS, NONE], "integrity": [*INTEGRITY, NONE]}
EVERY = combinations()


def table(page, name):
    """The cells of a table by the first word of their rows; without its heads."""
    block = re.search(rf"^{name} .*?(?=\n\n|\n```)", page, re.MULTILINE | re.DOTALL)
    lines = block[0].splitlines()[1:] if block else []
    return {line.split()[0]: line.split()[1:] for line in lines}


def expected(name, value):
    """All three pairs of ends judge the same combinations; a value that has none with another one is a dot."""
    cells = []
    for factor, wanted in ((factor, each) for factor, values in COLUMNS.items() for each in values):
        count = sum(1 for each in EVERY if getattr(each, name) == value and getattr(each, factor) == wanted)
        cells.append("/".join([str(count)] * 3) if count else ".")
    return cells


def every_cell_of_the_tables_is_what_is_judged(page):
    return all(table(page, name) == {"none" if value == NONE else value: expected(name, value) for value in values}
               for name, values in ROWS.items())


def every_rule_has_its_reason_on_the_page(page):
    text = " ".join(page.split())
    return all(why[1:] in text for _, _, why in LEFT_OUT)


def every_case_by_hand_is_on_the_page_and_holds(page):
    return all(f"| {case.name} | holds | holds |" in page for case in load_cases())


def what_is_missing_is_noticed(page):
    """What this test could not see it would not prove."""
    holes = [(every_cell_of_the_tables_is_what_is_judged, re.compile(r"\d+/\d+/\d+")),
             (every_rule_has_its_reason_on_the_page, re.compile("RFC 3948 is for ESP")),
             (every_case_by_hand_is_on_the_page_and_holds, re.compile("holds"))]
    return all(not check(hole.sub(".", page, count=1)) for check, hole in holes)


def main():
    with open(PAGE) as file:
        page = file.read()
    tests = [every_cell_of_the_tables_is_what_is_judged, every_rule_has_its_reason_on_the_page,
             every_case_by_hand_is_on_the_page_and_holds, what_is_missing_is_noticed]
    outcomes = [(test.__name__.replace("_", " "), test(page)) for test in tests]
    for name, good in outcomes:
        print(f"ok {name}" if good else f"not ok {name}: it does not hold; write the page anew: "
              "tests/interop/run --write docs/interop.md")
    return 0 if all(good for _, good in outcomes) else 1


if __name__ == "__main__":
    sys.exit(main())
