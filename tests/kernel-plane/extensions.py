"""What newer kernels have: each kernel shows it, or does without it, or refuses it by name."""

import glob
import os
import signal
import struct

from attributes import (IPTFS, INBOUND, OFFLOAD, OUTBOUND, PACKET_SIZE, REORDER_WINDOW, SA_CPU, SA_DIR, associations,
                        counter, kernel_is)
from network.expect import expect
from network.sites import AES_GCM, MACS, setkey_text
from network.wire import ESP, Esp
from moving import move
from planes import ETHTOOL_SGRO, STAND_IN, PlaneSites, carried, seen_without_a_tunnel, set_feature, states
from refusing import refused, with_option
from shown import shows

HAS_DIRECTIONS = kernel_is(6, 10)
HAS_GRO_OF_ESP_IN_UDP = kernel_is(6, 9)
# Linux 6.13 brought them; the 6.12 of Debian 12, with stable updates, has them as well.
HAS_CPUS = kernel_is(6, 12)
# Debian's kernels have neither IPTFS nor a simulated network card; that of tests/iptfs has both.
HAS_IPTFS = HAS_CARD = os.environ.get("ESPLANADE_KERNEL") == "iptfs"
CARD = "card0"
EXTENDED = "-r 4096 -o esn"
AGGREGATED = {"aggfrag": {"size": 1400, "rate": 0, "fragments": True, "window": 8, "wait_ms": 100}}


def bytes_of(mac):
    return bytes.fromhex(mac.replace(":", ""))


def direction_is_kept(window):
    """Each association shows its direction to the kernel, also after the next gateway has taken it over."""
    def test():
        with PlaneSites("xd") as sites:
            pairs = sites.pairs((4,))
            wire = seen_without_a_tunnel(sites, pairs)
            for name in ("left", "right"):
                sites.start(name, setkey_text(name, inner=(4,), udp=False).replace("-r 1024", window))
            carried(sites, pairs, wire, (ESP,))
            for name, gateway in sites.on_kernel().items():
                shown_with_directions(getattr(sites, name), name)
                shows(gateway)
            taken_over(sites)
            carried(sites, pairs, wire, (ESP,))
            return "directions kept" if HAS_DIRECTIONS else "this kernel keeps no direction"
    return test


def taken_over(sites):
    """A gateway is killed, and the next one goes on with what the kernel has."""
    left = sites.gateways["left"]
    before = {state["spi"]: state["packets"] for state in states(sites.left)} if not STAND_IN else {}
    left.stop(signal.SIGKILL)
    left.start().ready()
    for spi, packets in before.items():
        state = next(state for state in states(sites.left) if state["spi"] == spi)
        expect(state["packets"] >= packets > 0, f"SPI {spi:#x} was not taken over: {state['text']}")


def shown_with_directions(host, name):
    """0x1001 is from left to right, 0x1002 from right to left."""
    found = associations(host)
    outbound, inbound = (0x1001, 0x1002) if name == "left" else (0x1002, 0x1001)
    wanted = {outbound: bytes([OUTBOUND]), inbound: bytes([INBOUND])} if HAS_DIRECTIONS else {}
    kept = {spi: sa[SA_DIR] for spi, sa in found.items() if SA_DIR in sa}
    expect(kept == wanted, f"{name}: the kernel has directions {kept}, not {wanted}")


def outbound_opens_nothing():
    """A packet of an outbound association comes back to its sender, which has the receiver's address as well: it is
    not opened."""
    with PlaneSites("xd") as sites:
        wire = sites.listen(sites.wire, "left")
        left, _ = sites.start_both(inner=(4,), udp=False)
        expect(sites.ping() == 3, "no ping through the tunnel")
        sent = [esp for esp in filter(None, map(Esp.find, wire.settle())) if esp.spi == 0x1001]
        expect(len(sent) == 3, f"{len(sent)} packets of the outbound association on the wire")
        if STAND_IN:
            return None
        # Held, the gateway does not follow the address.
        with left.held():
            sites.left.sh("sysctl -qw net.ipv4.conf.all.accept_local=1 net.ipv4.conf.wan.accept_local=1; "
                          "ip addr add 192.0.2.2/32 dev lo")
            refused = counter(sites.left, "XfrmInStateDirError")
            packets = {state["spi"]: state["packets"] for state in states(sites.left)}
            wire.inject(bytes_of(MACS["left"]) + bytes_of(MACS["right"]) + sent[-1].frame[12:])
            wire.settle()
            more = {state["spi"]: state["packets"] - packets[state["spi"]] for state in states(sites.left)}[0x1001]
        refused = counter(sites.left, "XfrmInStateDirError") - refused
        wanted = (0, 1) if HAS_DIRECTIONS else (1, 0)
        expect((more, refused) == wanted, f"the association opened {more} packets, {refused} were refused for their "
                                          f"direction; wanted {wanted}")
        return f"opened {more}, refused {refused}"


def native(name, options=""):
    return setkey_text(name, inner=(4, 6), udp=False).replace("-r 1024", f"-r 1024 {options}")


