#!/usr/bin/env python3
"""Every folder of scenarios/ through our user plane, our kernel plane and the kernel alone: equal verdicts, packet by
packet.

    tests/scenarios/run [--guest uml|qemu] [--only SUBJECT]... [-v] [WORD...]

SUBJECT is gateway, kernel or kernel-plane (subjects.py). Words select the scenarios whose names have each of them.

The peer is scapy: it seals what a scenario sends from outside and opens what the subject sends there. The subjects play
a scenario at the same time, each on its own. One boot of each guest serves all: `kernel-plane` needs QEMU's, `kernel`
takes that of --guest. `plane.py` adds what only `setkey --plane kernel` has to prove.
"""

import argparse
import os
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

HERE = os.path.dirname(os.path.abspath(__file__))
TESTS = os.path.dirname(HERE)
sys.path[:0] = [HERE, TESTS, os.path.join(TESTS, "interop"), os.path.join(TESTS, "..", "lab", "guest")]

import guest_gateway  # noqa: E402
import plane  # noqa: E402
from crafting import Crafter, Reader, is_answer, question  # noqa: E402
from guest import KINDS, guest_option  # noqa: E402
from guest_gateway import Namespace  # noqa: E402
from network.namespace import Network  # noqa: E402
from network.wire import Wire  # noqa: E402
from situation import load  # noqa: E402
from subjects import MACS, GatewaySubject, KernelPlaneSubject, KernelSubject, build_script  # noqa: E402

PACE_SECONDS = 0.004
# For an answer of a subject: an emulated one takes its time. A question that a starved guest has lost is asked again.
ANSWER_TIMEOUT_SECONDS, ASKED_AGAIN_SECONDS = 60, 5


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--only", action="append", choices=list(MACS), metavar="SUBJECT")
    guest_option(parser)
    parser.add_argument("-v", "--verbose", action="store_true")
    parser.add_argument("words", nargs="*")
    chosen = parser.parse_args()
    situations = load(chosen.words)
    started = time.monotonic()
    with Network("scn") as network, Bench(network, chosen) as bench:
        good = [bench.judge(situation) for situation in situations]
        if "kernel" in bench.subjects:
            good += [plane.say(name, check, bench.guests[chosen.guest]) for name, check in plane.CHECKS
                     if all(word in name for word in chosen.words)]
    print(f"{len(good)} verdicts in {time.monotonic() - started:.0f} s", flush=True)
    return 0 if good and all(good) else 1


@dataclass
class Outcome:
    """What a subject made of a scenario: what came of each packet by its number, what was counted, what it explains."""
    seen: dict
    drops: dict
    explained: list


