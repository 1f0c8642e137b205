"""Forwarding without a TUN device: what the ring takes the kernel drops, and the rest is the kernel's as ever."""

import itertools
import signal
import socket
import struct
import tempfile
import threading
import time

import fail_closed
import path_mtu
import traffic
from network.expect import expect, expect_refusal
from network.sites import CLIENT, NETS, OUTER, SERVER, Sites, setkey_text
from network.wire import ESP, UDP
from refusals import run_gateway

FORWARD = ["--forward", "lan"]
ROUTERS = {4: ("10.1.0.1", "10.2.0.1"), 6: ("fd00:1::1", "fd00:2::1")}
DATAGRAMS = 3000


def start(sites, left=FORWARD, right=FORWARD, **shape):
    return (sites.start("left", setkey_text("left", **shape), left),
            sites.start("right", setkey_text("right", **shape), right))


def carries(outer, udp, left=FORWARD, right=FORWARD, kernel_forwards=1):
    def test():
        with Sites("fw") as sites:
            for host in (sites.left, sites.right):
                host.sh(f"sysctl -qw net.ipv4.ip_forward={kernel_forwards} "
                        f"net.ipv6.conf.all.forwarding={kernel_forwards}")
            wire = sites.listen(sites.wire, "left")
            gateways = start(sites, left, right, outer=outer, udp=udp)
            wire.clear()
            path_mtu.serve(sites)
            for family in (4, 6):
                expect(sites.ping(family) == 3, f"no ping, IPv{family} inside")
                path_mtu.fetch(sites, family)
            traffic.only_esp(wire.settle(), outer, UDP if udp else ESP)
            for gateway in gateways:
                for reason in ("bad-icv", "replayed", "policy-mismatch", "no-sa", "malformed"):
                    expect(gateway.drops(reason) == 0, f"packets were dropped: {gateway.ask('drops')}")
                expect(gateway.status()["clear_dropped"] == 0, "the kernel met protected traffic")
    return test


def status_tells():
    with Sites("fw") as sites:
        left, _ = start(sites)
        expect(sites.ping() == 3, "no ping")
        status = left.status()
        expect((status["forward"], status["tun"]) == ("lan", ""), f"{status['forward']}, {status['tun']}")
        lines = [line for line in status["offloads"] if line.startswith("forwarding for the hosts behind lan")]
        expect(len(lines) == 1 and "3 packets from its ring" in lines[0], f"{status['offloads']}")
        expect("device lan" in left.ask("status"), "the table does not name the device")
        expect("tun" not in sites.left.sh("ip -d link | grep -o 'tun type' || true"), "there is a TUN device")


def every_datagram_comes_once(kernel_forwards):
    """Numbered datagrams, more than one batch of them: each comes, none twice, in order."""
    def test():
        with Sites("fw") as sites:
            for host in (sites.left, sites.right):
                host.sh(f"sysctl -qw net.ipv4.ip_forward={kernel_forwards} "
                        f"net.ipv6.conf.all.forwarding={kernel_forwards}")
            start(sites)
            for family in (4, 6):
                expect(sites.ping(family) == 3, f"no ping, IPv{family}")
                numbers = sent_and_received(sites, family)
                expect(numbers == list(range(DATAGRAMS)), f"{len(numbers)} came, {len(set(numbers))} of them different")
    return test


def sent_and_received(sites, family):
    kind = socket.AF_INET if family == 4 else socket.AF_INET6
    server = sites.server.socket(kind, socket.SOCK_DGRAM)
    client = sites.client.socket(kind, socket.SOCK_DGRAM)
    numbers = []
    with server, client:
        server.bind((SERVER[family], 7000))
        server.settimeout(1)
        # A window, so that no queue between the two overflows.
        for first in range(0, DATAGRAMS, 100):
            for number in range(first, first + 100):
                client.sendto(struct.pack("!I", number) + bytes(14), (SERVER[family], 7000))
            while len(numbers) < first + 100:
                try:
                    numbers += struct.unpack("!I", server.recv(100)[:4])
                except TimeoutError:
                    break
        try:
            while True:
                numbers += struct.unpack("!I", server.recv(100)[:4])
        except TimeoutError:
            return numbers


