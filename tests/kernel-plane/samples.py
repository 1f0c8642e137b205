"""ipsec-tools' own samples: both planes take the same of each, refuse the same by the same words, and carry packets by
them."""

import os
import re
from collections import Counter

from network.expect import expect
from network.gateway import Gateway, GatewayError
from network.sites import NETS, OUTER
from network.wire import ESP, Packet
from planes import (AH, PORT, SIZE, PlaneSites, canaries, carried, counted_by_the_kernel, on_planes, options_of,
                    seen_without_a_tunnel, setkey, words)
from readme_tunnel import blocks

HERE = os.path.dirname(os.path.abspath(__file__))
# In a guest, and here.
FOLDERS = ("/samples", os.path.join(HERE, "../../ipsec/tests/vectors/setkey"))
SAMPLES = ("sample-policy01.cf", "sample-policy02.cf")
REFUSED = ("sample.cf", "setkey.8-examples.setkey")
TAKEN = "taken"


def text_of(name):
    folder = next(folder for folder in FOLDERS if os.path.isdir(folder))
    with open(f"{folder}/{name}") as file:
        return file.read()


def taken(*names):
    """Without the flush at its end, which would leave no association."""
    def test():
        with PlaneSites("sp") as sites:
            for name in names:
                text = text_of(name).rstrip().removesuffix("\nflush;") + "\n"
                user, kernel = (told(sites, text, plane) for plane in ("user", "kernel"))
                expect(user == kernel, f"{name}: user plane\n{user}\nkernel's plane\n{kernel}")
                expect(all(len(dump) > 1 for dump in user), f"{name}: the control failed, something is missing: {user}")
            return f"{len(names)} texts"
    return test


def told(sites, text, plane):
    """What `setkey -D` and `-DP` print of it, without the `fwd` policies that stand beside those for `in`."""
    gateway = Gateway(sites.left, text, options_of(plane)).ready()
    try:
        return blocks(setkey(gateway, "-D")), [one for one in blocks(setkey(gateway, "-DP")) if "\tfwd" not in one]
    finally:
        gateway.ask("down")
        gateway.process.wait()


def refused(*names):
    def test():
        with PlaneSites("sp") as sites:
            for name in names:
                user, kernel = (refusal(sites, name, plane) for plane in ("user", "kernel"))
                expect(user == kernel, f"{name}: user plane\n{user}\nkernel's plane\n{kernel}")
                expect(any("not supported" in line for line in user), f"{name}: the control failed: {user}")
            return f"{len(names)} texts"
    return test


def refusal(sites, name, plane):
    """The lines that name a place of the file."""
    try:
        Gateway(sites.left, text_of(name), options_of(plane)).ready()
    except GatewayError as error:
        places = [line.partition("gateway.setkey:")[2] for line in str(error).splitlines()]
        return list(filter(None, places))
    raise AssertionError(f"{name}: the {plane} plane has taken it")


def statements(name):
    text = re.sub(r"^#.*", "", text_of(name), flags=re.MULTILINE)
    return [" ".join(each.split()) + ";" for each in text.split(";") if each.strip()]


def one_by_one(*names):
    """What each plane says to each statement that adds something, and what it has then."""
    def test():
        with PlaneSites("sp") as sites:
            every = [each for name in names for each in statements(name) if each.startswith(("add ", "spdadd "))]
            user, kernel = (answers(sites, every, plane) for plane in ("user", "kernel"))
            for each, *both in zip(every, user[0], kernel[0]):
                expect(both[0] == both[1], f"{each}\nuser plane: {both[0]}\nkernel's plane: {both[1]}")
            expect(user[1:] == kernel[1:], f"user plane\n{user[1:]}\nkernel's plane\n{kernel[1:]}")
            taken = [each for each, answer in zip(every, user[0]) if answer == TAKEN]
            expect(any(" ipcomp " in each for each in taken), f"the control failed: no IPComp in {taken}")
            expect(len(taken) < len(every), "the control failed: everything was taken")
            return f"{len(taken)} of {len(every)} statements"
    return test


def answers(sites, every, plane):
    gateway = Gateway(sites.left, "", options_of(plane)).ready()
    try:
        told = [answer(gateway, each) for each in every]
        policies = [one for one in blocks(setkey(gateway, "-DP")) if "\tfwd" not in one]
        return told, blocks(setkey(gateway, "-D")), policies
    finally:
        gateway.ask("down")
        gateway.process.wait()


