"""Two gateways that negotiate their keys, each from a file of about ten lines."""

import json
import os
import re
import signal
import subprocess
import tempfile
import textwrap
import time

from fail_closed import in_clear
from live_change import Stream
from network.expect import expect
from network.gateway import Gateway, keeping, program
from network.sites import NETS, OUTER, Sites, setkey_text
from network.timeout import slowed
from network.wire import Esp

PSK = "fe3MFfmoZ3p0pSVRb2m0ZZ0sBN1CFHkWj1sQPNGzhLw"
UP_SECONDS = slowed(15)
ORPHAN_SECONDS = slowed(20)
NAMES = ("left", "right")
README = os.path.join(os.path.dirname(__file__), "../../README.md")


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


def ah_by_aes_gmac_is_negotiated():
    """The second of the proposals is the one that both have."""
    with Sites("ik") as sites:
        suite = 'ah = ["aes128gmac-noesn", "aes256gmac-x25519-esn"]\n'
        right = start(sites, "right", config("right", 'start = "wait"\nah = ["aes256gmac-x25519-esn"]\n'))
        left = start(sites, "left", config("left", suite))
        left.wait("up")
        right.wait("up")
        child = left.peer()["children"][0]
        expect(child["protocol"] == "ah" and "aes-256-gmac" in left.ask("status"), f"{child}\n{left.ask('status')}")
        stream = Stream(sites)
        left.ask("rekey", "site")
        time.sleep(1)
        expect(left.peer()["children"][-1]["inbound_spi"] != child["inbound_spi"], "it was not rekeyed")
        sent, lost, _ = stream.finish()
        expect(sent and not lost, f"of {sent} lost {lost}")
        expect(sites.ping(4) == 3 and sites.ping(6) == 3, f"no ping through the tunnel: {left.words()}")
        counted = sum(left.drops(reason) for reason in ("bad-icv", "replayed", "no-sa"))
        expect(not counted, left.ask("drops"))


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


def both_sides_may_begin_at_once():
    """Of two IKE SAs one goes, while traffic passes."""
    sent, lost = 0, 0
    for _ in range(4):
        with Sites("ik") as sites:
            gateways = [start(sites, name, config(name)) for name in ("left", "right")]
            for gateway in gateways:
                gateway.wait("up")
            # What the responder sends before the initiator has the answer is lost in any tunnel.
            time.sleep(slowed(0.1))
            streams = [Stream(sites, back=back) for back in (False, True)]
            time.sleep(slowed(5))
            outcomes = [stream.finish() for stream in streams]
            sent, lost = (before + sum(each[place] for each in outcomes)
                          for place, before in enumerate((sent, lost)))
            pairs = [len(gateway.peer()["children"]) for gateway in gateways]
            expect(pairs == [1, 1], f"pairs of child SAs that are left: {pairs}")
    expect(sent and not lost, f"of {sent} lost {lost}")
    return f"{sent} datagrams, lost 0"


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
        before = {gateway: gateway.peer()["children"][0]["inbound_spi"] for gateway in (left, right)}
        stream = Stream(sites)
        time.sleep(0.3)
        processes = ike_processes(left)
        expect(len(processes) == 1, f"the control failed: processes {processes}")
        os.kill(processes[0], signal.SIGKILL)
        deadline = time.monotonic() + UP_SECONDS
        while left.status()["ike"]["starts"] < 2 and time.monotonic() < deadline:
            time.sleep(0.05)
        left.wait("up")
        deadline = time.monotonic() + ORPHAN_SECONDS
        while len(left.peer()["children"]) > 1 and time.monotonic() < deadline:
            time.sleep(0.1)
        sent, lost, _ = stream.finish()
        for gateway in (left, right):
            children = gateway.peer()["children"]
            expect([child["state"] for child in children] == ["active"], f"{children}\n{gateway.words()}")
            expect(children[0]["inbound_spi"] != before[gateway], "the keys are the old ones")
        expect(lost == 0 and stream.duplicated() == 0, f"of {sent} lost {lost}:\n{left.words()}\n{right.words()}")
        return f"{sent} datagrams, lost 0"


