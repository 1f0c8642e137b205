"""What must hold between two ends. Each check says what is wrong, or nothing."""

import re
import struct

from network.wire import ESP, LONGEST_FRAME, UDP, Esp, Packet

from sides import FILE_SIZE, target

# Bytes, how many, and how many must come back: near the path's limit and beyond it the first one
# or two may be lost, which is how their sender learns the path MTU.
PINGS = [(56, 3, 3), (1000, 3, 3), (1420, 4, 2), (3000, 4, 2)]

# Frames of a compressed ping of 1000 bytes or more. The small ping is shorter, and so are the ends of fragmented ones.
COMPRESSED = range(320, 700)


def pings(case, near, far):
    """Every small ping returns; large ones return once the path MTU is known."""
    script = "\n".join(f"ping -q -c {count} -i 0.05 -W 3 {'-M dont' if size > 1472 else ''} "
                       f"-s {size} {target(case, far.ends)}" for size, count, _ in PINGS)
    _, output = near.attempt(script, 120)
    received = [int(number) for number in re.findall(r"(\d+) received", output)]
    due = [least for _, _, least in PINGS]
    if len(received) == len(due) and all(got >= least for got, least in zip(received, due)):
        return None
    return f"{received} pings came back where at least {due} were due\n{output}"


def transfer(case, near, far):
    """A file fetched over TCP from the far side is the file that lies there."""
    fetch = (f"exec 3<>/dev/tcp/{target(case, far.ends)}/80; printf 'GET /file HTTP/1.0\\r\\n\\r\\n' >&3; "
             f"tail -c {FILE_SIZE} <&3")
    status, got = near.attempt(f'set -o pipefail; timeout 15 bash -c "{fetch}" | sha256sum', 60)
    if status != 0:
        return f"exit status {status} (124 means that it took too long): {got}"
    _, there = far.attempt(f"sha256sum < {far.data}/file")
    return None if got == there else f"{got.strip()} arrived where {there.strip()} was sent"


def only_esp(case, frames, near, far):
    """Between the outer addresses the wire carries nothing but this case's kind of ESP."""
    outside = {near.ends.outer[case.outer], far.ends.outer[case.outer]}
    inside = {near.ends.inner[case.inner], far.ends.inner[case.inner]}
    due = ESP if case.encap == "native" else UDP
    spis = set()
    for packet in filter(None, map(Packet.of, frames)):
        ends = {packet.source, packet.destination}
        if packet.is_neighbour_discovery():
            continue
        if ends & inside or ends == outside and packet.protocol != due:
            return f"on the wire: {packet.source} to {packet.destination}, protocol {packet.protocol}"
        if ends == outside and not packet.fragment and len(packet.frame) <= LONGEST_FRAME:
            found = Esp.find(packet.frame)
            if found is None:
                return f"on the wire: UDP from {packet.source} to {packet.destination} that is no ESP"
            spis.add(found.spi)
    expected = {case.spi(near.ends.mac), case.spi(far.ends.mac)}
    return None if spis == expected else f"SPIs {spis} on the wire where {expected} were due"


def shorter(case, frames, near, far):
    """Large pings, which repeat themselves, are short on the wire: some in each direction, because a flow whose small
    packets did not become shorter is left alone for a while (RFC 3173 2.2)."""
    short = {esp.spi for esp in map(Esp.find, frames) if esp and len(esp.frame) in COMPRESSED}
    missing = {case.spi(side.ends.mac) for side in (near, far)} - short
    return f"on the wire: no frame of a compressed ping under {missing}" if missing else None


def replayed(case, frames, sender, receiver, inject):
    """The newest packet, sent once more, is refused as such."""
    last = newest(case, frames, sender)
    return refusal("replayed", last.again(), receiver, inject)


def forged(case, frames, sender, receiver, inject):
    """A packet of a sequence number yet to come, with one bit turned: only its ICV can refuse it."""
    last = newest(case, frames, sender)
    frame = bytearray(last.frame)
    struct.pack_into("!I", frame, last.offset + 4, last.sequence + 1000)
    ahead = Esp(bytes(frame), last.offset)
    return refusal("forged", ahead.tampered(), receiver, inject)


def newest(case, frames, sender):
    mine = [esp for esp in map(Esp.find, frames) if esp and esp.spi == case.spi(sender.ends.mac)]
    if not mine:
        raise RuntimeError("none of the sender's packets was seen on the wire")
    return max(mine, key=lambda esp: esp.sequence)


def refusal(reason, frame, receiver, inject):
    before = receiver.counters()
    inject(frame)
    after = wait_for(receiver, before)
    changed = difference(before, after)
    return None if changed == {reason: 1} else f"counted as {changed or 'nothing at all'}"


def difference(before, after):
    return {name: after[name] - before[name] for name in after if after[name] != before[name]}


def nothing_refused(before, after):
    """The traffic itself made no side refuse anything."""
    changed = difference(before, after)
    return f"refused during plain traffic: {changed}" if changed else None


def wait_for(side, before):
    after = side.counters()
    for _ in range(20):
        if after != before:
            break
        side.attempt("sleep 0.1")
        after = side.counters()
    return after
