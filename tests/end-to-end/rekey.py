"""New keys by one command on each side: nothing is lost, whichever side begins, and also
if one does not follow."""

import itertools
import json
import signal
import threading
import time

from live_change import Stream
from network.expect import expect, expect_refusal
from network.sites import AES_GCM, NETS, OUTER, Sites
from network.wire import Esp
from policies import Events
from reload import write

TIMEOUT_SECONDS = 20
KEEP = ("--keep", "1")
SHA256 = "-A hmac-sha2-256 0x{:02x}" + "7c" * 31
TUNNEL = [("esp-udp", "tunnel", AES_GCM)]
ORDERS = {"left first": ("left", "right"), "right first": ("right", "left"), "both at once": None}


def text(name, turn, outer=4, layers=TUNNEL, inner=(4, 6), width=1, more=""):
    """The keys of one turn, several beside each other where the policies spread, and policies that are always the
    same."""
    lines = []
    for way, ends in enumerate((OUTER[outer], OUTER[outer][::-1])):
        for number, beside in itertools.product(range(len(layers)), range(width)):
            protocol, mode, suite = layers[number]
            place = 64 * turn + 16 * number + 2 * beside + way
            lines.append(f"add {' '.join(ends)} {protocol} {0x1001 + place:#x} -m {mode} -r 1024 {more} "
                         f"{suite.format(1 + place % 250)};")
        for family in inner:
            direction = "out" if (way == 0) == (name == "left") else "in"
            sides = (NETS[family], NETS[family][::-1])[way]
            templates = " ".join(f"{protocol.removesuffix('-udp')}/{mode}/{'-'.join(ends) if mode == 'tunnel' else ''}/require"
                                 for protocol, mode, _ in layers)
            spread = f"-o spread={width} " if width > 1 and direction == "out" else ""
            lines.append(f"spdadd {' '.join(sides)} any {spread}-P {direction} ipsec {templates};")
    return "\n".join(lines) + "\n"


def start(sites, **shape):
    for name in ("left", "right"):
        sites.start(name, text(name, 0, **shape))
    return sites.gateways


def rekey(gateway, content, *options):
    write(gateway, content)
    return gateway.ask("rekey", *KEEP, *options)


def spis(gateway):
    return {sa["spi"] for sa in gateway.status()["associations"]}


def in_file(content):
    return {f"{int(line.split()[4], 16):#010x}" for line in content.splitlines() if line.startswith("add")}


def wait_until(what, told):
    deadline = time.monotonic() + TIMEOUT_SECONDS
    while not what():
        expect(time.monotonic() < deadline, f"within {TIMEOUT_SECONDS} s not {told()}")
        time.sleep(0.1)


def is_over(gateway, content):
    """The gateway has what its file says and waits for nothing more."""
    wait_until(lambda: gateway.status()["rekey"] is None and spis(gateway) == in_file(content),
               lambda: f"over: {gateway.ask('status')}")


def nothing_lost(streams):
    for stream in streams:
        sent, lost, reordered = stream.finish()
        figures = lost, stream.duplicated(), reordered
        expect(sent > 1000 and figures == (0, 0, 0), f"of {sent}: lost, duplicated, reordered: {figures}")
    return sum(stream.sent for stream in streams)


def both_ways(sites, inner):
    return [Stream(sites, family, back) for family in inner for back in (False, True)]


def one_turn(sites, order, turn, **shape):
    """Both sides have the keys of this turn, by one command each, and neither waits any more."""
    files = {name: text(name, turn, **shape) for name in sites.gateways}
    if order:
        for name in order:
            rekey(sites.gateways[name], files[name])
            time.sleep(1.5)
    else:
        threads = [threading.Thread(target=rekey, args=(sites.gateways[name], files[name])) for name in files]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    for name, gateway in sites.gateways.items():
        is_over(gateway, files[name])


def by_turns(order, inner=(4, 6), **shape):
    def test():
        with Sites("rk") as sites:
            start(sites, inner=inner, **shape)
            for family in inner:
                expect(sites.ping(family) == 3, f"the control failed: no ping, IPv{family}")
            streams = both_ways(sites, inner)
            for turn in (1, 2):
                one_turn(sites, order, turn, inner=inner, **shape)
            for name, gateway in sites.gateways.items():
                for reason in ("bad-icv", "replayed", "too-old", "policy-mismatch", "acquire"):
                    expect(gateway.drops(reason) == 0, f"{name}: {gateway.ask('drops')}")
            return f"two rekeys, {nothing_lost(streams)} datagrams, lost 0, duplicated 0, reordered 0"
    return test


