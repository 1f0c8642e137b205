"""Large packets: senders learn the path MTU, and TCP never needs to."""

import re
import struct
import time

from network.expect import expect
from network.sites import MACS, OUTER, SERVER, Sites
from network.wire import Esp, Packet, checksum

TCP, SYN = 6, 2
FILE_SIZE = 2_000_000
# Pings of one check, and seconds until a gateway has asked for a route's next hop again.
PINGS, HOP_INTERVAL = 20, 2


def senders_learn_the_path_mtu():
    with Sites("pm") as sites:
        sites.start_both()
        for family, header in ((4, 28), (6, 48)):
            _, output = sites.client.attempt(f"ping -n -c 3 -i 0.1 -W 1 -M do -s {1500 - header} {SERVER[family]}")
            found = re.search(r"mtu ?= ?(\d+)", output)
            expect(found, f"the sender did not learn the path MTU, IPv{family}:\n{output}")
            mtu = int(found[1])
            expect(1380 <= mtu < 1500, f"a path MTU of {mtu} cannot be right, IPv{family}")
            expect(sites.ping(family, size=mtu - header, more="-M do") == 3, f"{mtu} bytes do not pass, IPv{family}")


def fragments_cross_the_tunnel():
    with Sites("pm") as sites:
        sites.start_both()
        for family in (4, 6):
            for size in (1473, 3000, 8000):
                sites.ping(family, count=2, size=size)
                expect(sites.ping(family, size=size) == 3, f"pings of {size} bytes are lost, IPv{family}")


def the_mss_is_clamped():
    with Sites("pm") as sites:
        sites.start_both()
        seen = sites.listen(sites.server, "lan")
        serve(sites)
        for family in (4, 6):
            seen.clear()
            fetch(sites, family)
            sizes = [mss(frame) for frame in seen.settle() if is_syn(frame)]
            expect(sizes, f"no SYN reached the server, IPv{family}")
            expect(all(1300 <= size <= 1400 for size in sizes), f"MSS {sizes}, IPv{family}")


def tcp_crosses_a_narrower_wire():
    """The wire carries 1400 bytes, and no host on the LANs knows."""
    with Sites("pm") as sites:
        for host, device in ((sites.left, "wan"), (sites.right, "wan")):
            host.sh(f"ip link set {device} mtu 1400")
        sites.start_both()
        serve(sites)
        for family in (4, 6):
            fetch(sites, family)


def serve(sites):
    folder = sites.gateways["left"].folder
    sites.server.sh(f"head -c {FILE_SIZE} /dev/urandom > {folder}/file")
    sites.server.start(["python3", "-m", "http.server", "--bind", "::", "--directory", folder, "8080"], stderr=-3)
    sites.server.sh("for i in $(seq 100); do ss -lnt | grep -q :8080 && exit 0; sleep 0.1; done; exit 1")


def fetch(sites, family):
    """Fetches the file and compares it with the one that lies there."""
    host = f"[{SERVER[family]}]" if family == 6 else SERVER[family]
    script = ("import hashlib, urllib.request as u; "
              f"print(hashlib.sha256(u.urlopen('http://{host}:8080/file', timeout=20).read()).hexdigest())")
    got = sites.client.sh(f'python3 -c "{script}"').strip()
    sent = sites.server.sh(f"sha256sum < {sites.gateways['left'].folder}/file").split()[0]
    expect(got == sent, f"{got} arrived where {sent} was sent, IPv{family}")


def is_syn(frame):
    packet = Packet.of(frame)
    return packet and packet.protocol == TCP and frame[packet.offset + 13] & 0x17 == SYN


def mss(frame):
    """The maximum segment size option of a SYN, 0 if it has none."""
    offset = Packet.of(frame).offset
    options = frame[offset + 20:offset + 4 * (frame[offset + 12] >> 4)]
    while options:
        if options[0] == 2:
            return struct.unpack_from("!H", options, 2)[0]
        options = options[1:] if options[0] == 1 else options[max(options[1], 2) if len(options) > 1 else 1:]
    return 0


