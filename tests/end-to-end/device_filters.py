"""The second barrier: filters on devices hold alone, come with devices, come back, and leave others' alone."""

import os
import shutil
import signal
import subprocess
import tempfile
import time

from network.clear import also_from_outer_addresses
from network.expect import expect
from network.gateway import program
from network.timeout import slowed
from network.sites import Sites, setkey_text
from network.ways import Ways
from taken_away import Watched

TIMEOUT_SECONDS = slowed(5)
# What another program may take away of the first barrier and of what leads into the tunnel, once its owner is dead.
WITHOUT_THE_REST = """nft flush ruleset
    for family in 4 6; do
        for rule in $(ip -$family rule | sed -n 's/^\\(10[0-9][0-9][0-9]\\):.*/\\1/p'); do
            ip -$family rule del pref $rule
        done
        ip -$family route flush table 4500
    done"""
OURS = "for way in ingress egress; do tc filter show dev {} $way | grep 'handle 0xe5'; done"


def gateway_text():
    return setkey_text("left") + also_from_outer_addresses()[0]


def hold_alone():
    with Sites("df") as sites:
        ways = Ways(sites)
        expect(ways.passed() == ways.names(), f"the control before: only {ways.passed()}")
        left = sites.start("left", gateway_text())
        expect(not ways.passed(), f"with a gateway: {ways.passed()}")
        left.stop(signal.SIGKILL)
        sites.left.sh(WITHOUT_THE_REST)
        expect("esplanade" not in sites.left.sh("nft list ruleset"), "the first barrier still stands")
        expect("10000:" not in sites.left.sh("ip rule; ip -6 rule"), "routing rules still stand")
        passed = ways.passed()
        expect(not passed, f"filters alone: {passed}")
        left.ask("down")
        expect(ways.passed() == ways.names(), f"the control after: only {ways.passed()}")
        return f"{len(ways.names())} ways, in clear 0"


def the_link_itself_is_not_cut():
    """All of both families is protected: the tunnel, neighbour discovery and leases still pass."""
    with Sites("df") as sites:
        everything = {"left": "", "right": ""}
        for name, out, back in (("left", "192.0.2.1-192.0.2.2", "192.0.2.2-192.0.2.1"),
                                ("right", "192.0.2.2-192.0.2.1", "192.0.2.1-192.0.2.2")):
            mine, theirs = (1, 2) if name == "left" else (2, 1)
            nets = [(f"10.{mine}.0.0/24", "10.0.0.0/8", 4), (f"fd00:{mine}::/64", "fd00::/16", 6)]
            lines = [line for line in setkey_text(name).splitlines() if line.startswith("add ")]
            for near, far, family in nets:
                lines += [f"spdadd {near} {near} any -P {way} none;" for way in ("out", "in")]
                lines += [f"spdadd {near} {far} any -P out ipsec esp/tunnel/{out}/require;",
                          f"spdadd {far} {near} any -P in ipsec esp/tunnel/{back}/require;"]
            lines += [f"spdadd 192.0.2.{mine}/32 192.0.2.{theirs}/32 any -P out ipsec esp/tunnel/{out}/require;",
                      f"spdadd 192.0.2.{theirs}/32 192.0.2.{mine}/32 any -P in ipsec esp/tunnel/{back}/require;"]
            everything[name] = "\n".join(lines) + "\n"
        for name, text in everything.items():
            sites.start(name, text)
        sites.left.sh("ip neigh flush all; ip -6 neigh flush all")
        for family in (4, 6):
            expect(sites.ping(family) == 3, f"no ping through the tunnel, IPv{family}")
        expect(sites.left.attempt("ping -q -c 2 -i 0.1 -W 1 192.0.2.2")[0] == 0,
               "peers that are their own gateways do not reach each other")


def a_new_device_has_filters():
    with Sites("df") as sites:
        left = sites.start("left")
        for number in range(5):
            sites.left.sh(f"ip link add new{number} type veth peer name other{number}; ip link set new{number} up")
            within(lambda: sites.left.attempt(OURS.format(f"new{number}"))[0] == 0, f"new{number} has no filter")
            sites.left.sh(f"ip link del new{number}")
        time.sleep(1.2)
        state = left.status()["restorations"]
        expect(state["times"] == 0 and not state["missing"], f"told as if taken away: {state}")
        expect("esp0" in sites.left.sh("ip -o link"), "there is no device of ours")
        expect(not sites.left.attempt(OURS.format("esp0"))[1], "the tunnel's own device has filters")
        expect(not sites.left.attempt(OURS.format("lo"))[1], "the loopback has filters")


def comes_back(attack):
    def test():
        with Sites("df") as sites:
            watched = Watched(sites)
            told, summary = watched.holds_against(attack, lambda: shown(sites.left))
            expect(told and all("device filters of wan" in what for what in told), f"events: {told}")
            return summary
    return test


