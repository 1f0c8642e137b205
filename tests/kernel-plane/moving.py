"""`esplanade plane move`: a gateway under traffic goes to the kernel's plane and back, over and over."""

import json
import os
import re
import socket
import struct
import threading
import time
from collections import Counter

from compression import DEFLATE
from layers import CBC, SHA256
from layers import text as layered
from live_change import Stream
from network.expect import expect
from network.refuser import AND_KILL, ERRORS, KILL, Refuser
from network.sites import AES_GCM, NETS, OUTER, setkey_text
from network.timeout import slowed
from network.wire import ESP, IP4, UDP, Esp
from planes import (AH, STAND_IN, PlaneSites, canaries, carried, faults, no_faults, says_its_plane, secret,
                    seen_without_a_tunnel, states, words)
from policies import Events
from refusing import spread, with_option
from restart import IIV

PACE = slowed(0.004)
MOVES = 10
FEW_MOVES = 4
OTHER = {"kernel": "user", "user": "kernel"}
IPV4 = (4,)
EVERY = os.environ.get("ESPLANADE_EVERY_CALL") == "1"
CHOSEN_WRITES = 10
# A template that need not be applied; IPComp's never need.
OPTIONAL = re.compile(r"proto (?!comp)\S+ reqid \S+ mode \w+\s+level use")
# What a gateway has in the kernel, without numbers, counters and times.
WHAT_IT_HAS = """ip xfrm state | grep -E '^src|proto'; ip xfrm policy | grep -vE 'index|socket'
    ip -o link | cut -d: -f2 | cut -d@ -f1; ip rule; ip -6 rule; ip route show table all; ip -6 route show table all
    nft -s list ruleset; tc qdisc show | grep clsact || true"""


def keyed(name, suite=CBC, more="", inner=(4, 6), udp=False):
    return setkey_text(name, udp=udp, suite=suite, inner=inner).replace("-r 1024", f"-r 1024 {more}")


def simple(suite=CBC, udp=False, more=""):
    """The text of a side, what shows on the wire, and how many associations there are."""
    return lambda name: keyed(name, suite, more, udp=udp), (UDP,) if udp else (ESP,), 2


def without_window():
    """As setkey's language has it where nothing is said."""
    text, *rest = simple()
    return lambda name: text(name).replace("-r 1024", "-r 0"), *rest


def bundle(*layers, udp=False):
    """The same of several associations one inside the other, innermost first."""
    on_wire = UDP if udp else AH if layers[-1][0] == "ah" else ESP
    in_udp = " esp-udp 0x" if udp else " esp 0x"
    return (lambda name: layered(name, 4, layers, list(NETS.values())).replace(" esp 0x", in_udp), (on_wire,),
            2 * len(layers))


ESP_IN_AH = bundle(("esp", "tunnel", CBC), ("ah", "transport", SHA256))
IPCOMP_IN_ESP = bundle(("ipcomp", "tunnel", DEFLATE), ("esp", "transport", CBC))
IPCOMP_IN_UDP = bundle(("ipcomp", "tunnel", DEFLATE), ("esp", "transport", CBC), udp=True)
ALL_THREE = bundle(("ipcomp", "tunnel", DEFLATE), ("esp", "transport", CBC), ("ah", "transport", SHA256))


def in_transport_mode():
    """Between the gateways themselves."""
    def text(name):
        return layered(name, 4, [("esp", "transport", CBC)], [OUTER[4]])
    return text, (ESP,), 2


class GatewayStream(Stream):
    """From one gateway to the other."""

    @staticmethod
    def ends(sites, family):
        return list(zip((sites.left, sites.right), OUTER[family]))


def move(gateway, to, *more):
    """The answer, where there is a kernel's plane."""
    if STAND_IN:
        return None
    status, output = gateway.attempt("plane", "move", "--to", to, "--json", *more)
    expect(status == 0, f"exit status {status}: {output}{gateway.words()}exit status {gateway.process.poll()}")
    told = json.loads(output)
    expect((told["plane"], told["moved"]) == (to, True), f"{told}")
    # Packets that wait in the TUN device, which the way to the kernel does not have.
    expect(("longest_wait_us" in told) == (to == "user"), f"{told}")
    says_its_plane(gateway, to)
    return told