class Bench:
    """The subjects and their wires, for all scenarios."""

    def __init__(self, network, chosen):
        self.verbose, self.guest_kind = chosen.verbose, chosen.guest
        self.network, self.runner = network, network.host("runner")
        self.kinds = chosen.only or list(MACS)
        self.subjects, self.guests = {}, {}

    def __enter__(self):
        # Its threads last as long as this: processes end with the thread that has started them.
        self.pool = ThreadPoolExecutor(len(MACS))
        try:
            wanted = {"kernel": self.guest_kind, "kernel-plane": guest_gateway.GUEST}
            kinds = dict.fromkeys(guest for subject, guest in wanted.items() if subject in self.kinds)
            list(self.pool.map(self.boot, kinds))
            makers = {"gateway": self.gateway, "kernel": self.kernel, "kernel-plane": self.kernel_plane}
            for kind in self.kinds:
                self.subjects[kind] = makers[kind]()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_):
        self.close()

    def close(self):
        for subject in self.subjects.values():
            subject.wire.close()
        for guest in self.guests.values():
            guest.stop()
        self.pool.shutdown()

    def boot(self, kind):
        self.runner.sh(f"ip tuntap add dev tap-{kind} mode tap; ip link set tap-{kind} up")
        started = time.monotonic()
        guest = KINDS[kind](self.runner.name, f"tap-{kind}", guest_gateway.programs())
        self.guests[kind] = guest
        print(f"guest ({kind}) up after {time.monotonic() - started:.1f} s", flush=True)
        in_guest(guest, """
            ip link add br0 type bridge ageing_time 0 mcast_snooping 0
            ip link set eth0 master br0 up; ip link set br0 up""")

    def gateway(self):
        host = self.network.host("subject")
        self.network.link(self.runner, "togateway", host, "eth0")
        self.runner.sh("ip link set togateway up")
        host.sh(build_script("eth0", "gateway"))
        return GatewaySubject(host, Wire(self.runner, "togateway"))

    def kernel(self):
        guest = self.guests[self.guest_kind]
        subject = KernelSubject(guest.right, Wire(self.runner, f"tap-{self.guest_kind}"))
        self.connect(guest, subject, "right")
        subject.sh("setsid encapsulate > /dev/null 2>&1 < /dev/null &")
        return subject

    def kernel_plane(self):
        guest = self.guests[guest_gateway.GUEST]
        guest_gateway.ready_for_gateways(guest.root)
        shell = Namespace(guest.root, guest.left, "plane")
        subject = KernelPlaneSubject(shell, Wire(self.runner, f"tap-{guest_gateway.GUEST}"))
        self.connect(guest, subject, "plane")
        return subject

    @staticmethod
    def connect(guest, subject, netns):
        """Gives its namespace a device on the guest's wire; two subjects of one guest do not see each other."""
        in_guest(guest, f"""
            ip link add to{netns} type veth peer name eth0 netns {netns}
            ip link set to{netns} master br0 up; ip link set to{netns} type bridge_slave isolated on
            ip -n {netns} link set lo up""")
        subject.sh(build_script("eth0", subject.kind))

    def judge(self, situation):
        started, outcomes, wrong = time.monotonic(), {}, []
        for kind, outcome, complaint in self.pool.map(lambda subject: self.tried(situation, subject),
                                                      self.able(situation)):
            if complaint:
                wrong.append(f"{kind}: {complaint}")
            elif outcome:
                outcomes[kind] = outcome
        wrong += complaints(situation, outcomes)
        self.say(situation, outcomes, wrong, time.monotonic() - started)
        return not wrong

    def able(self, situation):
        """The subjects that play a scenario; the other ones are named."""
        for kind, subject in self.subjects.items():
            if kind == "kernel" and situation.no_kernel:
                print(f"     {situation.name}: without the kernel alone: {situation.no_kernel}")
            elif kind == "kernel" and situation.guest not in ("", self.guest_kind):
                print(f"     {situation.name}: the kernel alone needs --guest {situation.guest}")
            else:
                yield subject

    def tried(self, situation, subject):
        """The subject's kind, what it made of the scenario, and what went wrong meanwhile."""
        try:
            if subject.kind == "kernel-plane" and situation.no_kernel:
                return subject.kind, None, not_refused(situation, subject)
            return subject.kind, self.play(situation, subject), None
        except Exception as error:
            return subject.kind, None, f"{type(error).__name__}: {error}"

    @staticmethod
    def play(situation, subject):
        crafter, reader = Crafter(situation, subject.mac), Reader(situation, subject.mac)
        try:
            subject.sh(situation.setup)
            subject.up(situation.setkey)
            subject.wire.clear()
            for packet in situation.packets:
                if packet.run:
                    # What was sent before is judged before: it has arrived when a later question is answered.
                    settled(subject)
                    subject.sh(packet.run)
                for frame in crafter.frames(packet):
                    subject.wire.inject(frame)
                    time.sleep(PACE_SECONDS)
            frames = settled(subject)
            drops = subject.drops()
            explained = [subject.explain(question) for question, _ in situation.explain]
        finally:
            subject.down()
            subject.sh(situation.cleanup)
        seen = {packet.number: [] for packet in situation.packets}
        for found in filter(None, map(reader.read, frames)):
            seen.setdefault(found[0], []).append(found[1])
        return Outcome(seen, drops, explained)

    def say(self, situation, outcomes, wrong, seconds):
        counted = "; ".join(f"{kind} {words(outcome.drops)}" for kind, outcome in outcomes.items())
        for complaint in wrong:
            print(f"     {situation.name}: {complaint}")
        if self.verbose or wrong:
            for kind, outcome in outcomes.items():
                for packet in situation.packets:
                    print(f"     {kind} {packet.number} {packet.name}: {outcome.seen[packet.number] or 'nothing'}")
        verdict = "not ok" if wrong else "ok"
        print(f"{verdict} scenario {situation.name}: {len(situation.packets)} packets; {counted} ({seconds:.1f} s)",
              flush=True)


