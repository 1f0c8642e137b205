"""Devices of their own for associations: routes say what goes through, and nothing goes beside."""

import signal
import tempfile

from fail_closed import STATE, in_clear
from network.expect import expect, expect_refusal
from network.gateway import GatewayError
from network.sites import AES_GCM, NETS, OUTER, Sites
from network.wire import Esp
from policies import Events
from refusals import run_gateway


def pair(interface="vpn0", first=0x1001, outer=4):
    """The associations of one device; the same text for both gateways."""
    ends = OUTER[outer]
    return "\n".join(f"add {source} {destination} esp-udp {first + way:#x} -m tunnel -r 1024 -o interface={interface} "
                     f"{AES_GCM.format(first % 251 + way)};"
                     for way, (source, destination) in enumerate((ends, ends[::-1]))) + "\n"


def lead(sites, interface="vpn0", families=(4, 6)):
    for host, theirs in ((sites.left, 1), (sites.right, 0)):
        for family in families:
            host.sh(f"ip -{family} route replace {NETS[family][theirs]} dev {interface}")


def large(sites, family):
    # The first one tells the sender what fits.
    sites.ping(family, count=2, size=4000)
    expect(sites.ping(family, size=4000) == 3, f"no large ping, IPv{family}")


def routes_lead_into_the_device():
    with Sites("rb") as sites:
        for name in ("left", "right"):
            sites.start(name, pair())
        lead(sites)
        wire = sites.listen(sites.wire, "left")
        for family in (4, 6):
            expect(sites.ping(family) == 3, f"no ping through the device, IPv{family}")
            large(sites, family)
        frames = wire.settle()
        expect(not in_clear(frames), "inner addresses in clear on the wire")
        expect(any(Esp.find(frame) for frame in frames), "no ESP on the wire")
        mtu = sites.gateways["left"].status()["interfaces"][0]["mtu"]
        expect(mtu == 1438, f"1500 bytes leave {mtu} for AES-GCM in UDP")
        expect(f"mtu {mtu} " in sites.left.sh("ip link show vpn0"), "the device has another MTU")
        expect("fe80::" in sites.left.sh("ip -6 addr show dev vpn0"), "no link-local address for routing daemons")


def several_devices_at_once():
    with Sites("rb") as sites:
        for name in ("left", "right"):
            sites.start(name, pair("vpn4", 0x1001) + pair("vpn6", 0x2001, outer=6))
        lead(sites, "vpn4", (4,))
        lead(sites, "vpn6", (6,))

        def used():
            return {sa["spi"]: sa["packets"] for sa in sites.gateways["left"].status()["associations"]}

        for family, ours, others in ((4, (0x1001, 0x1002), (0x2001, 0x2002)), (6, (0x2001, 0x2002), (0x1001, 0x1002))):
            before = used()
            expect(sites.ping(family, count=12) == 12, f"no ping through the device of IPv{family}")
            after = used()
            carried = {int(spi, 16): after[spi] - before[spi] for spi in after}
            # The kernel talks about IPv6 on every device, a handful of packets in all.
            expect(all(12 <= carried[spi] < 24 for spi in ours), f"packets by association, IPv{family}: {carried}")
            expect(all(carried[spi] < 12 for spi in others), f"packets by association, IPv{family}: {carried}")


def devices_come_and_go_with_setkey():
    with Sites("rb") as sites:
        gateways = [sites.start(name, "spdflush;\n") for name in ("left", "right")]
        expect(sites.left.attempt("ip link show vpn0")[0] != 0, "the control failed: the device is there already")
        for gateway in gateways:
            gateway.setkey_text(pair())
        lead(sites)
        expect(sites.ping() == 3, "no ping through a device made by setkey")
        wire = sites.listen(sites.wire, "left")
        events = Events(gateways[0])
        gateways[0].setkey_text("flush;")
        expect(sites.ping(4) == 0 and sites.ping(6) == 0, "pings come back without association")
        expect(not in_clear(wire.settle()), "without association packets leave in clear")
        expect(gateways[0].drops("acquire") > 0, f"the drops do not say why: {gateways[0].ask('drops', '--json')}")
        told = events.wait("acquire", interface="vpn0")
        expect(told["policy"] == 0 and told["destination"], f"the event names no destination: {told}")
        expect("vpn0" in sites.left.sh("ip link"), "the device went although a route leads there")
        for gateway in gateways:
            gateway.setkey_text("flush;" + pair())
        expect(sites.ping() == 3, "no ping with new associations")
        for family in (4, 6):
            sites.left.sh(f"ip -{family} route del {NETS[family][1]} dev vpn0")
        gateways[0].setkey_text("flush;")
        expect("vpn0" not in sites.left.sh("ip link"), "the device stays although nothing needs it")