class Transfers:
    """TCP, there and back, over and over until it ends; as long as each takes there is none, so that it is half load."""

    def __init__(self, pair):
        self.pair, self.stopped, self.count, self.trouble = pair, False, 0, []
        self.thread = threading.Thread(target=self.work, daemon=True)
        self.thread.start()

    def work(self):
        while not self.stopped:
            began = time.monotonic()
            trouble = self.pair.transfer()
            time.sleep(time.monotonic() - began)
            self.count += 1
            self.trouble += [trouble] if trouble else []

    def finish(self):
        self.stopped = True
        self.thread.join()
        expect(not self.trouble, f"TCP: {self.trouble}")
        return self.count


def counted(gateway):
    """Packets of each association, by its SPI. IPComp counts what becomes shorter alone."""
    return {sa["spi"]: sa["packets"] for sa in gateway.status()["associations"] if sa["protocol"] != "ipcomp"}


def moved_under_traffic(other, kind=None, more=(), begin="user", moves=MOVES, is_lossless=True, stream=Stream):
    """Moves of one gateway, beside one that stays."""
    text, on_wire, associations = kind or simple()
    families = (4, 6)

    def test():
        with PlaneSites("mv", left=begin, right=other) as sites:
            pairs = sites.pairs(families) if stream is Stream else sites.gateways_themselves(4)
            wire = seen_without_a_tunnel(sites, pairs)
            left, _ = (sites.start(name, text(name)) for name in ("left", "right"))
            carried(sites, pairs, wire, on_wire)
            events = Events(left)
            known = faults(sites)
            wire.clear()
            streams = [stream(sites, family, back, pace=PACE) for family in families[:1] for back in (False, True)]
            transfers = Transfers(pairs[-1])
            before, begun = counted(left), []
            for turn in range(moves):
                begun.append([one.sent for one in streams])
                move(left, (OTHER[begin], begin)[turn % 2], *more)
                time.sleep(slowed(0.1))
                after = counted(left)
                expect(all(after[spi] > count for spi, count in before.items()),
                       f"counters after move {turn + 1}: {before}, then {after}")
                before = after
            sent, lost, reordered = (sum(column) for column in zip(*(one.finish() for one in streams)))
            done = transfers.finish()
            doubled = sum(one.duplicated() for one in streams)
            secret(wire.settle())
            expect((lost if is_lossless else 0, doubled, reordered) == (0, 0, 0),
                   f"of {sent} lost {lost}, twice {doubled}, reordered {reordered}: "
                   f"{[one.overtaken() for one in streams]}, moves began at {begun}\n{words(sites)}")
            # In transport mode what the kernel seals between two calls of a move reaches our threads.
            if stream is Stream:
                no_faults(sites, known)
            waits = []
            if not STAND_IN:
                told = [event for event in events.all() if event["event"] == "plane-moved"]
                expect(len(told) == moves and told[0]["to"] == OTHER[begin] and told[0]["associations"] == associations,
                       f"{told}")
                waits = [event["longest_wait_us"] for event in told if event["to"] == "user"]
            carried(sites, pairs, wire, on_wire)
            waited = f", packets waited {max(waits) / 1000:.1f} ms at most" if waits else ""
            return f"{moves} moves, {sent} datagrams, lost {lost}, twice 0, reordered 0, {done} TCP transfers{waited}"
    return test


def the_kernel_has_it(kind):
    """After a move the kernel carries: its own counters rise, and there is no TUN device; after the next neither."""
    if STAND_IN:
        return
    text, on_wire, associations = kind
    with PlaneSites("mv", left="user", right="user") as sites:
        left, _ = (sites.start(name, text(name)) for name in ("left", "right"))
        expect(sites.ping() == 3, f"no ping at first: {words(sites)}")
        move(left, "kernel")
        expect(sites.ping() == 3, f"no ping on the kernel's plane: {words(sites)}")
        told = states(sites.left)
        expect(sum(state["protocol"] in ("esp", "ah", "comp") for state in told) == associations, f"{told}")
        # What does not become shorter is not compressed.
        expect(all(state["packets"] >= 3 for state in told if state["protocol"] in ("esp", "ah")), f"{told}")
        expect(sites.left.attempt("ip link show esp0")[0] != 0, "there is still an esp0")
        policies = sites.left.sh("ip xfrm policy")
        expect(not OPTIONAL.search(policies), f"policies that need not be applied:\n{policies}")
        move(left, "user")
        expect(sites.ping() == 3, f"no ping on our own data plane: {words(sites)}")
        left_behind = sites.left.sh("ip xfrm state; ip xfrm policy | grep tmpl || true")
        expect(not left_behind.strip(), f"left in the kernel:\n{left_behind}")
        expect(json.loads(left.ask("plane", "--json"))["plane"] == "user", "`plane` does not say user")
        wire = sites.listen(sites.wire, "left")
        carried(sites, sites.pairs(), wire, on_wire)
        left.ask("down")
        left.process.wait()
        rest = sites.left.sh("ip xfrm state; ip xfrm policy; nft list ruleset; ip rule | grep '^1[0-9]*:' || true")
        expect(not rest.strip(), f"`down` left:\n{rest}")


