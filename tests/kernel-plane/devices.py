"""Devices of associations and of peers, which are XFRM interfaces on the kernel's plane: routes say what goes through,
and nothing goes beside."""

import ipaddress
import signal
import time

from fail_closed import STATE
from ike import NAMES, Keyed
from ike_routes import has_device, routes, sent_into, within, write
from ike_routes import peer as table
from keyed import rekeys_lose_nothing
from live_change import Stream
from network.expect import expect
from network.gateway import GatewayError
from network.sites import NETS, SERVER
from network.timeout import slowed
from network.wire import ESP, UDP
from planes import (STAND_IN, PlaneSites, carried, closed, counted_by_the_kernel, ended, options_of,
                    seen_without_a_tunnel, words)
from policies import Events
from route_based import large, lead, pair

PACE = slowed(0.002)
# The source address of a frame of IPv6 is in its bytes 22 to 37.
SENDER = ipaddress.ip_address(SERVER[6]).packed
EVERYTHING = f"ip xfrm state; ip xfrm policy; {STATE}"


def peer(name, peer_name="site", **more):
    """Without `mode` a peer has policies on this plane."""
    return table(name, peer_name, 'mode = "route"', **more)


def native(*which, **more):
    return pair(*which, **more).replace("esp-udp", "esp")


def is_of_its_plane(sites, device):
    for name, gateway in sites.on_kernel().items():
        shown = gateway.host.sh(f"ip -d link show {device}")
        expect("xfrm if_id" in shown, f"{name}: {device} is no XFRM interface:\n{shown}")


def routes_lead_into_the_device(left, right, text=native, protocols=(ESP,)):
    def test():
        with PlaneSites("de", left, right) as sites:
            pairs = sites.pairs()
            wire = seen_without_a_tunnel(sites, pairs)
            for name in NAMES:
                sites.start(name, text())
            lead(sites)
            carried(sites, pairs, wire, protocols)
            for family in (4, 6):
                large(sites, family)
            counted_by_the_kernel(sites, ["esp"])
            is_of_its_plane(sites, "vpn0")
            # A route that leads elsewhere is not covered: that is what `interface` means.
            gateway = sites.gateways["left"]
            mtu = gateway.status()["interfaces"][0]["mtu"]
            expect(f"mtu {mtu} " in sites.left.sh("ip link show vpn0"), "the device has another MTU than `status` says")
            expect("fe80::" in sites.left.sh("ip -6 addr show dev vpn0"), "no link-local address for routing daemons")
            events = Events(gateway)
            gateway.setkey_text("flush;")
            closed(sites, pairs, wire, far_side=False)
            told = events.wait("acquire", interface="vpn0")
            expect(told["policy"] == 0 and told["destination"], f"nobody is told for whom: {told}")
            expect(has_device(sites.left, "vpn0"), "the device went although a route leads there")
            for each in sites.gateways.values():
                each.setkey_text("flush;" + text())
            carried(sites, pairs, wire, protocols)
    return test


def several_devices_at_once():
    with PlaneSites("de") as sites:
        pairs = sites.pairs()
        wire = seen_without_a_tunnel(sites, pairs)
        for name in NAMES:
            sites.start(name, native("vpn4", 0x1001) + native("vpn6", 0x2001, outer=6))
        lead(sites, "vpn4", (4,))
        lead(sites, "vpn6", (6,))
        for family, mine, other in ((4, "vpn4", "vpn6"), (6, "vpn6", "vpn4")):
            before = {device: sent_into(sites.left, device) for device in (mine, other)}
            expect(sites.ping(family, count=12) == 12, f"no ping through {mine}: {words(sites)}")
            expect(sent_into(sites.left, mine) - before[mine] >= 12, f"{mine} did not carry them")
            expect(sent_into(sites.left, other) - before[other] < 12, f"{other} carried them")
        carried(sites, pairs, wire, (ESP,))
        # Packets that the other device's associations decrypt do not come out here.
        sites.gateways["left"].setkey_text("delete 192.0.2.1 192.0.2.2 esp 0x1001; delete 192.0.2.2 192.0.2.1 esp 0x1002;")
        closed(sites, pairs[:1], wire, far_side=False)
        expect(sites.ping(6) == 3, f"the other device carries nothing any more: {words(sites)}")


