"""Two sites with traffic of every kind, in clear and protected, that never stops, and the left gateway under attack."""

import mmap
import os
import shutil
import signal
import struct
import subprocess
import tempfile
import time

import packets
from network.clear import also_from_outer_addresses
from network.expect import expect
from network.gateway import Gateway, GatewayError
from network.timeout import slowed
from network.sites import Sites, setkey_text
from news import News
from taps import Taps

HERE = os.path.dirname(os.path.abspath(__file__))
# Seconds; other builds may run beside it.
TIMEOUT_SECONDS = slowed(60)
# Of what leaves, so much goes by sockets of the gateway's own host.
LOCAL_SHARE = 0.3
# What an attack may change, without numbers that count and without what the kernel itself adds later. The gateway's own
# device keeps a loose reverse path check once all devices have had a strict one.
STATE = """nft --stateless list ruleset; for family in 4 6; do
    ip -$family rule; ip -$family route show table 4500; ip -$family route show | grep -v -e fe80 -e linkdown; done
    ip -brief link show esp0 | sed 's/@.*//' | cut -d' ' -f1; ip -oneline link show esp0 | grep -o 'mtu [0-9]*'
    ip xfrm policy
    for device in wan lan; do for way in ingress egress; do
        tc filter show dev $device $way 2>/dev/null | grep -v -e 'not_in_hw' ; done; done
    sysctl -a -r '^net.ipv[46].conf.(all|esp0|wan|lan).(rp_filter|forwarding|disable_|accept_local|route_localnet|src_valid)' |
        grep -v esp0.rp_filter"""
# A program that removes everything opens the host: that is the control.
ALL_REMOVED = """nft delete table inet esplanade; ip xfrm policy flush; ip link del esp0
    for device in wan lan; do tc qdisc del dev $device clsact; done
    for family in 4 6; do ip -$family route flush table 4500
        for rule in $(ip -$family rule | sed -n 's/^\\(10[0-9][0-9][0-9]\\):.*/\\1/p'); do
            ip -$family rule del pref $rule; done; done 2>/dev/null; true"""
# What a failed attack may have left undone.
OWN_AGAIN = """for device in wan lan; do ip link set $device up; done
    ip addr del 192.0.2.9/24 dev wan; ip addr replace 192.0.2.1/24 dev wan; ip addr replace 2001:db8::1/64 dev wan nodad
    ip addr replace fd00:1::1/64 dev lan nodad
    ip route replace 10.2.0.0/24 via 192.0.2.2; ip -6 route replace fd00:2::/64 via 2001:db8::2"""
# The far end answers pings alone: replies to the rest would only cost processor time.
SILENT = """nft add table inet silent; nft add chain inet silent arriving '{ type filter hook input priority 0; }'
    for upper in udp tcp; do nft add rule inet silent arriving $upper dport 5100-5199 drop; done"""


def compiled_flood(folder):
    """The path of the program that sends; a guest has been given it."""
    if there := shutil.which("flood"):
        return there
    program = f"{folder}/flood"
    subprocess.run(["cc", "-O2", "-Wall", "-Wextra", "-Werror", "-o", program, f"{HERE}/flood.c"], check=True)
    return program


class Sender:
    """`flood` on a host."""

    def __init__(self, program, host, lines, rate):
        self.path = tempfile.mkstemp(prefix="esplanade-flood-")[1]
        with open(self.path, "wb") as file:
            file.write(bytes(16))
        with open(self.path, "r+b") as file:
            self.counters = mmap.mmap(file.fileno(), 16)
        with tempfile.TemporaryFile("w+") as items:
            items.write("\n".join(lines) + "\n")
            items.seek(0)
            self.process = subprocess.Popen(host.argv([program, str(rate), self.path]), stdin=items)

    def sent(self):
        return struct.unpack_from("Q", self.counters)[0]

    def stop(self):
        self.process.kill()
        self.process.wait()
        os.unlink(self.path)