REFUSED = {
    "a window above 4096": (lambda: keyed("left").replace("-r 1024", "-r 8192"), (), "4096"),
    "-o aggfrag": (lambda: keyed("left", more="-o aggfrag"), (), "aggfrag"),
    "-o dummy": (lambda: keyed("left", more="-o dummy=5"), (), "dummy"),
    "-o spread": (lambda: spread().replace("esp-udp", "esp").replace(AES_GCM.format(1), CBC)
                  .replace(AES_GCM.format(2), CBC), (), "spread"),
    "AES-GCM without --same-keys": (lambda: keyed("left", AES_GCM), (), "--same-keys"),
    "an implicit IV whatever is said": (lambda: keyed("left", IIV, "-o key=fresh"), ("--same-keys",), "iiv"),
    "a device of its own": (lambda: with_option("-o interface=vpn0"), ("--same-keys",), "vpn0"),
}


def refused():
    """By name, and nothing has changed."""
    if STAND_IN:
        return None
    everything = "ip xfrm state; ip xfrm policy; ip rule; ip route show table all; nft list ruleset | grep -v counter"
    with PlaneSites("mv", left="user", right="user") as sites:
        for name, (text, options, word) in REFUSED.items():
            left = sites.start("left", text())
            before = sites.left.sh(everything)
            status, output = left.attempt("plane", "move", "--to", "kernel", *options)
            expect(status not in (0, 101) and word in output.lower() and "nothing was changed" in output,
                   f"{name}: exit status {status}, {output}")
            after = sites.left.sh(everything)
            expect(before == after, f"{name}: before\n{before}\nafter\n{after}")
            expect(left.status()["plane"] == "user", f"{name}: another plane")
            left.ask("down")
            left.process.wait()
        return f"{len(REFUSED)} gateways"


def a_nonce_that_would_come_twice():
    """The kernel's salt shows in the first packet that leaves by its association. Here that is a forged one, by which
    the kernel's nonces would meet those of the user plane, and the association ends. Behind a true one it does
    nothing."""
    if STAND_IN:
        return
    with PlaneSites("mv", left="user", right="user") as sites:
        pairs = sites.pairs(IPV4)
        wire = seen_without_a_tunnel(sites, pairs)
        left, _ = (sites.start(name, keyed(name, AES_GCM, inner=IPV4)) for name in ("left", "right"))
        wire.clear()
        expect(all(pairs[0].pings()), "no ping on our own data plane")
        sealed = next(esp for esp in map(Esp.find, wire.settle()) if esp and esp.spi == LEFT_SPI)
        # What belongs to the first number.
        met = int.from_bytes(sealed.frame[sealed.offset + 8:sealed.offset + 16], "big") - sealed.sequence + 1
        move(left, "kernel", "--same-keys")
        expect(all(pairs[0].pings()), "no ping on the kernel's plane")
        time.sleep(slowed(1.5))
        forge(left, met)
        time.sleep(slowed(1.5))
        expect(len(states(sites.left)) == 2 and all(pairs[0].pings()), "a packet behind the first one ended it")
        move(left, "user", "--same-keys")
        events = Events(left)
        move(left, "kernel", "--same-keys")
        forge(left, met)
        deadline = time.monotonic() + slowed(10)
        while len(states(sites.left)) == 2:
            expect(time.monotonic() < deadline, f"it has not ended: {words(sites)}")
            time.sleep(0.1)
        expect([event["spi"] for event in events.all() if event["event"] == "sa-expired"] == ["0x00001001"],
               f"{events.all()}")
        wire.clear()
        expect(not any(pairs[0].pings()), "pings come back")
        expect(not canaries(wire.settle()), "in clear")
        expect("a nonce again" in left.words(), left.words())


FORGED_NUMBER, MET_NUMBER = 1 << 20, 1 << 21
LEFT_SPI = 0x1001


