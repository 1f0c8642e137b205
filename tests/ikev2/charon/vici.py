"""The protocol of charon's control socket: requests, answers, events.

It is described in strongSwan's `src/libcharon/plugins/vici/README.md`. A message is a
dict; a section is a dict in it, a list a list, and every value is text.
"""

import socket
import struct

REQUEST, RESPONSE, UNKNOWN, REGISTER, UNREGISTER, CONFIRM, _, EVENT = range(8)
SECTION_START, SECTION_END, KEY_VALUE, LIST_START, LIST_ITEM, LIST_END = range(1, 7)


class Refused(Exception):
    """charon answered that a request failed; the text is its own."""


class Session:
    """One connection to the socket: a path, or with a TCP socket an address and a port."""

    def __init__(self, path, timeout, unconnected=None):
        self.socket = unconnected or socket.socket(socket.AF_UNIX)
        self.socket.settimeout(timeout)
        self.socket.connect(path)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.socket.close()

    def ask(self, command, **values):
        """The answer to one request; raises where it says that it failed."""
        self.send(REQUEST, command, values)
        kind, body = self.receive()
        while kind == EVENT:
            kind, body = self.receive()
        if kind == UNKNOWN:
            raise Refused(f"{command} is not known")
        answer = parsed(body)
        if answer.get("success") == "no":
            raise Refused(answer.get("errmsg", "no reason"))
        return answer

    def stream(self, command, event, **values):
        """All events of a name that come until a request is answered."""
        self.send(REGISTER, event)
        self.expect(CONFIRM)
        self.send(REQUEST, command, values)
        events = []
        while True:
            kind, body = self.receive()
            if kind == RESPONSE:
                self.send(UNREGISTER, event)
                self.expect(CONFIRM)
                return events
            length = body[0]
            events.append(parsed(body[1 + length:]))

    def expect(self, wanted):
        kind, _ = self.receive()
        if kind != wanted:
            raise Refused(f"packet {kind} where {wanted} was due")

    def send(self, kind, name, values=None):
        packet = bytes([kind, len(name)]) + name.encode() + printed(values or {})
        self.socket.sendall(struct.pack("!I", len(packet)) + packet)

    def receive(self):
        length, = struct.unpack("!I", self.exactly(4))
        packet = self.exactly(length)
        return packet[0], packet[1:]

    def exactly(self, length):
        data = b""
        while len(data) < length:
            part = self.socket.recv(length - len(data))
            if not part:
                raise ConnectionError("charon closed its control socket")
            data += part
        return data


def printed(values):
    data = b""
    for name, value in values.items():
        head = bytes([len(name)]) + name.encode()
        if isinstance(value, dict):
            data += bytes([SECTION_START]) + head + printed(value) + bytes([SECTION_END])
        elif isinstance(value, list):
            items = b"".join(bytes([LIST_ITEM]) + long_text(item) for item in value)
            data += bytes([LIST_START]) + head + items + bytes([LIST_END])
        else:
            data += bytes([KEY_VALUE]) + head + long_text(value)
    return data


def long_text(value):
    text = str(value).encode()
    return struct.pack("!H", len(text)) + text


def parsed(data):
    stack, items, at = [{}], None, 0

    def take(width):
        nonlocal at
        length = int.from_bytes(data[at:at + width], "big")
        at += width + length
        return data[at - length:at].decode(errors="replace")

    while at < len(data):
        kind = data[at]
        at += 1
        if kind == SECTION_START:
            stack.append(stack[-1].setdefault(take(1), {}))
        elif kind == SECTION_END:
            stack.pop()
        elif kind == KEY_VALUE:
            name = take(1)
            stack[-1][name] = take(2)
        elif kind == LIST_START:
            items = stack[-1].setdefault(take(1), [])
        elif kind == LIST_ITEM:
            items.append(take(2))
    return stack[0]
