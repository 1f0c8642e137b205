"""What a responder spends for a handshake: SA installed, and a packet carried and answered."""

import sys

from measuring.gateways import Charon, Esplanade
from measuring.processes import cpu_seconds, pids
from measuring.statistics import interval, told


def run(bench, kind, chosen):
    folder = bench.certificates(kind, chosen.count)
    names = [chosen.only] if chosen.only else ["esplanade", "charon"]
    version = charon_version(bench, chosen) if "charon" in names else None
    rates = {name: [] for name in names}
    shares = []
    for number in range(chosen.pairs):
        # Each is the first one every other time.
        for name in names if number % 2 == 0 else names[::-1]:
            rate, report = once(bench, kind, name, chosen, folder)
            rates[name].append(rate)
            if name == "esplanade":
                shares.append(report["key_work_seconds"] / chosen.count * rate)
            print(f"{kind.name} {name}: {rate:.0f}/s of processor time, {chosen.count / report['seconds']:.0f}/s by the "
                  f"clock", file=sys.stderr, flush=True)
    print(f"{kind.name}, {kind.ike}, {chosen.count} handshakes a run, {chosen.pairs} runs; median (95 % interval)")
    for name, values in rates.items():
        label = f"charon {version}" if name == "charon" else name
        print(f"  {label:<16} {told(values)} handshakes per second of processor time")
    if shares:
        print(f"  of a handshake's time are key exchange, signatures and certificates, as the initiators' own take: "
              f"{told([100 * share for share in shares])} %")
    if len(names) < 2:
        return 0
    ratios = [esplanade / charon for esplanade, charon in zip(rates["esplanade"], rates["charon"])]
    low, _ = interval(ratios)
    print(f"  ratio            {told(ratios, '{:.2f}')}; wanted {kind.factor}: {'met' if low >= kind.factor else 'NOT met'}")
    return 0 if low >= kind.factor else 1


def charon_version(bench, chosen):
    return Charon(bench.right, f"{bench.folder}/charon", bench.cpus[1], chosen.charon_root).version()


def once(bench, kind, name, chosen, folder):
    place, cpu = f"{bench.folder}/{name}", bench.cpus[1]
    daemon = (Charon(bench.right, place, cpu, chosen.charon_root) if name == "charon" else
              Esplanade(bench.right, place, cpu))
    daemon.configure(kind, chosen.count, folder)
    daemon.ready()
    try:
        found = pids(bench.right)
        before = cpu_seconds(found)
        report = bench.bring_up(kind, chosen.count, folder)
        return chosen.count / (cpu_seconds(found) - before), report
    except RuntimeError:
        print(daemon.log_text()[-3000:], file=sys.stderr)
        raise
    finally:
        daemon.stop()
