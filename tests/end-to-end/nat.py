"""A NAT in the path: the peer sees another port, and the NAT must not forget it."""

import socket
import time

from network.expect import expect
from network.sites import AES_GCM, NETS, Sites
from network.wire import Esp, Packet
from policies import Events

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
        while not any("keepalives received" in line for line in right.status()["sockets"]):
            expect(time.monotonic() < deadline, f"none was heard: {right.status()['sockets']}")
            time.sleep(0.2)
        # The NAT knows the way back before anything was sent inside.
        _, back = sites.server.attempt("ping -q -n -c 3 -i 0.05 -W 1 10.1.0.2")
        expect(" 3 received" in back, f"the far side cannot be the first to speak: {back}")


def a_changed_port_is_told():
    """As the kernel's mapping event: authentic packets from elsewhere are taken, told, and shown until `update`."""
    with Sites("na") as sites:
        sites.start("left", text(True))
        # To its keys' manager the left gateway still has port 4500.
        right = sites.start("right",
                            text(True).replace("-P out", "-P x").replace("-P in", "-P out").replace("-P x", "-P in"))
        events = Events(right)
        expect(sites.ping() == 3, "no ping before")
        expect(moved(right, "0x00001001") is None, "the control failed: it has moved already")
        translate(sites)
        sites.ping()
        told = events.wait("mapping", spi="0x00001001")
        expect(told["from"] == f"192.0.2.1:{OUTSIDE}", f"what is told: {told}")
        expect(moved(right, "0x00001001") == f"192.0.2.1:{OUTSIDE}", "status does not show it")
        expect(f"peer address changed to 192.0.2.1:{OUTSIDE}" in right.words(), f"the log says nothing: {right.words()}")
        source, destination = f"192.0.2.1[{OUTSIDE}]", "192.0.2.2"
        right.setkey_text(f"update {source} {destination} esp-udp 0x1001 -m tunnel -r 1024 {AES_GCM.format(1)};"
                          f"update {destination} {source} esp-udp 0x1002 -m tunnel -r 1024 {AES_GCM.format(2)};")
        expect(sites.ping() == 3, "no ping once the association says so")
        expect(moved(right, "0x00001001") is None, "it still counts as moved")


def moved(gateway, spi):
    return next(sa["moved_to"] for sa in gateway.status()["associations"] if sa["spi"] == spi)


def transport_mode_passes_a_nat_that_changes_addresses():
    """The far host sees 192.0.2.1 where the near one has 192.0.2.77: the checksum inside was made for the latter."""
    near, seen, far = "192.0.2.77", "192.0.2.1", "192.0.2.2"
    with Sites("na") as sites:
        sites.left.sh(f"""ip addr add {near}/32 dev lo
            nft add table ip nat; nft add chain ip nat out '{{ type nat hook postrouting priority 100; }}'
            nft add rule ip nat out oifname wan ip saddr {near} udp sport 4500 snat to {seen}:{OUTSIDE}""")
        def ends(here, port, out, back):
            return (f"add {here}{port} {far} esp-udp 0x1001 -m transport -r 1024 {AES_GCM.format(1)};\n"
                    f"add {far} {here}{port} esp-udp 0x1002 -m transport -r 1024 {AES_GCM.format(2)};\n"
                    f"spdadd {here} {far}[7000] any -P {out} ipsec esp/transport//require;\n"
                    f"spdadd {far}[7000] {here} any -P {back} ipsec esp/transport//require;\n")
        sites.start("left", ends(near, "", "out", "in"))
        sites.start("right", ends(seen, f"[{OUTSIDE}]", "in", "out"))
        for kind in (socket.SOCK_DGRAM, socket.SOCK_STREAM):
            said = spoken(sites, kind, near, far)
            expect(said == seen, f"the far host heard {said}")
        frames = sites.listen(sites.wire, "left").settle(0.1)
        expect(not any(b"through the NAT" in frame for frame in frames), "in clear on the wire")


def spoken(sites, kind, near, far):
    """Who the far host hears, after bytes went there and back."""
    server, client = sites.right.socket(socket.AF_INET, kind), sites.left.socket(socket.AF_INET, kind)
    for each in (server, client):
        each.settimeout(4)
    server.bind((far, 7000))
    client.bind((near, 0))
    if kind == socket.SOCK_STREAM:
        server.listen(1)
    client.connect((far, 7000))
    client.send(b"through the NAT")
    if kind == socket.SOCK_STREAM:
        peer, address = server.accept()
        peer.settimeout(4)
        peer.send(peer.recv(100))
        peer.close()
    else:
        data, address = server.recvfrom(100)
        server.sendto(data, address)
    expect(client.recv(100) == b"through the NAT", "other bytes came back")
    client.close()
    server.close()
    return address[0]


def a_datagram_without_a_checksum_is_taken():
    """RFC 3948 2.1: over IPv4 the UDP checksum SHOULD be zero, and a receiver MUST NOT depend on it."""
    with Sites("na") as sites:
        sites.left.sh("""nft add table ip bare; nft add chain ip bare out '{ type filter hook postrouting priority 0; }'
            nft add rule ip bare out oifname wan udp sport 4500 udp checksum set 0""")
        sites.start("left", text(True))
        right = sites.start("right",
                            text(True).replace("-P out", "-P x").replace("-P in", "-P out").replace("-P x", "-P in"))
        wire = sites.listen(sites.wire, "left")
        expect(sites.ping() == 3, "no ping")
        frames = [frame for frame in wire.settle() if Esp.find(frame) and Packet.of(frame).source == "192.0.2.1"]
        sums = {frame[Packet.of(frame).offset + 6:][:2] for frame in frames}
        expect(sums == {bytes(2)}, f"the control failed: checksums {sums}")
        expect(right.drops("bad-icv") == 0, "drops")


CASES = {
    "traffic passes, whatever port the peer seems to have": traffic_passes,
    "keepalives are sent while nothing else is": keepalives_are_sent_while_idle,
    "a peer's new port is told, and shown until an update": a_changed_port_is_told,
    "transport mode passes a NAT that changes addresses": transport_mode_passes_a_nat_that_changes_addresses,
    "a datagram without a checksum is taken": a_datagram_without_a_checksum_is_taken,
}