def answer(gateway, statement):
    try:
        gateway.setkey_text(statement)
        return TAKEN
    except GatewayError as error:
        return str(error)


def between_the_ends(chosen, name, ends):
    """Statements with the addresses of the two sides in place of the samples'; on the right the other way round."""
    text = "\n".join(chosen)
    for old, new in ends.items():
        text = re.sub(rf"(?<![\w:]){re.escape(old)}(?![\w:])", new, text)
    turn = {"in": "out", "out": "in"}
    return text if name == "left" else re.sub(r"-P (in|out)\b", lambda found: f"-P {turn[found[1]]}", text)


def the_tunnel(name):
    """ESP in tunnel mode with AH around it, of sample.cf."""
    chosen = [each for each in statements("sample.cf")
              if re.match(r"spdadd fec0:0:0:[12]::/64", each)
              or re.match(r"add fec0:0:0:[12]::1 fec0:0:0:[12]::1 (esp 0x10001 .*3des|ah 0x10001)", each)]
    expect(len(chosen) == 6, f"sample.cf has changed: {chosen}")
    nets = {"fec0:0:0:1::/64": NETS[6][0], "fec0:0:0:2::/64": NETS[6][1]}
    return between_the_ends(chosen, name, {**nets, "fec0:0:0:1::1": OUTER[6][0], "fec0:0:0:2::1": OUTER[6][1]})


def to_a_port(name):
    """ESP in transport mode for TCP to one port, with the IPComp association of the same sample inside."""
    every = statements("sample.cf")
    chosen = [each for each in every if "fec0::10" in each]
    compressed = [each for each in every if " ipcomp " in each]
    expect(len(chosen) == 4 and len(compressed) == 1, f"sample.cf has changed: {chosen}, {compressed}")
    chosen += [compressed[0].replace("::1 ::1", ends) for ends in ("fec0::10 fec0::11", "fec0::11 fec0::10")]
    text = between_the_ends(chosen, name, {"fec0::10": OUTER[6][0], "fec0::11": OUTER[6][1]})
    return text.replace("[110]", f"[{PORT}]").replace("esp/transport", "ipcomp/transport//use esp/transport")


def the_tunnel_carries(left, right):
    def test():
        with PlaneSites("sp", left, right) as sites:
            pairs = sites.pairs((6,))
            wire = seen_without_a_tunnel(sites, pairs)
            for name in ("left", "right"):
                sites.start(name, the_tunnel(name))
            carried(sites, pairs, wire, (AH,), hidden=True)
            counted_by_the_kernel(sites, ["esp", "ah"])
    return test


def to_a_port_carries(left, right):
    """Pings are in no policy and pass in clear; the connection does not, and what it carries is short."""
    def test():
        with PlaneSites("sp", left, right) as sites:
            [pair] = sites.gateways_themselves(6)
            wire = seen_without_a_tunnel(sites, [pair])
            for name in ("left", "right"):
                sites.start(name, to_a_port(name))
            wire.clear()
            trouble = pair.transfer()
            expect(trouble is None, f"no TCP between {pair}: {trouble}\n{words(sites)}")
            frames = wire.settle()
            expect(not canaries(frames), "canaries on the wire")
            packets = [packet for packet in map(Packet.of, frames) if packet and not packet.is_neighbour_discovery()]
            expect({packet.protocol for packet in packets} == {ESP}, f"{Counter(each.protocol for each in packets)}")
            expect(sum(len(packet.frame) for packet in packets) < SIZE, "nothing was compressed")
            expect(pair.pings() == [3, 3] and canaries(wire.settle()), "the control failed: pings do not pass in clear")
            counted_by_the_kernel(sites, ["esp"])
    return test


CARRY = {"the tunnel of ipsec-tools' sample.cf": the_tunnel_carries,
         "a port of ipsec-tools' sample.cf with IPComp": to_a_port_carries}


CASES = {
    "ipsec-tools' samples, statement by statement, on both planes": one_by_one(*REFUSED, *SAMPLES),
    **on_planes(CARRY, ("kernel", "user")),
}
LONG = {
    **on_planes(CARRY, ("kernel", "kernel"), ("user", "kernel")),
    "ipsec-tools' samples are taken by both planes alike": taken(*SAMPLES),
    "ipsec-tools' samples are refused by both planes alike": refused(*REFUSED),
}
