"""What another program of the same host does to a gateway. Each kind is done alone, again and again, under traffic."""

import os
import signal
import subprocess
import tempfile
import time
from dataclasses import dataclass

import faults
from network.expect import expect
from network.gateway import Gateway
from network.namespace import Failed

# A table of nftables belongs to its maker, and stays when he dies, from this kernel on.
OWNED_SINCE = (6, 9)

# At once: one after the other they would come back one after the other, and that too often.
RULES_DELETED = """for family in 4 6; do
    ip -$family rule | sed -n 's/^\\(10[0-9][0-9][0-9]\\):.*/rule del pref \\1/p' | ip -$family -batch -; done"""
OUTER_ROUTES = "ip route replace 10.2.0.0/24 via 192.0.2.2; ip -6 route replace fd00:2::/64 via 2001:db8::2"
OUTER_DOWN = f"""ip link set wan down; sleep 0.05; ip link set wan up
    ip addr replace 2001:db8::1/64 dev wan nodad; {OUTER_ROUTES}"""
INNER_DOWN = "ip link set lan down; sleep 0.05; ip link set lan up; ip addr replace fd00:1::1/64 dev lan nodad"
OTHER_ADDRESS = f"""ip addr del 192.0.2.1/24 dev wan; ip addr add 192.0.2.9/24 dev wan; sleep 0.05
    ip addr del 192.0.2.9/24 dev wan; ip addr add 192.0.2.1/24 dev wan
    ip addr del 2001:db8::1/64 dev wan; ip addr add 2001:db8::1/64 dev wan nodad; {OUTER_ROUTES}"""
# Of conf.all and back; what a kernel does not have is left out.
SETTINGS = {"ipv4": {"rp_filter": (1, 2), "disable_policy": (1,), "disable_xfrm": (1,), "forwarding": (0,), "accept_local": (1,),
                     "route_localnet": (1,), "accept_source_route": (1,), "src_valid_mark": (1,)},
            "ipv6": {"forwarding": (0,), "disable_policy": (1,), "accept_source_route": (1,)}}
CLSACT_DELETED = "for device in wan lan; do tc qdisc del dev $device clsact; done"
FILTERS_DELETED = "for device in wan lan; do for way in ingress egress; do tc filter del dev $device $way; done; done"
CHARON, PATIENCE = "/usr/lib/ipsec/charon", 20
HELD_FOR = 0.05
OTHERS = ("spdadd 10.91.0.0/24 10.92.0.0/24 any -P out ipsec esp/tunnel/192.0.2.1-192.0.2.77/require;\n"
          "spdadd 10.92.0.0/24 10.91.0.0/24 any -P in ipsec esp/tunnel/192.0.2.77-192.0.2.1/require;\n")


@dataclass(frozen=True)
class Kind:
    """`attack` does it once, and gives back what only its owner can: outer devices, addresses, settings. `taken` are the
    barriers that it takes down: while none other stands, nothing is promised, and what passes is told as a number."""

    attack: object
    taken: frozenset = frozenset()
    # What the gateway must have, or the machine: then `absent` is the reason's name in not-here.toml.
    needs: object = None
    absent: str = ""
    # What the gateway is started with.
    special: object = faults.nothing_special
    # Whether the gateway lives on, and what it puts back is timed.
    timed: bool = True


def kernel():
    return tuple(int(number) for number in os.uname().release.split("-")[0].split(".")[:2])


def by(script, control=None):
    """An attack by a shell script on the gateway's host."""
    def attack(bench):
        bench.sh(script)
        if control:
            expect(bench.attempt(control)[0] != 0, f"the control failed: {control} still succeeds after {script}")
    return attack


def while_stopped(script):
    """The gateway is held by SIGSTOP meanwhile, so nothing comes back."""
    def attack(bench):
        bench.gateway.process.send_signal(signal.SIGSTOP)
        try:
            status, output = bench.attempt(script)
            owned = kernel() >= OWNED_SINCE
            expect((status != 0) == owned, f"{script}: exit status {status} on kernel {os.uname().release}: {output}")
            time.sleep(HELD_FOR)
        finally:
            bench.gateway.process.send_signal(signal.SIGCONT)
    return attack


def both_while_stopped(bench):
    """What passes until it goes on is told as a number where both are gone; the kernel may have kept the first."""
    bench.gateway.process.send_signal(signal.SIGSTOP)
    try:
        bench.sh(f"nft flush ruleset; {CLSACT_DELETED}")
        time.sleep(HELD_FOR)
    finally:
        bench.gateway.process.send_signal(signal.SIGCONT)


def settings(bench):
    """Each setting of conf.all is set to another value for a moment."""
    changed = 0
    for family, values in SETTINGS.items():
        for name, others in values.items():
            path = f"/proc/sys/net/{family}/conf/all/{name}"
            for value in others:
                status, _ = bench.attempt(f"[ -e {path} ] || exit 1; before=$(cat {path}); echo {value} > {path}; "
                                          f"sleep {HELD_FOR}; echo $before > {path}")
                changed += status == 0
    expect(changed > 5, f"only {changed} settings of conf.all could be changed")


