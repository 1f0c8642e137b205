"""What `status` and `explain` show of associations on the kernel plane, beside what the kernel has."""

import json

from attributes import INBOUND, OUTBOUND, SA_DIR, associations
from network.expect import expect
from network.sites import CLIENT, SERVER

DIRECTIONS = {None: None, bytes([INBOUND]): "in", bytes([OUTBOUND]): "out"}


def shows(gateway, options=lambda spi: {}, words=()):
    """Each association of a gateway is shown with the direction that the kernel has and with its options, as JSON and
    by these words, and by `explain` as by `status`."""
    kept = {spi: DIRECTIONS[sa.get(SA_DIR)] for spi, sa in associations(gateway.host).items()}
    told = by_spi(gateway.status())
    due = {spi: {"direction": direction, "cpu": None, "offload": None, "aggfrag": None, **options(spi)}
           for spi, direction in kept.items()}
    expect(told == due, f"`status --json` shows {told}, where {due} was due")
    text = gateway.ask("status")
    for word in (*words, *(f"direction {direction}" for direction in kept.values() if direction)):
        expect(word in text, f"`status` does not show {word!r}:\n{text}")
    for ends in ((CLIENT[4], SERVER[4]), (SERVER[4], CLIENT[4])):
        explained = by_spi(json.loads(gateway.ask("explain", *ends, "udp", "--json")))
        is_due = explained and all(due[spi] == sa for spi, sa in explained.items())
        expect(is_due, f"`explain` shows {explained}, where {due} was due")


def by_spi(told):
    names = ("direction", "cpu", "offload", "aggfrag")
    return {int(sa["spi"], 16): {name: sa[name] for name in names} for sa in told["associations"]}
