"""The hosts of a case, the ends on them, and what is asked of every tunnel."""

import os
import re
import time

from charon import Charon
from echo import Echo
from network.expect import Unmet, expect
from network.nat import INSIDE, Nat
from network.sites import CLIENT, SERVER, Sites
from network.timeout import slowed
from network.wire import UDP, Esp, Packet
from suites import differences

# Filled into every datagram, so that it is found where it must not be.
MARK = b"esplanade canary"
COUNT, SIZE = 5, 1200
ENCRYPTED_FRAGMENT = 53
ADDRESSES = {False: ({4: ("192.0.2.1", "192.0.2.2"), 6: ("2001:db8::1", "2001:db8::2")},
                     {4: ("192.0.2.2", "192.0.2.1"), 6: ("2001:db8::2", "2001:db8::1")}),
             # Where the left gateway is, the right one cannot know before it is asked.
             True: ({4: (INSIDE, "192.0.2.2")}, {4: ("192.0.2.2", "%any")})}


class Bench:
    """One topology with both ends."""
    # Hosts without and with a NAT, and the right end.
    hosts, opposite = {False: Sites, True: Nat}, Charon

    def __init__(self, nat, peer, folder, certificates):
        self.sites = self.hosts[nat]("ikn" if nat else "ikc")
        self.sites.__enter__()
        left, right = ADDRESSES[nat]
        self.left = peer(self.sites.left, "left", left, f"{folder}/left", certificates)
        self.right = self.opposite(self.sites.right, "right", right, f"{folder}/right", certificates)
        for end in (self.left, self.right):
            os.makedirs(end.folder, exist_ok=True)
        self.tap = self.sites.listen(self.sites.wire, "right")

    def close(self):
        for end in (self.left, self.right):
            end.stop()
        self.sites.__exit__()

    def end(self, which):
        return getattr(self, which)

    def start(self, case):
        # The right end first, which waits: a left end that begins at once finds it ready.
        for end in (self.right, self.left):
            end.configure(case)
            end.start()
        self.tap.clear()

    def stop(self):
        for end in (self.left, self.right):
            end.stop()

    def echoed(self, way, count=COUNT, interval=0.02, patience=None):
        """How many datagrams from one network to the other come back."""
        ends = [(self.sites.client, CLIENT[4]), (self.sites.server, SERVER[4])]
        source, target = ends if way == "out" else ends[::-1]
        echo = Echo(*source, *target, MARK * (SIZE // len(MARK)))
        try:
            return echo.run(count, interval, slowed(patience or self.left.patience))
        finally:
            echo.close()

    def passes_in_clear(self):
        """The control: without gateways, datagrams pass and are found on the wire."""
        self.tap.clear()
        return self.echoed("out") == COUNT and len(self.in_clear()) >= COUNT

    def in_clear(self):
        """Frames on the wire that show what is inside, or whose addresses are of the networks."""
        return [frame for frame in self.tap.settle(0.1)
                if MARK in frame or ((packet := Packet.of(frame)) and packet.source.startswith("10."))]

    def carried(self):
        """Packets that each of the right end's child SAs has opened and sealed, by its own count."""
        return {child["spi-in"]: [int(child[name]) for name in ("packets-in", "packets-out")]
                for child in self.right.children()}

    def fragmented(self):
        """Encrypted fragments of IKE that each end has sent."""
        counts = {"left": 0, "right": 0}
        for frame in self.tap.settle(0.1):
            packet = Packet.of(frame)
            if packet and packet.protocol == UDP and not Esp.find(frame):
                datagram = frame[packet.offset:]
                message = datagram[12:] if datagram[8:12] == bytes(4) else datagram[8:]
                if len(message) > 28 and message[16] == ENCRYPTED_FRAGMENT:
                    counts["right" if packet.source == self.right.outer[4][0] else "left"] += 1
        return counts

    # What is asked of every tunnel: each gives nothing, or what is wrong.

    def check_traffic(self, outcome, suffix=""):
        """Pings both ways, counted by the judge, and nothing in clear; where a child is exchanged meanwhile, see steps.py."""
        self.tap.clear()
        before = self.carried()
        for way in ("out", "in"):
            came = self.echoed(way)
            outcome[f"{way}{suffix}"] = None if came == COUNT else f"{came} of {COUNT} came back"
        # One that replaced another in between counts from nothing; one that has gone had carried before.
        grown = [[now - old for now, old in zip(counts, before.get(spi, (0, 0)))]
                 for spi, counts in self.carried().items()]
        opened, sealed = (sum(counts) for counts in zip((0, 0), *grown))
        outcome[f"counted{suffix}"] = (None if min(opened, sealed) >= 2 * COUNT else
                                       f"charon opened {opened} and sealed {sealed}, not {2 * COUNT}")
        # Several packets may be one frame here, before a card cuts it; charon's are single.
        clear, protected = self.in_clear(), [frame for frame in self.tap.frames if Esp.find(frame)]
        outcome[f"wire{suffix}"] = (f"{len(clear)} frames in clear" if clear else
                                    None if len(protected) >= 2 * COUNT else f"{len(protected)} ESP packets on the wire")

    def check_suites(self, case):
        ikes = self.right.associations()
        if len(ikes) != 1 or len(ikes[0]["children"]) != 1:
            return f"{len(ikes)} IKE SAs with {[len(ike['children']) for ike in ikes]} child SAs"
        without = () if case.childless else ("dh-group",)
        wrong = differences(ikes[0], case.right.ike) | differences(ikes[0]["children"][0], case.right.esp, without)
        return "; ".join(f"{key}: {value}" for key, value in wrong.items()) or None

    def child_differences(self, case, child):
        """What is not as proposed in a child SA that came by CREATE_CHILD_SA, which may have a group of its own."""
        return differences(child, case.right.esp)

    def check_refused(self, case, answer):
        """No tunnel, no packet, and the reason in words."""
        if answer is None:
            return {"refused": "it came up"}
        outcome = {"refused": None}
        try:
            # The end that has answered already learns from the other one that it was refused.
            until(lambda: not self.left.is_up() and not self.right.is_up(), "an end is up", slowed(3))
        except Unmet as unmet:
            outcome["refused"] = str(unmet)
        if self.left.fails_closed:
            self.tap.clear()
            came, clear = self.echoed("out", patience=0.3), len(self.in_clear())
            outcome["wire"] = f"{came} datagrams passed, {clear} frames in clear" if came or clear else None
        for end in (self.left, self.right):
            words = case.refused.get(f"{end.which}-{end.kind}") or case.refused.get(end.kind)
            if words:
                said = end.words()
                outcome[f"{end.which} why"] = None if re.search(words, said) else f"no '{words}' in:\n{said[-1500:]}"
        return outcome


def until(condition, otherwise, seconds):
    """Waits until a condition holds, and gives its value."""
    deadline = time.monotonic() + seconds
    while not (value := condition()):
        expect(time.monotonic() < deadline, otherwise() if callable(otherwise) else otherwise)
        time.sleep(0.05)
    return value
