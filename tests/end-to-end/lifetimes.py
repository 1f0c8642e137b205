"""An association's end: announced once it is near, exact, loud, and nothing passes afterwards."""

import time

from network.expect import expect
from network.gateway import GatewayError
from network.sites import AES_GCM, SERVER, Sites, setkey_text
from network.wire import Esp
from policies import Events

HARD = {
    "packets": ("-o hard-packets=10 -o soft-packets=5", 10),
    # A ping of 56 bytes is an inner packet of 84.
    "bytes": ("-bh 840 -bs 400", 10),
}
AGED = {
    "age": "-lh 4 -ls 2",
    "first use": "-o hard-use=3 -o soft-use=1",
}


def limited(limit):
    """The associations and policies of the left gateway, with a limit on what leaves."""
    line, rest = setkey_text("left", inner=(4,)).split("\n", 1)
    return line.replace("-r 1024", f"-r 1024 {limit}") + "\n" + rest


def exact(what):
    def test():
        limit, allowed = HARD[what]
        with Sites("lt") as sites:
            left = sites.start("left", limited(limit))
            sites.start("right", inner=(4,))
            events = Events(left)
            expect(sites.ping(count=allowed + 5) == allowed, f"not exactly {allowed} pings came back")
            over(left, events)
            expect(left.drops("lifetime-over") + left.drops("acquire") >= 5, f"drops: {left.ask('drops', '--json')}")
    return test


def aged(what):
    def test():
        with Sites("lt") as sites:
            left = sites.start("left", limited(AGED[what]))
            sites.start("right", inner=(4,))
            events = Events(left)
            expect(sites.ping(count=2) == 2, "no ping at first")
            deadline = time.monotonic() + 10
            while sites.ping(count=1) == 1:
                expect(time.monotonic() < deadline, "it never ends")
            over(left, events)
    return test


def numbers_end():
    """Ten numbers are left; both ends go on behind those that were used (RFC 4303 3.3.3)."""
    with Sites("lt") as sites:
        used = 2**32 - 1 - 10
        left = sites.start("left", limited(f"-o sequence={used}"))
        right = sites.start("right",
                            setkey_text("right", inner=(4,)).replace("-r 1024", f"-r 1024 -o sequence={used}", 1))
        events = Events(left)
        expect(sites.ping(count=15) == 10, "not exactly ten pings came back")
        events.wait("sa-exhausted", spi="0x00001001")
        expect("has used its last sequence number" in left.words(), f"the log says nothing: {left.words()}")
        gone(left)
        expect(left.drops("sequence-over") + left.drops("acquire") >= 5, f"drops: {left.ask('drops', '--json')}")
        expect(right.drops("replayed") + right.drops("too-old") == 0, f"drops: {right.ask('drops', '--json')}")


def extended_numbers_stay():
    """Once numbers have passed 32 bits, an update cannot take the extended ones away: they would begin again."""
    with Sites("lt") as sites:
        used = 2**32 - 1 - 4
        extended = f"-r 1024 -o esn -o sequence={used}"
        texts = {name: setkey_text(name, inner=(4,)).replace("-r 1024", extended) for name in ("left", "right")}
        left = sites.start("left", texts["left"])
        sites.start("right", texts["right"])
        wire = sites.listen(sites.wire, "left")
        expect(sites.ping(count=8) == 8, "not all of eight pings came back")
        update = setkey_text("left", inner=(4,)).split("\n", 1)[0].replace("add", "update", 1)
        try:
            left.setkey_text(update)
        except GatewayError as error:
            expect("4294967299" in str(error) and ":1:1" in str(error),
                   f"the refusal does not say why and where: {error}")
        else:
            sites.ping(count=8)
            expect(False, f"the update was taken; numbers on the wire: {outbound_numbers(wire)}")
        expect(sites.ping(count=8) == 8, "after the refusal pings are lost")
        seen = outbound_numbers(wire)
        expect(len(seen) == 16 and len(set(seen)) == 16, f"numbers on the wire: {seen}")


def outbound_numbers(wire):
    return [esp.sequence for esp in map(Esp.find, wire.settle()) if esp and esp.spi == 0x1001]


def over(left, events):
    """Told as an event, in the log and by what is missing from `status` and `setkey -D`."""
    told = [events.wait(name, spi="0x00001001") for name in ("sa-dying", "sa-expired")]
    expect(told[0]["time"] <= told[1]["time"], f"the warning came after the end: {told}")
    expect("reached its hard limit" in left.words(), f"the log says nothing: {left.words()}")
    gone(left)


def gone(left):
    expect("0x00001001" not in {sa["spi"] for sa in left.status()["associations"]}, "status still has it")
    expect("0x00001001" not in left.setkey_text("dump;"), "setkey still shows it")


def a_new_one_takes_over():
    with Sites("lt") as sites:
        left = sites.start("left", limited("-o hard-packets=8 -o soft-packets=4"))
        right = sites.start("right", inner=(4,))
        events = Events(left)
        expect(sites.ping(count=5) == 5, "no ping at first")
        events.wait("sa-dying", spi="0x00001001")
        new = f"add 192.0.2.1 192.0.2.2 esp-udp 0x5001 -m tunnel -r 1024 {AES_GCM.format(9)};"
        right.setkey_text(new)
        left.setkey_text(new)
        expect(sites.ping(count=10) == 10, f"pings to {SERVER[4]} are lost although there is a successor")


CASES = {
    **{f"the hard limit in {what} is exact, and the soft one was told before": exact(what) for what in HARD},
    **{f"an association ends by {what}, and was said to": aged(what) for what in AGED},
    "the last sequence number is used, then nothing leaves": numbers_end,
    "extended sequence numbers cannot be taken away once they are needed": extended_numbers_stay,
    "a successor takes over without loss": a_new_one_takes_over,
}
