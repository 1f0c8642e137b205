#!/usr/bin/env python3
"""The first process of a kernel with IPTFS: it protects what it is given and opens what it is given.

    lan0   packets inside, written and read here as a host of the LAN would    (TUN)
    out0   packets outside, as on the path to the peer                         (veth)

The kind of `out0` matters: Linux 7.2.13 damages inner packets of other devices. Where the outer packet came without a
link-layer header (TUN), `__input_process_payload` writes the protocol number of such a header over the source address
of every inner packet but the first. Where its buffer is made of pages (TAP, and many network cards), the end of an
inner packet shares that buffer, and 14 bytes of it are lost when the link-layer header is moved in front of the next
one (`skb_mac_header_rebuild`).

The folder at /mnt is outside: for each case NAME.toml's numbers come in NAME.case, packets in NAME-plain.pcap and
NAME-sealed.pcap, and NAME-sealed-by-kernel.pcap and NAME-opened-by-kernel.pcap go out.
"""

import ctypes
import fcntl
import json
import os
import select
import socket
import struct
import subprocess
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))

from network import pcap  # noqa: E402

XFRM_MSG_NEWSA, XFRM_MSG_NEWPOLICY, XFRM_MSG_FLUSHSA, XFRM_MSG_FLUSHPOLICY = 0x10, 0x13, 0x1C, 0x1D
ALG_AEAD, TMPL, SA_DIR, REPLAY_ESN = 18, 5, 33, 23
DROP_TIME, REORDER_WINDOW, DONT_FRAG, INIT_DELAY, PKT_SIZE = 36, 37, 38, 39, 41
ESP, IPTFS, AF_UNSPEC_FLAG, ESN_FLAG = 50, 5, 32, 128
FOREVER = 2**64 - 1
HERE, THERE = "02:00:00:00:00:01", "02:00:00:00:00:02"
# How long nothing may come before all has come.
QUIET = 0.4


class Netlink:
    """XFRM's configuration: Debian's `ip` does not know this mode."""

    def __init__(self):
        self.socket = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 6)
        self.socket.bind((0, 0))

    def ask(self, kind, body):
        # NLM_F_REQUEST, NLM_F_ACK, NLM_F_CREATE
        self.socket.send(struct.pack("=IHHII", 16 + len(body), kind, 0x405, 1, 0) + body)
        answer = self.socket.recv(65536)
        error, = struct.unpack_from("=i", answer, 16)
        if error:
            raise OSError(-error, f"XFRM message {kind:#x}: {os.strerror(-error)}: {answer[36:]!r}")


def attribute(kind, body):
    return struct.pack("=HH", 4 + len(body), kind) + body + bytes(-len(body) % 4)


def address(text):
    family = socket.AF_INET6 if ":" in text else socket.AF_INET
    return family, socket.inet_pton(family, text).ljust(16, b"\0")


def selector(source="", destination="", length=0):
    """All packets of one family, or of none in particular."""
    if not source:
        return bytes(56)
    (family, source), (_, destination) = address(source), address(destination)
    return (destination + source + bytes(8)
            + struct.pack("=HBBB3xiI", family, length, length, 0, 0, 0))


def lifetimes():
    return struct.pack("=8Q", *[FOREVER] * 4, 0, 0, 0, 0) + bytes(32)


def add_sa(netlink, sa, way):
    (family, source), (_, destination) = address(sa["source"]), address(sa["destination"])
    identity = destination + struct.pack(">IB3x", sa["spi"], ESP)
    flags = AF_UNSPEC_FLAG | (ESN_FLAG if sa["esn"] else 0)
    info = (selector() + identity + source + lifetimes() + bytes(12)
            + struct.pack("=IIHBBB7x", 0, 1, family, IPTFS, 0, flags))
    key = bytes.fromhex(sa["key"])
    name = b"rfc4106(gcm(aes))".ljust(64, b"\0")
    body = info + attribute(ALG_AEAD, name + struct.pack("=II", 8 * len(key), 128) + key)
    body += attribute(SA_DIR, bytes([1 if way == "in" else 2]))
    window = 0 if way == "out" else 256
    if window or sa["esn"]:
        words = -(-window // 32)
        body += attribute(REPLAY_ESN, struct.pack("=6I", words, 0, 0, 0, 0, window) + bytes(4 * words))
    if way == "out":
        body += attribute(INIT_DELAY, struct.pack("=I", sa["delay"]))
        body += attribute(PKT_SIZE, struct.pack("=I", sa["size"]))
        if not sa["fragments"]:
            body += attribute(DONT_FRAG, b"")
    else:
        body += attribute(REORDER_WINDOW, struct.pack("=H", 8)) + attribute(DROP_TIME, struct.pack("=I", 200_000))
    netlink.ask(XFRM_MSG_NEWSA, body)


def add_policy(netlink, sa, nets, direction):
    (family, source), (_, destination) = address(sa["source"]), address(sa["destination"])
    length = 24 if "." in nets[0] else 64
    info = (selector(*nets, length) + lifetimes()
            + struct.pack("=IIBBBB4x", 1, 0, {"in": 0, "out": 1, "fwd": 2}[direction], 0, 0, 0))
    template = (destination + struct.pack(">IB3x", sa["spi"], ESP) + struct.pack("=H2x", family) + source
                + struct.pack("=IBBBxIII", 1, IPTFS, 0, 0, *[0xFFFFFFFF] * 3))
    netlink.ask(XFRM_MSG_NEWPOLICY, info + attribute(TMPL, template))


class Tun:
    """A device without link-layer headers, and what is behind it."""

    def __init__(self, name):
        self.descriptor = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
        # IFF_TUN, IFF_NO_PI
        fcntl.ioctl(self.descriptor, 0x400454CA, struct.pack("16sH22x", name.encode(), 0x1001))

    def fileno(self):
        return self.descriptor

    def write(self, packet):
        os.write(self.descriptor, packet)

    def read(self):
        """The packet that comes next, if it is no router solicitation and the like."""
        packet = os.read(self.descriptor, 65536)
        return None if packet[0] >> 4 == 6 and packet[24] == 0xFF else packet


class Veth:
    """One end of a cable, and the host at its other end."""

    def __init__(self, name, peer):
        sh(f"ip link add {name} address {HERE} type veth peer name {peer}; ip link set {peer} up")
        self.socket = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3))
        self.socket.bind((peer, 3))
        self.socket.setblocking(False)

    def fileno(self):
        return self.socket.fileno()

    def write(self, packet):
        kind = b"\x08\x00" if packet[0] >> 4 == 4 else b"\x86\xdd"
        self.socket.send(mac(HERE) + mac(THERE) + kind + packet)

    def read(self):
        """The packet that comes next, if it is for the host."""
        frame = self.socket.recv(65536)
        return frame[14:] if frame[:6] == mac(THERE) else None


