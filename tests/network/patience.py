"""How long tests wait for what has to come: longer where $ESPLANADE_SLOWNESS says so, as for an emulated processor."""

import os

SLOWNESS = float(os.environ.get("ESPLANADE_SLOWNESS", "1"))


def patience(seconds):
    return seconds * SLOWNESS
