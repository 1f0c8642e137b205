"""`--plane auto`: the kernel where it can carry everything, the user plane where not, and why."""

import time

from network.expect import expect
from network.sites import setkey_text
from planes import STAND_IN, PlaneSites, says_its_plane, words

ESP_MODULES = "esp4_offload esp6_offload esp4 esp6"


def chosen(plane, text, *reasons):
    """Starts the left gateway, and looks at what it chose and what it says about it."""
    def test():
        with PlaneSites("ch", "auto", "user") as sites:
            return started(sites, plane, text("left"), text("right"), *reasons)
    return test


def started(sites, plane, left_text, right_text, *reasons):
    left = sites.start("left", left_text)
    sites.start("right", right_text)
    expect(sites.ping() == 3, f"no ping through the tunnel: {words(sites)}")
    if STAND_IN:
        return None
    says_its_plane(left, plane)
    for where, text in (("its output", left.words()), ("`status`", left.ask("status"))):
        for word in ("kernel", *reasons):
            expect(word.lower() in text.lower(), f"{where} does not say {word}:\n{text}")
    return left.status()["plane_reason"]


def with_aggfrag(name):
    return setkey_text(name, inner=(4,)).replace("-r 1024", "-r 1024 -o aggfrag")


def without_modules():
    """The kernel has no ESP any more: no module, and nobody who would load one."""
    with PlaneSites("ch", "auto", "user") as sites:
        loader = sites.left.sh("cat /proc/sys/kernel/modprobe").strip()
        sites.left.sh("echo /nonexistent > /proc/sys/kernel/modprobe")
        try:
            unload(sites.left)
            return started(sites, "user", setkey_text("left"), setkey_text("right"), "esp")
        finally:
            sites.left.sh(f"echo {loader} > /proc/sys/kernel/modprobe; modprobe -a esp4 esp6")


def unload(host):
    """Namespaces of earlier cases let their associations go a moment after they have gone."""
    deadline = time.monotonic() + 20
    while True:
        host.attempt(f"for each in {ESP_MODULES}; do rmmod $each; done")
        _, left = host.attempt("grep -E '^esp[46] ' /proc/modules")
        if not left.strip():
            return
        expect(time.monotonic() < deadline, f"these modules cannot be taken out: {left}")
        time.sleep(0.5)


CASES = {
    "auto chooses the kernel and says why": chosen("kernel", lambda name: setkey_text(name, inner=(4,))),
    "auto chooses the user plane for what the kernel cannot carry": chosen("user", with_aggfrag, "aggfrag"),
    "auto chooses the user plane where the kernel has no ESP": without_modules,
}
LONG = {}