def nothing_leaks_after(how):
    def test():
        with Sites("fw") as sites:
            left, right = start(sites)
            expect(sites.ping() == 3, "no ping through the tunnel")
            left.stop(how)
            wire, outside = sites.listen(sites.wire, "left"), sites.listen(sites.wire, "right")
            inside = sites.listen(sites.client, "lan")
            expect(sites.ping(4) == 0 and sites.ping(6) == 0, "pings were answered without a gateway")
            expect(not fail_closed.in_clear(wire.settle() + outside.settle()), "inner addresses in clear on the wire")
            for family in (4, 6):
                expect(not fail_closed.arrives(sites, wire, inside, family), f"a packet came in clear, IPv{family}")
            # Numbers start anew with keys set by hand, so both sides do.
            right.stop()
            for gateway in (left, right):
                gateway.start().ready()
            expect(sites.ping(4) == 3 and sites.ping(6) == 3, "no ping through the tunnel after the restart")
    return test


def nothing_in_clear():
    with Sites("fw") as sites:
        wire, inside = sites.listen(sites.wire, "left"), sites.listen(sites.client, "lan")
        expect(fail_closed.arrives(sites, wire, inside, 4) and fail_closed.arrives(sites, wire, inside, 6),
               "the control failed: without gateways a packet in clear must arrive")
        start(sites)
        wire.clear()
        for family in (4, 6):
            expect(sites.ping(family) == 3, f"no ping, IPv{family}")
            # The gateway itself has no way into the tunnel, and none beside it.
            status, _ = sites.left.attempt(f"ping -q -c 2 -i 0.1 -W 1 -I {ROUTERS[family][0]} {SERVER[family]}")
            expect(status != 0, f"the gateway's own ping was answered, IPv{family}")
        expect(not fail_closed.in_clear(wire.settle()), "inner addresses in clear on the wire")
        for family in (4, 6):
            expect(not fail_closed.arrives(sites, wire, inside, family), f"a packet came in clear, IPv{family}")


def what_becomes_ours_is_not_forwarded(become):
    """A gateway without a TUN device has no way in for what is sent to itself, as `fwd` policies are not for that. It
    knows at once what is its own by now: an address, or what a route calls local."""
    def test():
        with Sites("fw") as sites:
            new = "10.2.0.77"
            start(sites)
            expect(sites.ping() == 3, "no ping through the tunnel")
            ours = sites.right.socket(socket.AF_INET, socket.SOCK_DGRAM)
            theirs = sites.server.socket(socket.AF_INET, socket.SOCK_DGRAM)
            client = sites.client.socket(socket.AF_INET, socket.SOCK_DGRAM)
            with ours, theirs, client:
                for each in (ours, theirs):
                    each.bind(("", 7001))
                    each.setblocking(False)
                sites.server.sh(f"ip addr add {new}/32 dev lan")
                send_numbered(client, new, 100)
                expect(all_of(theirs), "the control failed: nothing is forwarded while the address is the server's")
                sender = threading.Thread(target=send_numbered, args=(client, new, 1500))
                sender.start()
                time.sleep(0.3)
                sites.right.sh(become.format(new))
                sender.join()
                delivered = all_of(ours)
                expect(not delivered, f"{len(delivered)} datagrams were delivered to the gateway by `fwd` policies")
                expect(all_of(theirs), "nothing was forwarded before the change")
                lines = " ".join(sites.gateways["right"].status()["offloads"])
                expect("with no known next hop" in lines, f"what is dropped is not counted: {lines}")
                # The same socket hears what comes in another way.
                sites.right.sh(f"echo control > /dev/udp/{new}/7001")
                expect(all_of(ours), "the control failed: the gateway's socket hears nothing")
                sites.right.sh(become.format(new).replace(" add ", " del "))
                time.sleep(0.1)
                send_numbered(client, new, 100)
                expect(all_of(theirs), "nothing is forwarded once the address is the server's alone again")
    return test


def send_numbered(client, to, count):
    for number in range(count):
        client.sendto(struct.pack("!I", number), (to, 7001))
        time.sleep(0.001)


def all_of(listener):
    """Datagrams that have come, or come within a moment."""
    time.sleep(0.2)
    found = []
    while True:
        try:
            found.append(listener.recv(100))
        except BlockingIOError:
            return found


def down_takes_everything_away():
    with Sites("fw") as sites:
        before = sites.left.sh(fail_closed.STATE)
        left = sites.start("left", setkey_text("left"), FORWARD)
        expect(sites.left.sh(fail_closed.STATE) != before, "the control failed: a gateway left no trace in the state")
        left.stop()
        left.ask("down")
        after = sites.left.sh(fail_closed.STATE)
        expect(after == before, f"before:\n{before}\nafter:\n{after}")
        expect(sites.ping() == 3, "plain traffic does not flow again")