def policies_ask_for_another_association(left_plane, right_plane):
    """What an `in` policy wants from elsewhere is not let in from a device; the rest is."""
    def test():
        with PlaneSites("de", left_plane, right_plane) as sites:
            closing = "".join(f"spdadd {NETS[family][1]} {NETS[family][0]} any -P in ipsec "
                              f"esp/tunnel/192.0.2.2-192.0.2.1/unique:77;\n" for family in (6,))
            sites.start("left", native() + closing)
            sites.start("right", native())
            lead(sites)
            expect(sites.ping(4) == 3, f"no ping through the device: {words(sites)}")
            wire = sites.listen(sites.client, "lan")
            sites.gateways["left"].setkey_text("spdflush;")
            expect(sites.ping(6) == 3 and any(frame[22:38] == SENDER for frame in wire.settle()),
                   f"the control failed: without that policy no ping passes: {words(sites)}")
            sites.gateways["left"].setkey_text(closing)
            wire.clear()
            expect(sites.ping(6) == 0, "pings are answered by packets that a policy wants from elsewhere")
            sites.server.attempt("ping -q -n -c 3 -i 0.05 -W 1 fd00:1::2")
            came = [frame for frame in wire.settle() if frame[22:38] == SENDER]
            expect(not came, f"{len(came)} packets were let in")
    return test


def the_other_plane_left_it():
    """A device that a gateway of the other plane left: refused while routes lead there, replaced when none does."""
    with PlaneSites("de") as sites:
        left = sites.start("left", native())
        sites.start("right", native())
        lead(sites)
        expect(sites.ping() == 3, f"no ping through the device: {words(sites)}")
        left.stop()
        left.options = options_of("user")
        if STAND_IN:
            return
        try:
            left.start().ready()
        except GatewayError as error:
            expect("vpn0" in str(error) and "the other plane" in str(error), f"what it says: {error}")
        else:
            expect(False, "a device of the other plane was taken over while routes lead there")
        expect(sites.ping() == 0, "pings are answered without a gateway")
        for family in (4, 6):
            sites.left.sh(f"ip -{family} route del {NETS[family][1]} dev vpn0")
        left.start().ready()
        lead(sites)
        sites.gateways["right"].setkey_text("flush;" + native())
        expect(sites.ping() == 3, f"no ping through the new device: {words(sites)}")
        expect("tun" in sites.left.sh("ip -d link show vpn0"), "it is no TUN device")


def names_that_are_taken():
    with PlaneSites("de") as sites:
        left = sites.start("left", "spdflush;\n")
        sites.left.sh("ip link add free type xfrm dev lo if_id 7" if not STAND_IN else "ip link add free type dummy")
        for taken in ("wan", "free"):
            before = sites.left.sh(EVERYTHING)
            try:
                left.setkey_text(native(taken))
            except GatewayError as error:
                expect(f"interface={taken}" in str(error) and "another name" in str(error), f"what it says: {error}")
            else:
                expect(False, f"the name `{taken}` was taken over")
            expect(not left.status()["associations"], "half of it was done")
            after = sites.left.sh(EVERYTHING)
            expect(after == before, f"{taken}, before:\n{before}\nafter:\n{after}")


def down_takes_it_away(how):
    def test():
        with PlaneSites("de") as sites:
            before = sites.left.sh(EVERYTHING)
            left = sites.start("left", native())
            sites.left.sh(f"ip route replace {NETS[4][1]} dev vpn0; ip -6 route replace {NETS[6][1]} dev vpn0")
            expect(sites.left.sh(EVERYTHING) != before, "the control failed: a running gateway left no trace")
            left.stop(how)
            expect(has_device(sites.left, "vpn0"), "the device went with the gateway")
            left.ask("down")
            lead_back(sites)
            after = sites.left.sh(EVERYTHING)
            expect(after == before, f"before:\n{before}\nafter:\n{after}")
    return test


