"""README's tunnels, keyed by IKE and by hand, on every pair of planes."""

import os
import re

from ike import start_files_of_the_readme
from network.expect import expect
from network.wire import ESP, UDP
from planes import (PlaneSites, carried, counted_by_the_kernel, on_planes, options_of, says_its_plane,
                    seen_without_a_tunnel, setkey, words)

README = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../README.md")
# Of `setkey -D`, what time and traffic change.
CHANGING = re.compile(r"\t(created|diff|last|current|allocated|sadb_seq|lifetime|spid|refcnt)\b.*")


def files():
    """The two files, with keys in the places that README leaves for them."""
    with open(README) as file:
        lines = [line.strip() for line in file if re.match(r" {4}(add|spdadd) ", line)]
    expect(len(lines) == 4, f"README's tunnel has changed: {lines}")
    left = "\n".join(lines).replace("KEY1", "11" * 20).replace("KEY2", "22" * 20) + "\n"
    right = re.sub(r"-P (in|out)\b", lambda found: "-P out" if found[1] == "in" else "-P in", left)
    return {"left": left, "right": right}


def tunnel(left, right):
    def test():
        with PlaneSites("rt", left, right) as sites:
            pairs = sites.pairs((4,))
            wire = seen_without_a_tunnel(sites, pairs)
            for name, text in files().items():
                sites.start(name, text)
            carried(sites, pairs, wire, (UDP,))
            counted_by_the_kernel(sites, ["esp"])
            for name, plane in sites.planes.items():
                says_its_plane(sites.gateways[name], plane)
            the_same_lines(*sites.gateways.values())
            for gateway in sites.gateways.values():
                counters_rise(gateway, pairs[0])
            explained(sites)
    return test


def the_same_lines(left, right):
    """Both ends have the same associations, and the policies of one are those of the other, the other way round."""
    near, far = (blocks(setkey(each, "-D")) for each in (left, right))
    expect(len(near) == 2 and near == far, f"setkey -D, left:\n{near}\nright:\n{far}")
    # `fwd` policies stand beside those for `in`, and have no counterpart.
    near, far = ([each for each in blocks(setkey(one, "-DP")) if "\tfwd" not in each]
                 for one in (left, right))
    turned = sorted(one.replace("\tout ", "\tin ") if "\tout " in one else one.replace("\tin ", "\tout ")
                    for one in far)
    expect(len(near) == 2 and near == turned, f"setkey -DP, left:\n{near}\nright, turned:\n{turned}")


def blocks(dump):
    """Each association or policy of a dump, without what changes."""
    lines = [CHANGING.sub("", line) for line in dump.splitlines()]
    lines = [re.sub(r"\bseq=0x\w+", "seq=", line) for line in lines if line]
    whole = re.split(r"\n(?!\t)", "\n".join(lines))
    return sorted(each for each in whole if each)


def counters_rise(gateway, pair):
    before = current_bytes(gateway)
    expect(pair.pings() == [3, 3], "pings are lost")
    after = current_bytes(gateway)
    expect(len(after) == 2 and all(one < other for one, other in zip(before, after)),
           f"bytes by setkey -D before {before}, after {after}")
    told = [sa["packets"] for sa in gateway.status()["associations"]]
    expect(len(told) == 2 and all(told), f"packets by status: {told}")


def current_bytes(gateway):
    return [int(count) for count in re.findall(r"current: (\d+)\(bytes\)", setkey(gateway, "-D"))]


def explained(sites):
    told = sites.gateways["left"].ask("explain", "10.1.0.2", "10.2.0.2", "tcp", "443")
    expect("sent protected" in told and "0x00001001" in told, f"explain: {told}\n{words(sites)}")


def by_ike(left, right):
    """The two files as they are: where the kernel seals and opens, a peer that says nothing of a device has none."""
    def test():
        with PlaneSites("rt", left, right) as sites:
            pairs = sites.pairs((4,))
            wire = seen_without_a_tunnel(sites, pairs)
            start_files_of_the_readme(sites, lambda name: options_of(sites.planes[name]))
            for name, plane in sites.planes.items():
                says_its_plane(sites.gateways[name], plane)
            carried(sites, pairs, wire, (ESP, UDP))
            counted_by_the_kernel(sites, ["esp"])
    return test


TUNNELS = {"README's tunnel": tunnel, "README's tunnel by IKE": by_ike}
CASES = on_planes(TUNNELS, ("kernel", "kernel"), ("kernel", "user"))
LONG = on_planes(TUNNELS, ("user", "kernel"))