def only_who_has_seen_our_packets_lowers_the_mtu(outer):
    """Any host can send "too big"; to be accepted it must quote a packet that we sent lately (RFC 4301 8.2.2)."""
    def test():
        with Sites("pm") as sites:
            left, _ = sites.start_both(outer=outer)
            wire = sites.listen(sites.wire, "left")
            expect(sites.ping(outer) == 3, "no ping through the tunnel")
            seen = next(frame for frame in wire.settle() if is_from_left(frame, outer))
            accepted = None
            for quoted, answer in ((forged(seen), None), (seen, 1300)):
                wire.inject(too_big(quoted, 1300))
                accepted = learnt(left, outer, timeout=3 if answer else 1)
                expect(accepted == answer, f"a path MTU of {accepted} was learnt where {answer} was due")
            # What fits into 1300 bytes of the outer path is what the sender inside now hears of.
            header = 28 if outer == 4 else 48
            _, output = sites.client.attempt(f"ping -n -c 3 -i 0.1 -W 1 -M do -s {1400 - header} {SERVER[outer]}")
            found = re.search(r"mtu ?= ?(\d+)", output)
            expect(found and 1200 < int(found[1]) < 1300, f"what the sender inside hears:\n{output}")
    return test


def a_forged_one_changes_no_route(outer, udp):
    """The kernel caches every ICMP error about the path to the peer. The gateway's routes have an MTU from the
    configuration, and from ICMP errors that quote a packet of an association."""
    def test():
        with Sites("pm") as sites:
            left, _ = sites.start_both(outer=outer, udp=udp)
            wire = sites.listen(sites.wire, "left")
            expect(sites.ping(outer) == 3, "no ping through the tunnel")
            seen = next(frame for frame in wire.settle() if is_from_left(frame, outer))
            before = route_mtus(sites)
            wire.inject(too_big(forged(seen), 1300))
            own, peer = OUTER[outer]
            cached = until(lambda: sites.left.sh(f"ip -{outer} route get {peer} from {own} mark 0x10000000"),
                           lambda route: "mtu 1300" in route)
            expect("mtu 1300" in cached, f"the control failed: the kernel caches no path MTU of 1300: {cached}")
            # Any change has the gateway ask for the routes again.
            left.setkey_text("spdadd 10.1.0.0/24 10.99.0.0/24 any -P out none;")
            after = route_mtus(sites)
            expect(before and after == before, f"MTUs of routes: {before} before, {after} after a forged message")
            accepted = learnt(left, outer, timeout=0.3)
            expect(accepted is None, f"a path MTU of {accepted} was learnt from a forged message")
            size = min(before.values())
            for family, header in ((4, 28), (6, 48)):
                expect(sites.ping(family, size=size - header, more="-M do") == 3,
                       f"{size} bytes do not pass any more, IPv{family}")
            return f"the kernel caches 1300, routes keep {size}"
    return test


def a_forged_one_sends_nothing_the_slower_way(outer):
    """What leaves by a packet ring, past the kernel's IP layer, fits its route's MTU. What does not leaves by a raw
    socket."""
    def test():
        with Sites("pm") as sites:
            sites.start_both(outer=outer, udp=False, options=("--native-io", "packet"))
            wire = sites.listen(sites.wire, "left")
            # The ring is in use once the neighbour is known.
            expect(sites.ping(outer) == 3, "no ping through the tunnel")
            time.sleep(HOP_INTERVAL)
            seen = next(frame for frame in wire.settle() if is_from_left(frame, outer))
            sites.left.sh("nft add table inet seen; nft add chain inet seen out '{ type filter hook output priority 0; }'; "
                          "nft add rule inet seen out meta l4proto esp counter")
            before = by_raw_socket(sites, outer)
            expect(before < PINGS / 2, f"the control failed: {before} of {PINGS} packets pass the kernel's IP layer")
            wire.inject(too_big(forged(seen), 1300))
            own, peer = OUTER[outer]
            cached = until(lambda: sites.left.sh(f"ip -{outer} route get {peer} from {own} mark 0x10000000"),
                           lambda route: "mtu 1300" in route)
            expect("mtu 1300" in cached, f"the control failed: the kernel caches no path MTU of 1300: {cached}")
            time.sleep(HOP_INTERVAL)
            after = by_raw_socket(sites, outer)
            expect(after < PINGS / 2,
                   f"{after} of {PINGS} packets leave by a raw socket after a forged message, {before} before")
            return f"{before} and {after} of {PINGS} packets by a raw socket"
    return test


