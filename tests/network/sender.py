"""Traffic that never stops: run on a host as a process of its own, it sends until it is ended.

    sender.py frame DEVICE HEX...             each frame in turn out of a device
    sender.py udp FROM,TO...                  a marked datagram each in turn; an empty FROM is an unbound socket

What is refused (no route, no device, no permission) is not sent, and that is no end.
"""

import socket
import sys
import time

MARKER = b"esplanade-canary-in-clear"
PORT = 5001
PAUSE = 0.0003


def main(kind, *what):
    sends = list(frames(*what) if kind == "frame" else map(datagram, what))
    while True:
        for send in sends:
            try:
                send()
            except OSError:
                pass
            time.sleep(PAUSE)


def frames(device, *texts):
    wire = socket.socket(socket.AF_PACKET, socket.SOCK_RAW)
    wire.bind((device, 0))
    return [lambda frame=bytes.fromhex(text): wire.send(frame) for text in texts]


def datagram(ends):
    source, destination = ends.split(",")
    family = socket.AF_INET6 if ":" in destination else socket.AF_INET
    sender = socket.socket(family, socket.SOCK_DGRAM)
    if source:
        sender.bind((source, 0))
    return lambda: sender.sendto(MARKER, (destination, PORT))


if __name__ == "__main__":
    main(*sys.argv[1:])
