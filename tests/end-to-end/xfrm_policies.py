"""The third barrier: policies of XFRM stand in where filters on devices cannot be, hold alone, come back, and go
again."""

import signal
import time

from device_filters import WITHOUT_THE_REST, within
from link_local import heard, heard_by_the_link, needed_by_the_link, other_arrivals, over_everything, seen
from network.clear import LOCAL, also_from_outer_addresses
from network.expect import expect
from network.sites import SERVER, Sites, setkey_text
from network.ways import Ways
from taken_away import Watched

# Filters on devices cannot be where another program has the qdisc of old.
IN_THE_WAY = "for device in wan lan; do tc qdisc add dev $device ingress; done"
OUT_OF_THE_WAY = "for device in wan lan; do tc qdisc del dev $device ingress; done"
IN_PART = "XFRM policies partial"
# What a policy of XFRM does not see: packet sockets, and what the host itself sends where that could not be told from
# what is on its way into the tunnel.
BESIDE = ("IPv4 leaving, local", "IPv6 leaving, local")


def from_anywhere(name):
    """Policies whose IPv4 sources or destinations on the left are any."""
    left, right = ("0.0.0.0/0", "10.2.0.0/24")
    text = setkey_text(name)
    return text.replace("spdadd 10.1.0.0/24 10.2.0.0/24", f"spdadd {left} {right}").replace(
        "spdadd 10.2.0.0/24 10.1.0.0/24", f"spdadd {right} {left}")


def from_inside(name):
    return setkey_text(name) + also_from_outer_addresses()[0]


def hold_alone(text, beside):
    """With nftables, rules, routes and filters on devices gone nothing passes but what is known to."""
    def test():
        with Sites("xp") as sites:
            sites.left.sh(IN_THE_WAY)
            ways = Ways(sites)
            expect(ways.passed() == ways.names(), f"the control before: only {ways.passed()}")
            left = sites.start("left", text("left"))
            expect(IN_PART in left.ask("status"), left.ask("status"))
            passed = [way for way in ways.passed() if "packet socket" not in way]
            expect(not passed, f"with a gateway: {passed}")
            left.stop(signal.SIGKILL)
            sites.left.sh(WITHOUT_THE_REST)
            expect("esplanade" not in sites.left.sh("nft list ruleset"), "the first barrier still stands")
            passed = ways.passed()
            more = [way for way in passed if not way.startswith(beside) and "packet socket" not in way]
            expect(not more, f"XFRM alone: {more}")
            left.ask("down")
            expect(ways.passed() == ways.names(), f"the control after: only {ways.passed()}")
            expect(not policies(sites), f"left behind: {policies(sites)}")
            return f"{len(ways.names())} ways, in clear {len(passed)} that XFRM does not see"
    return test


def tunnel_carries(sites):
    """Both families, forwarded and local, from a bound and an unbound socket, both ways."""
    for family in (4, 6):
        within(lambda f=family: sites.ping(f, count=1) == 1, f"no ping from the client, IPv{family}")
        expect(sites.ping(family) == 3, f"pings from the client, IPv{family}")
        here, there = LOCAL[family], SERVER[family]
        for host, to in ((sites.left, f"-I {here} {there}"), (sites.server, here)):
            status, output = host.attempt(f"ping -q -n -c 2 -i 0.1 -W 1 {to}")
            expect(status == 0,
                   f"no ping {to}, IPv{family}: {output}\n{sites.left.sh('cat /proc/net/xfrm_stat | grep Pol')}")


def unbound_sockets_reach_the_tunnel():
    """Where policies have any source, what leaves is blocked, and a socket without an address still gets its way."""
    with Sites("xp") as sites:
        sites.left.sh(IN_THE_WAY)
        sites.left.sh("ip route replace 10.2.0.0/24 via 192.0.2.2 src 10.1.0.1")
        for name in ("left", "right"):
            sites.start(name, from_anywhere(name))
        expect("dir out" in policies(sites), policies(sites))
        tunnel_carries(sites)
        status, output = sites.left.attempt(f"ping -q -n -c 2 -i 0.1 -W 1 {SERVER[4]}")
        expect(status == 0, f"an unbound socket: {output}")


def policies(sites):
    """Ours and others', of both lists; empty where there is none."""
    return sites.left.sh("ip xfrm policy list nosock ptype main; ip xfrm policy list nosock ptype sub 2>/dev/null || true").strip()


def listed(sites):
    return sorted(line.strip() for line in policies(sites).splitlines())


def comes_back(attack):
    def test():
        with Sites("xp") as sites:
            sites.left.sh(IN_THE_WAY)
            watched = Watched(sites)
            told, summary = watched.holds_against(attack, lambda: listed(sites))
            expect(told and all("XFRM policies" in what for what in told), f"events: {told}")
            return summary
    return test


def others_flush():
    """A flush of the list of every program leaves ours; another program's policies are left alone."""
    with Sites("xp") as sites:
        sites.left.sh(IN_THE_WAY)
        foreign = "src 10.91.0.0/24 dst 10.92.0.0/24"
        sites.left.sh(f"ip xfrm policy add {foreign} dir out action allow priority 7")
        left = sites.start("left")
        before, lines = policies(sites), listed(sites)
        expect("ptype sub" in before and "10.91.0.0/24" in before, before)
        left.setkey_text("spdadd 10.1.0.0/24 10.77.0.0/24 any -P out discard;")
        expect("10.77.0.0/24" in policies(sites), "a new policy is not there")
        left.setkey_text("spddelete 10.1.0.0/24 10.77.0.0/24 any -P out;")
        expect(listed(sites) == lines, policies(sites))
        sites.left.sh("ip xfrm policy flush")
        ours = policies(sites)
        expect("dir fwd action block" in ours and "10.91.0.0/24" not in ours, ours)
        sites.left.sh(f"ip xfrm policy add {foreign} dir out action allow priority 7")
        left.ask("down")
        expect(policies(sites).count("src ") == 1 and "10.91.0.0/24" in policies(sites), policies(sites))


