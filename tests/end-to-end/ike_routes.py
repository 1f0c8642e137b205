"""Peers with a device of their own: `mode = "route"`."""

import json
import signal
import time

from fail_closed import in_clear
from ike import NAMES, PSK, Keyed
from live_change import Stream
from network.expect import expect
from network.gateway import GatewayError
from network.sites import NETS, OUTER, Sites
from network.timeout import slowed
from network.wire import Esp

TIMEOUT_SECONDS = slowed(10)
ANY = {4: "0.0.0.0/0", 6: "::/0"}


def peer(name, peer_name="site", more="", outer=4, families=(4, 6), wide=False):
    """The table of one peer; the other gateway's is the same with the sides exchanged."""
    mine, other = (0, 1) if name == "left" else (1, 0)
    local, remote = ([ANY[family] if wide else NETS[family][side] for family in families] for side in (mine, other))
    return f"""[peer.{peer_name}]
local = "{OUTER[outer][mine]}"
remote = "{OUTER[outer][other]}"
local_id = "{peer_name}.{name}.example.org"
remote_id = "{peer_name}.{NAMES[other]}.example.org"
psk = "{PSK}"
networks = {{ local = {json.dumps(local)}, remote = {json.dumps(remote)} }}
start = "{'start' if name == 'left' else 'wait'}"
{more}
"""


def start(sites, name, text):
    gateway = Keyed(getattr(sites, name), text)
    sites.gateways[name] = gateway
    return gateway.ready()


def start_both(sites, make):
    right, left = (start(sites, name, make(name)) for name in NAMES[::-1])
    for gateway in (left, right):
        for each in gateway.status()["peers"]:
            gateway.wait("up", each["name"])
    return left, right


def write(gateway, text):
    with open(gateway.setkey, "w") as file:
        file.write(text)


def routes(host, device):
    """The gateway's routes into a device, both families."""
    lines = host.sh("for family in 4 6; do ip -$family route show table 4500 2>/dev/null || true; done").splitlines()
    return sorted(line.split()[0] for line in lines if f"dev {device} " in line + " ")


def has_device(host, device):
    return host.attempt(f"ip link show {device}")[0] == 0


def sent_into(host, device):
    return int(host.sh(f"cat /sys/class/net/{device}/statistics/tx_packets"))


def within(is_true, what):
    deadline = time.monotonic() + TIMEOUT_SECONDS
    while not is_true():
        expect(time.monotonic() < deadline, what() if callable(what) else what)
        time.sleep(0.05)


def networks_lead_into_the_device():
    with Sites("ir") as sites:
        wire = sites.listen(sites.wire, "left")
        left = start(sites, "left", peer("left"))
        expect(has_device(sites.left, "ike-site"), f"no device: {left.words()}")
        wire.clear()
        expect(sites.ping(4) == 0 and sites.ping(6) == 0, "pings are answered without a peer")
        right = start(sites, "right", peer("right"))
        left.wait("up")
        right.wait("up")
        expect(routes(sites.left, "ike-site") == sorted(NETS[family][1] for family in (4, 6)),
               f"the routes: {sites.left.sh('ip route show table all')}")
        expect(not routes(sites.left, "esp0"), "routes lead to the device of policies")
        before = sent_into(sites.left, "ike-site")
        expect(sites.ping(4) == 3 and sites.ping(6) == 3, f"no ping through the device: {left.words()}")
        expect(sent_into(sites.left, "ike-site") - before >= 6, "pings did not pass the device")
        for family in (4, 6):
            sites.ping(family, count=2, size=4000)
            expect(sites.ping(family, size=4000) == 3, f"no large ping, IPv{family}")
        frames = wire.settle()
        expect(not in_clear(frames), "inner addresses in clear on the wire")
        expect(any(Esp.find(frame) for frame in frames), "no ESP on the wire")
        expect(left.peer()["device"] == "ike-site", f"{left.peer()}")
        left.ask("down", "site")
        left.wait("down")
        wire.clear()
        expect(sites.ping(4) == 0 and sites.ping(6) == 0, "pings are answered while the peer is down")
        left.stop(signal.SIGKILL)
        expect(sites.ping(4) == 0, "pings are answered without a gateway")
        expect(not in_clear(wire.settle()), "inner addresses in clear on the wire")
        left.ask("down")
        expect(not has_device(sites.left, "ike-site"), "the device is still there")


def two_peers(name):
    return peer(name, "four", families=(4,)) + peer(name, "six", families=(6,), outer=6)


