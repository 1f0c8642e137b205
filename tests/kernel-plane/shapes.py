"""Every shape of protection: both ends on the kernel's plane, and one of them on the user plane, which judges it."""

from compression import DEFLATE
from layers import CBC, SHA1, SHA256
from layers import text as layered
from network.sites import AES_GCM, NETS, OUTER, setkey_text
from network.wire import ESP, UDP
from planes import AH, PlaneSites, carried, counted_by_the_kernel, seen_without_a_tunnel
from restart import CBC as CBC_SHA1

EXTENDED = "-r 4096 -o esn"


def esp(outer=4, inner=(4, 6), udp=False, suite=AES_GCM, window="-r 1024"):
    """The text of a side, and how it shows: families inside, protocols on the wire and in the kernel."""
    def text(name):
        return setkey_text(name, outer, inner, udp, suite).replace("-r 1024", window)
    return text, outer, inner, ((UDP,) if udp else (ESP,)), ["esp"], True


def layers(outer, *chosen, transport=False):
    selectors = [OUTER[outer]] if transport else list(NETS.values())
    kinds = [protocol for protocol, *_ in chosen if protocol != "ipcomp"]
    on_wire = (AH,) if chosen[-1][0] == "ah" else (ESP,)
    return (lambda name: layered(name, outer, chosen, selectors), outer, () if transport else (4, 6), on_wire, kinds,
            "esp" in kinds)


SHAPES = {
    "both families in IPv6, ESN with a window of 4096": esp(outer=6, window=EXTENDED),
    "an ESP tunnel with AH around it": layers(4, ("esp", "tunnel", CBC), ("ah", "transport", SHA256)),
    "an IPComp tunnel in ESP": layers(4, ("ipcomp", "tunnel", DEFLATE), ("esp", "transport", CBC)),
}
LONG_SHAPES = {
    "native ESP, AES-GCM, both families in IPv4": esp(),
    "ESP in UDP": esp(udp=True),
    "AES-CBC with SHA-1": esp(suite=CBC_SHA1),
    "an AH tunnel": layers(4, ("ah", "tunnel", SHA256)),
    "ESP in transport mode": layers(4, ("esp", "transport", CBC), transport=True),
    "ESP in UDP over IPv6": esp(outer=6, udp=True),
    "an AH tunnel over IPv6": layers(6, ("ah", "tunnel", SHA256)),
    "AH in transport mode": layers(4, ("ah", "transport", SHA1), transport=True),
    "ESP in transport mode over IPv6": layers(6, ("esp", "transport", CBC), transport=True),
    "ESP then AH in transport mode": layers(4, ("esp", "transport", CBC), ("ah", "transport", SHA256), transport=True),
    "an IPComp tunnel in ESP over IPv6": layers(6, ("ipcomp", "tunnel", DEFLATE), ("esp", "transport", CBC)),
    "IPComp and ESP in transport mode": layers(4, ("ipcomp", "transport", DEFLATE), ("esp", "transport", CBC),
                                               transport=True),
}


def shape(left, right, text, outer, inner, on_wire, kinds, hidden):
    def test():
        with PlaneSites("sh", left, right) as sites:
            pairs = sites.pairs(inner) if inner else sites.gateways_themselves(outer)
            wire = seen_without_a_tunnel(sites, pairs)
            for name in ("left", "right"):
                sites.start(name, text(name))
            carried(sites, pairs, wire, on_wire, hidden)
            counted_by_the_kernel(sites, kinds)
    return test


def cases(shapes, pairs):
    return {f"{name}, {left} and {right}": shape(left, right, *what)
            for name, what in shapes.items() for left, right in pairs}


CASES = cases(SHAPES, [("kernel", "user")])
LONG = {**cases(SHAPES, [("kernel", "kernel"), ("user", "kernel")]),
        **cases(LONG_SHAPES, [("kernel", "kernel"), ("kernel", "user"), ("user", "kernel")])}