def settings_that_open_it_are_told():
    with Sites("xp") as sites:
        sites.left.sh(IN_THE_WAY)
        left = sites.start("left")
        expect(IN_PART in left.ask("status"), left.ask("status"))
        for setting in ("ipv4.conf.all.disable_policy", "ipv4.conf.wan.disable_policy", "ipv4.conf.lan.disable_xfrm",
                        "ipv4.conf.all.disable_xfrm", "ipv6.conf.all.disable_policy", "ipv6.conf.lan.disable_policy"):
            sites.left.sh(f"sysctl -qw net.{setting}=1")
            within(lambda s=setting: f"set net.{s} to 0" in left.ask("status"), f"{setting} is not told")
            told = left.ask("status")
            expect("XFRM policies NOT IN FORCE" in told and "no second barrier" in told, told)
            # Warnings come with the comparison of each second.
            within(lambda s=setting: any(f"net.{s}" in text for text in left.status()["warnings"]),
                   f"{setting}: no warning")
            sites.left.sh(f"sysctl -qw net.{setting}=0")
            within(lambda: IN_PART in left.ask("status"), f"{setting} is 0 again")
        sites.left.sh("sysctl -qw net.ipv4.conf.esp0.disable_policy=0")
        within(lambda: sites.left.sh("sysctl -n net.ipv4.conf.esp0.disable_policy").strip() == "1",
               "not put back for esp0")


def it_goes_when_filters_can_be():
    with Sites("xp") as sites:
        left = sites.start("left")
        expect(not policies(sites), f"beside whole filters on devices: {policies(sites)}")
        expect("XFRM" not in left.ask("status"), left.ask("status"))
        # The gateway may put its own back in between.
        sites.left.sh("until tc qdisc add dev lan ingress 2>/dev/null; do tc qdisc del dev lan clsact || true; done")
        within(lambda: IN_PART in left.ask("status") and policies(sites), "filters are gone, and no policy comes")
        sites.left.sh("tc qdisc del dev lan ingress")
        within(lambda: not policies(sites), "filters are back, and the policies stay")
        within(lambda: "barriers: nftables, device filters\n" in left.ask("status"), left.ask("status"))
        expect("xfrm_" not in sites.left.sh("nft list tables"), "the table of marks stays")


def the_link_itself_is_not_cut():
    """Under policies over all addresses, nftables and filters gone: neighbours, leases, groups pass; nothing else comes
    in."""
    with Sites("xp") as sites:
        sites.left.sh(IN_THE_WAY)
        wire = sites.listen(sites.wire, "left")
        left = sites.start("left", over_everything())
        left.stop(signal.SIGKILL)
        sites.left.sh(WITHOUT_THE_REST)
        needed, leave = heard_by_the_link(sites.left), needed_by_the_link(sites.left)
        for name, (action, matches) in leave.items():
            expect(seen(wire, action, matches), f"{name} did not leave")
        for name, (frame, ear) in needed.items():
            expect(heard(wire, frame, ear), f"{name} did not arrive")
        passed = [name for name, (frame, ear) in other_arrivals(sites.left).items() if heard(wire, frame, ear)]
        # XFRM sees no hop limit.
        expect(all("from further away" in name for name in passed), f"in clear: {passed}")
        return f"{len(leave)} kinds leave, {len(needed)} arrive"


def a_device_made_anew_is_let_through():
    with Sites("xp") as sites:
        sites.left.sh(IN_THE_WAY)
        sites.start("left")
        sites.start("right")
        tunnel_carries(sites)
        sites.left.sh("ip link del esp0")
        time.sleep(0.1)
        tunnel_carries(sites)


CASES = {
    "policies of XFRM hold alone where filters on devices cannot be": hold_alone(from_inside, BESIDE),
    "policies of XFRM hold what leaves by policies of any source": hold_alone(from_anywhere, ("IPv6 leaving, local",)),
    "unbound sockets reach the tunnel beside policies of XFRM": unbound_sockets_reach_the_tunnel,
    "flushed policies of XFRM come back": comes_back("ip xfrm policy flush ptype sub"),
    "a deleted policy of XFRM comes back": comes_back(
        "ip xfrm policy delete src 10.2.0.0/24 dst 10.1.0.0/24 dir fwd ptype sub"),
    "a changed policy of XFRM is changed back": comes_back(
        "ip xfrm policy update src 10.2.0.0/24 dst 10.1.0.0/24 dir in ptype sub action allow priority 1"),
    "policies of XFRM outlive a flush and leave others alone": others_flush,
    "settings that open policies of XFRM are told": settings_that_open_it_are_told,
    "policies of XFRM go when filters on devices can be": it_goes_when_filters_can_be,
    "neighbours, leases and groups pass policies of XFRM": the_link_itself_is_not_cut,
    "a device that is made anew passes policies of XFRM": a_device_made_anew_is_let_through,
}
