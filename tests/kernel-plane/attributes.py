"""What a kernel has of associations, by the attributes of its netlink messages: the `ip` of these tests' release knows
none of the newer ones."""

import os
import re
import socket
import struct

NETLINK_XFRM, NEWSA, GETSA, REQUEST_DUMP, DONE = 6, 0x10, 0x12, 0x301, 3
# struct xfrm_usersa_info: its size, and where SPI, mode and replay window stand in it.
SIZE, SPI, MODE, WINDOW = 224, 72, 214, 215
OFFLOAD, SA_DIR, SA_CPU, REORDER_WINDOW, PACKET_SIZE = 28, 33, 35, 37, 41
IPTFS = 5
INBOUND, OUTBOUND = 1, 2


def associations(host):
    """For each SPI its mode, its small replay window and the attributes by their numbers."""
    with host.socket(socket.AF_NETLINK, socket.SOCK_RAW, NETLINK_XFRM) as link:
        link.bind((0, 0))
        link.send(struct.pack("=IHHII", 16, GETSA, REQUEST_DUMP, 1, 0))
        found = {}
        while True:
            for kind, body in pieces(link.recv(1 << 18), "=IH10x"):
                if kind == DONE:
                    return found
                if kind == NEWSA:
                    spi, = struct.unpack_from(">I", body, SPI)
                    found[spi] = {"mode": body[MODE], "window": body[WINDOW], **dict(pieces(body[SIZE:], "=HH"))}


def pieces(data, header):
    """Numbers and contents of messages or attributes in a row."""
    size = struct.calcsize(header)
    while len(data) >= size:
        length, kind = struct.unpack_from(header, data)
        yield kind, data[size:length]
        data = data[(length + 3) & ~3:]


def kernel_is(major, minor):
    """Whether this kernel is that release of Linux or a later one."""
    release = re.match(r"(\d+)\.(\d+)", os.uname().release)
    return (int(release[1]), int(release[2])) >= (major, minor)


def counter(host, name):
    """One of the kernel's counters of packets that its IPsec has dropped; 0 where it has no such counter."""
    found = re.search(rf"^{name}\s+(\d+)", host.sh("cat /proc/net/xfrm_stat"), re.MULTILINE)
    return int(found[1]) if found else 0