def hops_are_counted():
    """Both gateways are hops, and say so where a packet ends at them: the far one through the tunnel."""
    with Sites("fw") as sites:
        start(sites)
        # The kernel of a host answers the first packets while neighbours are looked for.
        expect(sites.ping(4) == 3 and sites.ping(6) == 3, "no ping")
        for family, hop in itertools.product((4, 6), (1, 2)):
            _, output = sites.client.attempt(f"ping -n -c 2 -i 0.1 -W 1 -t {hop} {SERVER[family]}")
            told = [line for line in output.splitlines() if "exceeded" in line.lower()]
            expect(told and ROUTERS[family][hop - 1] in told[0], f"hop {hop}, IPv{family}:\n{output}")
            expect("1 received" not in output and "2 received" not in output, f"it came through: {output}")
        for family in (4, 6):
            expect(sites.ping(family, more="-t 3") == 3, f"three hops are not enough, IPv{family}")


def the_rest_is_the_kernels():
    """With a policy for all the world: this host's own addresses, bypassed and unnamed traffic."""
    with Sites("fw") as sites:
        ends = "-".join(OUTER[4])
        policies = (f"spdadd 10.1.0.0/24 10.1.0.0/24 any -P out prio 100 none;\n"
                    f"spdadd 10.1.0.0/24 192.0.2.2 any -P out prio 100 none;\n"
                    f"spdadd 10.1.0.0/24 10.2.0.3 any -P out prio 100 discard;\n"
                    f"spdadd 10.1.0.0/24 0.0.0.0/0 any -P out ipsec esp/tunnel/{ends}/require;\n")
        text = "".join(line + "\n" for line in setkey_text("left", inner=(4,)).splitlines()
                       if "-P out" not in line) + policies
        left = sites.start("left", text, FORWARD)
        sites.start("right", setkey_text("right", inner=(4,)), FORWARD)
        sites.right.sh("ip route add 10.1.0.0/24 via 192.0.2.1 || true")
        sites.server.sh("ip addr add 10.2.0.3/24 dev lan")
        ping = "ping -q -c 2 -i 0.05 -W 1 "
        expect(sites.ping() == 3, "no ping through the tunnel")
        expect(sites.client.attempt(ping + ROUTERS[4][0])[0] == 0, "the gateway does not answer its own hosts")
        expect(sites.client.attempt(ping + OUTER[4][0])[0] == 0, "nor at its outer address")
        wire = sites.listen(sites.wire, "left")
        sites.client.attempt(ping + OUTER[4][1])
        seen = [packet for packet in fail_closed.in_clear(wire.settle()) if packet.destination == OUTER[4][1]]
        expect(len(seen) == 2, f"{len(seen)} bypassed packets on the wire instead of 2")
        wire.clear()
        expect(sites.client.attempt(ping + "10.2.0.3")[0] != 0, "discarded traffic was answered")
        expect(not wire.settle() or not fail_closed.in_clear(wire.settle()), "discarded traffic on the wire")
        expect(left.drops("policy-discard") >= 2, f"discarded traffic is not counted: {left.ask('drops')}")


def senders_hear_what_fits():
    """Too big for the tunnel, and too big for the far side's device: each time the sender learns the MTU."""
    with Sites("fw") as sites:
        start(sites)
        for family, header in ((4, 28), (6, 48)):
            expect(sites.ping(family) == 3, f"no ping, IPv{family}")
            mtu = path_mtu_told(sites, family, 1500 - header)
            expect(1380 <= mtu < 1500, f"a path MTU of {mtu} cannot be right, IPv{family}")
            expect(sites.ping(family, size=mtu - header, more="-M do") == 3, f"{mtu} bytes do not pass, IPv{family}")
            sites.ping(family, count=2, size=3000)
            expect(sites.ping(family, size=3000) == 3, f"fragments do not pass, IPv{family}")


def a_narrow_device_behind_the_tunnel():
    with Sites("fw") as sites:
        for host in (sites.right, sites.server):
            host.sh("ip link set lan mtu 1300")
        start(sites)
        for family, header in ((4, 28), (6, 48)):
            expect(sites.ping(family) == 3, f"no ping, IPv{family}")
            expect(path_mtu_told(sites, family, 1350 - header) == 1300, f"another MTU was told, IPv{family}")
        # Cut by the far gateway, for its sender allows that; the answer too.
        expect(sites.ping(4, size=1350, more="-M dont") == 3, "what may be cut is not")


def path_mtu_told(sites, family, size):
    found = path_mtu.re.search(
        r"mtu ?= ?(\d+)", sites.client.attempt(f"ping -n -c 3 -i 0.1 -W 1 -M do -s {size} {SERVER[family]}")[1])
    expect(found, f"the sender did not learn the path MTU, IPv{family}")
    return int(found[1])