def lead_back(sites):
    sites.left.sh("ip route replace 10.2.0.0/24 via 192.0.2.2; ip -6 route replace fd00:2::/64 via 2001:db8::2")


def killed_and_started_again():
    """The kernel carries on by the routes; the next start takes devices and associations over, and nothing is lost."""
    with PlaneSites("de") as sites:
        left, right = (sites.start(name, native()) for name in NAMES)
        lead(sites)
        expect(sites.ping() == 3, f"no ping through the device: {words(sites)}")
        wire = sites.listen(sites.wire, "left")
        streams = [Stream(sites, back=back, pace=PACE) for back in (False, True)]
        for gateway in (left, right):
            gateway.stop(signal.SIGKILL)
            time.sleep(0.5)
            gateway.start().ready()
            time.sleep(0.5)
        sent, lost, reordered = ended(streams)
        expect(STAND_IN or (lost, reordered) == (0, 0), f"of {sent} lost {lost}, reordered {reordered}: {words(sites)}")
        left.stop(signal.SIGTERM)
        closed(sites, sites.pairs(), wire, far_side=False)
        return f"{sent} datagrams, lost {lost}"


def taken_away(commands):
    """Another program takes it away: nothing in clear meanwhile, and it is put back."""
    def test():
        with PlaneSites("de") as sites:
            wire = seen_without_a_tunnel(sites, sites.pairs())
            left, _ = start_both(sites)
            for command in commands:
                wire.clear()
                sites.left.sh(command)
                within(lambda: sites.ping(4, count=1) == 1 and sites.ping(6, count=1) == 1,
                       lambda: f"nothing passes after `{command}`: {left.words()}")
                within(lambda: len(routes(sites.left, "ike-site")) == 2, f"the routes after `{command}`")
            carried(sites, sites.pairs(), wire, (ESP, UDP))
    return test


def start(sites, name, text):
    sites.gateways[name] = Keyed(getattr(sites, name), text, options_of(sites.planes[name]))
    return sites.gateways[name].ready()


def start_both(sites, make=peer):
    right, left = (start(sites, name, make(name)) for name in NAMES[::-1])
    for gateway in (left, right):
        for each in gateway.status()["peers"]:
            gateway.wait("up", each["name"])
    return left, right


def down_and_up(sites, pairs, wire):
    left, right = (sites.gateways[name] for name in NAMES)
    left.ask("down", "site")
    left.wait("down")
    closed(sites, pairs, wire)
    left.ask("up", "site")
    for each in (left, right):
        each.wait("up")
    carried(sites, pairs, wire, (ESP, UDP))


def networks_of_a_peer(left_plane, right_plane):
    """`mode = "route"`: closed before the peer is up, open while it is, closed after `down` and after a stop."""
    def test():
        with PlaneSites("de", left_plane, right_plane) as sites:
            pairs = sites.pairs()
            wire = seen_without_a_tunnel(sites, pairs)
            left = start(sites, "left", peer("left"))
            is_of_its_plane(sites, "ike-site")
            closed(sites, pairs, wire, far_side=False)
            right = start(sites, "right", peer("right"))
            for each in (left, right):
                each.wait("up")
            expect(routes(sites.left, "ike-site") == sorted(NETS[family][1] for family in (4, 6)),
                   f"the routes: {sites.left.sh('ip route show table all')}")
            before = sent_into(sites.left, "ike-site")
            carried(sites, pairs, wire, (ESP, UDP))
            expect(sent_into(sites.left, "ike-site") - before >= 6, "pings did not pass the device")
            counted_by_the_kernel(sites, ["esp"])
            down_and_up(sites, pairs, wire)
            left.stop(signal.SIGTERM)
            closed(sites, pairs, wire)
            left.ask("down")
            expect(not has_device(sites.left, "ike-site"), "the device is still there")
    return test


