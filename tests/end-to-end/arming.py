"""`esplanade arm`: barriers before there is a gateway, taken over by the gateway that starts, kept when a file is
broken."""

import os
import shutil
import subprocess
import tempfile

from fail_closed import STATE, arrives, in_clear
from ike import PSK, Keyed, config
from ike import start as start_keyed
from network.expect import expect
from network.gateway import Gateway, program
from network.sites import OUTER, Sites, setkey_text


class Armed:
    """A host's barriers, by the file, the control socket and the folder of one gateway to come."""

    def __init__(self, host, text):
        self.host = host
        self.folder = tempfile.mkdtemp(prefix="esplanade-test-")
        self.file, self.control = f"{self.folder}/gateway.setkey", f"{self.folder}/control.sock"
        self.write(text)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        shutil.rmtree(self.folder, ignore_errors=True)

    def write(self, text):
        with open(self.file, "w") as file:
            file.write(text)

    def run(self, *arguments):
        argv = self.host.argv([program(), *arguments, "--control", self.control])
        done = subprocess.run(argv, capture_output=True, text=True, timeout=30, stdin=subprocess.DEVNULL)
        return done.returncode, done.stdout + done.stderr

    def arm(self, how=()):
        return self.run("arm", *how, self.file, "--state", f"{self.folder}/state")


def nothing_in_clear_passes(sites, when):
    wire, inside = sites.listen(sites.wire, "left"), sites.listen(sites.client, "lan")
    for family in (4, 6):
        expect(sites.ping(family) == 0, f"{when}: a ping in clear was answered, IPv{family}")
        expect(not arrives(sites, wire, inside, family), f"{when}: a packet in clear came in, IPv{family}")
    wire.clear()
    for family in (4, 6):
        sites.ping(family)
    expect(not in_clear(wire.settle()), f"{when}: inner addresses in clear on the wire")


def everything_passes(sites, when):
    wire, inside = sites.listen(sites.wire, "left"), sites.listen(sites.client, "lan")
    for family in (4, 6):
        expect(sites.ping(family) == 3, f"{when}: the plain network does not work, IPv{family}")
        expect(arrives(sites, wire, inside, family), f"{when}: a packet in clear does not arrive, IPv{family}")


def closed_before_a_gateway_runs():
    with Sites("ar") as sites, Armed(sites.left, setkey_text("left")) as boot:
        before = sites.left.sh(STATE)
        everything_passes(sites, "the control, before")
        status, output = boot.arm()
        expect(status == 0 and "armed" in output, f"exit status {status}:\n{output}")
        nothing_in_clear_passes(sites, "armed")
        expect(sites.left.attempt("ip neigh flush all; ping -q -c 2 -W 1 192.0.2.2")[0] == 0,
               "the link itself is cut, IPv4")
        expect(sites.left.attempt("ip -6 neigh flush all; ping -q -c 2 -W 1 2001:db8::2")[0] == 0,
               "the link itself is cut, IPv6")
        status, output = boot.run("down")
        expect(status == 0, f"down: exit status {status}:\n{output}")
        expect(sites.left.sh(STATE) == before, "down left something of it")
        everything_passes(sites, "the control, after")


def a_gateway_takes_the_barriers_over():
    with Sites("ar") as sites, Armed(sites.left, setkey_text("left")) as boot:
        everything_passes(sites, "the control, before")
        expect(boot.arm()[0] == 0, "arm failed")
        nothing_in_clear_passes(sites, "armed")
        gateway = Gateway(sites.left, setkey_text("left"), folder=boot.folder).ready()
        sites.start("right")
        for family in (4, 6):
            expect(sites.ping(family) == 3, f"no ping through the tunnel, IPv{family}")
        status, output = boot.arm()
        expect(status != 0 and "is locked by a running gateway" in output,
               f"armed beside a gateway that runs: {status}\n{output}")
        gateway.stop()
        nothing_in_clear_passes(sites, "after the gateway stopped")
        expect(boot.run("down")[0] == 0, "down failed")


def a_broken_file_leaves_what_was_armed_last():
    with Sites("ar") as sites, Armed(sites.left, "spdadd 10.1.0.0/24 nonsense;") as boot:
        everything_passes(sites, "the control, before")
        status, output = boot.arm()
        expect(status != 0 and "gateway.setkey:1:" in output and "nothing was armed" in output.lower(),
               f"{status}\n{output}")
        boot.write(setkey_text("left"))
        expect(boot.arm()[0] == 0, "arm failed")
        boot.write(setkey_text("left") + "\nspdadd 10.1.0.0/24 nonsense;")
        status, output = boot.arm()
        expect(status != 0 and "armed last" in output, f"exit status {status}:\n{output}")
        nothing_in_clear_passes(sites, "with a broken file")
        expect(boot.run("down")[0] == 0, "down failed")
        everything_passes(sites, "the control, in between")
        # As after a boot: the kernel holds nothing any more, and the file is gone.
        os.remove(boot.file)
        status, output = boot.arm()
        expect(status != 0 and "armed last" in output, f"exit status {status}:\n{output}")
        nothing_in_clear_passes(sites, "with a file that is gone")
        kept = sites.left.sh(f"cat {boot.folder}/state/armed-*")
        expect("spdadd" in kept and "5a5a5a" not in kept, f"what is kept holds no policy, or a key:\n{kept}")


def the_networks_of_peers_are_closed_until_a_gateway_has_keys_for_them():
    with Sites("ar") as sites, Armed(sites.left, config("left").replace(OUTER[4][1], "right.example.org")) as boot:
        os.chmod(boot.file, 0o600)
        before = sites.left.sh(STATE)
        everything_passes(sites, "the control, before")
        status, output = boot.arm(("--config",))
        expect(status == 0 and "armed" in output, f"exit status {status}:\n{output}")
        nothing_in_clear_passes(sites, "armed")
        expect(sites.left.attempt("ip neigh flush all; ping -q -c 2 -W 1 192.0.2.2")[0] == 0, "the link itself is cut")
        kept = sites.left.sh(f"cat {boot.folder}/state/armed-*")
        expect("spdupdate" in kept and PSK not in kept, f"what is kept holds no policy, or the key:\n{kept}")
        boot.write("[peer.site]\nnonsense = 1\n")
        status, output = boot.arm(("--config",))
        expect(status != 0 and "armed last" in output and "nonsense" in output, f"exit status {status}:\n{output}")
        nothing_in_clear_passes(sites, "with a broken file")
        left = Keyed(sites.left, config("left"), folder=boot.folder)
        sites.gateways["left"] = left.ready()
        nothing_in_clear_passes(sites, "with a gateway, before its peer is there")
        right = start_keyed(sites, "right", config("right"))
        left.wait("up")
        right.wait("up")
        for family in (4, 6):
            expect(sites.ping(family) == 3, f"no ping through the tunnel, IPv{family}")
        left.stop()
        nothing_in_clear_passes(sites, "after the gateway stopped")
        expect(boot.run("down")[0] == 0, "down failed")
        expect(sites.left.sh(STATE) == before, "down left something of it")


CASES = {
    "armed: the networks of peers are closed until a gateway has keys for them":
        the_networks_of_peers_are_closed_until_a_gateway_has_keys_for_them,
    "armed: nothing passes in clear before a gateway runs": closed_before_a_gateway_runs,
    "armed: a gateway that starts takes the barriers over": a_gateway_takes_the_barriers_over,
    "armed: a broken or missing file leaves what was armed last": a_broken_file_leaves_what_was_armed_last,
}
