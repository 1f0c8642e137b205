"""What other programs read of a tunnel of the kernel plane: `ip xfrm` lists what the file says, and nothing else."""

import re

from network.expect import expect
from network.sites import NETS, OUTER, setkey_text
from network.wire import ESP, UDP
from planes import STAND_IN, PlaneSites, carried, seen_without_a_tunnel
from restart import CBC as CBC_SHA1

GCM = ("aead rfc4106(gcm(aes)) 0x{:02x}" + "5a" * 19 + " 128",)
CBC = ("auth-trunc hmac(sha1) 0x{:02x}" + "a5" * 19 + " 96", "enc cbc(aes) 0x{:02x}" + "5a" * 15)
# The gateway's own sockets have policies too.
OF_NO_SOCKET = "policy list nosock"
# Of a policy, what the file does not say.
NUMBERS = re.compile(r" (priority|ptype|reqid|spi) \S+")
IN_UDP = ({}, GCM)
OVER_IPV6 = ({"outer": 6, "udp": False, "suite": CBC_SHA1}, CBC)


def lists(options, algorithms):
    def test():
        with PlaneSites("li") as sites:
            outer, udp = options.get("outer", 4), options.get("udp", True)
            pairs = sites.pairs()
            wire = seen_without_a_tunnel(sites, pairs)
            for name in ("left", "right"):
                sites.start(name, setkey_text(name, **options))
            carried(sites, pairs, wire, (UDP,) if udp else (ESP,))
            if STAND_IN:
                return
            for name in ("left", "right"):
                associations(getattr(sites, name), OUTER[outer], udp, algorithms)
                policies(getattr(sites, name), OUTER[outer], name)
            sites.gateways["left"].setkey_text("flush; spdflush;")
            left = sites.left.sh(f"ip xfrm state; ip xfrm {OF_NO_SOCKET}").strip()
            expect(not left, f"`ip xfrm` lists what was deleted: {left}")
    return test


def entries(host, what):
    """What is listed, one text for each entry, by its first line."""
    found = re.split(r"^(?=src )", host.sh(f"ip xfrm {what}"), flags=re.MULTILINE)[1:]
    return [" ".join(entry.split()) for entry in found]


def associations(host, ends, udp, algorithms):
    listed = entries(host, "state")
    expect(len(listed) == 2, f"{len(listed)} associations: {listed}")
    for way, (source, target) in enumerate((ends, ends[::-1])):
        entry = next((entry for entry in listed if f"spi 0x{0x1001 + way:08x} " in entry), "")
        due = [f"src {source} dst {target} ", "proto esp ", "mode tunnel "]
        due += [words.format(way + 1) for words in algorithms]
        due += ["encap type espinudp sport 4500 dport 4500"] if udp else []
        for words in due:
            expect(words in entry, f"`ip xfrm state` does not list {words!r} of SPI {0x1001 + way:#x}: {listed}")
        expect(udp or "encap" not in entry, f"an encapsulation that the file does not have: {entry}")


def policies(host, ends, name):
    """For each policy of the file one entry, and one for `fwd` beside each for `in`."""
    due = set()
    for nets in NETS.values():
        for forth in (True, False):
            (source, target), (near, far) = (each if forth else each[::-1] for each in (nets, ends))
            ways = ["out"] if forth == (name == "left") else ["in", "fwd"]
            due |= {f"src {source} dst {target} dir {way} tmpl src {near} dst {far} proto esp mode tunnel"
                    for way in ways}
    listed = {NUMBERS.sub("", entry) for entry in entries(host, OF_NO_SOCKET)}
    expect(listed == due, f"`ip xfrm policy` lists {listed}, where the file has {due}")


CASES = {"`ip xfrm` lists what was configured, AES-GCM in UDP": lists(*IN_UDP)}
LONG = {"`ip xfrm` lists what was configured, AES-CBC with SHA-1 over IPv6": lists(*OVER_IPV6)}