def by_raw_socket(sites, outer):
    """How many packets the kernel's IP layer sees while pings of 1350 bytes leave."""
    def count():
        return int(re.search(r"counter packets (\d+)", sites.left.sh("nft list table inet seen"))[1])
    before = count()
    expect(sites.ping(outer, count=PINGS, size=1350 - (28 if outer == 4 else 48)) == PINGS, "large pings are lost")
    return count() - before


def until(read, is_due, timeout=3):
    """What is seen, once it is what is due, or when the time is over."""
    deadline = time.monotonic() + timeout
    while not is_due(seen := read()) and time.monotonic() < deadline:
        time.sleep(0.05)
    return seen


def route_mtus(sites):
    """What fits into the tunnel, by destination."""
    table = sites.left.sh("ip route show table 4500; ip -6 route show table 4500")
    return {found[1]: int(found[2]) for found in re.finditer(r"^(\S+) dev esp0 .*?mtu (?:lock )?(\d+)", table, re.M)}


def is_from_left(frame, outer):
    packet = Packet.of(frame)
    return Esp.find(frame) and packet.source == OUTER[outer][0]


def forged(frame):
    """The same packet by an attacker who knows addresses and ports, and guesses the rest."""
    esp = Esp.find(frame)
    return frame[:esp.offset + 4] + struct.pack("!I", (esp.sequence + 0x40000000) & 0xFFFFFFFF) + frame[esp.offset + 8:]


def learnt(gateway, outer, timeout):
    """The outer path MTU that the gateway believes in, once it tells one."""
    deadline = time.monotonic() + timeout
    while time.monotonic() < deadline:
        found = {path["peer"]: path["mtu"] for path in gateway.status()["paths"]}
        if OUTER[outer][1] in found:
            return found[OUTER[outer][1]]
        time.sleep(0.1)
    return None


def too_big(frame, mtu):
    """The ICMP message about a frame's packet, from the right gateway to the left one."""
    macs = [bytes.fromhex(MACS[name].replace(":", "")) for name in ("left", "right")]
    ethernet = b"".join(macs) + frame[12:14]
    quoted = frame[14:14 + 500]
    if frame[12:14] == b"\x08\x00":
        icmp = struct.pack("!BBHHH", 3, 4, 0, 0, mtu) + quoted
        icmp = icmp[:2] + struct.pack("!H", checksum(icmp)) + icmp[4:]
        fixed = struct.pack("!BBHHHBBH", 0x45, 0, 20 + len(icmp), 7, 0, 64, 1, 0)
        header = bytearray(fixed + frame[30:34] + frame[26:30])
        struct.pack_into("!H", header, 10, checksum(header))
        return ethernet + bytes(header) + icmp
    icmp = struct.pack("!BBHI", 2, 0, 0, mtu) + quoted
    ends = frame[38:54] + frame[22:38]
    icmp = icmp[:2] + struct.pack("!H", checksum(ends + struct.pack("!II", len(icmp), 58) + icmp)) + icmp[4:]
    return ethernet + struct.pack("!IHBB", 6 << 28, len(icmp), 58, 64) + ends + icmp


CASES = {
    "only who quotes a packet of ours lowers the MTU, IPv4 outside": only_who_has_seen_our_packets_lowers_the_mtu(4),
    "only who quotes a packet of ours lowers the MTU, IPv6 outside": only_who_has_seen_our_packets_lowers_the_mtu(6),
    "a forged one that the kernel believes changes no route, UDP over IPv4": a_forged_one_changes_no_route(4, True),
    "a forged one that the kernel believes changes no route, UDP over IPv6": a_forged_one_changes_no_route(6, True),
    "a forged one that the kernel believes changes no route, native ESP over IPv4": a_forged_one_changes_no_route(4, False),
    "a forged one that the kernel believes changes no route, native ESP over IPv6": a_forged_one_changes_no_route(6, False),
    "a forged one sends nothing the slower way, IPv4": a_forged_one_sends_nothing_the_slower_way(4),
    "a forged one sends nothing the slower way, IPv6": a_forged_one_sends_nothing_the_slower_way(6),
    "senders learn the path MTU": senders_learn_the_path_mtu,
    "fragments cross the tunnel": fragments_cross_the_tunnel,
    "the MSS of TCP is clamped": the_mss_is_clamped,
    "TCP crosses a wire that is narrower than both LANs": tcp_crosses_a_narrower_wire,
}
