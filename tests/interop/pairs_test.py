#!/usr/bin/env python3
"""The pairwise cover itself: every pair of values that can stand together does so in some case."""

import itertools
import os
import random
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

import combination  # noqa: E402
from pairs import Rules, cover  # noqa: E402


def brute_force(rules):
    """The legal pairs once more, from all whole cases."""
    pairs = set()
    for values in itertools.product(*rules.factors.values()):
        case = dict(zip(rules.factors, values))
        if all(holds(*(case[name] for name in names)) for names, holds in rules.rules):
            pairs.update(itertools.combinations(case.items(), 2))
    return pairs


def covered(rules, cases):
    return {pair for case in cases
            for pair in itertools.combinations(((name, case[name]) for name in rules.factors), 2)}


def a_random_table(dice):
    factors = {name: list(range(dice.randint(2, 6))) for name in "abcdef"[:dice.randint(3, 6)]}
    rules = []
    for _ in range(dice.randint(0, 4)):
        names = dice.sample(list(factors), dice.randint(2, 3))
        forbidden = tuple(dice.choice(factors[name]) for name in names)
        rules.append((names, lambda *values, forbidden=forbidden: values != forbidden))
    return Rules(factors, rules)


def random_tables_are_covered():
    dice = random.Random(1)
    for _ in range(30):
        rules = a_random_table(dice)
        if covered(rules, cover(rules, 7)) != brute_force(rules):
            return False
    return True


def nothing_illegal_is_in_the_list():
    return all(combination.RULES.allow(case) for case in THE_LIST)


def the_list_covers_every_legal_pair():
    return covered(combination.RULES, THE_LIST) == brute_force(combination.RULES)


def the_same_seed_gives_the_same_list():
    return cover(combination.RULES, combination.SEED) == THE_LIST


def every_algorithm_is_in_the_list():
    used = {case[name] for case in THE_LIST for name in ("cipher", "integrity")}
    return used >= {*combination.CIPHERS, *combination.INTEGRITY}


def a_pair_that_is_taken_away_is_missed():
    """What this test could not see it would not prove."""
    cases = [case for case in THE_LIST if (case["cipher"], case["window"]) != ("des", 0)]
    return covered(combination.RULES, cases) != brute_force(combination.RULES)


THE_LIST = cover(combination.RULES, combination.SEED)


def main():
    tests = [random_tables_are_covered, nothing_illegal_is_in_the_list, the_list_covers_every_legal_pair,
             the_same_seed_gives_the_same_list, every_algorithm_is_in_the_list, a_pair_that_is_taken_away_is_missed]
    outcomes = [(test.__name__.replace("_", " "), test()) for test in tests]
    for name, good in outcomes:
        print(f"ok {name}" if good else f"not ok {name}: it does not hold")
    return 0 if all(good for _, good in outcomes) else 1


if __name__ == "__main__":
    sys.exit(main())
