"""Judges every combination of the pairwise cover, many at once.

    traffic     datagrams of every length around the paddings and the path MTU, asked from both ends
    wire        between the outer addresses nothing but the outermost protocol, and nothing from inside
    crafted     each end forgets what it received (fresh inbound associations) and is then given captured
                packets again: forged in each region, genuine, twice, at the window's edge, beyond it
    after       the associations still carry traffic
"""

import time
from collections import defaultdict

from combination import GATEWAY, KERNEL, KERNEL_PLANE, RIGHT
from cover_sides import GatewayCover, KernelCover, KernelPlaneCover, Tally, settled
from network.wire import UDP
from sealed import sealed_packets

# Bytes in a datagram. From 12 on every residue of every block length; then around the path MTU with every overhead;
# then what has to be cut. The large ones come first: so the newest packets on the wire are small and whole.
SIZES = [5000, 3000, 1472, 1452, 1432, 1412, 1392, 1372, 1352, 700, *range(27, 11, -1)]
# Enough small packets to look behind a window of 64.
MORE = range(90, 25, -1)
TRIES = 3
BATCH = 160
# In the middle of the list: what lies between the window's left edge and the newest packet.
INSIDE = 5
LEFTS = {"kernel": KERNEL, "gateway": GATEWAY, "kernel-plane": KERNEL_PLANE}


def judge_all(bench, probe, chosen, kinds):
    """Every combination between the kernel on the right and each kind of left side; rows of combination, kind, wrong."""
    ends = bench.ends()
    neighbours = [(side, ends[kind]) for kind, side in LEFTS.items()]
    right = KernelCover(bench.guest.right, RIGHT, bench.right.ends, neighbours)
    lefts = {kind: left_side(bench, kind, ends[kind], probe) for kind in kinds}
    for side in (right, *(lefts[kind] for kind in kinds)):
        side.prepare(chosen)
    rows = []
    for kind in kinds:
        able = [each for each in chosen if lefts[kind].carries(each)]
        for batch in batches(able):
            rows += judged(bench, batch, kind, lefts[kind], right)
    return rows


def left_side(bench, kind, ends, probe):
    neighbours = [(RIGHT, bench.right.ends)]
    if kind == "gateway":
        return GatewayCover(bench.gateway, bench.client, ends, probe)
    if kind == "kernel-plane":
        return KernelPlaneCover(bench.plane_shell(), ends, neighbours)
    return KernelCover(bench.guest.left, KERNEL, ends, neighbours)


def judged(bench, batch, kind, left, right):
    """One batch, each combination of which gets a line. What stops the whole batch fails all of it."""
    try:
        wrong = judge_batch(bench, batch, left, right)
    except Exception as error:
        wrong = {each.number: {"batch": f"{type(error).__name__}: {error}"} for each in batch}
    for each in batch:
        for check, why in wrong[each.number].items():
            print(f"     {kind} to kernel, {each.name}: {check}: {why}")
        checks = ", ".join(wrong[each.number])
        print(f"not ok {kind} to kernel, {each.name}: {checks}" if checks else f"ok {kind} to kernel, {each.name}",
              flush=True)
    return [(each, kind, wrong[each.number]) for each in batch]


class Verdicts:
    """What is wrong, by combination and check."""

    def __init__(self, batch):
        self.wrong = {each.number: {} for each in batch}

    def note(self, each, check, why):
        if why:
            self.wrong[each.number].setdefault(check, why)


def judge_batch(bench, batch, left, right):
    """Runs a batch between two sides; gives what is wrong with each combination."""
    verdicts = Verdicts(batch)
    try:
        right.up(batch, left.side)
        left.up(batch, right.side)
        traffic(bench, verdicts, batch, left, right)
    finally:
        left.down()
        right.down()
    return verdicts.wrong


def traffic(bench, verdicts, batch, left, right):
    bench.wire.clear()
    before = [side.totals()[0]["no-sa"] for side in (left, right)]
    for check, near, far in (("out", left, right), ("in", right, left)):
        answers, said = near.ask(batch, far.side, SIZES, TRIES)
        for each in batch:
            verdicts.note(each, check, unanswered(answers.get(each.number), said))
    if long := [each for each in batch if 32 < each.window < 1000]:
        left.ask(long, right.side, MORE, 1)
    seen = Seen(bench.wire.settle())
    for side, other in ((left, right), (right, left)):
        tallies = settled(side)
        for each in batch:
            verdicts.note(each, "accepted", refused(tallies, each, other.side, side.side))
            verdicts.note(each, "accepted", refused(tallies, each, side.side, other.side))
    for each in batch:
        verdicts.note(each, "wire", seen.strange(each, left.side, right.side))
    for side, other, count in ((left, right, before[0]), (right, left, before[1])):
        if (now := side.totals()[0]["no-sa"]) != count:
            raise RuntimeError(f"{now - count} packets of plain traffic found no association: {side.totals()[1]}")
        with bench.nothing_passes():
            crafted(verdicts, batch, side, other, seen, bench.wire_to(side))
    for check, near, far in (("after out", left, right), ("after in", right, left)):
        answers, said = near.ask(batch, far.side, SIZES[-1:], 1)
        for each in batch:
            verdicts.note(each, check, unanswered(answers.get(each.number), said))