def nothing_leaks_after_kill():
    with Sites("rb") as sites:
        left, right = (sites.start(name, pair()) for name in ("left", "right"))
        lead(sites)
        expect(sites.ping() == 3, "no ping through the device")
        left.stop(signal.SIGKILL)
        wire = sites.listen(sites.wire, "left")
        expect(sites.ping(4) == 0 and sites.ping(6) == 0, "pings were answered without a gateway")
        expect(not in_clear(wire.settle()), "inner addresses in clear on the wire")
        left.start().ready()
        # The new one counts from 1 again.
        right.setkey_text("flush;" + pair())
        expect(sites.ping(4) == 3 and sites.ping(6) == 3, "no ping after the restart, by the routes from before")


def down_takes_devices_away():
    with Sites("rb") as sites:
        before = sites.left.sh(STATE)
        left = sites.start("left", pair())
        left.stop(signal.SIGKILL)
        left.ask("down")
        after = sites.left.sh(STATE)
        expect(after == before, f"before:\n{before}\nafter:\n{after}")


def a_name_that_is_taken():
    with Sites("rb") as sites:
        left = sites.start("left", "spdflush;\n")
        for taken in ("wan", "esp0"):
            try:
                left.setkey_text(pair(taken))
            except GatewayError as error:
                expect(f"interface={taken}" in str(error) and "another name" in str(error),
                       f"what does it say: {error}")
            else:
                expect(False, f"the name `{taken}` was taken over")
            expect(not left.status()["associations"], "half of it was done")


def outer_packets_in_another_namespace():
    with Sites("rb") as sites:
        outer = sites.network.host("outer")
        sites.left.sh(f"ip link set wan netns {outer.name}")
        outer.sh("""sysctl -qw net.ipv6.conf.wan.accept_dad=0; ip link set wan up; ip addr add 192.0.2.1/24 dev wan
            ip addr add 2001:db8::1/64 dev wan nodad""")
        sites.start("left", pair(), options=("--outer-netns", outer.name))
        sites.start("right", pair())
        lead(sites)
        for family in (4, 6):
            expect(sites.ping(family) == 3, f"no ping, IPv{family}")
            large(sites, family)
        expect("192.0.2" not in sites.left.sh("ip addr"), "the control failed: the outer address is here too")
        left = sites.gateways["left"]
        left.setkey_text(pair("vpn6", 0x3001, outer=6))
        expect(any("IPv6" in line for line in left.status()["sockets"]), "no socket was opened there later on")


def outer_packets_by_one_device():
    with Sites("rb") as sites:
        for name in ("left", "right"):
            sites.start(name, pair(), options=("--outer-device", "wan"))
        lead(sites)
        expect(sites.ping(4) == 3 and sites.ping(6) == 3, "no ping")


def an_outer_place_that_is_absent(*options, words):
    def test():
        with Sites("rb") as sites, tempfile.TemporaryDirectory() as folder:
            status, output = run_gateway(sites.left, pair(), f"{folder}/control.sock", *options)
            expect_refusal(status, output, *words)
    return test


CASES = {
    "routes lead through the tunnel, both families, any size": routes_lead_into_the_device,
    "several devices at once": several_devices_at_once,
    "setkey makes devices, and without association nothing leaves": devices_come_and_go_with_setkey,
    "nothing leaks after kill -9, and the routes serve the next gateway": nothing_leaks_after_kill,
    "down takes the devices away": down_takes_devices_away,
    "a name that is taken is refused": a_name_that_is_taken,
    "outer packets travel in another namespace": outer_packets_in_another_namespace,
    "outer packets travel by one device": outer_packets_by_one_device,
    "an outer namespace that is absent": an_outer_place_that_is_absent(
        "--outer-netns", "no-such-place", words=("no-such-place", "ip netns list")),
    "an outer device that is absent": an_outer_place_that_is_absent(
        "--outer-device", "vrf-none", words=("vrf-none", "create the VRF")),
}
