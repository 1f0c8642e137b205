"""The shipped systemd units: a gateway lives its life within the system calls that they allow."""

import os
import re
import signal
import time

from ike import Keyed, config
from network.expect import expect
from network.gateway import Gateway, program
from network.sites import Sites, setkey_text
from privileges_user import AS_A_UNIT, GID, OPEN_TUN, UID

HERE = os.path.dirname(os.path.abspath(__file__))
UNITS = os.path.join(HERE, "../../packaging/systemd")
FILTER = os.path.join(HERE, "../network/unit_filter.py")
START_SECONDS = 20


def gateway_of(sites, kind, text, unit):
    """Not started yet; armed before, as the unit for that does, in folders that systemd gives to the user."""
    left = kind(sites.left, text, ("--workers", "2"), started=False)
    left.control = f"{left.folder}/run/control.sock"
    left.wrap = (*OPEN_TUN, *AS_A_UNIT, FILTER, unit)
    sites.gateways["left"] = left
    for place in ("run", "kept"):
        os.mkdir(f"{left.folder}/{place}", 0o700)
    os.chmod(left.folder, 0o711)
    return left


def armed(left, unit, what):
    left.host.sh(f"{FILTER} {unit} {program()} arm {what} --control {left.control} --state {left.folder}/kept")
    left.host.sh(f"chown -R {UID}:{GID} {left.folder}/run {left.folder}/kept")


def started(left):
    left.start()
    printed(left, "ready:")


def printed(left, words):
    """Waits until the gateway has printed these words."""
    deadline = time.monotonic() + START_SECONDS
    while words not in left.words():
        expect(left.process.poll() is None, f"exit status {left.process.returncode}:\n{left.words()}")
        expect(time.monotonic() < deadline, f"{words} not printed after {START_SECONDS} s:\n{left.words()}")
        time.sleep(0.05)


def ask(left, *words):
    return left.host.sh(" ".join([f"ESPLANADE_USER={UID}:{GID}", program(), *words, "--control", left.control]))


def ended(left, how):
    left.process.send_signal(how)
    status = left.process.wait(START_SECONDS)
    expect(status == 0, f"exit status {status} after {how.name}:\n{left.words()}")


def keyed_by_hand():
    gateway, arming = f"{UNITS}/esplanade@.service", f"{UNITS}/esplanade-arm@.service"
    with Sites("un") as sites:
        sites.start("right")
        left = gateway_of(sites, Gateway, setkey_text("left"), gateway)
        armed(left, arming, left.setkey)
        expect(sites.ping() == 0, "armed, and a ping in clear was answered")
        started(left)
        expect(sites.ping() == 3 and sites.ping(6) == 3, f"no ping through the tunnel:\n{left.words()}")
        ask(left, "reload", left.setkey)
        ask(left, "status")
        sites.left.sh("nft flush ruleset; ip rule del table 4500; ip link del esp0")
        time.sleep(1)
        expect(sites.ping() == 3, f"what was taken away is not back:\n{left.words()}")
        ended(left, signal.SIGTERM)
        started(left)
        expect(sites.ping() == 3, f"no ping after another start:\n{left.words()}")
        ask(left, "down")
        expect(left.process.wait(START_SECONDS) == 0, f"exit status {left.process.returncode}:\n{left.words()}")


def keyed_by_ike():
    unit = f"{UNITS}/esplanade-config@.service"
    with Sites("un") as sites:
        right = Keyed(sites.right, config("right"))
        sites.gateways["right"] = right.ready()
        left = gateway_of(sites, Keyed, config("left"), unit)
        armed(left, f"{UNITS}/esplanade-config-arm@.service", f"--config {left.setkey}")
        started(left)
        # The side that answers is up first: until its answer is there, the other one has nothing to send by.
        right.wait("up")
        printed(left, "child SA site is up")
        expect(sites.ping() == 3, f"no ping through the tunnel:\n{left.words()}")
        ask(left, "rekey", "site")
        time.sleep(1)
        expect(sites.ping() == 3, f"no ping after a rekey:\n{left.words()}")
        ended(left, signal.SIGTERM)


def without_a_call_it_is_killed():
    """What this test could not see it would not prove."""
    with Sites("un") as sites:
        with open(f"{UNITS}/esplanade@.service") as file:
            text = re.sub(r"^SystemCallFilter=capset .*\n", "", file.read(), flags=re.MULTILINE)
        left = gateway_of(sites, Gateway, setkey_text("left"), "")
        unit = f"{left.folder}/unit"
        with open(unit, "w") as file:
            file.write(text)
        left.wrap = (*left.wrap[:-1], unit)
        left.host.sh(f"chown -R {UID}:{GID} {left.folder}/run {left.folder}/kept")
        left.start()
        status = left.process.wait(START_SECONDS)
        expect(status == -signal.SIGSYS, f"exit status {status}:\n{left.words()}")


CASES = {
    "a gateway keyed by hand makes no system call that its unit forbids": keyed_by_hand,
    "a gateway keyed by IKE makes no system call that its unit forbids": keyed_by_ike,
    "a unit without a call that is needed is noticed": without_a_call_it_is_killed,
}
