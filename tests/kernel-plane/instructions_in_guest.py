"""Counts the instructions of a packet on each plane, in a guest whose clock goes by instructions; see `instructions`."""

import argparse
import os
import re
import socket
import statistics
import sys
import threading
import time

HERE = os.path.dirname(os.path.abspath(__file__))
TESTS = os.path.dirname(HERE)
sys.path[:0] = [HERE, os.path.join(TESTS, "end-to-end"), TESTS]

from network.sites import AES_GCM, CLIENT, SERVER, setkey_text  # noqa: E402
from planes import PlaneSites  # noqa: E402

SUITES = {"aes-gcm": AES_GCM, "aes-cbc": "-E aes-cbc 0x{:02x}" + "5a" * 15 + " -A hmac-sha2-256 0x" + "6b" * 32,
          "null": "-E null -A hmac-sha2-256 0x" + "6b" * 32}
PLANES = ("none", "user", "kernel")
PORT = 7009
# Datagrams that are sent at once, and the pause behind them, in which all of them arrive.
BURST, PAUSE_SECONDS = 16, 0.02
ARRIVAL_SECONDS = 5


class Counted:
    """The nanoseconds for which this processor was busy, each of which is an instruction."""

    def __enter__(self):
        self.idle, self.started = idle_ns(), time.monotonic_ns()
        return self

    def __exit__(self, *_):
        self.elapsed = time.monotonic_ns() - self.started
        self.busy = self.elapsed - (idle_ns() - self.idle)


def idle_ns():
    """The time without anything to do, exact: /proc/stat counts in hundredths of a second."""
    with open("/proc/timer_list") as file:
        return sum(map(int, re.findall(r"\.(?:idle|iowait)_sleeptime *: (\d+) nsecs", file.read())))


def burst_of(near, size, packets, far):
    """Sends the datagrams and waits until all have arrived."""
    arrived = [0]

    def take():
        while arrived[0] < packets:
            try:
                far.recv(2048)
            except TimeoutError:
                return
            arrived[0] += 1

    taker = threading.Thread(target=take)
    taker.start()
    payload = bytes(size)
    for start in range(0, packets, BURST):
        for _ in range(min(BURST, packets - start)):
            near.sendto(payload, (SERVER[4], PORT))
        time.sleep(PAUSE_SECONDS)
    taker.join()
    if arrived[0] != packets:
        raise SystemExit(f"not ok instructions: {packets - arrived[0]} of {packets} datagrams were lost")


def windows_of(plane, suite, size, packets, windows):
    """Instructions of each packet in each window, without those of the time in which nothing is sent."""
    with PlaneSites("in", left=plane, right=plane) as sites:
        if plane != "none":
            for name in ("left", "right"):
                sites.start(name, setkey_text(name, inner=(4,), udp=False, suite=SUITES[suite]))
        near = sites.client.socket(socket.AF_INET, socket.SOCK_DGRAM)
        far = sites.server.socket(socket.AF_INET, socket.SOCK_DGRAM)
        near.bind((CLIENT[4], 0))
        far.bind((SERVER[4], PORT))
        far.settimeout(ARRIVAL_SECONDS)
        burst_of(near, size, 200, far)
        counts = []
        for _ in range(windows):
            with Counted() as sent:
                burst_of(near, size, packets, far)
            with Counted() as idle:
                time.sleep(sent.elapsed / 1e9)
            busy = sent.busy - idle.busy * sent.elapsed / idle.elapsed
            counts.append(busy / packets)
        near.close()
        far.close()
        return counts


def drivers():
    """What the kernel seals and opens with."""
    with open("/proc/crypto") as file:
        entries = [dict(re.findall(r"^(\w+) *: (.*)$", entry, re.MULTILINE)) for entry in file.read().split("\n\n")]
    used = {entry["driver"] for entry in entries if int(entry.get("refcnt", 0)) > 1}
    return ", ".join(sorted(driver for driver in used if driver.startswith(("seqiv", "authenc", "echainiv"))))


def row(suite, size, counts):
    plain = statistics.median(counts["none"])
    own = {plane: [count - plain for count in counts[plane]] for plane in ("user", "kernel")}
    said = [f"{plane} {statistics.median(values):7.0f} ({min(values):.0f} to {max(values):.0f})"
            for plane, values in own.items()]
    ratios = [user / kernel for user, kernel in zip(own["user"], own["kernel"])]
    ratio = f"user/kernel {statistics.median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f})"
    return f"{suite:8} {size:5} bytes  {'  '.join(said)}  {ratio}  without gateways {plain:.0f}"


def main():
    arguments = argparse.ArgumentParser()
    for option in ("--packets", "--windows"):
        arguments.add_argument(option, type=int, required=True)
    arguments.add_argument("--size", type=int, action="append", required=True)
    arguments.add_argument("--suite", choices=list(SUITES), action="append", required=True)
    chosen = arguments.parse_args()
    print("instructions of a datagram through two gateways, seal and open, on one processor: median (least to most)")
    for suite in chosen.suite:
        for size in chosen.size:
            counts = {plane: windows_of(plane, suite, size, chosen.packets, chosen.windows) for plane in PLANES}
            print(row(suite, size, counts), flush=True)
    print(f"the kernel's ciphers: {drivers()}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
