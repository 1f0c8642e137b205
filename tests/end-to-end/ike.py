"""Two gateways that negotiate their keys, each from a file of about ten lines."""

import json
import os
import signal
import subprocess
import time

from fail_closed import in_clear
from live_change import Stream
from network.expect import expect
from network.gateway import Gateway, keeping, program
from network.sites import NETS, OUTER, Sites
from network.timeout import slowed
from network.wire import Esp

PSK = "fe3MFfmoZ3p0pSVRb2m0ZZ0sBN1CFHkWj1sQPNGzhLw"
UP_SECONDS = slowed(15)
NAMES = ("left", "right")


class Keyed(Gateway):
    """`esplanade run --config` on a host."""

    def launch(self, command, more=(), wrap=()):
        argv = [*wrap, *self.wrap, program(), command, "--config", self.setkey, "--control", self.control,
                *self.options, *more, *keeping(self.folder, self.options)]
        with open(self.log, "w" if command == "run" else "a") as log:
            return self.host.start(argv, stdout=log, stderr=subprocess.STDOUT)

    def peer(self, name="site"):
        return next(peer for peer in self.status()["peers"] if peer["name"] == name)

    def wait(self, state, name="site"):
        deadline = time.monotonic() + UP_SECONDS
        while time.monotonic() < deadline:
            peer = self.peer(name)
            if peer["state"] == state and (state != "up" or peer["children"]):
                return peer
            time.sleep(0.05)
        raise AssertionError(f"peer {name} is not {state} after {UP_SECONDS} s: {self.peer(name)}\n"
                             f"{self.ask('why', name)}\n{self.words()}")


def config(name, more="", psk=PSK, theirs=None):
    """The file of one gateway; the other one's is the same with the sides exchanged."""
    mine, other = (0, 1) if name == "left" else (1, 0)
    networks = [[NETS[family][side] for family in (4, 6)] for side in (mine, other)]
    return f"""[peer.site]
local = "{OUTER[4][mine]}"
remote = "{OUTER[4][other]}"
local_id = "{name}.example.org"
remote_id = "{theirs or NAMES[other]}.example.org"
psk = "{psk}"
mode = "policy"
networks = {{ local = {json.dumps(networks[0])}, remote = {json.dumps(networks[1])} }}
{more}
"""


def start(sites, name, text):
    gateway = Keyed(getattr(sites, name), text)
    sites.gateways[name] = gateway
    return gateway.ready()


def start_both(sites, **more):
    right = start(sites, "right", config("right", 'start = "wait"', **more))
    left = start(sites, "left", config("left", **more))
    left.wait("up")
    right.wait("up")
    return left, right


def closed_before_up_while_up_and_after():
    with Sites("ik") as sites:
        wire = sites.listen(sites.wire, "left")
        expect(sites.ping(4) == 3 and sites.ping(6) == 3, "the plain network itself does not work")
        expect(in_clear(wire.settle()), "the control failed: plain traffic was not seen on the wire")
        left = start(sites, "left", config("left"))
        wire.clear()
        expect(sites.ping(4) == 0 and sites.ping(6) == 0, "pings are answered without a peer")
        right = start(sites, "right", config("right"))
        left.wait("up")
        right.wait("up")
        expect(sites.ping(4) == 3 and sites.ping(6) == 3, f"no ping through the tunnel: {left.words()}")
        frames = wire.settle()
        expect(not in_clear(frames), "inner addresses in clear on the wire")
        expect(any(Esp.find(frame) for frame in frames), "no ESP on the wire")
        left.ask("down", "site")
        left.wait("down")
        wire.clear()
        expect(sites.ping(4) == 0 and sites.ping(6) == 0, "pings are answered while the peer is down")
        expect(not in_clear(wire.settle()), "inner addresses in clear on the wire while the peer is down")
        left.ask("up", "site")
        left.wait("up")
        right.wait("up")
        expect(sites.ping(4) == 3 and sites.ping(6) == 3, "no ping after down and up")


def refused(words, left="", right="", **other):
    """The two do not agree: `why` says it on the side that began, and nothing passes."""
    def test():
        with Sites("ik") as sites:
            start(sites, "right", config("right", 'start = "wait"\n' + right, **other))
            gateway = start(sites, "left", config("left", left))
            deadline = time.monotonic() + UP_SECONDS
            story = ""
            while not all(word in story for word in words) and time.monotonic() < deadline:
                time.sleep(0.2)
                story = gateway.ask("why", "site")
            expect(all(word in story for word in words), f"the story does not say {words}:\n{story}")
            peer = gateway.peer()
            expect(peer["state"] != "up" and peer["why"], f"{peer}")
            expect(sites.ping(4) == 0, "pings are answered without a tunnel")
    return test