def forge(gateway, met):
    """What the kernel would send whose nonce is `met` with another number."""
    nonce = (met ^ MET_NUMBER ^ FORGED_NUMBER) % (1 << 64)
    esp = struct.pack("!IIQ", LEFT_SPI, FORGED_NUMBER, nonce) + bytes(48)
    header = struct.pack("!BBHHHBBH4s4s", 0x45, 0, 20 + len(esp), 0, 0, 64, ESP, 0,
                         *(socket.inet_aton(address) for address in OUTER[4]))
    with gateway.host.socket(socket.AF_PACKET, socket.SOCK_DGRAM) as sender:
        sender.sendto(header + esp, ("wan", IP4, 0, 0, b"\xff" * 6))


def killed_on_the_other_plane():
    """Killed after a move, started again with its own options: nothing in clear, it carries, and what the kernel has
    opened meanwhile is not opened again."""
    if STAND_IN:
        return
    with PlaneSites("mv", left="user", right="user") as sites:
        pairs = sites.pairs(IPV4)
        wire = seen_without_a_tunnel(sites, pairs)
        left, _ = (sites.start(name, keyed(name, inner=IPV4)) for name in ("left", "right"))
        move(left, "kernel")
        carried(sites, pairs, wire, (ESP,))
        left.process.kill()
        left.process.wait()
        wire.clear()
        pairs[0].pings()
        frames = wire.settle()
        expect(not canaries(frames), "in clear after it was killed")
        secret(frames)
        opened = {f"{state['spi']:#010x}": highest for state in states(sites.left) if (highest := received(state)) > 0}
        left.start().ready()
        goes_on = {sa["spi"]: sa["sequence"] for sa in left.status()["associations"]}
        expect(opened and all(goes_on[spi] >= highest for spi, highest in opened.items()),
               f"the kernel had opened {opened}, and it goes on at {goes_on}")
        carried(sites, pairs, wire, (ESP,))


def received(state):
    """The highest sequence number that the kernel has opened."""
    found = re.search(r"seq-hi 0x\w+, seq (0x\w+)", state["text"])
    return int(found[1], 16) if found else 0