def shown(host):
    """Filters without their numbers, which change."""
    listing = host.sh("tc qdisc show; for way in ingress egress; do tc filter show dev wan $way; done")
    return [" ".join(word for word in line.split() if not word.startswith("0xe5")) for line in listing.splitlines()]


# A program that leaves every packet to the next filter.
NEUTRAL = "protocol all bpf da bytecode '1,6 0 0 4294967295,'"
FOREIGN = f"""tc qdisc add dev wan clsact
    tc filter add dev wan ingress pref 1 {NEUTRAL}
    tc filter add dev wan egress pref 7 handle 9 {NEUTRAL}
    tc filter add dev wan egress pref 49 {NEUTRAL}"""


def others_filters_are_left_alone():
    with Sites("df") as sites:
        sites.left.sh(FOREIGN)
        before = sites.left.sh(TC)
        left = sites.start("left")
        for way in ("ingress", "egress"):
            listing = sites.left.sh(f"tc filter show dev wan {way}")
            expect("handle 0xe5" in listing and "1,6 0 0 4294967295" in listing, f"{way}:\n{listing}")
        left.setkey_text("spdadd 10.1.0.0/24 10.77.0.0/24 any -P out discard;")
        left.stop()
        left.ask("down")
        after = sites.left.sh(TC)
        expect(after == before, f"before:\n{before}\nafter:\n{after}")
        # A qdisc clsact that the gateway added stays where another program has put a filter into it.
        left.start().ready()
        sites.left.sh(f"tc filter add dev lan ingress pref 1 {NEUTRAL}")
        left.ask("down")
        expect("clsact" in sites.left.sh("tc qdisc show dev lan"), "another program's filter went with our qdisc")


TC = """for device in wan lan; do tc qdisc show dev $device
    for way in ingress egress; do tc filter show dev $device $way; done; done"""


def a_place_that_is_taken_is_told():
    with Sites("df") as sites:
        sites.left.sh("tc qdisc add dev wan ingress")
        left = sites.start("left")
        told = left.ask("status")
        expect("device filters NOT IN FORCE" in told and "tc qdisc del dev wan ingress" in told, told)
        expect("XFRM policies partial" in told and "the second barrier is partial" in told, told)
        sites.left.sh("tc qdisc del dev wan ingress")
        within(lambda: "barriers: nftables, device filters\n" in left.ask("status"),
               "the way is free, and no filter comes")
        expect(left.status()["restorations"]["times"] == 0, "told as if taken away")
        expect(sites.ping() == 0, "the control failed: there is no other gateway")


def armed_by_a_user_of_a_namespace():
    """No capability but those that a user namespace gives: classic BPF asks for no other."""
    folder = tempfile.mkdtemp(prefix="esplanade-test-")
    try:
        with open(f"{folder}/gateway.setkey", "w") as file:
            file.write(setkey_text("left"))
        script = f"""ip link add wan type veth peer name peer; ip link set wan up
            {program()} arm {folder}/gateway.setkey --state {folder}/state --control {folder}/control.sock
            {OURS.format("wan")}; {OURS.format("peer")}; echo; tc qdisc show
            {program()} down --control {folder}/control.sock; echo; tc qdisc show"""
        argv = ["unshare", "--user", "--map-root-user", "--net", "bash", "-c", script]
        done = subprocess.run(argv, capture_output=True, text=True, timeout=slowed(60), stdin=subprocess.DEVNULL,
                              env={**os.environ, "LANG": "C"})
        up, _, down = done.stdout.partition("no gateway was running")
        expect(up.count("handle 0xe5") == 4 and up.count("clsact") == 2, f"{done.stdout}{done.stderr}")
        expect(down and "clsact" not in down, f"`down` left something: {done.stdout}{done.stderr}")
    finally:
        shutil.rmtree(folder)


def within(condition, otherwise):
    deadline = time.monotonic() + TIMEOUT_SECONDS
    while time.monotonic() < deadline:
        if condition():
            return
        time.sleep(0.02)
    expect(False, otherwise)


CASES = {
    "filters on devices hold alone, every way and both families": hold_alone,
    "filters on devices let tunnel and neighbour discovery pass": the_link_itself_is_not_cut,
    "a device that is new has filters, and none was taken away": a_new_device_has_filters,
    "a qdisc that was deleted comes back": comes_back("tc qdisc del dev wan clsact"),
    "filters that were deleted come back": comes_back("tc filter del dev wan egress; tc filter del dev wan ingress"),
    "filters of another program are left alone": others_filters_are_left_alone,
    "a qdisc in the way of filters is told with its remedy": a_place_that_is_taken_is_told,
    "filters on devices need no more than a user namespace gives": armed_by_a_user_of_a_namespace,
}