def rekeyed(left_plane, right_plane):
    def test():
        with PlaneSites("de", left_plane, right_plane) as sites:
            gateways = start_both(sites)
            expect(sites.ping() == 3, f"no ping through the device: {words(sites)}")
            return rekeys_lose_nothing(sites, gateways)
    return test


def two_peers(name):
    return peer(name, "four", families=(4,)) + peer(name, "six", families=(6,), outer=6)


def reload_each(sites, names, make):
    for name in names:
        write(sites.gateways[name], make(name))
        sites.gateways[name].ask("reload")


def a_device_for_each_peer():
    with PlaneSites("de") as sites:
        left, right = start_both(sites, two_peers)
        for family, device in ((4, "ike-four"), (6, "ike-six")):
            expect(routes(sites.left, device) == [NETS[family][1]], f"the routes into {device}")
            expect(sites.ping(family, count=3) == 3, f"no ping, IPv{family}: {words(sites)}")
        stream = Stream(sites, pace=PACE)
        reload_each(sites, NAMES, lambda name: peer(name, "four", families=(4,)))
        within(lambda: not has_device(sites.left, "ike-six"), "the device of a peer that is gone stays")
        reload_each(sites, NAMES[::-1], two_peers)
        for gateway in (left, right):
            gateway.wait("up", "six")
        expect(sites.ping(6) == 3, f"no ping through the device of a reload: {words(sites)}")
        sent, lost, _ = ended([stream])
        expect(lost == 0, f"the peer that did not change lost {lost} of {sent}: {words(sites)}")
        return f"{sent} datagrams, lost 0"


def routes_of_your_own():
    with PlaneSites("de") as sites:
        pairs = sites.pairs()
        wire = seen_without_a_tunnel(sites, pairs)
        start_both(sites, lambda name: table(name, more='routes = "none"', wide=True))
        expect(not routes(sites.left, "ike-site"), "there are routes")
        expect(sites.ping(4) == 3, "the host's own routes do not count any more")
        lead(sites, "ike-site")
        carried(sites, pairs, wire, (ESP, UDP))
        down_and_up(sites, pairs, wire)


GONE = ["ip link del ike-site", "ip link set ike-site down", "ip route flush table 4500"]
FLUSHED = ["ip xfrm policy flush", "ip xfrm state flush", "ip xfrm policy flush; ip xfrm state flush; ip link del ike-site"]
CASES = {
    "a device of associations, kernel and user": routes_lead_into_the_device("kernel", "user"),
    "a device of a peer, from down to up to down, kernel and user": networks_of_a_peer("kernel", "user"),
    "a device that is deleted or taken down, and routes, come back": taken_away(GONE),
}
LONG = {
    "a device of associations, kernel and kernel": routes_lead_into_the_device("kernel", "kernel"),
    "a device of associations, ESP in UDP, kernel and user":
        routes_lead_into_the_device("kernel", "user", text=pair, protocols=(UDP,)),
    "several devices at once, each with its own associations": several_devices_at_once,
    **{f"a device and policies that ask for another association, {left} and {right}":
       policies_ask_for_another_association(left, right) for left, right in (("kernel", "user"), ("user", "kernel"))},
    "a device that a gateway of the other plane left": the_other_plane_left_it,
    "names of devices that are taken": names_that_are_taken,
    "down takes a device away, of a gateway that was stopped": down_takes_it_away(signal.SIGTERM),
    "down takes a device away, of a gateway that was killed": down_takes_it_away(signal.SIGKILL),
    "a device goes on after kill -9 and the next start": killed_and_started_again,
    "a device of a peer, from down to up to down, kernel and kernel": networks_of_a_peer("kernel", "kernel"),
    "a device of a peer, from down to up to down, user and kernel": networks_of_a_peer("user", "kernel"),
    "a device of a peer, rekeys lose nothing": rekeyed("kernel", "kernel"),
    "a device for each peer, and a reload of one": a_device_for_each_peer,
    "a device of a peer with routes of your own": routes_of_your_own,
    "policies and associations of a device that were flushed come back": taken_away(FLUSHED),
}
