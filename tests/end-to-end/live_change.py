"""Changing one association does not disturb another one's traffic."""

import socket
import struct
import threading
import time

from network.expect import expect
from network.sites import CLIENT, SERVER, Sites

PORT = 9000
PACE = 0.001
SETTLE = 0.5
# Between other ends: a policy takes the newest association between its own.
OTHER = "192.0.2.1 192.0.2.9 esp-udp 0x2001"
CHANGES = 1000


class Stream:
    """Stamped datagrams from the client to the server, or back, at an even pace, until stopped."""

    def __init__(self, sites, family=4, back=False, size=200, pace=PACE):
        ends = self.ends(sites, family)
        (source, self.origin), (destination, self.target) = reversed(ends) if back else ends
        kind = {4: socket.AF_INET, 6: socket.AF_INET6}[family]
        self.receiver = destination.socket(kind, socket.SOCK_DGRAM)
        self.receiver.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 8 << 20)
        self.receiver.bind((self.target, PORT))
        self.receiver.settimeout(SETTLE)
        self.sender = source.socket(kind, socket.SOCK_DGRAM)
        self.sender.bind((self.origin, PORT + 1))
        self.pace = pace
        self.size, self.sent, self.stamps, self.stopped = size, 0, [], False
        self.threads = [threading.Thread(target=work, daemon=True) for work in (self.send, self.receive)]
        for thread in self.threads:
            thread.start()

    @staticmethod
    def ends(sites, family):
        return [(sites.client, CLIENT[family]), (sites.server, SERVER[family])]

    def send(self):
        due = time.monotonic()
        while not self.stopped:
            self.sender.sendto(struct.pack("!Q", self.sent) + bytes(self.size - 8), (self.target, PORT))
            self.sent += 1
            due += self.pace
            time.sleep(max(0, due - time.monotonic()))

    def receive(self):
        while True:
            try:
                self.stamps.append(struct.unpack_from("!Q", self.receiver.recv(2048))[0])
            except TimeoutError:
                if self.stopped:
                    return

    def finish(self):
        """Datagrams sent, lost and reordered."""
        self.stopped = True
        for thread in self.threads:
            thread.join()
        lost = self.sent - len(set(self.stamps))
        return self.sent, lost, len(self.overtaken())

    def overtaken(self):
        """Each datagram that came behind a later one, with that one."""
        pairs = zip(self.stamps, self.stamps[1:])
        return [f"{later} behind {earlier}" for earlier, later in pairs if later < earlier]

    def duplicated(self):
        """Datagrams that came more than once."""
        return len(self.stamps) - len(set(self.stamps))


def changes_of_another_association():
    with Sites("lc") as sites:
        left, _ = sites.start_both(inner=(4,))
        expect(sites.ping() == 3, "no ping through the tunnel")
        stream = Stream(sites)
        for number in range(CHANGES):
            left.setkey_text(statement(number))
        sent, lost, reordered = stream.finish()
        expect(sent >= CHANGES, f"only {sent} datagrams were sent during {CHANGES} changes")
        expect(lost == 0 and reordered == 0, f"of {sent} lost {lost} reordered {reordered}")
        return f"{CHANGES} changes, {sent} datagrams, lost {lost} reordered {reordered}"


def statement(number):
    """Add, update, delete, over and over."""
    key = f"-m tunnel -r 1024 -E aes-gcm-16 0x{number:08x}" + "77" * 16
    return [f"add {OTHER} {key};", f"update {OTHER} {key};", f"delete {OTHER};"][number % 3]


def a_deleted_association_stops_its_traffic():
    with Sites("lc") as sites:
        left, _ = sites.start_both(inner=(4,))
        expect(sites.ping() == 3, "no ping through the tunnel")
        left.setkey_text("delete 192.0.2.1 192.0.2.2 esp-udp 0x1001;")
        expect(sites.ping() == 0, "pings still come back")
        expect(left.drops("acquire") > 0, f"the drops do not say why: {left.ask('drops', '--json')}")


def a_wrong_text_changes_nothing():
    with Sites("lc") as sites:
        left = sites.start("left")
        before = left.setkey_text("dump; spddump;")
        wrong = "delete 192.0.2.1 192.0.2.2 esp-udp 0x1001;\nadd 192.0.2.1 192.0.2.2 esp 0x3001 -E aes-cbc 0x00;\n"
        try:
            left.setkey_text(wrong)
        except Exception as error:
            expect(":2:" in str(error) or "line 2" in str(error), f"the error does not name line 2: {error}")
        else:
            expect(False, "a key of one byte for aes-cbc was taken")
        after = left.setkey_text("dump; spddump;")
        expect(names(before) == names(after), f"before:\n{before}\nafter:\n{after}")


def names(dump):
    """The lines of a dump that name associations and policies, without times and counts."""
    return [line for line in dump.splitlines() if "spi=" in line or "[" in line]


CASES = {
    "a thousand changes of one association lose nothing of another": changes_of_another_association,
    "a deleted association stops its traffic": a_deleted_association_stops_its_traffic,
    "a text with an error changes nothing": a_wrong_text_changes_nothing,
}