def neighbour_moves():
    with Sites("fw") as sites:
        start(sites)
        expect(sites.ping() == 3, "no ping before")
        sites.server.sh("ip link set lan address 02:00:00:00:09:99")
        # Its own traffic tells the new address, as ARP does.
        sites.server.attempt(f"ping -q -c 1 -W 2 {ROUTERS[4][1]}")
        expect(sites.ping() == 3, "no ping after the neighbour's address changed")
        sites.right.sh("ip neigh flush dev lan")
        expect(sites.ping() >= 2, "no ping after all neighbours were forgotten")


def policies_change_under_way():
    """A policy that goes, and comes back, moves its traffic to the kernel and from it."""
    with Sites("fw") as sites:
        left, _ = start(sites)
        wire = sites.listen(sites.wire, "left")
        expect(sites.ping() == 3, "no ping")
        out = f"{NETS[4][0]} {NETS[4][1]} any -P out"
        wire.clear()
        left.setkey_text(f"spddelete {out};\nspdadd {out} none;\n")
        sites.ping()
        clear = [packet for packet in fail_closed.in_clear(wire.settle()) if packet.source == CLIENT[4]]
        expect(len(clear) == 3, f"{len(clear)} packets in clear once policy lets them")
        left.setkey_text(f"spddelete {out};\nspdadd {out} ipsec esp/tunnel/{'-'.join(OUTER[4])}/require;\n")
        wire.clear()
        expect(sites.ping() == 3, "no ping once they are protected again")
        expect(not fail_closed.in_clear(wire.settle()), "in clear on the wire after all")


def refused(options, *words, text=None, before="true"):
    def test():
        with Sites("fw") as sites, tempfile.TemporaryDirectory(prefix="esplanade-test-") as folder:
            sites.left.sh(before)
            state = sites.left.sh(fail_closed.STATE)
            status, output = run_gateway(sites.left, text or setkey_text("left"), f"{folder}/fw.sock", *options)
            expect_refusal(status, output, *words)
            expect(sites.left.sh(fail_closed.STATE) == state, "something stayed behind")
    return test


INTERFACE = ("add 192.0.2.1 192.0.2.2 esp 0x1001 -o interface=vpn0 -m tunnel -r 4 "
             "-E aes-gcm-16 0x000102030405060708090a0b0c0d0e0f10111213;\n")

CASES = {
    "an address that becomes the gateway's is not forwarded to": what_becomes_ours_is_not_forwarded(
        "ip addr add {}/32 dev lo"),
    "what a route calls local is not forwarded to": what_becomes_ours_is_not_forwarded(
        "ip route add local {} dev lo"),
    **{f"{'UDP' if udp else 'native'} over IPv{outer} carries pings and TCP": carries(outer, udp)
       for outer, udp in itertools.product((4, 6), (True, False))},
    "one side has a TUN device": carries(4, False, right=[]),
    "with workers and packet sockets": carries(4, False, left=[*FORWARD, "--workers", "2", "--native-io", "packet"]),
    "the kernel need not forward anything": carries(4, True, kernel_forwards=0),
    "every datagram comes once where the kernel forwards": every_datagram_comes_once(1),
    "every datagram comes once where it does not": every_datagram_comes_once(0),
    "status tells of it": status_tells,
    "nothing leaves or enters in clear": nothing_in_clear,
    "nothing leaks after kill -9": nothing_leaks_after(signal.SIGKILL),
    "nothing leaks after a clean stop": nothing_leaks_after(signal.SIGTERM),
    "down takes everything away": down_takes_everything_away,
    "both gateways are hops and tell it": hops_are_counted,
    "what policy does not protect is the kernel's": the_rest_is_the_kernels,
    "senders hear what fits": senders_hear_what_fits,
    "a narrow device behind the tunnel": a_narrow_device_behind_the_tunnel,
    "a neighbour with another link address is found": neighbour_moves,
    "policies that change move their traffic": policies_change_under_way,
    "no such device": refused(["--forward", "eth7"], "--forward eth7", "no such device"),
    "a device of a bridge": refused(FORWARD, "no bridge", before="ip link add br1 type bridge; "
                                    "ip link set br1 up; ip link set lan master br1"),
    "not together with a TUN device": refused([*FORWARD, "--tun", "esp1"], "--tun", "cannot be used with"),
    "no devices of associations": refused(FORWARD, "interface=vpn0", "--forward", text=INTERFACE),
}
