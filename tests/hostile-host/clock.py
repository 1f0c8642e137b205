"""The date is set while the gateway runs: far forth, far back and right again. Only a guest's date is a test's
to set.

Nothing that the gateway waits for follows the date. An association with a life of a few seconds is there while they
last, whatever the date says, and gone once they are over.
"""

import os
import time

from network.expect import expect

HOUR, YEAR = 3600, 365 * 86400
# Seconds that a step is held.
HELD_FOR = 0.2
STEPS = (HOUR, -HOUR, 10 * YEAR, -10 * YEAR)
# Seconds of an association's life, and how much later the gateway, which looks once a second, and this test may see its
# end.
LIFE, LATE = 8, 4
FIRST_SPI = 0x9000


def may_set_the_date(_):
    return "ESPLANADE_OWN_CLOCK" in os.environ


def is_there(bench, spi):
    return any(sa["spi"] == f"{spi:#010x}" for sa in bench.gateway.status()["associations"])


def steps(bench):
    spi = FIRST_SPI + bench.number
    begun, date = time.monotonic(), time.time()
    bench.gateway.setkey_text(f"add 192.0.2.1 192.0.2.88 esp-udp {spi:#x} -m tunnel -lh {LIFE} "
                              f"-E aes-gcm-16 0x{spi:08x}{'5a' * 16};")
    added = time.monotonic()
    try:
        for step in STEPS:
            time.clock_settime(time.CLOCK_REALTIME, date + time.monotonic() - begun + step)
            time.sleep(HELD_FOR)
            expect(abs(time.time() - date) > HOUR / 2, f"the control failed: the date is not set by {step} s")
            there = is_there(bench, spi)
            expect(there or time.monotonic() > begun + LIFE - 1,
                   f"an association's life is over early, {step} s from the date")
        # The end comes at a date that is far in the past.
        while is_there(bench, spi):
            expect(time.monotonic() < added + LIFE + LATE,
                   f"an association lives on after {LIFE + LATE} s, {step} s from the date")
            time.sleep(0.2)
        expect(time.monotonic() > begun + LIFE - 1, f"an association's life is over early, {step} s from the date")
    finally:
        time.clock_settime(time.CLOCK_REALTIME, date + time.monotonic() - begun)
