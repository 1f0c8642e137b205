"""strongSwan's charon as the peer of a gateway on the kernel's plane; charon's packets are its own kernel's, too."""

import os
import re
import tempfile

from behind_nat import NatSites
from bench import Bench, until
from case import made
from charon import Charon
from charon_commands import CHARON, KERNEL_PLUGINS
from esplanade import Esplanade
from network.expect import expect
from network.timeout import slowed
from planes import PlaneSites, options_of, states
from steps import perform

# Handshakes that an emulated processor has done before charon gives up.
SUITES = {"ike": "aes128gcm16-prfsha256-x25519", "esp": "aes128gcm16-x25519"}
REKEYS = ("rekey child left", "rekey child right", "rekey ike left", "rekey ike right")
LISTED_LIMIT_SECONDS = slowed(10)
# Lines of `swanctl --list-sas`.
INSTALLED_SPI = re.compile(r"^\s+(?:in|out)\s+([0-9a-f]{8})", re.MULTILINE)


class OnPlane(Esplanade):
    options = options_of("kernel")
    flow_interval = slowed(0.005)


class OnItsKernel(Charon):
    plugins, encap = KERNEL_PLUGINS, "no"


class InUdp(OnItsKernel):
    encap = "yes"


class NativeBench(Bench):
    hosts, opposite = {False: PlaneSites, True: NatSites}, OnItsKernel


class UdpBench(NativeBench):
    opposite = InUdp


def tunnel(by, topology=NativeBench, nat=False, more=()):
    """Up, traffic both ways that charon's kernel counts, rekeys and deletes by each side, nothing in clear."""
    steps = (*REKEYS, *more)

    def test():
        if not os.path.exists(CHARON):
            return "not tried, for there is no charon"
        with tempfile.TemporaryDirectory(prefix="esplanade-charon-") as folder:
            bench = topology(nat, OnPlane, folder, None)
            try:
                judged(bench, made({"name": "kernel", "nat": nat, **SUITES}), by, steps)
            finally:
                bench.close()
        return f"{len(steps)} steps"
    return test


def judged(bench, case, by, steps):
    expect(bench.passes_in_clear(), "the control failed: without gateways no datagram passes or is seen on the wire")
    bench.start(case)
    answer = bench.end(by).initiate()
    expect(answer is None, f"it does not come up: {answer}")
    carries(bench, case)
    for step in steps:
        perform(bench, case, step)
    carries(bench, case)


def carries(bench, case):
    outcome = {"suites": bench.check_suites(case)}
    bench.check_traffic(outcome)
    wrong = {name: what for name, what in outcome.items() if what}
    expect(not wrong, f"{wrong}\n{bench.left.words()[-1500:]}")
    as_listed(bench)


def as_listed(bench):
    """`swanctl --list-sas` shows the associations that `ip xfrm state` has on both hosts. Those of before a rekey stay
    for some seconds."""
    until(lambda: len(listed(bench)) == 2 and all(there(host) == listed(bench) for host in on_kernel(bench)),
          lambda: f"swanctl lists {listed(bench)}, the kernels have {[there(host) for host in on_kernel(bench)]}",
          LISTED_LIMIT_SECONDS)


def listed(bench):
    return set(INSTALLED_SPI.findall(bench.right.swanctl("--list-sas")))


def there(host):
    """Without those by which the kernel notes that it has asked for keys."""
    return {f"{state['spi']:08x}" for state in states(host) if state["spi"]}


def on_kernel(bench):
    return [bench.sites.right, *([bench.sites.left] if OnPlane.options else [])]


CASES = {}
LONG = {
    # Where the left end has asked for the tunnel, it brings it up again at once when charon has deleted it.
    **{f"charon on its own kernel's plane, rekeyed by each side, begun and deleted by {by}":
           tunnel(by, more=(f"delete {by}",)) for by in ("left", "right")},
    "charon on its own kernel's plane, ESP in UDP, rekeyed by each side": tunnel("left", UdpBench),
    "charon on its own kernel's plane, behind a NAT, rekeyed by each side": tunnel("left", UdpBench, nat=True),
}
