"""Many peers of IKE between two hosts, two more that never come up, and what `status` says of them."""

import contextlib
import os
import re
import signal
import time

from ike import UP_SECONDS, Keyed, ike_processes
from network.expect import expect
from network.sites import OUTER, Sites
from network.timeout import slowed

PEERS = 150
# Two that never come up: the keys of one differ, and neither side begins the other.
REFUSED, SILENT = "p150", "p151"
SUMMARY_END = "This is a summary: `esplanade status NAME…` shows single peers, `esplanade status --all` lists everything.\n"
# Less than the second for which an answer of the key exchange process is waited for.
ANSWER_SECONDS = slowed(0.9)
SILENCE_SECONDS = slowed(25)


def peer(side, number, psk="fe3MFfmoZ3p0pSVRb2m0ZZ0sBN1CFHkWj1sQPNGzhLw", more=""):
    """One peer of a file: each has an identity and a network of its own on the left."""
    ends, ids, nets = list(OUTER[4]), [f"p{number}.example.org", "right.example.org"], [f"10.64.{number}.0/24",
                                                                                       "10.2.0.0/24"]
    if side == "right":
        ends, ids, nets = ends[::-1], ids[::-1], nets[::-1]
    return f"""[peer.p{number}]
local = "{ends[0]}"
remote = "{ends[1]}"
local_id = "{ids[0]}"
remote_id = "{ids[1]}"
psk = "{psk}"
mode = "policy"
networks = {{ local = ["{nets[0]}"], remote = ["{nets[1]}"] }}
{more}
"""


def file_of(side, count):
    text = "".join(peer(side, number, more="" if side == "left" else 'start = "wait"') for number in range(count))
    other = "another key than the peer has, of 32 bytes" if side == "left" else "the key that the other side has not got"
    text += peer(side, 150, psk=other, more="" if side == "left" else 'start = "wait"')
    return text + peer(side, 151, more='start = "wait"')


@contextlib.contextmanager
def many(count):
    """Both gateways, once all peers are up that can be."""
    with Sites("im") as sites:
        gateways = []
        for name in ("right", "left"):
            gateway = Keyed(getattr(sites, name), file_of(name, count))
            sites.gateways[name] = gateway
            gateways.append(gateway.ready())
        right, left = gateways
        for gateway in gateways:
            wait_for(lambda g=gateway: sum(p["state"] == "up" and bool(p["children"]) for p in g.status()["peers"])
                     == count, f"{count} peers are not up", gateway)
        yield left, right


def wait_for(holds, what, gateway):
    deadline = time.monotonic() + 4 * UP_SECONDS
    while not holds():
        expect(time.monotonic() < deadline, f"{what}:\n{gateway.ask('status')}\n{gateway.words()}")
        time.sleep(0.1)


def line_of(text, begin):
    """The line that begins so."""
    lines = [line for line in text.splitlines() if line.startswith(begin)]
    expect(len(lines) == 1, f"{len(lines)} lines begin with {begin!r}:\n{text}")
    return lines[0]


def the_summary_agrees_with_the_complete_status():
    with many(PEERS) as (left, right):
        for gateway in (left, right):
            def agrees(gateway=gateway):
                told, whole = gateway.ask("status"), gateway.status()
                return agrees_with(told, whole)
            wait_for(agrees, "the summary says something else than --json", gateway)
            told = gateway.ask("status")
            expect(told.endswith(SUMMARY_END), told)
            expect(f"  {SILENT} · DOWN · nothing has asked for it" in told, told)
            expect(len(told.encode()) < 8000, f"{len(told.encode())} bytes")
            expect("10.64.7.0" not in told and "  p7 " not in told, f"a peer that is up is listed:\n{told}")
        expect(re.search(rf"^  {REFUSED} · (DOWN|CONNECTING) · .*AUTHENTICATION_FAILED", left.ask("status"),
                         re.MULTILINE), left.ask("status"))
        table = left.ask("status", "--all")
        expect("summary" not in table, table[-300:])
        for number in range(PEERS):
            expect(f"peer p{number} · UP" in table, f"p{number} is not in the table")
        left.ask("down", "p7")
        wait_for(lambda: "  p7 · DOWN · taken down by command" in left.ask("status"), "p7 is not listed as down", left)
        wait_for(lambda: "  p7 · DOWN" in right.ask("status"), "p7 is not listed as down by its peer", right)
        left.ask("up", "p7")
        wait_for(lambda: "  p7 " not in left.ask("status"), "p7 is still listed", left)


