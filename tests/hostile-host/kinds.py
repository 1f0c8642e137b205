"""What another program of the same host does to a gateway. Each kind is done alone, again and again, under traffic."""

import os
import time
from dataclasses import dataclass

import clock
import daemons
import faults
from network.expect import expect
from network.gateway import Gateway
from network.namespace import Failed
from network.timeout import slowed

# A table of nftables belongs to its maker, and stays when he dies, from this kernel on.
OWNED_SINCE = (6, 9)

# By one program for each family, and both at once: one after the other they would come back one after the other, and
# each removal counts until it comes back once a second.
RULES_DELETED = """for family in 4 6; do
    ip -$family rule | sed -n 's/^\\(10[0-9][0-9][0-9]\\):.*/rule del pref \\1/p' | ip -$family -batch - & done; wait"""
ROUTES_FLUSHED = "ip route flush table 4500 & ip -6 route flush table 4500; wait"
OUTER_ROUTES = "ip route replace 10.2.0.0/24 via 192.0.2.2; ip -6 route replace fd00:2::/64 via 2001:db8::2"
OUTER_DOWN = f"""ip link set wan down; sleep 0.05; ip link set wan up
    ip addr replace 2001:db8::1/64 dev wan nodad; {OUTER_ROUTES}"""
INNER_DOWN = "ip link set lan down; sleep 0.05; ip link set lan up; ip addr replace fd00:1::1/64 dev lan nodad"
OTHER_ADDRESS = f"""ip addr del 192.0.2.1/24 dev wan; ip addr add 192.0.2.9/24 dev wan; sleep 0.05
    ip addr del 192.0.2.9/24 dev wan; ip addr add 192.0.2.1/24 dev wan
    ip addr del 2001:db8::1/64 dev wan; ip addr add 2001:db8::1/64 dev wan nodad; {OUTER_ROUTES}"""
# Of conf.all and back; what a kernel does not have is left out.
SETTINGS = {"ipv4": {"rp_filter": (1, 2), "disable_policy": (1,), "disable_xfrm": (1,), "forwarding": (0,),
                     "accept_local": (1,),
                     "route_localnet": (1,), "accept_source_route": (1,), "src_valid_mark": (1,)},
            "ipv6": {"forwarding": (0,), "disable_policy": (1,), "accept_source_route": (1,)}}
CLSACT_DELETED = "for device in wan lan; do echo qdisc del dev $device clsact; done | tc -batch -"
# The gateway puts its own back meanwhile.
FILTERS_PREVENTED = """for device in wan lan; do
    until tc qdisc add dev $device ingress 2>/dev/null; do tc qdisc del dev $device clsact || true; done; done"""
FILTERS_DELETED = """for device in wan lan; do
        for way in ingress egress; do echo filter del dev $device $way; done
    done | tc -batch -"""
# Seconds until policies of XFRM stand in for filters.
TIMEOUT_SECONDS = 10
# Seconds that a gateway is held, and a setting is another one.
HELD_FOR, SET_FOR = 0.05, 0.02
OTHERS = ("spdadd 10.91.0.0/24 10.92.0.0/24 any -P out ipsec esp/tunnel/192.0.2.1-192.0.2.77/require;\n"
          "spdadd 10.92.0.0/24 10.91.0.0/24 any -P in ipsec esp/tunnel/192.0.2.77-192.0.2.1/require;\n")


@dataclass(frozen=True)
class Kind:
    """`attack` does it once, and gives back what only its owner can: outer devices, addresses, settings. `taken` are
    the barriers that it takes down: while none other stands, nothing is promised, and what passes is told as a
    number."""

    attack: object
    taken: frozenset = frozenset()
    # What the gateway must have, or the machine: then `absent` is the reason's name in not-here.toml.
    needs: object = None
    absent: str = ""
    # What the gateway is started with.
    special: object = faults.nothing_special
    # Whether the gateway lives on, and what it puts back is timed; and whether a bar is set for that.
    timed: bool = True
    has_bar: bool = False
    # Whether the gateway is held while something is away, so that the time does not say how fast it is.
    held: bool = False


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
        with bench.gateway.held():
            status, output = bench.attempt(script)
            owned = kernel() >= OWNED_SINCE
            expect((status != 0) == owned, f"{script}: exit status {status} on kernel {os.uname().release}: {output}")
            time.sleep(HELD_FOR)
    return attack


def both_while_stopped(bench):
    """What passes until it goes on is told as a number where both are gone; the kernel may have kept the first."""
    with bench.gateway.held():
        bench.sh(f"nft flush ruleset; {CLSACT_DELETED}")
        time.sleep(HELD_FOR)


def settings(bench):
    """Each setting of conf.all is set to another value for a moment."""
    paths = [(f"/proc/sys/net/{family}/conf/all/{name}", value)
             for family, values in SETTINGS.items() for name, others in values.items() for value in others]
    changed = bench.sh("\n".join(f"if [ -e {path} ]; then read before < {path}; echo {value} > {path}; sleep {SET_FOR}; "
                                 f"echo $before > {path}; echo changed; fi" for path, value in paths)).split()
    expect(len(changed) > 5, f"only {len(changed)} settings of conf.all could be changed")


def others_policies(bench):
    """XFRM's policies and associations are flushed; another program's own show that something was there."""
    bench.sh("""ip xfrm policy add src 10.91.0.0/24 dst 10.92.0.0/24 dir out action allow
        [ -n "$(ip xfrm policy | grep 10.91.0.0)" ]; ip xfrm policy flush; ip xfrm state flush
        [ -z "$(ip xfrm policy | grep 10.91.0.0)" ]""")


