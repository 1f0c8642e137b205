"""Stamped frames of the lab, both ways through a tunnel at once: what is lost, doubled and reordered."""

import json
import subprocess
import time

from network.gateway import program
from network.sites import CLIENT, SERVER
from network.timeout import slowed

PORT = 5303
# Until a receiver that saw no end gives up.
SILENCE_MS = 2000
LISTEN_SECONDS = slowed(10)
FIRST_RATE = 4000
# A rate counts as carried with at most this loss.
CARRIED_LOSS = 0.005
HALVINGS = 3


class Frames:
    """Frames of one size, each way between client and server at the same rate."""

    def __init__(self, sites, payload_bytes):
        self.sites, self.payload_bytes, self.runs = sites, payload_bytes, 0

    def send(self, rate, seconds, meanwhile=lambda: None):
        """Frames sent, lost, doubled and reordered, of both ways together, and those that went out too late."""
        self.runs += 1
        lab, run = program("esplanade-lab"), ["--run", str(self.runs)]
        ways = [(self.sites.client, self.sites.server, SERVER[4]), (self.sites.server, self.sites.client, CLIENT[4])]
        receivers, senders = [], []
        for _, to, address in ways:
            receive = [lab, "tool", "receive", f"{address}:{PORT}", "--patience", str(SILENCE_MS), *run]
            receivers.append(to.start(receive, stdout=subprocess.PIPE, text=True))
        for _, to, address in ways:
            wait_until_bound(to)
        for origin, _, address in ways:
            send = [lab, "tool", "send", f"{address}:{PORT}", "--bytes", str(self.payload_bytes), "--rate", str(rate),
                    "--milliseconds", str(int(seconds * 1000)), *run]
            senders.append(origin.start(send, stdout=subprocess.PIPE, text=True))
        meanwhile()
        sent = [json.loads(sender.communicate()[0]) for sender in senders]
        # The first line says that it listens.
        received = [json.loads(receiver.communicate()[0].splitlines()[-1]) for receiver in receivers]
        return {
            "sent": sum(one["sent"] for one in sent),
            "late": sum(one["behind"] for one in sent),
            "lost": sum(one["sent"] for one in sent) - sum(one["received"] for one in received),
            "duplicated": sum(one["duplicates"] for one in received),
            "reordered": sum(one["reordered"] for one in received),
        }

    def is_carried(self, rate, seconds):
        told = self.send(rate, seconds)
        return told["lost"] + told["late"] <= told["sent"] * CARRIED_LOSS

    def own_rate(self, seconds=1):
        """The highest rate, each way, that passes nearly without loss."""
        good = FIRST_RATE
        while self.is_carried(2 * good, seconds):
            good *= 2
        bad = 2 * good
        for _ in range(HALVINGS):
            middle = (good + bad) // 2
            good, bad = (middle, bad) if self.is_carried(middle, seconds) else (good, middle)
        return good


def wait_until_bound(host):
    deadline = time.monotonic() + LISTEN_SECONDS
    while f":{PORT} " not in host.sh(f"ss -Hlun 'sport = :{PORT}'"):
        if time.monotonic() > deadline:
            raise TimeoutError(f"the receiver on {host.name} does not listen")
        time.sleep(0.02)
