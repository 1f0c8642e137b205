"""A start that the kernel's plane cannot carry out is refused before anything changes, by name."""

import os
import tempfile

from layers import GMAC
from layers import text as layered
from network.expect import expect
from network.sites import AES_GCM, NETS, setkey_text
from planes import STAND_IN, PlaneSites, options_of
from refusals import STATE, run_gateway
from restart import IIV

EVERYTHING = f"ip xfrm state; ip xfrm policy; {STATE}; tc qdisc"


def with_option(option):
    return setkey_text("left", inner=(4,)).replace("-r 1024", f"-r 1024 {option}")


def spread():
    """Two associations for a policy that spreads its flows over them."""
    return (setkey_text("left", inner=(4,)).replace("-m tunnel", "-u 7 -m tunnel").replace("/require", "/unique:7")
            .replace("any -P out", "any -o spread=2 -P out"))


REFUSED = {
    "AES-GMAC in AH": (lambda: layered("left", 4, [("ah", "tunnel", GMAC)], [NETS[4]]), (), "gmac"),
    "a suite with implicit IVs": (lambda: setkey_text("left", suite=IIV).replace("-r 1024", "-r 1024 -o key=fresh"), (),
                                  "aes-gcm-16-iiv"),
    "-o aggfrag at a rate": (lambda: with_option("-o aggfrag -o aggfrag-rate=100"), (), "aggfrag"),
    "-o dummy": (lambda: with_option("-o dummy=5"), (), "dummy"),
    "a window above 4096": (lambda: setkey_text("left").replace("-r 1024", "-r 8192"), (), "4096"),
    "-o spread": (spread, (), "spread"),
    "--forward": (lambda: setkey_text("left"), ("--forward", "lan"), "forward"),
}
LONG_REFUSED = {
    "a DF bit that is set": (lambda: with_option("-o df=set"), (), "df"),
    "a DSCP of its own": (lambda: with_option("-o dscp=46"), (), "dscp"),
    "one association of two": (lambda: setkey_text("left").replace("-r 1024", "-r 8192", 1), (), "4096"),
    "use on the way out": (lambda: setkey_text("left").replace("/require", "/use"), (), "use"),
}


def refused(table):
    """Each in turn on one host, whose state is compared after each."""
    def test():
        with PlaneSites("re") as sites, tempfile.TemporaryDirectory() as folder:
            before = sites.left.sh(EVERYTHING)
            for name, (text, options, word) in table.items():
                status, output = run_gateway(sites.left, text(), f"{folder}/control.sock", *options_of("kernel"),
                                             *options)
                expect(status not in (0, 101, 134, 139) and word in output.lower(),
                       f"{name}: exit status {status}, and the error does not say {word}: {output}")
                expect("kernel" in output, f"{name}: the error does not name the plane: {output}")
                after = sites.left.sh(EVERYTHING)
                expect(after == before, f"{name}: something stayed behind:\n{after}")
                expect(not os.path.exists(f"{folder}/control.sock"), f"{name}: the control socket stayed behind")
            return f"{len(table)} starts"
    return test


def refused_later():
    """A change of the running gateway that the plane cannot carry out: refused by name, nothing changes."""
    with PlaneSites("re") as sites:
        left, _ = sites.start_both(inner=(4,))
        before = sites.left.sh("ip xfrm state | grep -E '^src|proto'; ip xfrm policy; nft list ruleset | grep -v counter")
        try:
            left.setkey_text("add 192.0.2.1 192.0.2.9 esp 0x5001 -m tunnel -r 64 " + AES_GCM.format(9) + ";\n"
                             "add 192.0.2.1 192.0.2.9 esp 0x5002 -m tunnel -r 8192 " + AES_GCM.format(8) + ";")
            expect(STAND_IN, "a window of 8192 was taken")
        except Exception as error:
            expect("4096" in str(error) and ":2:" in str(error), str(error))
        after = sites.left.sh("ip xfrm state | grep -E '^src|proto'; ip xfrm policy; nft list ruleset | grep -v counter")
        expect(before == after, f"before:\n{before}\nafter:\n{after}")
        expect(sites.ping() == 3, "the tunnel does not go on")


CASES = {
    "what the kernel cannot carry is refused before anything changes": refused(REFUSED),
    "a change that the plane cannot carry out is refused as a whole": refused_later,
}
LONG = {"more that the kernel cannot carry is refused before anything changes": refused(LONG_REFUSED)}