def rekeys_lose_nothing():
    with Sites("ik") as sites:
        left, right = start_both(sites)
        stream = Stream(sites)
        before = left.peer()["children"][0]["inbound_spi"]
        for gateway in (left, right):
            gateway.ask("rekey", "site")
            time.sleep(1)
            gateway.ask("rekey", "site", "--ike")
            time.sleep(1)
        sent, lost, _ = stream.finish()
        expect(left.peer()["children"][-1]["inbound_spi"] != before, "the keys are the old ones")
        expect(lost == 0 and stream.duplicated() == 0, f"of {sent} lost {lost}, twice {stream.duplicated()}")
        return f"4 rekeys, {sent} datagrams, lost 0"


def ike_processes(gateway):
    """The processes of key exchange of one gateway."""
    net = os.stat(f"/proc/{gateway.process.pid}/ns/net").st_ino
    found = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{pid}/cmdline") as file:
                words = file.read().split("\0")
            if "ike-process" in words and os.stat(f"/proc/{pid}/ns/net").st_ino == net:
                found.append(int(pid))
        except OSError:
            pass
    return found


def a_killed_ike_process_is_started_again_and_the_tunnel_carries_on():
    with Sites("ik") as sites:
        left, right = start_both(sites)
        stream = Stream(sites)
        time.sleep(0.3)
        processes = ike_processes(left)
        expect(len(processes) == 1, f"the control failed: processes {processes}")
        os.kill(processes[0], signal.SIGKILL)
        deadline = time.monotonic() + UP_SECONDS
        while left.status()["ike"]["starts"] < 2 and time.monotonic() < deadline:
            time.sleep(0.05)
        left.wait("up")
        time.sleep(6)
        sent, lost, _ = stream.finish()
        children = left.peer()["children"]
        expect(all(child["state"] == "active" for child in children), f"{children}")
        # None while there is no ike process; some when the new IKE SA replaces the old one (docs/status.md, Open).
        expect(lost <= sent // 10, f"of {sent} lost {lost}:\n{left.words()}")
        return f"{sent} datagrams, lost {lost}, all of them when the new IKE SA replaced the old one"


def a_reload_of_one_peer_leaves_the_other_alone():
    with Sites("ik") as sites:
        left, _ = start_both(sites)
        spi = left.peer()["children"][0]["inbound_spi"]
        another = config("left").replace("[peer.site]", "[peer.other]").replace(OUTER[4][1], "192.0.2.9")
        another = another.replace(NETS[4][1], "10.9.0.0/24").replace(NETS[6][1], "fd00:9::/64")
        stream = Stream(sites)
        with open(left.setkey, "a") as file:
            file.write(another)
        left.ask("reload")
        expect({peer["name"] for peer in left.status()["peers"]} == {"site", "other"}, "the new peer is not there")
        policies = {policy["selector"] for policy in left.status()["policies"]}
        expect(any("10.9.0.0/24" in selector for selector in policies), f"its networks are open: {policies}")
        sent, lost, _ = stream.finish()
        expect(lost == 0, f"of {sent} lost {lost}")
        expect(left.peer()["children"][0]["inbound_spi"] == spi, "the peer that did not change has new keys")


CASES = {
    "two short files: closed before, protected while up, closed while down": closed_before_up_while_up_and_after,
    "another pre-shared key is refused, and why says it": refused(("AUTHENTICATION_FAILED",), psk="another" + PSK),
    "another identity is refused, and why says it": refused(("AUTHENTICATION_FAILED",), theirs="else"),
    "no proposal in common is refused, and why says it":
        refused(("NO_PROPOSAL_CHOSEN",), 'ike = ["aes128-sha256-x25519"]', 'ike = ["aes256gcm16-prfsha384-ecp384"]'),
    "child and IKE SAs are rekeyed from both sides under traffic": rekeys_lose_nothing,
    "kill -9 of the ike process under traffic": a_killed_ike_process_is_started_again_and_the_tunnel_carries_on,
    "a reload of one peer leaves the other one alone": a_reload_of_one_peer_leaves_the_other_alone,
}
