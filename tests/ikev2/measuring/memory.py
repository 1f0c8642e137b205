"""What established peers occupy, and what they cost while nothing happens but DPD and rekeys."""

import json
import time

from measuring import processes
from measuring.gateways import Esplanade

LIMIT_KB = {"psk": 10, "ecdsa": 14}
IDLE_LIMIT_PERCENT = 2
SETTLE_SECONDS = 8


def run(bench, kind, chosen):
    counts = [int(count) for count in chosen.counts.split(",")]
    folder = bench.certificates(kind, max(counts))
    met = [once(bench, kind, count, folder, chosen.idle_seconds) for count in counts]
    return 0 if all(met) else 1


def once(bench, kind, count, folder, idle_seconds):
    gateway = Esplanade(bench.right, f"{bench.folder}/right", bench.cpus[1])
    gateway.configure(kind, count, folder)
    gateway.ready()
    initiators = None
    try:
        time.sleep(SETTLE_SECONDS)
        found = gateway.pids()
        names = {pid: processes.name(pid) for pid in found}
        before = {pid: processes.memory(pid) for pid in found}
        initiators = bench.initiators(kind, count, folder, hold=True)
        report = json.loads(initiators.stdout.readline())
        if report["answered"] != count:
            raise RuntimeError(f"not every peer is up: {report}\n{gateway.log_text()[-3000:]}")
        time.sleep(SETTLE_SECONDS)
        after = {pid: processes.memory(pid) for pid in found}
        begun, began = processes.cpu_seconds(found), time.monotonic()
        time.sleep(idle_seconds)
        idle = 100 * (processes.cpu_seconds(found) - begun) / (time.monotonic() - began)
    finally:
        if initiators:
            initiators.stdin.close()
            initiators.wait()
        gateway.stop()
    return tell(kind, count, names, before, after, idle, idle_seconds)


def tell(kind, count, names, before, after, idle, idle_seconds):
    grown = sum(after.values()) - sum(before.values())
    each = grown / count / 1024
    limit = LIMIT_KB[kind.name]
    parts = ", ".join(f"{names[pid]} {(after[pid] - before[pid]) / count / 1024:.1f}" for pid in sorted(names))
    print(f"{kind.name}, {count} peers: {each:.1f} KB each ({parts}), wanted {limit}: "
          f"{'met' if each <= limit else 'NOT met'}; configured and down {sum(before.values()) / count / 1024:.1f} KB each")
    print(f"  idle for {idle_seconds} s with DPD and rekeys: {idle:.1f} % of a processor, wanted {IDLE_LIMIT_PERCENT}: "
          f"{'met' if idle <= IDLE_LIMIT_PERCENT else 'NOT met'}", flush=True)
    return each <= limit and idle <= IDLE_LIMIT_PERCENT
