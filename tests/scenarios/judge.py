#!/usr/bin/env python3
"""Every folder of scenarios/ through our plane and through the kernel's: equal verdicts, packet by packet.

    tests/scenarios/run [--guest uml|qemu] [--only-gateway | --only-kernel] [-v] [WORD...]

Words select the scenarios whose names have each of them.

The peer is scapy: it seals what a scenario sends from outside and opens what the subject sends there. One boot of the
guest serves all. `plane.py` adds what only the kernel's plane has to prove.
"""

import argparse
import os
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
TESTS = os.path.dirname(HERE)
sys.path[:0] = [HERE, TESTS, os.path.join(TESTS, "interop"), os.path.join(TESTS, "..", "lab", "guest")]

import plane  # noqa: E402
from crafting import Crafter, Reader, is_answer, question  # noqa: E402
from guest import KINDS, guest_option  # noqa: E402
from network.gateway import program  # noqa: E402
from network.namespace import Network  # noqa: E402
from network.wire import Wire  # noqa: E402
from situation import load  # noqa: E402
from subjects import GatewaySubject, KernelSubject, build_script  # noqa: E402

PACE = 0.004
PATIENCE = 20


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--only-gateway", action="store_true")
    parser.add_argument("--only-kernel", action="store_true")
    guest_option(parser)
    parser.add_argument("-v", "--verbose", action="store_true")
    parser.add_argument("words", nargs="*")
    chosen = parser.parse_args()
    situations = load(chosen.words)
    with Network("scn") as network:
        bench = Bench(network, chosen)
        try:
            good = [bench.judge(situation) for situation in situations]
            if bench.guest is not None:
                good += [plane.say(name, check, bench.guest) for name, check in plane.CHECKS
                         if all(word in name for word in chosen.words)]
        finally:
            bench.close()
    return 0 if good and all(good) else 1


class Bench:
    """The subjects and their wires, for all scenarios."""

    def __init__(self, network, chosen):
        self.verbose = chosen.verbose
        self.subjects, self.guest, self.explained = [], None, []
        self.guest_kind = chosen.guest
        runner = network.host("runner")
        if not chosen.only_kernel:
            self.subjects.append(self.gateway(network, runner))
        if not chosen.only_gateway:
            self.subjects.append(self.kernel(runner, chosen.guest))

    @staticmethod
    def gateway(network, runner):
        host = network.host("subject")
        network.link(runner, "togateway", host, "eth0")
        runner.sh("ip link set togateway up")
        host.sh(build_script("eth0"))
        return GatewaySubject(host, Wire(runner, "togateway"))

    def kernel(self, runner, kind):
        runner.sh("ip tuntap add dev tap0 mode tap; ip link set tap0 up")
        started = time.monotonic()
        self.guest = KINDS[kind](runner.name, "tap0", [program("setkey"), program("esplanade"), "/usr/sbin/nft"])
        print(f"guest ({kind}) up after {time.monotonic() - started:.1f} s", flush=True)
        status, output = self.guest.root.run("""set -e
            ip link add br0 type bridge ageing_time 0 mcast_snooping 0
            ip link add toright type veth peer name eth0 netns right
            for port in eth0 toright; do ip link set $port master br0 up; done
            ip link set br0 up; ip -n right link set lo up""")
        if status == 0:
            status, output = self.guest.right.run(
                build_script("eth0") + "\nsetsid encapsulate > /dev/null 2>&1 < /dev/null &")
        if status:
            raise SystemExit(f"the guest's network could not be made:\n{output}")
        return KernelSubject(self.guest.right, Wire(runner, "tap0"))

    def judge(self, situation):
        started, outcomes, wrong = time.monotonic(), {}, []
        for subject in self.subjects:
            if subject.kind == "kernel" and situation.no_kernel:
                print(f"     {situation.name}: our gateway alone: {situation.no_kernel}")
                continue
            if subject.kind == "kernel" and situation.guest not in ("", self.guest_kind):
                print(f"     {situation.name}: the kernel's plane is left to --guest {situation.guest}: this guest's has not all it needs")
                continue
            try:
                outcomes[subject.kind] = self.play(situation, subject)
            except Exception as error:
                wrong.append(f"{subject.kind}: {type(error).__name__}: {error}")
        for kind, (seen, drops) in outcomes.items():
            wrong += [f"{kind}: {complaint}" for complaint in expectations(situation, seen, kind)]
            if kind == "gateway":
                wrong += reasons(situation, drops)
                wrong += subject_says(situation, self.explained)
        if len(outcomes) == 2:
            wrong += differences(situation, outcomes["gateway"][0], outcomes["kernel"][0])
        self.say(situation, outcomes, wrong, time.monotonic() - started)
        return not wrong

    def play(self, situation, subject):
        """What came of each packet, and what was counted."""
        crafter, reader = Crafter(situation), Reader(situation)
        try:
            subject.sh(situation.setup)
            subject.up(situation.setkey)
            subject.wire.clear()
            for packet in situation.packets:
                if packet.run:
                    # What was sent before is judged before: it has arrived when a later question is answered.
                    settled(subject.wire)
                    subject.sh(packet.run)
                for frame in crafter.frames(packet):
                    subject.wire.inject(frame)
                    time.sleep(PACE)
            frames = settled(subject.wire)
            drops = subject.drops()
            if subject.kind == "gateway":
                self.explained = [subject.explain(question) for question, _ in situation.explain]
        finally:
            subject.down()
            subject.sh(situation.cleanup)
        seen = {packet.number: [] for packet in situation.packets}
        for found in filter(None, map(reader.read, frames)):
            seen.setdefault(found[0], []).append(found[1])
        return seen, drops

    def say(self, situation, outcomes, wrong, seconds):
        counted = "; ".join(f"{kind} {words(drops)}" for kind, (_, drops) in outcomes.items())
        for complaint in wrong:
            print(f"     {situation.name}: {complaint}")
        if self.verbose or wrong:
            for kind, (seen, _) in outcomes.items():
                for packet in situation.packets:
                    print(f"     {kind} {packet.number} {packet.name}: {seen[packet.number] or 'nothing'}")
        verdict = "not ok" if wrong else "ok"
        print(f"{verdict} scenario {situation.name}: {len(situation.packets)} packets; {counted} ({seconds:.1f} s)", flush=True)

    def close(self):
        for subject in self.subjects:
            subject.wire.close()
        if self.guest is not None:
            self.guest.stop()