def has_xfrm(bench):
    return bench.attempt("ip xfrm policy")[0] == 0


def stands_in_and_is_flushed(bench):
    """Filters on devices cannot be, policies of XFRM stand in for them and are flushed as well; then filters can be
    again."""
    bench.sh(FILTERS_PREVENTED)
    policies_block(bench, True)
    bench.sh("ip xfrm policy flush ptype sub || ip xfrm policy flush")
    policies_block(bench, True)
    bench.sh("for device in wan lan; do tc qdisc del dev $device ingress; done")
    policies_block(bench, False)
    # Of its own device they stay, and mean nothing without policies.
    bench.sh("for one in ipv4.conf.esp0.disable_policy ipv4.conf.esp0.disable_xfrm ipv6.conf.esp0.disable_policy; do "
             "sysctl -qw net.$one=0; done")


def policies_block(bench, wanted):
    """Waits until policies of XFRM block something, or none does."""
    deadline = time.monotonic() + TIMEOUT_SECONDS
    listed = "{ ip xfrm policy list ptype sub || ip xfrm policy; } | grep 'action block'"
    while (bench.attempt(listed)[0] == 0) != wanted:
        expect(time.monotonic() < deadline, f"policies of XFRM, wanted {wanted}: {bench.gateway.attempt('status')[1]}")
        time.sleep(0.01)


def another_gateway(bench):
    """One of other networks starts and stops, and takes its things away."""
    other = Gateway(bench.sites.left, OTHERS, ("--tun", "esp1")).ready()
    expect(bench.attempt("ip link show esp1")[0] == 0, "the control failed: the other gateway has no device")
    other.stop()
    other.ask("down")


def one_that_is_refused(bench):
    """One of the same device is refused, and takes nothing with it."""
    other = Gateway(bench.sites.left, OTHERS)
    status = other.process.wait(slowed(20))
    expect(status not in (0, None), f"a second gateway on one device: exit status {status}:\n{other.words()}")


def has_memory_group(_):
    return faults.memory_group() is not None


def with_bar(attack, taken=frozenset(), needs=None, **more):
    return Kind(attack, taken, needs, has_bar=True, **more)


def fault(attack, **more):
    return Kind(attack, timed=False, **more)


def filters(bench):
    """Whether a barrier on devices stands; it is known by what traffic control shows."""
    try:
        return "bpf" in bench.sh("tc filter show dev wan egress; tc filter show dev wan ingress")
    except Failed:
        return False


def has_both(bench):
    return has_xfrm(bench) and filters(bench)


TABLE_TAKEN = frozenset() if kernel() >= OWNED_SINCE else frozenset({"nftables"})

FILTERS_TAKEN = frozenset({"device filters"})

KINDS = {
    "nft flush ruleset": with_bar(by("nft add table inet control; nft flush ruleset", "nft list table inet control"),
                                  TABLE_TAKEN),
    "nftables table deleted while the gateway is stopped": with_bar(while_stopped("nft delete table inet esplanade"),
                                                                    TABLE_TAKEN),
    "routing rules deleted": with_bar(by(RULES_DELETED)),
    "routing table flushed": with_bar(by(ROUTES_FLUSHED)),
    "device down and up": with_bar(by("ip link set esp0 down; sleep 0.02; ip link set esp0 up")),
    "device deleted": with_bar(by("ip link del esp0")),
    "device renamed": with_bar(by("ip link set esp0 down; ip link set esp0 name other0")),
    "outer device down and up": with_bar(by(OUTER_DOWN)),
    "inner device down and up": with_bar(by(INNER_DOWN)),
    "addresses changed": with_bar(by(OTHER_ADDRESS)),
    "settings of conf.all changed": with_bar(settings),
    "XFRM flushed": with_bar(others_policies, needs=has_xfrm, absent="xfrm"),
    "another gateway starts and stops": Kind(another_gateway),
    "charon starts and stops": Kind(daemons.charon, needs=daemons.has_charon, absent="charon"),
    "pluto starts and stops": Kind(daemons.pluto, needs=daemons.has_pluto, absent="pluto"),
    "date set forth and back": Kind(clock.steps, needs=clock.may_set_the_date, absent="own-clock"),
    "another gateway is refused": Kind(one_that_is_refused),
    "qdisc clsact deleted": with_bar(by(CLSACT_DELETED), FILTERS_TAKEN, filters),
    "filters of devices deleted": with_bar(by(FILTERS_DELETED), FILTERS_TAKEN, filters),
    "filters on devices prevented and XFRM flushed": Kind(stands_in_and_is_flushed, FILTERS_TAKEN | {"XFRM policies"},
                                                          has_both,
                                                          "xfrm", timed=False),
    "nftables flushed and clsact deleted at once": with_bar(both_while_stopped, TABLE_TAKEN | FILTERS_TAKEN, filters,
                                                            held=True),
    "killed at each step of a start": fault(faults.killed_in_a_start, special=faults.refused),
    "killed at each step of a change": fault(faults.killed_in_a_change, special=faults.refused),
    "killed at each step of a stop": fault(faults.killed_in_a_stop, special=faults.refused),
    "disk full": fault(faults.full_disk, special=faults.small_disk),
    "memory used up": fault(faults.no_more_memory, needs=has_memory_group, absent="memory-group"),
    "address space used up": fault(faults.no_more_addresses, special=faults.one_heap),
}
