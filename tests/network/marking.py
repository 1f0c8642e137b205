"""Packets with a mark, sent by the user who runs this: `marking.py MARK [KIND FROM TO]...`, each kind a few times.

    udp, tcp      from an ordinary socket (TCP: the SYN of a connection)
    port:N        a datagram from UDP port N
    raw:N         a packet of protocol N whose IP header is written here

What is refused is not sent; the last line says how many calls were accepted.
"""

import socket
import struct
import sys

SO_MARK = 36
IPV6_HDRINCL = 36
PORT = 5001
TIMES = 5
MARKER = b"esplanade-canary-in-clear"


def main(mark, *words):
    sent = 0
    for kind, source, destination in zip(words[::3], words[1::3], words[2::3]):
        for _ in range(TIMES):
            try:
                send(int(mark, 0), kind, source, destination)
                sent += 1
            except OSError:
                pass
    print(f"sent {sent}")


def send(mark, kind, source, destination):
    kind, _, number = kind.partition(":")
    family = socket.AF_INET6 if ":" in destination else socket.AF_INET
    if kind == "raw":
        return raw(mark, family, int(number), source, destination)
    how = socket.SOCK_STREAM if kind == "tcp" else socket.SOCK_DGRAM
    with marked(mark, family, how, 0) as one:
        one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        one.bind((source, int(number or 0)))
        if kind != "tcp":
            return one.sendto(MARKER, (destination, PORT))
        one.setblocking(False)
        return one.connect_ex((destination, PORT))


def marked(mark, family, how, protocol):
    one = socket.socket(family, how, protocol)
    if mark:
        one.setsockopt(socket.SOL_SOCKET, SO_MARK, mark)
    return one


def raw(mark, family, protocol, source, destination):
    # As UDP, and as ESP with the SPI and number that its ports and length then are.
    body = struct.pack("!HHHH", PORT, PORT, 8 + len(MARKER), 0) + MARKER
    addresses = socket.inet_pton(family, source) + socket.inet_pton(family, destination)
    with marked(mark, family, socket.SOCK_RAW, socket.IPPROTO_RAW) as one:
        if family == socket.AF_INET:
            one.setsockopt(socket.IPPROTO_IP, socket.IP_HDRINCL, 1)
            header = struct.pack("!BBHHHBBH", 0x45, 0, 20 + len(body), 1, 0, 64, protocol, 0) + addresses
        else:
            one.setsockopt(socket.IPPROTO_IPV6, IPV6_HDRINCL, 1)
            header = struct.pack("!IHBB", 6 << 28, len(body), protocol, 64) + addresses
        return one.sendto(header + body, (destination, 0))


if __name__ == "__main__":
    main(*sys.argv[1:])