def aggregates(left, right):
    """Packets share outer packets, each way; the kernel has the options of each direction."""
    def test():
        with PlaneSites("xa", left, right) as sites:
            pairs = sites.pairs()
            wire = seen_without_a_tunnel(sites, pairs)
            for name in ("left", "right"):
                sites.start(name, native(name, "-o aggfrag -o aggfrag-size=1400 -o aggfrag-window=8"))
            carried(sites, pairs, wire, (ESP,))
            for name, gateway in sites.on_kernel().items():
                found = associations(getattr(sites, name))
                expect({sa["mode"] for sa in found.values()} == {IPTFS}, f"{name}: {found}")
                outbound, inbound = (0x1001, 0x1002) if name == "left" else (0x1002, 0x1001)
                told = found[outbound][PACKET_SIZE], found[inbound][REORDER_WINDOW]
                expect(told == (struct.pack("=I", 1400), struct.pack("=H", 8)), f"{name}: the kernel has {told}")
                shows(gateway, lambda _: AGGREGATED, ["AGGFRAG (IPTFS) by packets of 1400 bytes", "after 8 packets"])
            taken_over(sites)
            carried(sites, pairs, wire, (ESP,))
            for gateway in sites.gateways.values():
                gateway.setkey_text("flush;")
            expect(sites.ping() == 0, "a ping passes without associations")
            for name, gateway in sites.gateways.items():
                plain = "".join(f"{line}\n" for line in native(name).splitlines() if line.startswith("add"))
                gateway.setkey_text(plain)
            carried(sites, pairs, wire, (ESP,))
    return test


def one_for_a_processor(right):
    """Beside one for all processors there is an association for the first, which carries what leaves there."""
    def more(name):
        ends = "192.0.2.1 192.0.2.2", "192.0.2.2 192.0.2.1"
        outbound = 0 if name == "left" else 1
        cpu = "-o cpu=0" if name == "left" or right == "kernel" else ""
        return "".join(f"add {ends[way]} esp {0x1011 + way:#x} -m tunnel -r 1024 {cpu if way == outbound else ''} "
                       f"{AES_GCM.format(5 + way)};\n" for way in (0, 1))

    def test():
        with PlaneSites("xc", "kernel", right) as sites:
            pairs = sites.pairs()
            wire = seen_without_a_tunnel(sites, pairs)
            for name in ("left", "right"):
                sites.start(name, native(name) + more(name))
            carried(sites, pairs, wire, (ESP,))
            found = associations(sites.left)
            bound = {spi: sa[SA_CPU] for spi, sa in found.items() if SA_CPU in sa}
            expect(bound == {0x1011: struct.pack("=I", 0)}, f"the kernel has processors {bound}")
            shows(sites.gateways["left"], lambda spi: {"cpu": 0} if spi == 0x1011 else {}, ["processor 0"])
            packets = {state["spi"]: state["packets"] for state in states(sites.left)}
            if os.cpu_count() == 1:
                expect(packets[0x1011] > 0 == packets[0x1001], f"packets of each association: {packets}")
            return f"{packets[0x1011]} packets by it, {packets[0x1001]} by the other"
    return test


def card_takes_over():
    """A simulated network card is given both associations, and the tunnel goes on beside it."""
    with PlaneSites("xo", "kernel", "user") as sites:
        pairs = sites.pairs()
        wire = seen_without_a_tunnel(sites, pairs)
        put_card(sites.left)
        sites.start("left", native("left", f"-o offload=crypto:{CARD}"))
        sites.start("right", native("right"))
        carried(sites, pairs, wire, (ESP,))
        index = int(sites.left.sh(f"ip -o link show {CARD}").split(":")[0])
        offloaded = {spi: struct.unpack_from("=iB", sa[OFFLOAD]) for spi, sa in associations(sites.left).items()}
        expect(offloaded == {0x1001: (index, 0), 0x1002: (index, 2)}, f"the kernel has {offloaded}, the card is {index}")
        shows(sites.gateways["left"], lambda _: {"offload": {"kind": "crypto", "device": CARD}},
              [f"offload crypto to {CARD}"])
        sites.gateways["left"].setkey_text("flush;")
        left = associations(sites.left)
        expect(not left, f"associations stayed with the card: {left}")


def put_card(host):
    """A device of the kernel's netdevsim, which takes over the cryptography of AES-GCM, on a host."""
    if not glob.glob("/sys/bus/netdevsim/devices/netdevsim7"):
        with open("/sys/bus/netdevsim/new_device", "w") as file:
            file.write("7 1")
    device, = os.listdir("/sys/bus/netdevsim/devices/netdevsim7/net")
    host.sh(f"nsenter -t 1 -n ip link set {device} netns {host.name}; ip link set {device} name {CARD} up")


