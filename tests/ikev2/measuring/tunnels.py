"""How long two gateways take for many tunnels from nothing, each on a processor of its own."""

import time

from measuring.gateways import Esplanade
from measuring.statistics import interval, told

LIMIT_SECONDS = {"psk": 5, "ecdsa": 8}
STATUS_LIMIT_SECONDS = 0.05
GIVEN_UP_SECONDS = 100
UP = ": child SA "


def run(bench, kind, chosen):
    folder = bench.certificates(kind, chosen.count)
    times, asked = [], []
    for number in range(chosen.rounds):
        seconds, answers = once(bench, kind, chosen.count, folder)
        times.append(seconds)
        asked += answers
        print(f"round {number + 1}: {chosen.count} tunnels in {seconds:.2f} s, status in at most {1000 * max(answers):.0f} ms",
              flush=True)
    _, high = interval(times)
    limit = LIMIT_SECONDS[kind.name]
    print(f"{kind.name}: {told(times, '{:.2f}')} s, wanted below {limit}: {'met' if high < limit else 'NOT met'}")
    slowest = max(asked)
    print(f"status, asked {len(asked)} times: at most {1000 * slowest:.0f} ms, wanted 50: "
          f"{'met' if slowest <= STATUS_LIMIT_SECONDS else 'NOT met'}")
    return 0 if high < limit and slowest <= STATUS_LIMIT_SECONDS else 1


def once(bench, kind, count, folder):
    left = Esplanade(bench.left, f"{bench.folder}/left", bench.cpus[0])
    right = Esplanade(bench.right, f"{bench.folder}/right", bench.cpus[1])
    left.configure(kind, count, folder, "192.0.2.1", "192.0.2.2", initiates=True)
    right.configure(kind, count, folder)
    right.ready()
    try:
        began = time.monotonic()
        left.start()
        answers = []
        while up(left) < count or up(right) < count:
            if time.monotonic() > began + GIVEN_UP_SECONDS:
                raise RuntimeError(f"only {up(left)} and {up(right)} of {count} are up:\n{left.log_text()[-3000:]}")
            time.sleep(0.1)
            answers.append(right.status_seconds())
        return time.monotonic() - began, answers
    finally:
        left.stop()
        right.stop()


def up(gateway):
    """Child SAs that have come up, by the gateway's own log."""
    return sum(UP in line and " is up" in line for line in gateway.log_text().splitlines())