def without_its_starter_the_tunnel_carries_on_and_status_says_it():
    with Sites("ik") as sites:
        left, _ = start_both(sites)
        stream = Stream(sites)
        with open(f"/proc/{ike_processes(left)[0]}/status") as file:
            starter = int(re.search(r"^PPid:\s+(\d+)", file.read(), re.MULTILINE)[1])
        expect(starter != left.process.pid, "the control failed: no starter")
        os.kill(starter, signal.SIGKILL)
        deadline = time.monotonic() + UP_SECONDS
        trouble = ""
        while "starter has ended" not in trouble and time.monotonic() < deadline:
            time.sleep(0.1)
            trouble = left.status()["ike"].get("trouble") or ""
        expect("starter has ended" in trouble and "restart" in trouble, f"status: {left.status()['ike']}")
        expect("starter has ended" in left.ask("status"), "the table does not say it")
        expect("starter has ended" in left.attempt("up", "site")[1], "`up` does not say it")
        starts = left.status()["ike"]["starts"]
        time.sleep(1)
        expect(left.status()["ike"]["starts"] == starts, "it is tried again and again")
        sent, lost, _ = stream.finish()
        expect(lost == 0, f"of {sent} lost {lost}")
        left.again()
        left.wait("up")
        # The peer sends by the keys of before until it has received by the new ones.
        deadline = time.monotonic() + UP_SECONDS
        while sites.ping(4) < 3 and time.monotonic() < deadline:
            time.sleep(0.1)
        expect(sites.ping(4) == 3, "no ping after the restart")


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


def start_files_of_the_readme(sites, options_of=lambda name: ()):
    """The gateways of README's two files, once both peers are up."""
    with open(README) as file:
        found = re.findall(r"^ *```toml\n(.*?)^ *```", file.read(), re.DOTALL | re.MULTILINE)
    texts = [textwrap.dedent(text) for text in found]
    expect(len(texts) == 2 and all(len(text.splitlines()) <= 10 for text in texts), f"the control failed: {found}")
    expect(all("psk_file = \"b.psk\"" in text for text in texts), "the control failed: no file for the key")
    gateways = []
    for name, text in zip(NAMES, texts):
        gateway = Keyed(getattr(sites, name), text, options_of(name), started=False)
        with open(f"{gateway.folder}/b.psk", "w") as file:
            os.fchmod(file.fileno(), 0o600)
            file.write(PSK + "\n")
        sites.gateways[name] = gateway
        gateways.append(gateway.start().ready())
    for gateway, peer in zip(gateways, ("b", "a")):
        gateway.wait("up", peer)
    return gateways


def the_files_of_the_readme_bring_a_tunnel_up():
    with Sites("ik") as sites:
        gateways = start_files_of_the_readme(sites)
        wire = sites.listen(sites.wire, "left")
        expect(sites.ping(4) == 3, f"no ping through the tunnel: {gateways[0].words()}")
        frames = wire.settle()
        expect(any(Esp.find(frame) for frame in frames) and not in_clear(frames), "not by ESP alone")


def networks_of(family, side):
    """The networks of one family in a file, from the side of one gateway."""
    here, there = (0, 1) if side == "left" else (1, 0)
    nets = NETS[family]
    return f'networks = {{ local = ["{nets[here]}"], remote = ["{nets[there]}"] }}'


def of_one_family(side, family, more=""):
    """The file of one gateway for the networks of one family."""
    lines = config(side, more).splitlines()
    return "\n".join(networks_of(family, side) if line.startswith("networks") else line for line in lines) + "\n"


def start_by_hand(sites, name, setkey, peers=""):
    """A gateway by `--config` whose file names one of setkey."""
    gateway = Keyed(getattr(sites, name), f'[gateway]\nsetkey = "hand.setkey"\n{peers}', started=False)
    with open(f"{gateway.folder}/hand.setkey", "w") as file:
        os.fchmod(file.fileno(), 0o600)
        file.write(setkey)
    sites.gateways[name] = gateway
    return gateway.start().ready()


def bring_first_peer(sites):
    """The peer of both gateways comes by a reload."""
    for name, more in (("right", 'start = "wait"\n'), ("left", "")):
        with open(sites.gateways[name].setkey, "a") as file:
            file.write(of_one_family(name, 4, 'encapsulation = "force"\n' + more))
        sites.gateways[name].ask("reload")