def by_routes():
    """Devices of their own: routes are the policy."""
    shape = {"inner": (), "more": "-o interface=vpn0"}
    with Sites("rk") as sites:
        start(sites, **shape)
        for host, theirs in ((sites.left, 1), (sites.right, 0)):
            for family in (4, 6):
                host.sh(f"ip -{family} route replace {NETS[family][theirs]} dev vpn0")
        expect(sites.ping(4) == sites.ping(6) == 3, "the control failed: no ping")
        streams = both_ways(sites, (4, 6))
        for turn, order in enumerate(ORDERS.values(), 1):
            one_turn(sites, order, turn, **shape)
        return f"three rekeys, {nothing_lost(streams)} datagrams"


def without_a_word_to_the_peer():
    """AH has no dummy packets: the administrator has to say when."""
    shape = {"layers": [("ah", "tunnel", SHA256)]}
    with Sites("rk") as sites:
        gateways = start(sites, **shape)
        streams = both_ways(sites, (4, 6))
        write(gateways["left"], text("left", 1, **shape))
        status, output = gateways["left"].attempt("rekey")
        expect_refusal(status, output, "--wait")
        files = {name: text(name, 1, **shape) for name in gateways}
        for name, gateway in gateways.items():
            rekey(gateway, files[name], "--wait", "3")
        for name, gateway in gateways.items():
            is_over(gateway, files[name])
        nothing_lost(streams)


def at_once():
    """The peer has the keys already, and this side is told so."""
    with Sites("rk") as sites:
        gateways = start(sites)
        streams = both_ways(sites, (4, 6))
        files = {name: text(name, 1) for name in gateways}
        rekey(gateways["right"], files["right"])
        rekey(gateways["left"], files["left"], "--now")
        for name, gateway in gateways.items():
            is_over(gateway, files[name])
        nothing_lost(streams)


def a_peer_that_never_follows():
    with Sites("rk") as sites:
        left = start(sites)["left"]
        streams = both_ways(sites, (4, 6))
        events = Events(left)
        old, new = text("left", 0), text("left", 1)
        told = rekey(left, new)
        expect("sending with the old keys" in told, told)
        time.sleep(4)
        (peer,) = left.status()["rekey"]["peers"]
        expect(peer["peer"] == OUTER[4][1] and "sending with the old keys" in peer["state"], f"{peer}")
        expect("standby" in left.ask("status") and spis(left) == in_file(old) | in_file(new), left.ask("status"))
        (probes,) = [sa["packets"] for sa in left.status()["associations"] if sa["spi"] == "0x00001041"]
        expect(3 <= probes <= 8, f"{probes} packets by the new keys in 4 s")
        status, output = left.attempt("rekey", write_other(left))
        expect_refusal(status, output, "in progress")
        told = left.ask("rekey", "--abort")
        expect("rolled back" in told, told)
        is_over(left, old)
        steps = [event["step"] for event in events.all() if event["event"] == "rekey"]
        expect([step.split(":")[0] for step in steps] == ["begun", "rolled back", "rolled back"], f"{steps}")
        # By force the peer is lost, until that is taken back: nothing of it is gone.
        rekey(left, new, "--wait", "0")
        return f"{nothing_lost_before(streams)} datagrams"


def nothing_lost_before(streams):
    """What was sent before the last second, when the peer was forsaken."""
    count = 0
    for stream in streams:
        stream.finish()
        count += stream.sent
        stamps = set(stream.stamps)
        missing = [number for number in range(stream.sent - 2000) if number not in stamps]
        expect(not missing, f"of {stream.sent} lost: {missing[:5]}")
    return count


def write_other(gateway):
    path = f"{gateway.folder}/other.setkey"
    with open(path, "w") as file:
        file.write(text("left", 3))
    return path