def settled(wire):
    """Everything that came, once a question sent last has been answered."""
    answered = sum(map(is_answer, wire.frames))
    wire.inject(question())
    deadline = time.monotonic() + PATIENCE
    while sum(map(is_answer, wire.frames)) <= answered:
        if time.monotonic() > deadline:
            raise TimeoutError(f"the subject does not answer within {PATIENCE} s")
        time.sleep(0.02)
    return wire.settle(0.2)


def expectations(situation, seen, kind):
    """What came and was not due, or was due and did not come."""
    if None in seen:
        yield f"sent something that the peer cannot read: {seen[None][0]}"
    for packet in situation.packets:
        expected = packet.due(kind)
        got, due = seen[packet.number], 0 if expected == "nothing" else packet.repeat or 1
        if len(got) != due:
            yield f"{packet.name}: {len(got)} came where {due} were due"
        for description in got:
            yield from (f"{packet.name}: {why}" for why in unlike(packet, expected, description))


def unlike(packet, expected, description):
    if expected == "answered":
        # Under protection if the question was; in clear the answer goes where the question came from.
        expected = {"lan": "lan", "wire": "clear"}.get(str(packet.send), "protected")
    if not description.startswith(f"{expected},"):
        yield f"came out otherwise: {description}"
    for spi in packet.by or []:
        if f"{spi:#x} in" not in description:
            yield f"not by {spi:#x}: {description}"
    for detail in packet.shows or []:
        if detail not in description:
            yield f"does not show {detail}: {description}"


def reasons(situation, drops):
    """Our counters are exactly the reasons that the scenario names."""
    due = {}
    for packet in situation.packets:
        if packet.why:
            due[packet.why] = due.get(packet.why, 0) + (packet.repeat or 1)
    return [] if drops == due else [f"gateway: counted {words(drops)} where {words(due)} was due"]


def differences(situation, ours, theirs):
    """Both planes deliver the same, bit for bit, but where the scenario says why they differ."""
    for packet in situation.packets:
        left, right = (comparable(packet, seen[packet.number]) for seen in (ours, theirs))
        if left != right and not packet.because:
            yield f"{packet.name}: the planes differ: gateway {left or 'nothing'}, kernel {right or 'nothing'}"
        if left == right and packet.because:
            yield f"{packet.name}: the planes do not differ after all; take `because` out"


def subject_says(situation, explained):
    """What `esplanade explain` answers to the questions of the scenario."""
    for (question, due), said in zip(situation.explain, explained):
        if due not in said:
            yield f"explain {question}: does not say {due!r}: {said}"


def comparable(packet, descriptions):
    """An answer is a packet of the subject's own, whose identification is nobody's business."""
    if packet.expect != "answered":
        return descriptions
    return [description.rsplit(" sum=", 1)[0] for description in descriptions]


def words(counts):
    return ", ".join(f"{name} {count}" for name, count in sorted(counts.items())) or "no drops"


if __name__ == "__main__":
    sys.exit(main())
