"""Two gateways that rekey child and IKE SAs as fast as they can, from both sides at once, while a part of the IKE
messages is lost and stamped frames pass."""

import json
import socket
import threading
import time

from ike import config, start
from network.expect import expect
from network.sites import Sites
from network.timeout import slowed

from ikev2.stamped import Frames

# IKE messages are lost where they arrive: on port 500, and on port 4500 behind the non-ESP marker.
LOSS = """nft -f - <<'END'
table inet loss {{
    chain input {{
        type filter hook input priority -400;
        udp dport 500 numgen random mod 1000 < {permille} counter drop
        udp dport 4500 @th,64,32 0 numgen random mod 1000 < {permille} counter drop
    }}
}}
END"""
# Messages are sent again soon, so that a run does not consist of waiting.
MORE = """retransmit = { first = "100ms", longest = "1s", repetitions = 12 }
dpd = "off"
esp = ["aes128gcm16"]
"""
ANSWER_SECONDS = slowed(30)
# Frames go on for so long after the last rekey of a part.
REST_SECONDS = 0.5
PART_SECONDS = 20


class Rekeys:
    """Asks both gateways for rekeys, and counts those that have happened."""

    def __init__(self, gateways, children, ikes):
        self.gateways, self.wanted = gateways, {False: children, True: ikes}
        self.done = {False: 0, True: 0}
        self.added, self.refused, self.asks = 0, [], threading.Event()
        self.is_over = False
        self.threads = [threading.Thread(target=self.listen, args=(gateways[0],), daemon=True)]
        self.threads += [threading.Thread(target=self.ask_often, args=(one,), daemon=True) for one in gateways]
        for thread in self.threads:
            thread.start()

    def listen(self, gateway):
        """Every rekey is an event of both gateways: one of them tells all."""
        with connected(gateway, "events") as stream:
            for line in stream:
                event = json.loads(line).get("event", {})
                if event.get("event") == "rekeyed":
                    self.done[event.get("child") is None] += 1
                self.added += event.get("event") == "sa-added"

    def ask_often(self, gateway):
        while not self.is_over:
            self.asks.wait()
            # In the proportion in which they are wanted, and both sides alike: they collide.
            share = [self.done[kind] / max(1, self.wanted[kind]) for kind in (False, True)]
            ike = share[1] < share[0]
            try:
                with connected(gateway, {"rekey-peer": {"name": "site", "ike": ike}}) as stream:
                    answer = json.loads(stream.readline() or "{}")
            except (OSError, ValueError) as error:
                answer = {"refused": str(error)}
            if "refused" in answer:
                self.refused.append(answer["refused"])
                time.sleep(0.01)

    def remain(self):
        return any(self.done[kind] < self.wanted[kind] for kind in self.wanted)

    def during(self, seconds):
        """What happens while frames pass."""
        end = time.monotonic() + seconds
        self.asks.set()
        while self.remain() and time.monotonic() < end:
            time.sleep(0.02)
        self.asks.clear()

    def redundant(self):
        """Pairs of child SAs that were installed and lost against those of the other side."""
        return self.added // 2 - self.done[False]


def connected(gateway, request):
    stream = socket.socket(socket.AF_UNIX)
    stream.settimeout(ANSWER_SECONDS)
    stream.connect(gateway.control)
    stream.sendall(json.dumps(request).encode() + b"\n")
    if request == "events":
        stream.settimeout(None)
    file = stream.makefile()
    stream.close()
    return file


def measure(children, ikes, permille=20, rate=None, payload_bytes=470, more="", limit=3600):
    """What became of frames and rekeys. Without a rate: half of the tunnel's own."""
    with Sites("ir") as sites:
        right = start(sites, "right", config("right", 'start = "wait"\n' + MORE + more))
        left = start(sites, "left", config("left", MORE + more))
        left.wait("up")
        right.wait("up")
        expect(sites.ping(4) == 3, "no ping through the tunnel")
        frames = Frames(sites, payload_bytes)
        own = None if rate else frames.own_rate()
        rate = rate or own // 2
        for host in (sites.left, sites.right):
            host.sh(LOSS.format(permille=permille))
        rekeys = Rekeys((left, right), children, ikes)
        told = {"own rate": own, "rate": rate, "sent": 0, "lost": 0, "duplicated": 0, "reordered": 0, "late": 0}
        began = time.monotonic()
        while rekeys.remain() and time.monotonic() < began + limit:
            # A short part for few rekeys, so that nothing is waited for.
            seconds = min(PART_SECONDS, 2 + (children + ikes) / 50)
            part = frames.send(rate, seconds, lambda: rekeys.during(seconds - REST_SECONDS))
            for name, count in part.items():
                told[name] += count
        rekeys.is_over = True
        rekeys.asks.set()
        for gateway in (left, right):
            gateway.wait("up")
        told |= {"child rekeys": rekeys.done[False], "IKE rekeys": rekeys.done[True], "refused": len(rekeys.refused),
                 "redundant child SAs": rekeys.redundant(), "seconds": round(time.monotonic() - began),
                 "IKE messages lost": sum(dropped(host) for host in (sites.left, sites.right)),
                 "why refused": sorted(set(rekeys.refused))[:3],
                 "drops": {name: json.loads(one.ask("drops", "--json"))["reasons"]
                           for name, one in (("left", left), ("right", right))}}
        return told


def dropped(host):
    """IKE messages that the rules of LOSS have dropped."""
    rules = json.loads(host.sh("nft -j list table inet loss"))["nftables"]
    rules = [rule["rule"]["expr"] for rule in rules if "rule" in rule]
    return sum(part["counter"]["packets"] for expr in rules for part in expr if "counter" in part)
