"""`esplanade plane move` under streams that fill the path, where packets come so closely that there is hardly a quiet
moment: how many datagrams are lost, come twice or are overtaken is printed, and not judged."""

import struct
import time

from keyed import start_both
from layers import CBC
from live_change import PORT, Stream
from moving import IPV4, MOVES, move, simple
from moving_ike import flows, moved_by_rekeys
from network.expect import expect
from network.timeout import slowed
from network.wire import ESP, UDP
from planes import STAND_IN, PlaneSites, carried, drops, secret, seen_without_a_tunnel, words

# Datagrams on the way, which no queue is too short for; without one that arrives for so long, they count as gone.
WINDOW, STALLED_SECONDS = 64, slowed(0.05)
# Between two looks at whether there is room for another one.
PAUSE_SECONDS = 0.0005
GOES_ON_LIMIT_SECONDS = slowed(10)
# Each takes six seconds and more.
MOVES_BY_REKEYS = 4


class FullStream(Stream):
    """As many datagrams as the path takes: another one leaves as soon as there is room for it."""

    def send(self):
        came, since = 0, time.monotonic()
        while not self.stopped:
            if len(self.stamps) != came:
                came, since = len(self.stamps), time.monotonic()
            if self.on_the_way() >= WINDOW:
                if time.monotonic() - since < STALLED_SECONDS:
                    time.sleep(PAUSE_SECONDS)
                    continue
                since = time.monotonic()
            self.sender.sendto(struct.pack("!Q", self.sent) + bytes(self.size - 8), (self.target, PORT))
            self.sent += 1

    def on_the_way(self):
        return self.sent - (self.stamps[-1] + 1 if self.stamps else 0)


def by_hand(kind):
    text, on_wire, _ = kind
    return lambda sites: [sites.start(name, text(name)) for name in ("left", "right")][0], on_wire, move, MOVES


def by_ike():
    return lambda sites: start_both(sites)[0], (ESP, UDP), moved_by_rekeys, MOVES_BY_REKEYS


def at_full_load(how):
    """What is asserted: nothing in clear, and after each move the streams go on."""
    start, on_wire, move_once, moves = how

    def test():
        with PlaneSites("mf", left="user", right="user") as sites:
            pairs = sites.pairs(IPV4)
            wire = seen_without_a_tunnel(sites, pairs)
            left = start(sites)
            flows(sites, pairs, wire)
            wire.clear()
            streams, began = [FullStream(sites, back=back) for back in (False, True)], time.monotonic()
            for turn in range(moves):
                goes_on(sites, streams, f"before move {turn + 1}")
                move_once(left, ("kernel", "user")[turn % 2])
                goes_on(sites, streams, f"after move {turn + 1}")
            figures = told(left, streams, began, moves)
            secret(wire.settle())
            carried(sites, pairs, wire, on_wire)
            return figures
    return test


def of_many_associations():
    """How long packets wait on the way to the user plane, which is printed."""
    if STAND_IN:
        return None
    waits = []
    for count in (2, 100, 1000):
        with PlaneSites("mf", left="user", right="user") as sites:
            text, _, _ = simple()
            left = sites.start("left", unused(count - 2) + text("left"))
            sites.start("right", text("right"))
            stream = Stream(sites)
            move(left, "kernel")
            micros = move(left, "user")["longest_wait_us"]
            sent, lost, overtaken = stream.finish()
            waits.append(f"{count}: {micros / 1000:.1f} ms, lost {lost} of {sent}, overtaken {overtaken}")
    return "; ".join(waits)


def unused(count):
    """Associations and policies of addresses that no host uses."""
    lines = []
    for number in range(count // 2):
        here, there = f"10.64.{number >> 8}.{number & 255}/32", f"10.65.{number >> 8}.{number & 255}/32"
        for way, (source, destination) in enumerate((("192.0.2.1", "192.0.2.2"), ("192.0.2.2", "192.0.2.1"))):
            inner = (here, there)[::1 - 2 * way]
            lines.append(f"add {source} {destination} esp {0x10000 + 2 * number + way:#x} -m tunnel -u {number + 10} "
                         f"{CBC.format(way + 1)};\n"
                         f"spdadd {inner[0]} {inner[1]} any -P {('out', 'in')[way]} "
                         f"ipsec esp/tunnel/{source}-{destination}/unique:{number + 10};")
    return "\n".join(lines) + "\n"


def goes_on(sites, streams, when):
    """Datagrams arrive that left just now."""
    due, deadline = [stream.sent for stream in streams], time.monotonic() + GOES_ON_LIMIT_SECONDS
    while any(not stream.stamps or stream.stamps[-1] < number for stream, number in zip(streams, due)):
        expect(time.monotonic() < deadline, f"{when} a stream does not go on: {words(sites)}")
        time.sleep(0.1)


def told(left, streams, began, moves):
    sent, lost, overtaken = (sum(column) for column in zip(*(stream.finish() for stream in streams)))
    rate = round(sent / (time.monotonic() - began))
    for stream in streams:
        stream.receiver.close()
        stream.sender.close()
    doubled = sum(stream.duplicated() for stream in streams)
    return (f"{moves} moves, {sent} datagrams, {rate} a second: lost {lost}, twice {doubled}, overtaken {overtaken}; "
            f"other-plane {drops(left).get('other-plane', 0)}")


CASES = {}
LONG = {
    "moved ten times at full load, beside user": at_full_load(by_hand(simple())),
    "moved ten times at full load, ESP in UDP, beside user": at_full_load(by_hand(simple(udp=True))),
    "moved with 2, 100 and 1000 associations": of_many_associations,
    "moved with keys of IKE four times at full load, beside user": at_full_load(by_ike()),
}
