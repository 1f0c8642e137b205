"""ipsec-tools' own samples: both planes take the same of each, and refuse the same by the same words."""

import os

from network.expect import expect
from network.gateway import Gateway, GatewayError
from planes import PlaneSites, options_of, setkey
from readme_tunnel import blocks

HERE = os.path.dirname(os.path.abspath(__file__))
# In a guest, and here.
FOLDERS = ("/samples", os.path.join(HERE, "../../ipsec/tests/vectors/setkey"))
SAMPLES = ("sample-policy01.cf", "sample-policy02.cf")
REFUSED = ("sample.cf", "setkey.8-examples.setkey")


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


CASES = {}
LONG = {
    "ipsec-tools' samples are taken by both planes alike": taken(*SAMPLES),
    "ipsec-tools' samples are refused by both planes alike": refused(*REFUSED),
}