def agrees_with(told, whole):
    """Whether the numbers of a summary are those of the complete data."""
    states = [peer["state"] for peer in whole["peers"]]
    counts = {state: states.count(state) for state in sorted(set(states))}
    found = {state: int(count) for count, state in re.findall(r"· (\d+) (\w+)", line_of(told, "peers: "))}
    numbers = [len(whole["peers"]), len(whole["associations"]), len(whole["policies"])]
    begins = [f"{what}: {number} ·" for what, number in zip(("peers", "associations", "policies"), numbers)]
    return counts == found and all(begin in told for begin in begins)


def single_peers_are_shown_with_their_associations():
    with many(PEERS) as (left, _):
        told = left.ask("status", "p3", SILENT)
        whole = left.status()
        child = next(p for p in whole["peers"] if p["name"] == "p3")["children"][0]
        expect(re.findall(r"^peer (\S+) · (\w+)", told, re.MULTILINE) == [("p3", "UP"), (SILENT, "DOWN")], told)
        expect(child["inbound_spi"] in told and child["outbound_spi"] in told and "10.64.3.0/24" in told, told)
        expect("\nassociations: 2\n" in told, told)
        lines = [line for line in told.splitlines() if line.endswith(" B") and "packets" in line and "up " not in line]
        expect(len(lines) == 2, f"not two associations:\n{told}")
        expect("policies" not in told and "p30" not in told, told)
        status, refused = left.attempt("status", "p3", "p999")
        expect(status != 0 and "there is no peer p999" in refused and len(refused) < 1000, refused)
        status, refused = left.attempt("status", "p3", "--json")
        expect(status != 0 and "cannot be used with" in refused, refused)


def few_entries_are_listed_as_ever():
    with many(3) as (left, _):
        told = left.ask("status")
        expect("summary" not in told and all(f"peer p{number} · UP" in told for number in range(3)), told)
        expect(f"peer {SILENT} · DOWN" in told and "networks closed" in told, told)
        expect(re.sub(r"\d+", "N", told) == re.sub(r"\d+", "N", left.ask("status", "--all")), "--all differs")


def a_summary_while_key_exchange_does_not_answer():
    with many(PEERS) as (left, _):
        wait_for(lambda: "IKE: the key exchange process answered" in left.ask("status"), "its age is not told", left)
        process = ike_processes(left)[0]
        os.kill(process, signal.SIGSTOP)
        try:
            slowest, deadline, told = 0, time.monotonic() + SILENCE_SECONDS, ""
            while "has not answered for" not in told and time.monotonic() < deadline:
                began = time.monotonic()
                told = left.ask("status")
                slowest = max(slowest, time.monotonic() - began)
                time.sleep(0.2)
            expect("IKE: the key exchange process has not answered for" in told, told)
            expect(f"· {PEERS} up" in line_of(told, "peers: "), told)
            expect(slowest < ANSWER_SECONDS, f"a summary took {slowest:.2f} s")
        finally:
            os.kill(process, signal.SIGCONT)
        wait_for(lambda: "IKE: the key exchange process answered" in left.ask("status"), "it is still silent", left)
        os.kill(process, signal.SIGKILL)
        wait_for(lambda: re.search(r"^peers: .*· \d+ orphaned", left.ask("status"), re.MULTILINE)
                 or left.status()["ike"]["starts"] > 1, "its death is not noticed", left)
        wait_for(lambda: f"· {PEERS} up" in line_of(left.ask("status"), "peers: "), "they do not come up again", left)
        return f"a summary took at most {slowest:.2f} s while key exchange did not answer"


CASES = {
    "status of 150 peers is a summary that agrees with --json and --all, and lists what is not up":
        the_summary_agrees_with_the_complete_status,
    "status NAME shows these peers with their associations, and a wrong name is named":
        single_peers_are_shown_with_their_associations,
    "status of few peers is the table": few_entries_are_listed_as_ever,
    "a summary is given while key exchange does not answer, and says so":
        a_summary_while_key_exchange_does_not_answer,
}
