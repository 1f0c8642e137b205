"""What it costs a handshake that key exchange is in processes of its own.

The gateway's process of key exchange and the one with the keys, beside one process that does the work of both with the
same library, and sends and receives by the same sockets (examples/many_peers.rs as responder). Both answer the same
initiators; no packet passes a tunnel, so that no data plane is measured. What the gateway's main process spends to
install the child SA is printed beside it.
"""

import sys

from measuring.gateways import Esplanade
from measuring.processes import cpu_nanoseconds, name, pids
from measuring.statistics import told

KEY_EXCHANGE = ("ike", "ike-keys")


def run(bench, kind, chosen):
    folder = bench.certificates(kind, chosen.count)
    microseconds = {"separate": [], "one process": [], "main": [], **{name: [] for name in KEY_EXCHANGE}}
    for number in range(chosen.pairs):
        # Each is the first one every other time.
        for measured in (separate, one_process) if number % 2 == 0 else (one_process, separate):
            for what, nanoseconds in measured(bench, kind, chosen.count, folder).items():
                microseconds[what].append(nanoseconds / 1000 / chosen.count)
        print(f"{kind.name}: {microseconds['separate'][-1]:.0f} us in processes of their own, "
              f"{microseconds['one process'][-1]:.0f} us in one", file=sys.stderr, flush=True)
    print(f"{kind.name}, {kind.ike}, {chosen.count} handshakes a run, {chosen.pairs} pairs; processor time of one handshake "
          f"in microseconds, median (95 % interval)")
    for what, label in (("separate", "key exchange in two processes"), ("ike", "  ike: messages, certificates"),
                        ("ike-keys", "  ike-keys: what needs secrets"), ("one process", "the same in one process"),
                        ("main", "main process: child SA installed")):
        print(f"  {label:<34} {told(microseconds[what])}")
    more = [both - one for both, one in zip(microseconds["separate"], microseconds["one process"])]
    ratios = [both / one for both, one in zip(microseconds["separate"], microseconds["one process"])]
    print(f"  the separation costs               {told(more)} us, {told(ratios, '{:.2f}')} times one process")
    return 0


def separate(bench, kind, count, folder):
    daemon = Esplanade(bench.right, f"{bench.folder}/esplanade", bench.cpus[1])
    daemon.configure(kind, count, folder)
    daemon.ready()
    try:
        by_name = {name(pid): pid for pid in pids(bench.right)}
        watched = {what: by_name[what] for what in KEY_EXCHANGE} | {"main": daemon.process.pid}
        spent = during(bench, kind, count, folder, watched)
        return spent | {"separate": sum(spent[what] for what in KEY_EXCHANGE)}
    finally:
        daemon.stop()


def one_process(bench, kind, count, folder):
    responder = bench.responder(kind, count, folder)
    try:
        return during(bench, kind, count, folder, {"one process": responder.pid})
    finally:
        responder.stdin.close()
        responder.wait(timeout=30)


def during(bench, kind, count, folder, watched):
    """Nanoseconds that each of these processes spends while all handshakes are made."""
    before = {what: cpu_nanoseconds(pid) for what, pid in watched.items()}
    bench.bring_up(kind, count, folder, echo=False)
    return {what: cpu_nanoseconds(pid) - before[what] for what, pid in watched.items()}