def others_policies(bench):
    """XFRM's policies and associations are flushed; another program's own show that something was there."""
    bench.sh("""ip xfrm policy add src 10.91.0.0/24 dst 10.92.0.0/24 dir out action allow
        [ -n "$(ip xfrm policy | grep 10.91.0.0)" ]; ip xfrm policy flush; ip xfrm state flush
        [ -z "$(ip xfrm policy | grep 10.91.0.0)" ]""")


def charon(bench):
    """strongSwan's daemon, with a /run and a configuration of its own: its routing rule shows that it is up."""
    with tempfile.TemporaryDirectory(prefix="esplanade-charon-") as folder:
        with open(f"{folder}/strongswan.conf", "w") as file:
            file.write("charon { load = random nonce openssl kdf hmac kernel-netlink socket-default }")
        daemon = bench.sites.left.start(["env", f"STRONGSWAN_CONF={folder}/strongswan.conf", "unshare", "-m", "sh", "-c",
                                         f"mount -t tmpfs run /run; exec {CHARON}"], stdout=subprocess.DEVNULL,
                                        stderr=subprocess.DEVNULL)
        deadline = time.monotonic() + PATIENCE
        while bench.attempt("ip rule | grep 'lookup 220'")[0] != 0:
            expect(time.monotonic() < deadline and daemon.poll() is None, "the control failed: charon sets no routing rule")
            time.sleep(0.05)
        time.sleep(HELD_FOR)
        daemon.terminate()
        daemon.wait(PATIENCE)
    expect(bench.attempt("ip rule | grep 'lookup 220'")[0] != 0, "the control failed: charon's routing rule is there still")


def has_charon(_):
    return os.path.exists(CHARON)


def has_xfrm(bench):
    return bench.attempt("ip xfrm policy")[0] == 0


def another_gateway(bench):
    """One of other networks starts and stops, and takes its things away."""
    other = Gateway(bench.sites.left, OTHERS, ("--tun", "esp1")).ready()
    expect(bench.attempt("ip link show esp1")[0] == 0, "the control failed: the other gateway has no device")
    other.stop()
    other.ask("down")


def one_that_is_refused(bench):
    """One of the same device is refused, and takes nothing with it."""
    other = Gateway(bench.sites.left, OTHERS)
    status = other.process.wait(20)
    expect(status not in (0, None), f"a second gateway on one device: exit status {status}:\n{other.words()}")


def has_memory_group(_):
    return faults.memory_group() is not None


def fault(attack, **more):
    return Kind(attack, timed=False, **more)


def filters(bench):
    """Whether a barrier on devices stands; it is known by what traffic control shows."""
    try:
        return "bpf" in bench.sh("tc filter show dev wan egress; tc filter show dev wan ingress")
    except Failed:
        return False


TABLE_TAKEN = frozenset() if kernel() >= OWNED_SINCE else frozenset({"nftables"})

FILTERS_TAKEN = frozenset({"device filters"})

KINDS = {
    "nft flush ruleset": Kind(by("nft add table inet control; nft flush ruleset", "nft list table inet control"), TABLE_TAKEN),
    "nftables table deleted while the gateway is stopped": Kind(while_stopped("nft delete table inet esplanade"), TABLE_TAKEN),
    "routing rules deleted": Kind(by(RULES_DELETED)),
    "routing table flushed": Kind(by("ip route flush table 4500; ip -6 route flush table 4500")),
    "device down and up": Kind(by("ip link set esp0 down; sleep 0.02; ip link set esp0 up")),
    "device deleted": Kind(by("ip link del esp0")),
    "device renamed": Kind(by("ip link set esp0 down; ip link set esp0 name other0")),
    "outer device down and up": Kind(by(OUTER_DOWN)),
    "inner device down and up": Kind(by(INNER_DOWN)),
    "addresses changed": Kind(by(OTHER_ADDRESS)),
    "settings of conf.all changed": Kind(settings),
    "XFRM flushed": Kind(others_policies, needs=has_xfrm, absent="xfrm"),
    "another gateway starts and stops": Kind(another_gateway),
    "charon starts and stops": Kind(charon, needs=has_charon, absent="charon"),
    "another gateway is refused": Kind(one_that_is_refused),
    "qdisc clsact deleted": Kind(by(CLSACT_DELETED), FILTERS_TAKEN, filters),
    "filters of devices deleted": Kind(by(FILTERS_DELETED), FILTERS_TAKEN, filters),
    "nftables flushed and clsact deleted at once": Kind(both_while_stopped, TABLE_TAKEN | FILTERS_TAKEN, filters),
    "killed at each step of a start": fault(faults.killed_in_a_start, special=faults.refused),
    "killed at each step of a change": fault(faults.killed_in_a_change, special=faults.refused),
    "killed at each step of a stop": fault(faults.killed_in_a_stop, special=faults.refused),
    "disk full": fault(faults.full_disk, special=faults.small_disk),
    "memory used up": fault(faults.no_more_memory, needs=has_memory_group, absent="memory-group"),
}
