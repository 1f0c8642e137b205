"""How long what was taken away stays away, by the kernel's own news (rtnetlink and nftables) of both moments.

Each thing of the gateway's has a name made from what tells it from all others: a rule by family, preference and table,
a route by family, table and destination, a device by name, a qdisc or filter by device and parent. A thing is lost with
the news of its deletion (a device also when it is taken down, renamed or given another MTU), and back with the news of
its creation.
"""

import contextlib
import os
import socket
import struct
import threading
import time

NETLINK_ROUTE, NETLINK_NETFILTER = 0, 12
# Links, traffic control, and of both families addresses, routes and rules; of netfilter, nftables.
ROUTE_GROUPS, NFTABLES_GROUP = (1, 4, 7, 8, 11, 19), 7
NEW_LINK, DEL_LINK, NEW_ROUTE, DEL_ROUTE, NEW_RULE, DEL_RULE = 16, 17, 24, 25, 32, 33
NEW_QDISC, DEL_QDISC, NEW_FILTER, DEL_FILTER = 36, 37, 44, 45
NFT_NEW_TABLE, NFT_DEL_TABLE = 0x0A00, 0x0A02
# Of the gateway's routes and rules: their protocol number, and where they are for esp0.
OWNER, TABLE, PREFERENCES = 229, 4500, range(10000, 11000)
# The upper half of its filters' handles, for esp0, and the devices that bear them.
HANDLES, BARRED = 0xE500, ("wan", "lan")
TCA_KIND = 1
IFLA_NAME, IFLA_MTU, RTA_DESTINATION, RTA_PRIORITY, RTA_TABLE, FRA_PRIORITY, FRA_PROTOCOL = 3, 4, 1, 6, 15, 6, 21
UP = 1
ROOM = 1 << 20
OVERRUN = 105  # ENOBUFS


class News:
    """Listens on a host until closed; `losses` are over since the last `begin`."""

    def __init__(self, host, device="esp0", table="esplanade"):
        self.device, self.table = device, table
        self.lost, self.times, self.overrun = {}, [], False
        self.link = None
        self.barred = {int(host.sh(f"cat /sys/class/net/{name}/ifindex")) for name in BARRED}
        self.lock = threading.Lock()
        self.closed = False
        self.threads = [threading.Thread(target=self.listen, args=(self.open(host, *what), read), daemon=True)
                        for what, read in (((NETLINK_ROUTE, ROUTE_GROUPS), self.of_routing),
                                           ((NETLINK_NETFILTER, (NFTABLES_GROUP,)), self.of_nftables))]
        for thread in self.threads:
            thread.start()

    @staticmethod
    def open(host, protocol, groups):
        listener = host.socket(socket.AF_NETLINK, socket.SOCK_RAW, protocol)
        listener.bind((0, sum(1 << (group - 1) for group in groups)))
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4 << 20)
        listener.settimeout(0.2)
        return listener

    def begin(self):
        with self.lock:
            self.lost, self.times, self.overrun, self.link = {}, [], False, None

    def end(self):
        """Seconds that each thing was away, and what is away still; nothing where news were lost."""
        with self.lock:
            return (None, set()) if self.overrun else (list(self.times), set(self.lost))

    def away(self):
        with self.lock:
            return bool(self.lost)

    def listen(self, listener, read):
        with contextlib.suppress(OSError):
            # It notes when; what holds it up would count as the gateway's.
            os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))
        while not self.closed:
            try:
                data = listener.recv(ROOM)
            except TimeoutError:
                continue
            except OSError as error:
                self.overrun = error.errno == OVERRUN or self.overrun
                continue
            now = time.monotonic()
            with self.lock:
                for kind, body in messages(data):
                    read(now, kind, body)
        listener.close()

    def close(self):
        self.closed = True
        for thread in self.threads:
            thread.join()

    def gone(self, now, name):
        self.lost.setdefault(name, now)

    def back(self, now, name):
        if name in self.lost:
            self.times.append(now - self.lost.pop(name))

    def note(self, now, name, is_new):
        (self.back if is_new else self.gone)(now, name)

    def of_nftables(self, now, kind, body):
        if kind in (NFT_NEW_TABLE, NFT_DEL_TABLE) and self.table.encode() + b"\0" in body:
            self.note(now, ("table", self.table), kind == NFT_NEW_TABLE)

    def of_routing(self, now, kind, body):
        if kind in (NEW_LINK, DEL_LINK):
            self.of_links(now, kind, body)
        elif kind in (NEW_ROUTE, DEL_ROUTE) and body[5] == OWNER:
            facts = attributes(body[12:])
            if number(facts.get(RTA_TABLE)) == TABLE:
                self.note(now, ("route", body[0], body[1], facts.get(RTA_DESTINATION), facts.get(RTA_PRIORITY)),
                          kind == NEW_ROUTE)
        elif kind in (NEW_RULE, DEL_RULE):
            facts = attributes(body[12:])
            if facts.get(FRA_PROTOCOL) == bytes([OWNER]) and number(facts.get(FRA_PRIORITY)) in PREFERENCES:
                self.note(now, ("rule", body[0], facts[FRA_PRIORITY]), kind == NEW_RULE)
        elif kind in (NEW_QDISC, DEL_QDISC, NEW_FILTER, DEL_FILTER):
            _, index, handle, parent, _ = struct.unpack_from("iiIII", body)
            what = attributes(body[20:]).get(TCA_KIND)
            # All of a direction are deleted at once, without a handle.
            if index in self.barred and (what == b"clsact\0" or what == b"bpf\0" and handle >> 16 in (0, HANDLES)):
                self.note(now, (what, index, parent), kind in (NEW_QDISC, NEW_FILTER))

    def of_links(self, now, kind, body):
        _, _, _, flags, _ = struct.unpack_from("BxHiII", body)
        facts = attributes(body[16:])
        is_ours = facts.get(IFLA_NAME) == self.device.encode() + b"\0"
        index = struct.unpack_from("i", body, 4)[0]
        if not is_ours:
            # Renamed: the device that was ours bears another name now.
            if self.link and self.link[0] == index:
                self.gone(now, ("link",))
            return
        state = (index, bool(flags & UP), facts.get(IFLA_MTU))
        if kind == DEL_LINK or not state[1] or (self.link and self.link[0] == index and self.link[2] != state[2]
                                                 and ("link",) not in self.lost):
            self.gone(now, ("link",))
        else:
            self.back(now, ("link",))
        self.link = state


def number(attribute):
    return struct.unpack("I", attribute)[0] if attribute else None


def messages(data):
    """Kinds and bodies of the netlink messages in a datagram."""
    at = 0
    while at + 16 <= len(data):
        length, kind = struct.unpack_from("IH", data, at)
        if length < 16:
            return
        yield kind, data[at + 16:at + length]
        at += (length + 3) & ~3


def attributes(data):
    found, at = {}, 0
    while at + 4 <= len(data):
        length, kind = struct.unpack_from("HH", data, at)
        if length < 4:
            break
        found[kind & 0x3FFF] = data[at + 4:at + length]
        at += (length + 3) & ~3
    return found
