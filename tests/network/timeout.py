"""Time limits of tests: longer where $ESPLANADE_SLOWNESS says so, as for an emulated processor."""

import os

SLOWNESS = float(os.environ.get("ESPLANADE_SLOWNESS", "1"))


def slowed(seconds):
    return seconds * SLOWNESS