def taken_back_after_force():
    with Sites("rk") as sites:
        left = start(sites)["left"]
        expect(sites.ping() == 3, "the control failed")
        rekey(left, text("left", 1))
        expect(sites.ping() == 3, "the old keys do not carry while the peer is waited for")
        rekey(left, text("left", 1), "--now")
        expect(sites.ping(count=2) == 0, "the peer has keys that it was never given")
        left.ask("rekey", "--abort")
        expect(sites.ping(count=5) == 5, "the old keys do not carry again")
        is_over(left, text("left", 0))
        expect(sites.ping(count=5) == 5, "the old keys are gone")


def killed_in_between(after):
    """What a gateway that is started again loads is its file: the new keys. The peer's own rekey, or its next packet,
    mends it."""
    def test():
        with Sites("rk") as sites:
            gateways = start(sites, inner=(4,))
            wire = sites.listen(sites.wire, "left")
            expect(sites.ping() == 3, "the control failed")
            files = {name: text(name, 1, inner=(4,)) for name in gateways}
            rekey(gateways["left"], files["left"])
            if after == "both":
                rekey(gateways["right"], files["right"])
            gateways["left"].again(signal.SIGKILL)
            if after == "one":
                rekey(gateways["right"], files["right"])
            # The first packet by the new keys moves a peer that still waits, within a second.
            sites.ping(count=40)
            is_over(gateways["right"], files["right"])
            expect(sites.ping(count=10) == 10, gateways["left"].ask("status") + gateways["right"].ask("status"))
            for spi in (0x1001, 0x1041):
                numbers = [packet.sequence for packet in filter(None, map(Esp.find, wire.settle()))
                           if packet.spi == spi]
                expect(len(numbers) == len(set(numbers)), f"numbers of {spi:#x} come twice: {numbers}")
    return test


def refusals():
    """Anything but new keys is refused with its line, and nothing has changed."""
    with Sites("rk") as sites:
        left = start(sites, inner=(4,))["left"]
        path = f"{left.folder}/other.setkey"
        lines = text("left", 1, inner=(4,)).splitlines()
        for content, *words in (
                (lines + ["nonsense;"], f"{path}:5:1"),
                (lines + ["spdadd 10.8.0.0/24 10.9.0.0/24 any -P out discard;"], f"{path}:5:1", "reload"),
                (lines[:-1], "policy that is not in the file", "reload"),
                ([lines[0].replace("0x1041", "0x1001"), *lines[1:]], f"{path}:1:1", "SPI"),
                (lines[1:], "no new association replaces"),
                (["add 192.0.2.7 192.0.2.8 esp 0x7001 -m tunnel -r 64 " + AES_GCM.format(9) + ";", *lines],
                 "neither end")):
            with open(path, "w") as file:
                file.write("\n".join(content) + "\n")
            status, output = left.attempt("rekey", path)
            expect_refusal(status, output, *words)
            expect(spis(left) == in_file(text("left", 0)) and left.status()["rekey"] is None, output)
        status, output = left.attempt("rekey", "--abort")
        expect_refusal(status, output, "no rekey is in progress")
        expect("no new keys" in left.ask("rekey"), "its own file asks for nothing")
        expect(json.loads(left.ask("status", "--json"))["rekey"] is None, "a rekey of nothing is in progress")


CASES = {
    **{f"no packet is lost, {name}": by_turns(order) for name, order in ORDERS.items()},
    **{f"no packet is lost over IPv6, {name}": by_turns(order, outer=6) for name, order in ORDERS.items()},
    "no packet is lost, native": by_turns(None, layers=[("esp", "tunnel", AES_GCM)]),
    "no packet is lost in a bundle of ESP and AH": by_turns(
        ORDERS["left first"], inner=(4,), layers=[("esp", "tunnel", AES_GCM), ("ah", "transport", SHA256)]),
    "no packet is lost where flows are spread": by_turns(ORDERS["right first"], width=3),
    "no packet is lost where routes lead": by_routes,
    "AH alone waits as long as it is told": without_a_word_to_the_peer,
    "at once, where the peer has the keys": at_once,
    "a peer that never follows keeps the old keys": a_peer_that_never_follows,
    "what was forced is taken back": taken_back_after_force,
    "killed before the peer has begun": killed_in_between("one"),
    "killed after both have begun": killed_in_between("both"),
    "anything but new keys is refused with its line": refusals,
}
