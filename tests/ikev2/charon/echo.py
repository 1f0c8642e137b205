"""Datagrams from one host to another and back, counted: late is not lost, and both ends are sockets of this process."""

import socket
import threading
import time

PORT = 7007


class Echo:
    """`count` datagrams, one each `interval` seconds; `came` of them come back before `patience` seconds without one."""

    def __init__(self, source, source_address, target, target_address, payload):
        self.payload, self.target_address = payload, target_address
        self.sender = opened(source, source_address, 0)
        self.replier = opened(target, target_address, PORT)
        self.open = True
        self.thread = threading.Thread(target=self.reply, daemon=True)
        self.thread.start()

    def reply(self):
        while self.open:
            try:
                data, address = self.replier.recvfrom(4096)
                self.replier.sendto(data, address)
            except TimeoutError:
                continue
            except OSError:
                # An ICMP error, or no route for a moment: what is lost is counted.
                continue

    def run(self, count, interval, patience):
        """How many come back."""
        return came_back(self.sender, (self.target_address, PORT), self.payload, count, interval, patience)

    def close(self):
        self.open = False
        self.thread.join()
        self.sender.close()
        self.replier.close()


def opened(host, address, port):
    made = host.socket(socket.AF_INET, socket.SOCK_DGRAM)
    made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    made.bind((address, port))
    made.settimeout(0.1)
    return made


def came_back(sender, target, payload, count, interval, patience):
    """Sends a datagram each `interval` seconds; how many different ones come back before `patience` seconds without."""
    came, sent, due = set(), 0, time.monotonic()
    last = due
    while len(came) < count and (sent < count or time.monotonic() - last < patience):
        now = time.monotonic()
        if sent < count and now >= due:
            try:
                sender.sendto(sent.to_bytes(4, "big") + payload, target)
            except OSError:
                # A barrier refuses it at once: it does not come back.
                pass
            sent, due, last = sent + 1, due + interval, now
        sender.settimeout(max(0.0005, due - now) if sent < count else 0.05)
        try:
            came.add(sender.recvfrom(4096)[0][:4])
            last = time.monotonic()
        except OSError:
            continue
    return len(came)