def in_guest(guest, script):
    status, output = guest.root.run(f"set -e; {script}")
    if status:
        raise SystemExit(f"the guest's network could not be made:\n{output}")


def not_refused(situation, subject):
    """No kernel can do it: the kernel plane refuses it by the name of the algorithm before anything changes."""
    said = subject.refusal(situation.setkey)
    due = {association.mac[0] for association in situation.peer.values()}
    if said is None or not any(name in said for name in due):
        return f"it does not refuse {', '.join(due)} by name: {said or 'it starts'}"
    return None


def complaints(situation, outcomes):
    """What is wrong with the outcomes, by subject."""
    for kind, outcome in outcomes.items():
        yield from (f"{kind}: {complaint}" for complaint in expectations(situation, outcome.seen, kind))
        yield from (f"{kind}: {complaint}" for complaint in subject_says(situation, outcome.explained))
    if "gateway" in outcomes:
        yield from reasons(situation, outcomes["gateway"].drops)
        for kind in ("kernel", "kernel-plane"):
            if kind in outcomes:
                yield from differences(situation, outcomes["gateway"].seen, outcomes[kind].seen, kind)


def settled(subject):
    """Everything that came, once a question sent last has been answered."""
    wire = subject.wire
    answered = answers(subject)
    started = time.monotonic()
    asked = 0
    while answers(subject) <= answered:
        waited = time.monotonic() - started
        if waited > ANSWER_TIMEOUT_SECONDS:
            raise TimeoutError(f"the subject does not answer within {ANSWER_TIMEOUT_SECONDS} s")
        if waited >= asked * ASKED_AGAIN_SECONDS:
            asked += 1
            wire.inject(question())
        time.sleep(0.02)
    return wire.settle(0.2)


def answers(subject):
    return sum(is_answer(frame, subject.mac) for frame in subject.wire.frames)


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


def differences(situation, by_gateway, by_other, kind):
    """The gateway and the subject of this kind deliver the same, bit for bit, but where the scenario says why they differ."""
    for packet in situation.packets:
        left, right = (comparable(packet, seen[packet.number]) for seen in (by_gateway, by_other))
        reason = packet.reason(kind)
        if left != right and not reason:
            yield f"{packet.name}: they differ: gateway {left or 'nothing'}, {kind} {right or 'nothing'}"
        # Where the kernel alone differs, and both planes of the gateway do the same, there is no difference here.
        if left == right and reason and not (kind == "kernel-plane" and packet.plane == packet.expect):
            yield f"{packet.name}: {kind} does not differ after all; take the reason out"


def subject_says(situation, explained):
    """What `esplanade explain` answers to the questions of the scenario; the kernel alone answers none."""
    for (question, due), said in zip(situation.explain, explained):
        if said is not None and due not in said:
            yield f"explain {question}: does not say {due!r}: {said}"


def comparable(packet, descriptions):
    """An answer is a packet of the subject's own, whose identification is not compared."""
    if packet.expect != "answered":
        return descriptions
    return [description.rsplit(" sum=", 1)[0] for description in descriptions]


def words(counts):
    return ", ".join(f"{name} {count}" for name, count in sorted(counts.items())) or "no drops"


if __name__ == "__main__":
    sys.exit(main())