def mac(text):
    return bytes.fromhex(text.replace(":", ""))


def sh(script):
    subprocess.run(["/bin/sh", "-ec", script], check=True)


def exchange(into, packets, out_of):
    """Writes packets to one device, and returns what comes out of the other until it is quiet."""
    came, waiting, last = [], list(packets), time.monotonic()
    while waiting or time.monotonic() - last < QUIET:
        if waiting:
            try:
                into.write(waiting[0])
                waiting.pop(0)
                last = time.monotonic()
            except BlockingIOError:
                pass
        if select.select([out_of], [], [], 0 if waiting else 0.02)[0]:
            packet = out_of.read()
            if packet is not None:
                came.append(packet)
                last = time.monotonic()
    return came


def play(case, name, lan, out):
    netlink = Netlink()
    for kind in (XFRM_MSG_FLUSHSA, XFRM_MSG_FLUSHPOLICY):
        netlink.ask(kind, b"\0" if kind == XFRM_MSG_FLUSHSA else b"")
    # The kernel is the peer: it opens what leaves on our side, and seals what arrives there.
    add_sa(netlink, case["out"], "in")
    add_sa(netlink, case["in"], "out")
    for nets in case["nets"]:
        add_policy(netlink, case["in"], nets[::-1], "out")
        for direction in ("in", "fwd"):
            add_policy(netlink, case["out"], nets, direction)
    before = counters()
    plain = pcap.read(f"/mnt/{name}-plain.pcap")[1]
    pcap.write(f"/mnt/{name}-sealed-by-kernel.pcap", exchange(lan, plain, out))
    sealed = pcap.read(f"/mnt/{name}-sealed.pcap")[1]
    pcap.write(f"/mnt/{name}-opened-by-kernel.pcap", exchange(out, sealed, lan))
    moved = {key: count - before[key] for key, count in counters().items() if count != before[key]}
    with open(f"/mnt/{name}.counters", "w") as file:
        json.dump(moved, file)


def counters():
    with open("/proc/net/xfrm_stat") as file:
        return {name: int(count) for name, count in (line.split() for line in file)}


def main():
    with open("/mnt/kernel", "w") as file:
        file.write(os.uname().release)
    lan, out = Tun("lan0"), Veth("out0", "far0")
    sh(f"""for place in all default; do echo 0 > /proc/sys/net/ipv4/conf/$place/rp_filter; done
          echo 1 > /proc/sys/net/ipv4/ip_forward; echo 1 > /proc/sys/net/ipv6/conf/all/forwarding
          for device in lan0 out0; do echo 0 > /proc/sys/net/ipv4/conf/$device/rp_filter
              ip link set $device txqueuelen 5000 up; done
          ip link set lo up; ip link set lan0 mtu 9000; ip link set out0 mtu 1500
          ip addr add 192.0.2.2/24 dev out0; ip addr add 2001:db8::2/64 dev out0 nodad
          for there in 192.0.2.1 2001:db8::1; do ip neigh add $there lladdr {THERE} dev out0 nud permanent; done
          ip route add 10.2.0.0/24 dev lan0; ip -6 route add fd00:2::/64 dev lan0
          ip route add 10.1.0.0/24 via 192.0.2.1; ip -6 route add fd00:1::/64 via 2001:db8::1""")
    for path in sorted(os.listdir("/mnt")):
        if path.endswith(".case"):
            with open(f"/mnt/{path}") as file:
                case = json.load(file)
            name = path.removesuffix(".case")
            try:
                play(case, name, lan, out)
            except OSError as error:
                with open(f"/mnt/{name}.failed", "w") as file:
                    file.write(str(error))


if __name__ == "__main__":
    try:
        main()
    finally:
        os.sync()
        ctypes.CDLL(None).reboot(0x4321FEDC)
