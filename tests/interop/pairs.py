"""A small list of cases in which every two values that can stand together do so at least once.

Greedy: each case starts from a pair not seen yet and takes, factor by factor, the value that brings
the most new pairs; of several such cases the best is kept. The same seed gives the same list.
"""

import itertools
import random

CANDIDATES = 12


class Rules:
    """What may not stand together: tests over a few named factors each, asked once all of them are chosen."""

    def __init__(self, factors, rules):
        self.factors = factors
        self.rules = rules

    def allow(self, chosen):
        return all(holds(*(chosen[name] for name in names)) for names, holds in self.rules
                   if all(name in chosen for name in names))

    def complete(self, chosen):
        """Some whole case that contains this choice, or None."""
        if not self.allow(chosen):
            return None
        missing = [name for name in self.factors if name not in chosen]
        if not missing:
            return chosen
        # The factor of the fewest values first: it shows soonest that there is no way on.
        name = min(missing, key=lambda each: len(self.factors[each]))
        found = (self.complete({**chosen, name: value}) for value in self.factors[name])
        return next(filter(None, found), None)


def legal_pairs(rules):
    """Every pair of values of two factors that some whole case contains, as ((factor, value), (factor, value))."""
    pairs = set()
    for (one, ones), (two, twos) in itertools.combinations(rules.factors.items(), 2):
        for a, b in itertools.product(ones, twos):
            if rules.complete({one: a, two: b}):
                pairs.add(((one, a), (two, b)))
    return pairs


def pairs_of(case, factors):
    return set(itertools.combinations([(name, case[name]) for name in factors if name in case], 2))


def cover(rules, seed):
    """The list, as one dictionary for each case."""
    dice = random.Random(seed)
    order = list(rules.factors)
    # Sorted: the order of a set differs from run to run.
    waiting = dict.fromkeys(sorted(legal_pairs(rules), key=repr))
    cases = []
    while waiting:
        first = next(iter(waiting))
        best = max((candidate(rules, dict(first), waiting, dice) for _ in range(CANDIDATES)),
                   key=lambda case: len(pairs_of(case, order) & waiting.keys()))
        cases.append({name: best[name] for name in order})
        for pair in pairs_of(best, order):
            waiting.pop(pair, None)
    return cases


def candidate(rules, case, waiting, dice):
    """A whole case around a choice, filled in an order that the dice make."""
    missing = [name for name in rules.factors if name not in case]
    dice.shuffle(missing)
    for name in missing:
        values = list(rules.factors[name])
        dice.shuffle(values)
        values.sort(key=lambda value: -gain(rules, case, name, value, waiting))
        case[name] = next(value for value in values if rules.complete({**case, name: value}))
    return case


def gain(rules, case, name, value, waiting):
    """How many pairs not seen yet this value would bring."""
    trial = {**case, name: value}
    return len(pairs_of(trial, rules.factors) & waiting.keys()) - len(pairs_of(case, rules.factors) & waiting.keys())
