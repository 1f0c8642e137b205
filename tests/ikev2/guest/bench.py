"""The hosts of a case, the traffic, and what is asked of every tunnel.

      on this machine              │       in the guest
   client ── gateway ── wire ── tap0 ─┼─ eth0 ── bridge ── namespace "right": charon, 10.2.0.1
"""

import re
import socket
import threading
import time

from charon_commands import PROGRAMS
from echo import came_back
from ends import OUTER, InGuest, OnHost
from guest import KINDS
from network.expect import expect
from network.wire import ESP, UDP, Esp, Packet, Wire

AH = 51
ECHO_PORT = 7777
MARK = b"esplanade canary"
COUNT, SIZE, INTERVAL = 8, 1200, 0.02
PAYLOAD = MARK * (SIZE // len(MARK))
# Seconds of a flow while SAs are exchanged, and without an answer until the rest counts as lost.
FLOW_SECONDS, ANSWER_TIMEOUT, CONTROL_TIMEOUT = 1.5, 3, 20
INSIDE = {"left": "10.1.0.2", "right": "10.2.0.1"}
MAC = "02:00:00:00:00:02"


class Plain:
    """What the control needs of a case: traffic between the two networks."""
    mode, outer = "tunnel", 4


class Bench:
    """Hosts, wire, guest and both ends; they serve all cases."""

    def __init__(self, network, kind, folder):
        self.client, self.gateway, self.wire_host = map(network.host, ["client", "gateway", "wire"])
        self.build_hosts(network)
        started = time.monotonic()
        self.guest = KINDS[kind](self.wire_host.name, "tap0", [f"{path}={path}" for path in PROGRAMS])
        self.release = self.guest.root.run("uname -r")[1].strip()
        print(f"guest ({kind}) up after {time.monotonic() - started:.1f} s: {self.release}", flush=True)
        self.build_guest()
        self.tap = Wire(self.wire_host, "gw")
        self.left = OnHost(self.gateway, "left", None, folder, None)
        self.right = InGuest(self.guest, self.wire_host)
        self.right.sh("setsid probe echo > /dev/null 2>&1 < /dev/null &")

    def build_hosts(self, network):
        network.link(self.client, "lan", self.gateway, "lan")
        network.link(self.gateway, "wan", self.wire_host, "gw")
        self.wire_host.sh("""
            ip tuntap add dev tap0 mode tap
            ip link add br0 type bridge mcast_snooping 0
            for port in tap0 gw; do ip link set $port master br0 up; done
            ip link set br0 up; ip addr add 192.0.2.9/24 dev br0""")
        self.gateway.sh("""
            sysctl -qw net.ipv4.ip_forward=1 net.ipv4.conf.all.rp_filter=0 net.ipv4.conf.default.rp_filter=0
            for each in wan lan; do sysctl -qw net.ipv6.conf.$each.accept_dad=0; ip link set $each up; done
            ip addr add 192.0.2.1/24 dev wan; ip addr add 2001:db8::1/64 dev wan nodad
            ip addr add 10.1.0.1/24 dev lan; ip route add 10.2.0.0/24 via 192.0.2.2""")
        self.client.sh("""ip link set lan up; ip addr add 10.1.0.2/24 dev lan
            ip route add default via 10.1.0.1""")

    def build_guest(self):
        status, output = self.guest.root.run(f"""set -e
            ip link add br0 type bridge mcast_snooping 0
            ip link add toright type veth peer name eth0 netns right
            for port in eth0 toright; do ip link set $port master br0 up; done
            ip link set br0 up; ip -n right link set lo up
            ip -n right link set eth0 address {MAC} up
            ip -n right addr add 192.0.2.2/24 dev eth0; ip -n right addr add 2001:db8::2/64 dev eth0 nodad
            ip -n right addr add 10.2.0.1/32 dev lo; ip -n right route add 10.1.0.0/24 via 192.0.2.1""")
        if status:
            raise SystemExit(f"the guest's network could not be made:\n{output}")

    def close(self):
        self.left.stop()
        self.tap.close()
        self.guest.stop()

    # Traffic.

    def ends(self, case):
        """The host that asks on this side, its address, and the one in the guest."""
        if case.mode == "transport":
            return self.gateway, OUTER["left"][case.outer], OUTER["right"][case.outer]
        return self.client, INSIDE["left"], INSIDE["right"]

    def out(self, case, count=COUNT, timeout=ANSWER_TIMEOUT):
        """How many datagrams to the guest come back."""
        host, source, target = self.ends(case)
        made = host.socket(socket.AF_INET6 if ":" in target else socket.AF_INET, socket.SOCK_DGRAM)
        try:
            made.bind((source, 0))
            return came_back(made, (target, ECHO_PORT), PAYLOAD, count, INTERVAL, timeout)
        finally:
            made.close()

    def back(self, case):
        """How many pings from the guest come back."""
        _, near, far = self.ends(case)
        _, output = self.right.shell.run(f"ping -q -n -c {COUNT} -i 0.05 -W 3 -s {SIZE} -I {far} {near}")
        found = re.search(r"(\d+) received", output)
        return int(found[1]) if found else 0

    def passes_in_clear(self):
        """The control: without gateways datagrams pass, and are found on the wire. The first ones may wait for a
        neighbour or for the server that echoes."""
        deadline = time.monotonic() + CONTROL_TIMEOUT
        while time.monotonic() < deadline:
            self.tap.clear()
            came, clear = (self.out(Plain, timeout=1), self.back(Plain)), len(self.in_clear())
            if came == (COUNT, COUNT) and clear >= 4 * COUNT:
                return True
        return False

    def in_clear(self):
        """Frames on the wire whose addresses are those inside."""
        inside = set(INSIDE.values())
        packets = filter(None, map(Packet.of, self.tap.settle(0.1)))
        return [packet for packet in packets if {packet.source, packet.destination} & inside]

    # What is asked of every tunnel.

    def check_agreed(self, case):
        """Both ends show the protocol, mode, sequence numbers and encapsulation of the case."""
        wanted = {"protocol": case.protocol, "mode": case.mode, "esn": case.esn, "udp": bool(case.udp)}
        states = self.right.states()
        wrong = [state for state in states if any(state[name] != value for name, value in wanted.items())]
        shown = [(child["protocol"], child["mode"]) for child in self.left.children()]
        if len(states) != 2 or wrong:
            return f"wanted twice {wanted} in the kernel: {states}"
        return None if shown == [(case.protocol, case.mode)] else f"esplanade shows {shown}"

    def check_traffic(self, case, outcome, suffix=""):
        """Datagrams and pings, counted by both ends."""
        self.tap.clear()
        before, errors = (self.right.packets(), self.left.packets()), self.right.errors()
        for name, came in (("out", self.out(case)), ("in", self.back(case))):
            outcome[name + suffix] = None if came == COUNT else f"{came} of {COUNT} came back"
        kernel, esplanade = map(carried, before, (self.right.packets(), self.left.packets()))
        changed = {name: count - errors[name] for name, count in self.right.errors().items() if count != errors[name]}
        counted = min(kernel + esplanade) >= 2 * COUNT and not changed
        found = f"[in, out] kernel {kernel}, esplanade {esplanade}, not {2 * COUNT}; refused: {changed}"
        outcome["counted" + suffix] = None if counted else found
        outcome["wire" + suffix] = self.check_wire(case)

    def check_wire(self, case):
        """Between the gateways there is nothing but the protocol of the case, and IKE."""
        due = AH if case.protocol == "ah" else UDP if case.udp else ESP
        protected, ends = 0, {OUTER[which][case.outer] for which in OUTER}
        if clear := self.in_clear():
            return f"{len(clear)} packets in clear"
        for packet in filter(None, map(Packet.of, self.tap.frames)):
            if {packet.source, packet.destination} != ends or packet.is_neighbour_discovery():
                continue
            if case.protocol == "esp" and MARK in packet.frame:
                return "a payload in clear"
            if packet.protocol == due and (due != UDP or Esp.find(packet.frame)):
                protected += 1
            elif not is_ike(packet):
                return f"protocol {packet.protocol} from {packet.source} where {due} was due"
        return None if protected >= 2 * COUNT else f"{protected} packets of protocol {due}"


class Flow:
    """Datagrams all the time while something is done."""

    def __init__(self, bench, case):
        self.count, self.came = round(FLOW_SECONDS / INTERVAL), 0
        self.thread = threading.Thread(target=self.run, args=(bench, case))

    def run(self, bench, case):
        self.came = bench.out(case, self.count)

    def __enter__(self):
        self.thread.start()
        time.sleep(0.3)
        return self

    def __exit__(self, *_):
        self.thread.join()

    def expect_nothing_lost(self):
        expect(self.came == self.count, f"{self.count - self.came} of {self.count} datagrams were lost meanwhile")


def carried(before, after):
    """Packets in each direction, by all associations that are still there: replaced ones may have gone meanwhile."""
    return [sum(count - old.get(spi, 0) for spi, count in now.items()) for old, now in zip(before, after)]


def is_ike(packet):
    if packet.protocol != UDP:
        return False
    ports = packet.frame[packet.offset:packet.offset + 4]
    to_ike = b"\x01\xf4" in (ports[:2], ports[2:])
    return to_ike or packet.frame[packet.offset + 8:packet.offset + 12] == bytes(4) or len(packet.frame) <= 60