def the_first_peer_comes_by_reload():
    """A tunnel by hand has UDP port 4500 already; the peer's shares it."""
    with Sites("ik") as sites:
        left, right = (start_by_hand(sites, name, setkey_text(name, inner=(6,))) for name in NAMES)
        expect(sites.ping(6) == 3, "the control failed: the tunnel by hand does not work")
        expect(sites.ping(4) == 3, "the control failed: without a peer its networks are closed")
        expect(not ike_ports(left), "the ports of IKE are taken without a peer")
        stream = Stream(sites, 6)
        bring_first_peer(sites)
        wire = sites.listen(sites.wire, "left")
        left.wait("up")
        right.wait("up")
        expect(sites.ping(4) == 3, f"no ping through the peer's tunnel: {left.words()}")
        sent, lost, _ = stream.finish()
        expect(lost == 0, f"the tunnel by hand lost {lost} of {sent}")
        expect(not in_clear(wire.settle()), "inner addresses in clear on the wire")
        left.ask("rekey", "site")
        with open(left.setkey, "w") as file:
            file.write('[gateway]\nsetkey = "hand.setkey"\n')
        left.ask("reload")
        expect(not left.status()["peers"], f"the peer is still there: {left.status()['peers']}")
        expect(sites.ping(6) == 3, "the tunnel by hand does not go on")


def ike_ports(gateway):
    return gateway.host.sh("ss -Hnlu 'sport = 500'").strip()


def keys_elsewhere_are_read_again_and_a_new_folder_is_refused():
    # Not in the folder of the control socket, which stays readable.
    with Sites("ik") as sites, tempfile.TemporaryDirectory(prefix="esplanade-test-") as place:
        left = Keyed(sites.left, "", started=False)
        folders = [f"{place}/{name}" for name in ("named", "listed", "other")]
        for folder in folders:
            os.mkdir(folder)
            with open(f"{folder}/a.psk", "w") as file:
                os.fchmod(file.fileno(), 0o600)
                file.write(PSK + "\n")
        home = f"{place}/home"
        os.mkdir(home)
        left.setkey = f"{home}/gateway.toml"

        def write(folder):
            with open(left.setkey, "w") as file:
                os.fchmod(file.fileno(), 0o600)
                text = config("left").replace(f'psk = "{PSK}"', f'psk_file = "{folder}/a.psk"')
                file.write(f'[gateway]\nfiles = ["{folders[1]}"]\n{text}')

        write(folders[0])
        sites.gateways["left"] = left.start().ready()
        for folder in folders[:2]:
            write(folder)
            left.ask("reload")
        write(folders[2])
        status, output = left.attempt("reload")
        if "file access is not restricted" in left.words():
            expect(status == 0, output)
            return "this kernel restricts no files: nothing is refused"
        expect(status != 0 and f"{folders[2]}/a.psk" in output and "psk_file" in output and "`files`" in output, output)
        expect(PSK not in output, "the key is shown")
        expect(left.peer()["name"] == "site", "the peer in force is gone")


CASES = {
    "the first peer comes by reload, beside a tunnel by hand": the_first_peer_comes_by_reload,
    "keys in other folders at a reload: those named or listed are read, others refused":
        keys_elsewhere_are_read_again_and_a_new_folder_is_refused,
    "the two files of README.md bring a tunnel up": the_files_of_the_readme_bring_a_tunnel_up,
    "two short files: closed before, protected while up, closed while down": closed_before_up_while_up_and_after,
    "another pre-shared key is refused, and why says it": refused(("AUTHENTICATION_FAILED",), psk="another" + PSK),
    "another identity is refused, and why says it": refused(("AUTHENTICATION_FAILED",), theirs="else"),
    "no proposal in common is refused, and why says it":
        refused(("NO_PROPOSAL_CHOSEN",), 'ike = ["aes128-sha256-x25519"]', 'ike = ["aes256gcm16-prfsha384-ecp384"]'),
    "AH by AES-GMAC is negotiated, carries and is rekeyed": ah_by_aes_gmac_is_negotiated,
    "child and IKE SAs are rekeyed from both sides under traffic": rekeys_lose_nothing,
    "both sides begin at once, under traffic": both_sides_may_begin_at_once,
    "kill -9 of the ike process under traffic": a_killed_ike_process_is_started_again_and_the_tunnel_carries_on,
    "without its starter the tunnel carries on, and status says it":
        without_its_starter_the_tunnel_carries_on_and_status_says_it,
    "a reload of one peer leaves the other one alone": a_reload_of_one_peer_leaves_the_other_alone,
}