def each_peer_has_its_own():
    with Sites("ir") as sites:
        left, right = start_both(sites, two_peers)
        for family, device, other in ((4, "ike-four", "ike-six"), (6, "ike-six", "ike-four")):
            expect(routes(sites.left, device) == [NETS[family][1]], f"the routes into {device}")
            before = {each: sent_into(sites.left, each) for each in (device, other)}
            expect(sites.ping(family, count=12) == 12, f"no ping, IPv{family}: {left.words()}")
            expect(sent_into(sites.left, device) - before[device] >= 12, f"{device} did not carry them")
            expect(sent_into(sites.left, other) - before[other] < 12, f"{other} carried them")
        stream = Stream(sites)
        for gateway, name in ((left, "left"), (right, "right")):
            write(gateway, peer(name, "four", families=(4,)))
            gateway.ask("reload")
        within(lambda: not has_device(sites.left, "ike-six"), "the device of a peer that is gone stays")
        expect(routes(sites.left, "ike-four") == [NETS[4][1]], "the other peer's routes are gone")
        for gateway, name in ((right, "right"), (left, "left")):
            write(gateway, two_peers(name))
            gateway.ask("reload")
        expect(has_device(sites.left, "ike-six"), f"a reload makes no device: {left.words()}")
        left.wait("up", "six")
        right.wait("up", "six")
        expect(sites.ping(6) == 3, f"no ping through the device of a reload: {left.words()}")
        sent, lost, _ = stream.finish()
        expect(lost == 0, f"the peer that did not change lost {lost} of {sent}")
        return f"{sent} datagrams, lost 0"


def routes_of_your_own():
    with Sites("ir") as sites:
        wire = sites.listen(sites.wire, "left")
        left, _ = start_both(sites, lambda name: peer(name, more='routes = "none"', wide=True))
        expect(not routes(sites.left, "ike-site"), "there are routes")
        expect(sites.ping(4) == 3, "the host's own routes do not count any more")
        expect(in_clear(wire.settle()), "the control failed: plain traffic was not seen on the wire")
        for host, theirs in ((sites.left, 1), (sites.right, 0)):
            for family in (4, 6):
                host.sh(f"ip -{family} route replace {NETS[family][theirs]} dev ike-site")
        wire.clear()
        expect(sites.ping(4) == 3 and sites.ping(6) == 3, f"no ping by the routes: {left.words()}")
        expect("fe80::" in sites.left.sh("ip -6 addr show dev ike-site"), "no link-local address for routing daemons")
        left.ask("down", "site")
        left.wait("down")
        expect(sites.ping(4) == 0 and sites.ping(6) == 0, "pings are answered while the peer is down")
        left.ask("up", "site")
        left.wait("up")
        expect(sites.ping(4) == 3 and sites.ping(6) == 3, "no ping after down and up")
        left.stop(signal.SIGKILL)
        expect(sites.ping(4) == 0 and sites.ping(6) == 0, "pings are answered without a gateway")
        frames = wire.settle()
        expect(not in_clear(frames), "inner addresses in clear on the wire")
        expect(any(Esp.find(frame) for frame in frames), "no ESP on the wire")


def taken_away(*commands):
    def test():
        with Sites("ir") as sites:
            left, _ = start_both(sites, peer)
            expect(sites.ping(4) == 3, f"no ping through the device: {left.words()}")
            wire = sites.listen(sites.wire, "left")
            for command in commands:
                sites.left.sh(command)
                within(lambda: sites.ping(4, count=1) == 1 and sites.ping(6, count=1) == 1,
                       lambda: f"nothing passes after `{command}`: {left.words()}")
                within(lambda: len(routes(sites.left, "ike-site")) == 2, f"the routes after `{command}`")
            expect(not in_clear(wire.settle()), "inner addresses in clear on the wire")
    return test


def a_name_that_is_taken():
    with Sites("ir") as sites:
        left = start(sites, "left", peer("left"))
        before = sites.left.sh("ip rule; ip route show table 4500; ip -brief link | sed 's/@.*//'")
        new = peer("left", "new", 'interface = "lan"', families=(4,)).replace(NETS[4][1], "10.9.0.0/24")
        write(left, peer("left") + new)
        try:
            left.ask("reload")
        except GatewayError as error:
            words = str(error)
            expect("lan exists already" in words and "peers were not changed" in words, f"what it says: {words}")
        else:
            expect(False, "the device of the host was taken over")
        after = sites.left.sh("ip rule; ip route show table 4500; ip -brief link | sed 's/@.*//'")
        expect(after == before, f"before:\n{before}\nafter:\n{after}")
        expect([each["name"] for each in left.status()["peers"]] == ["site"], "half of it was done")


CASES = {
    "networks lead into the peer's device, and are closed before and after": networks_lead_into_the_device,
    "two peers have a device each, and a reload of one loses nothing of the other": each_peer_has_its_own,
    "routes of your own lead into the device, and nothing else does": routes_of_your_own,
    "a device that is deleted or taken down, and routes, come back":
        taken_away("ip link del ike-site", "ip link set ike-site down", "ip route flush table 4500"),
    "a name that is taken is refused by a reload, and nothing changes": a_name_that_is_taken,
}
