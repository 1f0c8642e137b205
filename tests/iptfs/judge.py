#!/usr/bin/env python3
"""AGGFRAG mode (RFC 9347) against Linux, the only other implementation there is: each seals what the other opens.

    tests/iptfs/run [--write] [WORD...]    only cases that have every word in their names (`make iptfs`: all)
    tests/iptfs/run --replay               without a kernel: what it once sealed is opened again, in order and with
                                           packets that overtook others (part of `make test`)

The kernel is a guest of tests/iptfs/kernel.py. `--write` keeps what it sealed under tests/iptfs/captures/.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.append(os.path.dirname(HERE))

import uml  # noqa: E402
from cases import CASES  # noqa: E402
from network import pcap  # noqa: E402
from network.gateway import program  # noqa: E402

CAPTURES = os.path.join(HERE, "captures")
SECONDS = 120


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--replay", action="store_true")
    parser.add_argument("words", nargs="*")
    arguments = parser.parse_args()
    cases = [case for case in CASES if all(word in case.name for word in arguments.words)]
    good = list(replay(cases) if arguments.replay else meet(cases, arguments.write))
    return 0 if good and all(good) else 1


def replay(cases):
    """What the kernel sealed, opened again."""
    with tempfile.TemporaryDirectory(prefix="esplanade-iptfs-") as folder:
        for case in cases:
            kept = f"{CAPTURES}/{case.name}-sealed-by-kernel.pcap"
            yield say(f"kernel to us, {case.name}, captured", opened_by_us(case, folder, kept), case.packets("in"))
            other = f"{folder}/{case.name}-overtaken.pcap"
            pcap.write(other, overtaken(pcap.read(kept)[1]))
            yield say(f"kernel to us, {case.name}, overtaken", opened_by_us(case, folder, other), case.packets("in"))


def overtaken(packets):
    """Each third packet overtakes the one before it."""
    for place in range(3, len(packets), 3):
        packets[place - 1:place + 1] = packets[place - 1:place + 1][::-1]
    return packets


def meet(cases, write):
    """Both directions with a kernel that runs now."""
    with tempfile.TemporaryDirectory(prefix="esplanade-iptfs-") as folder:
        for case in cases:
            prepare(case, folder)
        boot(folder)
        for case in cases:
            yield from judged(case, folder)
            if write:
                keep(case, folder)


def prepare(case, folder):
    with open(f"{folder}/{case.name}.case", "w") as file:
        json.dump(case.for_guest(), file)
    pcap.write(f"{folder}/{case.name}-plain.pcap", case.packets("in"))
    pcap.write(f"{folder}/{case.name}-ours.pcap", case.packets("out"))
    capture(case, folder, "seal", f"{folder}/{case.name}-ours.pcap", f"{folder}/{case.name}-sealed.pcap")


def boot(folder):
    """The guest works through all cases and ends by itself."""
    text = uml.boot(folder, f"{HERE}/guest.py", SECONDS)
    if "Traceback" in text or not any(name.endswith(".counters") for name in os.listdir(folder)):
        print(text[-3000:], file=sys.stderr)


def judged(case, folder):
    counters = read_json(f"{folder}/{case.name}.counters")
    if counters is None:
        failed = f"{folder}/{case.name}.failed"
        why = open(failed).read() if os.path.exists(failed) else "the guest did not come to it"
        print(f"not ok {case.name}: {why}", flush=True)
        yield False
        return
    sealed = f"{folder}/{case.name}-sealed-by-kernel.pcap"
    yield say(f"kernel to us, {case.name}, {len(pcap.read(sealed)[1])} outer",
              opened_by_us(case, folder, sealed), case.packets("in"))
    opened = pcap.read(f"{folder}/{case.name}-opened-by-kernel.pcap")[1]
    outer = len(pcap.read(f"{folder}/{case.name}-sealed.pcap")[1])
    yield say(f"us to kernel, {case.name}, {outer} outer", opened, case.packets("out"), counters)


def opened_by_us(case, folder, sealed):
    target = f"{folder}/{case.name}-opened.pcap"
    capture(case, folder, "open", sealed, target)
    return pcap.read(target)[1] if os.path.exists(target) else []


def capture(case, folder, verb, source, target):
    if os.path.exists(target):
        os.remove(target)
    setkey = f"{folder}/{case.name}.setkey"
    with open(setkey, "w") as file:
        file.write(case.setkey())
    done = subprocess.run([program(), "capture", verb, "--sa", setkey, source, target], capture_output=True, text=True,
                          timeout=60, stdin=subprocess.DEVNULL)
    if done.returncode:
        print(f"     {case.name}: capture {verb}: {done.stdout}{done.stderr}")


def say(name, got, expected, counters=None):
    """Whether all came, in order, and nothing else; and whether the kernel counted no error."""
    got, expected = [list(map(as_arrived, packets)) for packets in (got, expected)]
    wrong = sum(a != b for a, b in zip(got, expected)) + abs(len(got) - len(expected))
    good = expected and not wrong and not counters
    more = f", the kernel counted {counters}" if counters else ""
    print(f"{'ok' if good else 'not ok'} iptfs {name}: packets {len(got)} of {len(expected)}, mismatches {wrong}{more}", flush=True)
    return bool(good)


def as_arrived(packet):
    """Without the hop count, which each gateway lowers."""
    packet = bytearray(packet)
    if packet[0] >> 4 == 4:
        packet[8], packet[10:12] = 0, bytes(2)
    else:
        packet[7] = 0
    return bytes(packet)


def read_json(path):
    if not os.path.exists(path):
        return None
    with open(path) as file:
        return json.load(file)


def keep(case, folder):
    os.makedirs(CAPTURES, exist_ok=True)
    for name in (f"{case.name}.setkey", f"{case.name}-sealed-by-kernel.pcap"):
        shutil.copy(f"{folder}/{name}", CAPTURES)
    with open(f"{folder}/kernel") as file:
        print(f"     {case.name}: kept, sealed by Linux {file.read()}")


if __name__ == "__main__":
    sys.exit(main())