class Bench:
    """`rate` is in packets a second, each way."""

    def __init__(self, rate):
        self.rate = rate
        self.folder = tempfile.TemporaryDirectory(prefix="esplanade-hostile-")
        self.flood = compiled_flood(self.folder.name)
        self.sites = Sites("hostile")
        self.gateway = self.news = None
        # Of the kind that is at work: what it was given, its round and how many there are, and what it keeps between
        # them.
        self.special, self.number, self.rounds, self.kept = None, 0, 0, {}

    def __enter__(self):
        self.sites.__enter__()
        try:
            self.build()
        except BaseException:
            self.__exit__()
            raise
        return self

    def build(self):
        sites = self.sites
        sites.server.sh(SILENT)
        self.left_text, right = (text + more for text, more in
                                 zip(map(setkey_text, ("left", "right")), also_from_outer_addresses()))
        self.taps = Taps(sites)
        router = sites.left.sh("cat /sys/class/net/lan/address").strip()
        self.leaving = [Sender(self.flood, sites.client, packets.leaving_forwarded(router),
                               (1 - LOCAL_SHARE) * self.rate),
                        Sender(self.flood, sites.left, packets.leaving_local(), LOCAL_SHARE * self.rate)]
        self.arriving = [Sender(self.flood, sites.wire, packets.arriving(), self.rate)]
        # The far end stays; it looks for no replays, as the left one begins anew with each kind of attack.
        self.far = Gateway(sites.right, right.replace("-r 1024", "-r 0"))

    def __exit__(self, *_):
        for sender in [*getattr(self, "leaving", []), *getattr(self, "arriving", [])]:
            sender.stop()
        if self.news:
            self.news.close()
        self.sites.__exit__()
        self.folder.cleanup()

    def sh(self, script):
        """On the left gateway's host."""
        return self.sites.left.sh(script)

    def attempt(self, script):
        return self.sites.left.attempt(script)

    def state(self):
        return self.attempt(STATE)[1]

    def offered(self):
        """Packets sent so far that leave, and that arrive."""
        return [sum(sender.sent() for sender in way) for way in (self.leaving, self.arriving)]

    def expect_all_pass(self, when):
        """The control: every kind passes in clear, and every place sees it. How many packets did."""
        self.taps.reset(0)
        due = {"left on the wire": set(packets.LEAVE), "reached the client": set(packets.ARRIVE),
               "delivered to sockets": {(family, kind.replace("fragments", "udp")) for family, kind in packets.ARRIVE}}
        deadline, passed = time.monotonic() + TIMEOUT_SECONDS, 0
        while any(due.values()) and time.monotonic() < deadline:
            time.sleep(0.2)
            for place, (count, kinds) in self.taps.take().items():
                passed += count
                due[place] -= {(family, kind.replace("fragments", "udp")) for family, kind in kinds} \
                    if place == "delivered to sockets" else kinds
        missing = {place: sorted(kinds) for place, kinds in due.items() if kinds}
        expect(not missing, f"the control {when} failed: not seen in clear: {missing}")
        return passed

    def protect(self, **how):
        """Starts the left gateway and waits until its tunnel carries pings; what passes from now on is a failure."""
        self.gateway = Gateway(self.sites.left, self.left_text, **how)
        self.gateway.ready()
        self.goes()
        self.news = News(self.sites.left)
        self.taps.reset()

    def goes(self):
        deadline = time.monotonic() + TIMEOUT_SECONDS
        while time.monotonic() < deadline:
            if all(self.sites.ping(family, count=1) == 1 for family in (4, 6)):
                return
        raise AssertionError(f"no ping through the tunnel:\n{self.gateway.attempt('status')[1]}\n{self.gateway.words()}")

    def nothing_passed(self, when, settle=0.1):
        clear = self.taps.counts(settle)
        expect(not any(clear.values()), f"in clear while {when}: {clear}\n{self.gateway.words()}")

    def barriers(self):
        """Names of the barriers that the gateway has put up."""
        return {barrier["name"] for barrier in self.gateway.status().get("barriers", []) if barrier["holds"]}

    def restorations(self):
        """How often the gateway has put something back; builds of before did not say."""
        return self.gateway.status().get("restorations", {"times": 0})["times"]

    def unprotect(self):
        """Ends the gateway and removes on purpose all that it has put up; then every kind passes again. How many
        packets did."""
        self.remove()
        passed = self.expect_all_pass("with every barrier removed")
        self.forget()
        return passed

    def abandon(self):
        """The same after a failure, without a control, so that the next kind finds the host as it was."""
        self.remove()
        self.attempt(OWN_AGAIN)
        self.forget()

    def remove(self):
        if self.gateway.process.poll() is None:
            self.gateway.process.send_signal(signal.SIGCONT)
            self.gateway.stop(signal.SIGKILL)
        if self.news:
            self.news.close()
            self.news = None
        self.attempt(ALL_REMOVED)

    def forget(self):
        gateway, self.gateway = self.gateway, None
        status, output = gateway.attempt("down")
        if status != 0:
            raise GatewayError(f"down: exit status {status}:\n{output}")
