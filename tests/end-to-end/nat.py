"""A NAT in the path: the peer sees another port, and the NAT must not forget it."""

import time

from network.expect import expect
from network.sites import AES_GCM, NETS, Sites

OUTSIDE = 40000


def text(left, more=""):
    """The left gateway is behind the NAT: to itself it has port 4500, to the right one another."""
    port = "" if left else f"[{OUTSIDE}]"
    ways = ("out", "in") if left else ("in", "out")
    return (f"add 192.0.2.1{port} 192.0.2.2 esp-udp 0x1001 -m tunnel -r 1024 {more} {AES_GCM.format(1)};\n"
            f"add 192.0.2.2 192.0.2.1{port} esp-udp 0x1002 -m tunnel -r 1024 {AES_GCM.format(2)};\n"
            f"spdadd {NETS[4][0]} {NETS[4][1]} any -P {ways[0]} ipsec esp/tunnel/192.0.2.1-192.0.2.2/require;\n"
            f"spdadd {NETS[4][1]} {NETS[4][0]} any -P {ways[1]} ipsec esp/tunnel/192.0.2.2-192.0.2.1/require;\n")


def translate(sites):
    sites.left.sh(f"""nft add table ip nat; nft add chain ip nat out '{{ type nat hook postrouting priority 100; }}'
        nft add rule ip nat out oifname wan udp sport 4500 snat to 192.0.2.1:{OUTSIDE}""")


def traffic_passes():
    with Sites("na") as sites:
        translate(sites)
        sites.start("left", text(True))
        sites.start("right", text(False))
        expect(sites.ping(count=5) == 5, "no ping through the NAT")
        expect(sites.ping(count=3, size=3000) == 3, "no large ping through the NAT")


def keepalives_are_sent_while_idle():
    with Sites("na") as sites:
        translate(sites)
        sites.start("left", text(True, "-o keepalive=1"))
        right = sites.start("right", text(False))
        deadline = time.monotonic() + 10
        while not any("keepalives heard" in line for line in right.status()["sockets"]):
            expect(time.monotonic() < deadline, f"none was heard: {right.status()['sockets']}")
            time.sleep(0.2)
        # The NAT knows the way back before anything was sent inside.
        _, back = sites.server.attempt("ping -q -n -c 3 -i 0.05 -W 1 10.1.0.2")
        expect(" 3 received" in back, f"the far side cannot be the first to speak: {back}")


CASES = {
    "traffic passes, whatever port the peer seems to have": traffic_passes,
    "keepalives are sent while nothing else is": keepalives_are_sent_while_idle,
}
