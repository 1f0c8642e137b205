"""AGGFRAG payloads (RFC 9347) by the RFC's text alone: scapy opens and seals the ESP around them.

Written from sections 2.2 and 6.1; shares nothing with the engine. `unpack` is strict: whatever the
RFC forbids a sender is a disagreement.
"""

import random
import struct

PROTOCOL = 144
HEADER = struct.Struct(">BBH")


class Broken(ValueError):
    """A payload that a sender must not make."""


def length(block):
    """Bytes of the packet that begins here, or None if too few are there to say (6.1.3)."""
    version = block[0] >> 4
    if version == 4:
        return struct.unpack(">H", block[2:4])[0] if len(block) >= 4 else None
    if version == 6:
        return 40 + struct.unpack(">H", block[4:6])[0] if len(block) >= 6 else None
    raise Broken(f"a data block of type {version}")


def unpack(payloads):
    """The inner packets of payloads in the order of their sequence numbers, none missing."""
    packets, begun = [], b""
    for payload in payloads:
        if len(payload) < HEADER.size:
            raise Broken("shorter than its header")
        subtype, reserved, offset = HEADER.unpack(payload[:HEADER.size])
        data = payload[HEADER.size:]
        if subtype != 0 or reserved != 0:
            raise Broken(f"sub-type {subtype}, reserved {reserved}")
        if offset == 0 and (not data or data[0] >> 4 == 0):
            continue
        if bool(begun) != bool(offset):
            raise Broken(f"offset {offset} where {len(begun)} bytes were begun")
        begun += data[:offset]
        if offset > len(data):
            if length(begun) != len(begun) + offset - len(data):
                raise Broken("the offset past the end contradicts the packet")
            continue
        if begun:
            if length(begun) != len(begun):
                raise Broken("the packet does not end at the offset")
            packets.append(begun)
        data, begun = data[offset:], b""
        while data and data[0] >> 4:
            size = length(data)
            if size is None or size > len(data):
                begun = data
                break
            packets.append(data[:size])
            data = data[size:]
        if not begun and data.strip(b"\0") and data[0] >> 4:
            raise Broken("bytes behind the last block")
    if begun:
        raise Broken("a packet without an end")
    return packets


def pack(packets, room, dice):
    """Payloads with `room` bytes of blocks at most, cut wherever the dice fall: in headers too, with pads
    at the end of some, and sub-type 1 now and then."""
    stream, starts = b"".join(packets), [0]
    for packet in packets:
        starts.append(starts[-1] + len(packet))
    payloads, at = [], 0
    while at < len(stream):
        take = dice.choice([room, room, dice.randrange(1, room + 1)])
        chunk = stream[at:at + take]
        offset = min(start for start in starts if start >= at) - at
        ends_whole = at + len(chunk) in starts
        padding = bytes(dice.randrange(1, 20)) if ends_whole and dice.random() < 0.5 else b""
        payloads.append(header(offset, dice) + chunk + padding)
        at += len(chunk)
    return payloads


def padded(payloads, room, dice):
    """With payloads of nothing but padding between (2.2.3), at least one."""
    for place in sorted({dice.randrange(len(payloads)) for _ in range(1 + len(payloads) // 5)}, reverse=True):
        payloads.insert(place, header(0, dice) + bytes(dice.randrange(1, room)))
    return payloads


def header(offset, dice):
    if dice.random() < 0.2:
        return struct.pack(">BBH", 1, dice.randrange(4), offset) + dice.randbytes(20)
    # Reserved bits are ignored on receipt (6.1.1).
    return HEADER.pack(0, dice.choice([0, 0, 0xff]), offset)


def overtaken(items, dice, window=3):
    """The items with neighbours exchanged, none by more than the window."""
    items = list(items)
    for start in range(0, len(items) - window, window + 1):
        some = items[start:start + window]
        dice.shuffle(some)
        items[start:start + window] = some
    return items


def main():
    """Both halves against each other, and each refusal of `unpack`."""
    dice = random.Random(9347)
    for _ in range(300):
        sizes = [dice.randrange(28, 900) for _ in range(dice.randrange(1, 20))]
        packets = [b"\x45\0" + struct.pack(">H", size) + dice.randbytes(size - 4) for size in sizes]
        payloads = [b"\0\0" + payload[2:] if payload[0] == 0 else b"\0\0" + payload[2:4] + payload[24:]
                    for payload in padded(pack(packets, dice.randrange(40, 1400), dice), 100, dice)]
        assert unpack(payloads) == packets
    print("ok aggfrag.py agrees with itself")


if __name__ == "__main__":
    main()