def killed_at_writes(to):
    """Instead of a write to the kernel's configuration: each of them by ESPLANADE_EVERY_CALL=1. Started again on the
    plane of its options it has nothing from the move in the kernel."""
    def test():
        if STAND_IN:
            return None
        refuser, own = Refuser(), ("kernel", "user")[to == "kernel"]
        try:
            with PlaneSites("mv", left=own, right="user") as sites:
                pairs = sites.pairs(IPV4)
                wire = seen_without_a_tunnel(sites, pairs)
                left, _ = (sites.start(name, keyed(name, inner=IPV4), wrap=wrap)
                           for name, wrap in (("left", refuser.wrap), ("right", ())))
                there = what_it_has(left)
                calls = writes_of_a_move(left, refuser, to)
                again(left, refuser, there, "after a move")
                chosen = range(1, calls + 1, 1 if EVERY else max(1, calls // CHOSEN_WRITES))
                killed = 0
                for call in chosen:
                    killed += killed_at(left, refuser, call, to)
                    came = pairs[0].pings()
                    secret(wire.settle())
                    again(left, refuser, there, f"killed at write {call}, of 3 pings came {came},")
                    # How soon is no matter here.
                    expect(all(came := pairs[0].pings()), f"of 3 pings came back {came}\n{words(sites)}")
                # Those counted are also of what the gateway does after the move.
                expect(killed >= len(chosen) // 2, f"killed at {killed} of {list(chosen)} writes")
                carried(sites, pairs, wire, (ESP,))
                return f"killed at {killed} of {calls} writes"
        finally:
            refuser.close()
    return test


def killed_at(gateway, refuser, call, to):
    """Whether a move came to that write."""
    refuser.refuse(call, AND_KILL)
    gateway.attempt("plane", "move", "--to", to)
    return refuser.refused() == 1


def again(gateway, refuser, there, when):
    refuser.refuse(0)
    gateway.again(KILL)
    told = what_it_has(gateway)
    expect(told == there, f"{when} and a start there is\n{told - there}\nand there is not\n{there - told}")


def writes_of_a_move(gateway, refuser, to):
    refuser.refuse(0)
    move(gateway, to)
    calls = refuser.counted()
    expect(calls > 10, f"the control failed: {calls} writes were seen")
    return calls


def move_with_a_refused_write(gateway, refuser, call, to):
    """Whether the move came to that write, the plane afterwards, which is the one that the exit status says, and the
    answer."""
    refuser.refuse(call, ERRORS[call % len(ERRORS)])
    status, output = gateway.attempt("plane", "move", "--to", to)
    was_refused = refuser.refused()
    refuser.refuse(0)
    plane = gateway.status()["plane"]
    expect((status == 0) == (plane == to), f"write {call}: exit status {status}, plane {plane}: {output}")
    return was_refused, plane, output


def writes_that_fail(to):
    """Each leaves a gateway that carries in both directions, on the plane that the answer says; each of them by
    ESPLANADE_EVERY_CALL=1."""
    def test():
        if STAND_IN:
            return None
        refuser, own = Refuser(), OTHER[to]
        try:
            with PlaneSites("mv", left=own, right="user") as sites:
                pairs = sites.pairs(IPV4)
                wire = seen_without_a_tunnel(sites, pairs)
                left, _ = (sites.start(name, ESP_IN_AH[0](name), wrap=wrap)
                           for name, wrap in (("left", refuser.wrap), ("right", ())))
                calls = writes_of_a_move(left, refuser, to)
                move(left, own)
                outcomes = Counter()
                for call in range(1, calls + 1, 1 if EVERY else max(1, calls // CHOSEN_WRITES)):
                    was_refused, plane, output = move_with_a_refused_write(left, refuser, call, to)
                    came = pairs[0].pings()
                    expect(came == [3, 3], f"write {call}, {output}: of 3 pings came {came}\n{words(sites)}")
                    secret(wire.settle())
                    if plane == to:
                        move(left, own)
                    outcomes["moved" if plane == to else "undone"] += was_refused
                expect(outcomes["undone"] > len(outcomes), f"{outcomes} of {calls} writes")
                carried(sites, pairs, wire, (AH,))
                return f"of {calls} writes: {dict(outcomes)}"
        finally:
            refuser.close()
    return test


def what_it_has(gateway):
    """Lines that say what a gateway has in the kernel, and how many there are of each."""
    return Counter(gateway.host.sh(WHAT_IT_HAS).splitlines())


CASES = {
    "a move leaves nothing behind on the plane that it leaves": lambda: the_kernel_has_it(simple()),
    "a move of IPComp in ESP in AH leaves nothing behind": lambda: the_kernel_has_it(ALL_THREE),
    "a move that the kernel cannot carry is refused by name": refused,
    "moved there and back under traffic, from the kernel's plane":
        moved_under_traffic("user", begin="kernel", moves=FEW_MOVES),
}
# On a busy machine some packets still change places: docs/kernel-plane.md.
LONG = {
    "moved ten times under traffic, beside user": moved_under_traffic("user"),
    "moved ten times under traffic, ESP in UDP, beside user": moved_under_traffic("user", simple(udp=True)),
    "moved ten times under traffic, beside kernel": moved_under_traffic("kernel"),
    "moved ten times under traffic with --same-keys, beside user":
        moved_under_traffic("user", simple(AES_GCM), ("--same-keys",)),
    "moved ten times under traffic, ESP in AH, beside user": moved_under_traffic("user", ESP_IN_AH),
    "moved ten times under traffic, ESP in AH, beside kernel": moved_under_traffic("kernel", ESP_IN_AH),
    "moved ten times under traffic, IPComp in ESP, beside user": moved_under_traffic("user", IPCOMP_IN_ESP),
    "moved ten times under traffic, IPComp in ESP in UDP, beside user": moved_under_traffic("user", IPCOMP_IN_UDP),
    "moved ten times under traffic, IPComp in ESP in AH, beside kernel": moved_under_traffic("kernel", ALL_THREE),
    "moved ten times under traffic, begun by the kernel, beside user": moved_under_traffic("user", begin="kernel"),
    "moved ten times under traffic, begun by the kernel, extended numbers, beside kernel":
        moved_under_traffic("kernel", simple(more="-o esn"), begin="kernel"),
    "moved ten times under traffic, without a replay window, beside user":
        moved_under_traffic("user", without_window(), is_lossless=False),
    "moved ten times under traffic, in transport mode, beside user":
        moved_under_traffic("user", in_transport_mode(), is_lossless=False, stream=GatewayStream),
    "a nonce that would come twice ends an association": a_nonce_that_would_come_twice,
    "killed after a move and started again": killed_on_the_other_plane,
    "writes of a move to the kernel that fail": writes_that_fail("kernel"),
    "writes of a move to user that fail": writes_that_fail("user"),
    "killed at writes of a move to the kernel": killed_at_writes("kernel"),
    "killed at writes of a move to user": killed_at_writes("user"),
}