def refused_on_the_user_plane():
    with PlaneSites("xu", "user", "user") as sites:
        left, _ = sites.start_both(inner=(4,))
        for option in ("cpu=0", "offload=crypto:wan"):
            word = option.partition("=")[0]
            try:
                left.setkey_text(f"add 192.0.2.1 192.0.2.9 esp 0x5001 -m tunnel -r 64 -o {option} {AES_GCM.format(9)};")
            except Exception as error:
                expect(f"-o {word}" in str(error) and "--plane kernel" in str(error), str(error))
                continue
            raise AssertionError(f"-o {option} was taken")
        expect(sites.ping() == 3, "the tunnel does not go on")


def without(name):
    return lambda: with_option(name)


NO_IPTFS = {"-o aggfrag": (without("-o aggfrag"), (), "xfrm_iptfs")}
NO_CPUS = {"-o cpu": (without("-o cpu=0"), (), "6.13")}
NO_PROCESSOR = {"a processor that this machine does not have": (without("-o cpu=8191"), (), "last processor")}
NO_CARD = {
    "crypto by a device that cannot": (without("-o offload=crypto:wan"), (), "esp-hw-offload"),
    "packets by a device that cannot": (without("-o offload=packet:wan"), (), "esp-hw-offload"),
    "a device that is not there": (without("-o offload=crypto:none0"), (), "no such device"),
}


IPTFS_CASE = {pair: aggregates(*pair) if HAS_IPTFS or STAND_IN else refused(NO_IPTFS)
              for pair in (("kernel", "user"), ("kernel", "kernel"))}
CPU_CASE = {right: one_for_a_processor(right) if HAS_CPUS else refused(NO_CPUS) for right in ("user", "kernel")}
def gro_of_esp_in_udp(family, options=(), begin="kernel"):
    """What the receive offload of the kernel takes passes no hook of nftables in UDP: before Linux 6.9 all does."""
    def test():
        with PlaneSites("xg", right=begin) as sites:
            pairs = sites.pairs((family,))
            for name in ("left", "right"):
                sites.start(name, setkey_text(name, inner=(family,), outer=family), options)
            has_modules = sites.right.attempt("modprobe -a esp4_offload esp6_offload")[0] == 0
            sites.right.sh("""nft add table inet seen
                nft 'add chain inet seen arriving { type filter hook prerouting priority -300; }'
                nft 'add rule inet seen arriving udp dport 4500 counter'""")
            if STAND_IN:
                return None
            if begin == "user":
                move(sites.gateways["right"], "kernel", "--same-keys")
            off = passing_the_hook(sites, pairs)
            set_feature(sites.right, "wan", ETHTOOL_SGRO, True)
            on = passing_the_hook(sites, pairs)
            expect(off[0] == off[1], f"without GRO {off[1]} of {off[0]} packets pass the hook")
            if HAS_GRO_OF_ESP_IN_UDP and has_modules and not options:
                expect(on[1] < on[0] // 10, f"with GRO {on[1]} of {on[0]} packets pass the hook")
            else:
                expect(on[0] == on[1], f"{on[1]} of {on[0]} packets pass the hook")
            return f"{on[0] - on[1]} of {on[0]} packets taken by GRO"
    return test


def passing_the_hook(sites, pairs):
    """How many packets the association opens, and how many of them pass the hook."""
    def counts():
        opened = next(state["packets"] for state in states(sites.right) if state["spi"] == 0x1001)
        told = sites.right.sh("nft list chain inet seen arriving")
        return opened, int(told.split("packets ")[1].split()[0])
    before = counts()
    for pair in pairs:
        expect(pair.transfer() is None, f"{pair}: the transfer failed")
    return [now - then for now, then in zip(counts(), before)]


CASES = {
    "associations have a direction where the kernel keeps it": direction_is_kept("-r 1024"),
    "an outbound association opens no packet where the kernel keeps its direction": outbound_opens_nothing,
    "IPTFS or its refusal, kernel and user": IPTFS_CASE["kernel", "user"],
    "an association for one processor or its refusal, kernel and user": CPU_CASE["user"],
    "ESP in UDP over IPv4 is taken by GRO where the kernel does it": gro_of_esp_in_udp(4),
    "offload to a device that cannot is refused before anything changes": refused(NO_CARD),
    "processors and offload are refused on the user plane": refused_on_the_user_plane,
}
LONG = {
    "associations with ESN have a direction where the kernel keeps it": direction_is_kept(EXTENDED),
    "IPTFS or its refusal, kernel and kernel": IPTFS_CASE["kernel", "kernel"],
    "an association for one processor or its refusal, kernel and kernel": CPU_CASE["kernel"],
    "ESP in UDP over IPv6 is taken by GRO where the kernel does it": gro_of_esp_in_udp(6),
    "ESP in UDP over IPv4 is taken by GRO after a move to the kernel": gro_of_esp_in_udp(4, begin="user"),
    "ESP in UDP is not taken by GRO with --no-offloads": gro_of_esp_in_udp(4, ("--no-offloads",)),
    "a processor that is not there is refused before anything changes":
        refused(NO_PROCESSOR if HAS_CPUS else NO_CPUS),
    "offload to a simulated network card, or its refusal": card_takes_over if HAS_CARD else refused(NO_CARD),
}