def unanswered(answers, said):
    """Small ones come back at the first time of asking, large ones at least in the end; none comes back twice."""
    if answers is None:
        return f"the probe did not end: {said[-300:]}"
    lost = [f"{size} ({received} of {sent})" for size, (sent, received) in answers.items()
            if received == 0 or received > sent]
    return f"came back: {', '.join(lost)}" if lost else None


def refused(tallies, each, source, destination):
    """Plain traffic makes no association refuse anything."""
    for layer in each.layers(source, destination):
        tally = tallies.get((layer.protocol, layer.spi), Tally())
        if not tally.accepted or vars(tally) != vars(Tally(tally.accepted)):
            return f"{layer.protocol} {layer.spi:#x}: {tally}"
    return None


class Seen:
    """What was on the wire, by outer addresses and by association."""

    def __init__(self, frames):
        self.protocols = defaultdict(set)
        self.packets = defaultdict(dict)
        for packet, sealed in sealed_packets(frames):
            self.protocols[packet.source, packet.destination].add(packet.protocol)
            if sealed:
                self.packets[sealed.protocol, sealed.spi][sealed.sequence] = sealed

    def strange(self, each, left, right):
        due = UDP if each.encap == "udp" else {"esp": 50, "ah": 51}[each.outermost]
        for source, destination in ((left, right), (right, left)):
            found = self.protocols[each.outside(source), each.outside(destination)]
            if found != {due}:
                return f"protocols {sorted(found)} where {due} was due"
            if each.mode == "tunnel" and self.protocols.get((each.inside(source), each.inside(destination))):
                return "inner addresses are on the wire"
        return None


def crafted(verdicts, batch, side, other, seen, wire):
    """Packets of this side's peer once more, to fresh associations of this side."""
    side.renew(batch, other.side)
    before, no_sa = side.tallies(), side.totals()[0]["no-sa"]
    due = {}
    for each in batch:
        outermost = list(each.layers(other.side, side.side))[-1]
        packets = seen.packets[outermost.protocol, outermost.spi]
        script = Script(each, packets)
        if script.frames is None:
            verdicts.note(each, "crafted", f"of {len(packets)} packets on the wire none will do")
            continue
        due[each] = outermost, script.due
        for frame in script.frames:
            wire.inject(frame)
            # No queue on the way may overflow: what is lost would be taken for refused.
            time.sleep(0.0008)
    after = settled(side)
    for each, (layer, expected) in due.items():
        key = layer.protocol, layer.spi
        got = after.get(key, Tally()) - before.get(key, Tally())
        if each.esn:
            # Whether the guess of the high half is found wrong by the check value or once more by the window is a
            # matter of timing: the kernel's ciphers may work behind its back.
            got.old, got.forged = 0, got.forged + got.old
        if vars(got) != vars(expected):
            verdicts.note(each, f"crafted to {'left' if side.side is not RIGHT else 'right'}",
                          f"{got}; due were {expected}")
    if (counted := side.totals()[0]["no-sa"] - no_sa) != len(due):
        raise RuntimeError(f"{counted} packets were counted as of no association where {len(due)} were: {side.totals()[1]}")


class Script:
    """Which captured packets are given to the receiver, in order, and what it must make of them."""

    def __init__(self, each, packets):
        self.frames, self.due = None, Tally()
        top = self.newest(packets, each.window)
        if top is None:
            return
        newest = packets[top]
        self.frames = [newest.of_another_association()]
        if each.authenticated():
            forgeries = newest.forgeries()
            self.frames += forgeries.values()
            self.due.forged = len(forgeries)
        self.frames += [newest.again(), newest.again()]
        self.frames += [packets[top - INSIDE].again()] * 2
        self.due.accepted, self.due.replayed = (4, 0) if each.window == 0 else (2, 2)
        if 0 < each.window < 1000:
            self.frames += [packets[top - each.window].again(), packets[top - each.window + 1].again(),
                            packets[top - each.window].again()]
            self.due.accepted += 1
            # RFC 4304 3.3: left of the window, an extended number is taken for one of the next 2^32, and fails as such.
            if each.esn:
                self.due.forged += 2
            else:
                self.due.old += 2

    @staticmethod
    def newest(packets, window):
        """The highest number for which the others that are needed were captured too."""
        back = [INSIDE, *([window, window - 1] if 0 < window < 1000 else [])]
        for top in sorted(packets, reverse=True):
            if all(top - distance in packets for distance in back):
                return top
        return None


def batches(chosen):
    return [chosen[start:start + BATCH] for start in range(0, len(chosen), BATCH)]

