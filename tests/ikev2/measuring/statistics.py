"""Medians and the intervals around them."""

import random
import statistics

DRAWS = 4000
SEED = 1


def median(values):
    return statistics.median(values)


def interval(values):
    """The 95 % interval of the median, by drawing from the values again and again."""
    chance = random.Random(SEED)
    drawn = sorted(statistics.median(chance.choices(values, k=len(values))) for _ in range(DRAWS))
    return drawn[int(DRAWS * 0.025)], drawn[int(DRAWS * 0.975)]


def told(values, form="{:.0f}"):
    low, high = interval(values)
    return f"{form.format(median(values))} ({form.format(low)} to {form.format(high)})"
