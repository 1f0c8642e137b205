"""`--plane auto`: the kernel where it can carry everything, the user plane where not, and why."""

import tempfile
import time

from network.expect import expect
from network.sites import setkey_text
from planes import STAND_IN, PlaneSites, options_of, says_its_plane, words
from refusals import run_gateway
from route_based import pair

ESP_MODULES = "esp4_offload esp6_offload esp4 esp6"
LOADS_AES_GCM = """ip xfrm state add src 203.0.113.1 dst 203.0.113.2 proto esp spi 0x77 mode tunnel \
        aead 'rfc4106(gcm(aes))' 0x7777777777777777777777777777777777777777 128
    ip xfrm state flush"""


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


def without(modules, text, *reasons, also_refused=()):
    """The kernel does not have these modules any more, and nobody who would load one."""
    def test():
        with PlaneSites("ch", "auto", "user") as sites:
            loader = sites.left.sh("cat /proc/sys/kernel/modprobe").strip()
            sites.left.sh(f"{LOADS_AES_GCM}; echo /nonexistent > /proc/sys/kernel/modprobe")
            try:
                unload(sites.left, modules)
                for word in also_refused:
                    is_refused(sites.left, text("left"), word)
                return started(sites, "user", text("left"), text("right"), *reasons)
            finally:
                sites.left.sh(f"echo {loader} > /proc/sys/kernel/modprobe; modprobe -a {modules}")
    return test


def is_refused(host, text, word):
    with tempfile.TemporaryDirectory() as folder:
        status, output = run_gateway(host, text, f"{folder}/control.sock", *options_of("kernel"))
        expect(STAND_IN or (status not in (0, 101, 134, 139) and word in output),
               f"exit status {status}, and the error does not say {word}: {output}")


def unload(host, modules):
    """Namespaces of earlier cases let their associations and devices go a moment after they have gone."""
    deadline = time.monotonic() + 20
    pattern = modules.replace(" ", "|")
    while True:
        host.attempt(f"for each in {modules}; do rmmod $each; done")
        _, left = host.attempt(f"grep -E '^({pattern}) ' /proc/modules")
        if not left.strip():
            return
        expect(time.monotonic() < deadline, f"these modules cannot be taken out: {left}")
        time.sleep(0.5)


def with_device(name):
    """Policies carry the pings; no route leads into the device."""
    return setkey_text(name, inner=(4,)) + pair(first=0x3001)


CASES = {
    "auto chooses the kernel and says why": chosen("kernel", lambda name: setkey_text(name, inner=(4,))),
    "auto chooses the user plane for what the kernel cannot carry": chosen("user", with_aggfrag, "aggfrag"),
    "auto chooses the user plane where the kernel has no ESP": without(ESP_MODULES, setkey_text, "esp"),
    "auto chooses the user plane where the kernel has no XFRM interfaces":
        without("xfrm_interface", with_device, "xfrm_interface", also_refused=["xfrm_interface"]),
}
LONG = {}
