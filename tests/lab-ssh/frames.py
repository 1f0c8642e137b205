"""What holds of stamped frames over SSH: a sentence, and the function that proves it."""

import contextlib
import os
import signal
import subprocess

from machines import HOSTS_ONLY, LIMIT, SPEC, until
from network.expect import expect
from network.gateway import program
from sentences import LONG, OURS, PLAIN, SHORT

SEARCH = '[load]\nkind = "frames"\nsearch = "pdr"\nframe_bytes = 512\nlatency_at_percent = "50"\n'
STEADY = '[load]\nkind = "steady"\nframe_bytes = 512\nrate_pps = 2000\n'
# Each frame is a packet of its own on the wire, as a rule of nftables counts packets.
SINGLE = SPEC.replace("[testbed]\n", "[testbed]\noffloads = false\n")
# User data of a frame of 512 bytes: less Ethernet, its check sequence, and the headers of IPv4 and UDP.
PAYLOAD = 512 - 18 - 20 - 8
BETA = "right (ssh://root@beta:2202): "
# Nothing of alpha's can be meant where beta's monotonic clock is more than a day ahead.
ANOTHER_CLOCK = ["unshare", "-T", "--monotonic", "100000"]
NO_PACKET_SOCKETS = ["setpriv", "--bounding-set", "-net_raw"]
# The lab's own limit: a sender further behind than this did not send at the rate.
MAX_BEHIND_RATIO = 0.02
RUNS_FOR_A_SENDER_IN_TIME = 5


class NotHere(Exception):
    """This machine lacks what a test needs: an id of tests/not-here.toml."""


def figures(run):
    return {record["contender"]: record["figures"] for record in run.records()}


def round_trips_alone(run):
    """Checks the delays of a run between two clocks. Returns whether each sender kept the rate at 50 percent: where a
    busy machine let it fall behind, the lab gives no delays of that rate."""
    expect(sorted(figures(run)) == ["esplanade-aes-128-gcm-transport", "plain"], run.outcomes())
    kept = True
    for name, found in figures(run).items():
        expect(found["rate_pps"] > 0, (name, found))
        expect(not [figure for figure in found if figure.startswith("latency")], (name, found))
        expected = ["rtt", "rtt_at_50"]
        if found["behind_at_50_ratio"] > MAX_BEHIND_RATIO:
            expect(not [figure for figure in found if figure.startswith("rtt_at_50")], (name, found))
            expected.remove("rtt_at_50")
            kept = False
        for what in expected:
            # A day between the clocks would show as 10^11 µs; the limit is a second.
            expect(0 < found[f"{what}.p50_us"] <= found[f"{what}.max_us"] < 1e6, (name, found))
            expect(found[f"{what}.answers_count"] > 10, (name, found))
    for name in ["report.html", "table.txt"]:
        with open(f"{run.out}/{name}") as file:
            expect("one-way delays of frames are not measured here" in file.read(), name)
    return kept


def two_clocks(machines):
    if subprocess.run([*ANOTHER_CLOCK, "true"], capture_output=True).returncode != 0:
        raise NotHere("time-namespaces")
    with sshd_under(machines, "beta", ANOTHER_CLOCK):
        [number] = machines.having("beta", "sshd -D")
        expect(os.readlink(f"/proc/{number}/ns/time") != os.readlink("/proc/self/ns/time"), "beta has our clock")
        before = machines.pictures()
        for _ in range(RUNS_FOR_A_SENDER_IN_TIME):
            kept = round_trips_alone(machines.lab(SPEC + SEARCH + PLAIN + OURS, *SHORT).ends(0))
            machines.unchanged(before)
            if kept:
                return
        raise AssertionError(f"a sender fell behind in each of {RUNS_FOR_A_SENDER_IN_TIME} runs")


def backwards(machines):
    before = machines.pictures()
    run = machines.lab(SPEC + STEADY + 'direction = "reverse"\n' + PLAIN, *SHORT).ends(0)
    found = figures(run)["plain"]
    expect(found["rtt.answers_count"] > 100 and found["reordered_count"] == 0, found)
    machines.unchanged(before)


def one_in_sixteen(machines, verdict):
    """The figures of frames of which beta drops or doubles every sixteenth, and how many were sent."""
    beta = machines.hosts["beta"]
    beta.sh("nft add table ip sixteenth; nft add chain ip sixteenth way '{ type filter hook input priority 0; }'; "
            f"nft add rule ip sixteenth way iifname eth7 udp dport 5303 numgen inc mod 16 == 0 {verdict}")
    try:
        before = machines.pictures()
        run = machines.lab(SINGLE + STEADY + PLAIN, "--rounds", "1", "--duration", "4").ends(0)
        machines.unchanged(before)
    finally:
        beta.sh("nft delete table ip sixteenth")
    [found] = figures(run).values()
    [record] = run.records()
    arrived = record["outcome"]["carried"]["bytes"] / PAYLOAD
    return found, arrived + found["lost_count"]


def loses_one_in_sixteen(machines):
    found, sent = one_in_sixteen(machines, "drop")
    expect(sent > 4000, (found, sent))
    expect(abs(found["lost_count"] - sent / 16) < 1, (found, sent))
    expect(abs(found["loss_ratio"] - found["lost_count"] / sent) < 1e-9, (found, sent))
    expect((found["duplicates_count"], found["reordered_count"]) == (0, 0), found)


def doubles_one_in_sixteen(machines):
    found, sent = one_in_sixteen(machines, 'dup to 192.0.2.77 device "lo"')
    expect(sent > 4000, (found, sent))
    expect(abs(found["duplicates_count"] - sent / 16) < 1, (found, sent))
    expect((found["lost_count"], found["reordered_count"]) == (0, 0), found)


def occupied(machines):
    for name, port, place in [("beta", 5303, BETA), ("alpha", 5304, "left (ssh://alpha): ")]:
        code = f"import socket, time; s = socket.socket(2, 2); s.bind(('', {port})); time.sleep(9999)"
        other = machines.hosts[name].start(["python3", "-c", code])
        try:
            until(lambda: f":{port} " in machines.hosts[name].sh("ss -Huln"), f"no process has port {port}")
            before = machines.pictures()
            run = machines.lab(SPEC + STEADY + PLAIN, *SHORT).ends(3)
            [(_, status, stage, why)] = run.outcomes()
            expect((status, stage) == ("failed", "warm_up"), run.outcomes())
            expect(why.startswith(place) and f"UDP port {port} is used by another program" in why, why)
            expect(f"ss -ulnp sport = :{port}" in why, why)
            machines.unchanged(before)
        finally:
            other.kill()
            other.wait()


def flowing(machines, run, ago=0):
    """Waits until frames flow in a trial after so many that are on record."""
    def flows():
        if run.process.poll() is not None:
            raise AssertionError(f"the run ended before its frames: {run.words()} {run.outcomes()}")
        both = machines.having("alpha", "--milliseconds 600000") and machines.having("beta", "tool receive")
        return len(run.records()) >= ago and both
    until(flows, lambda: f"no frames flow: {run.words()}")


def killed_lab(machines):
    before = machines.pictures()
    run = machines.lab(SPEC + STEADY + OURS, *LONG)
    flowing(machines, run)
    run.process.kill()
    run.ends(-signal.SIGKILL)
    machines.unchanged(before)


def lost_in_mid_trial(machines):
    before = machines.pictures()
    run = machines.lab(SPEC + STEADY + PLAIN, "--rounds", "2", *LONG)
    flowing(machines, run)
    machines.end("beta", "sshd: root")
    flowing(machines, run, ago=1)
    [(_, status, stage, why)] = run.outcomes()
    expect((status, stage) == ("failed", "load"), run.outcomes())
    expect(why.startswith(BETA + "the connection is lost"), why)
    run.process.send_signal(signal.SIGTERM)
    run.ends(130)
    machines.unchanged(before)


def without_rights(machines):
    with sshd_under(machines, "beta", NO_PACKET_SOCKETS):
        before = machines.pictures()
        words = machines.lab(SPEC + STEADY + PLAIN, *SHORT).ends(1).words()
        expect(BETA + "cannot listen on" in words and "CAP_NET_RAW" in words, words)
        machines.unchanged(before)


def another_version(machines):
    path = f"{machines.folder}/alpha-bin/esplanade-lab"
    with open(path, "w") as file:
        file.write("#!/bin/sh\necho another version >&2\nexit 7\n")
    os.chmod(path, 0o755)
    try:
        before = machines.pictures()
        run = machines.lab(SPEC + STEADY + PLAIN, *SHORT).ends(0)
        expect(figures(run)["plain"]["rtt.answers_count"] > 100, run.records())
        machines.unchanged(before)
    finally:
        os.remove(path)


def nothing_runs_there(machines):
    place = f"{machines.folder}/alpha"
    # The sshd has mounts of its own, which end with it.
    mount = f'mount -t tmpfs -o noexec tmpfs {place} && exec "$@"'
    with sshd_under(machines, "alpha", ["sh", "-c", mount, "sh"]):
        before = machines.pictures()
        words = machines.lab(SPEC + STEADY + PLAIN, *SHORT).ends(1).words()
        expect("left (ssh://alpha)" in words and "Permission denied" in words, words)
        expect("must not be mounted noexec" in words and place in words, words)
        machines.unchanged(before)


def study_of_2010(machines):
    before = machines.pictures()
    run = machines.lab(HOSTS_ONLY, "--smoke", study="klassert-2010").ends(0)
    names = sorted(figures(run))
    expect(len(names) == 3 and names[-1] == "plain" and all("transport" in name for name in names[:2]), run.outcomes())
    for name, found in figures(run).items():
        expect(found["rate_pps"] > 0 and found["rtt.p50_us"] > 0, (name, found))
    with open(run.log) as file:
        words = file.read()
    for left_out in ["`kernel-xfrm` is measured in namespaces only", "sizes: `link.rate_mbit` needs virtual links",
                     "steering: `rps_cpus` can only be set in namespaces"]:
        expect(f"skipped: {left_out}" in words, words)
    machines.unchanged(before)


def resumed_study(machines):
    before = machines.pictures()
    run = machines.lab(HOSTS_ONLY, "--smoke", study="klassert-2010")
    until(lambda: machines.having("alpha", "tool send"), lambda: f"no frames flow: {run.words()}")
    run.process.send_signal(signal.SIGINT)
    run.ends(130)
    # The hosts are kept with the study.
    os.remove(f"{run.out}.toml")
    machines.hosts["lab"].sh(f"{program('esplanade-lab')} run --resume {run.out}", LIMIT)
    measured = {name for name, status, *_ in run.outcomes() if status == "measured"}
    expect(len(measured) == 3, run.outcomes())
    machines.unchanged(before)


@contextlib.contextmanager
def sshd_under(machines, name, prefix):
    """The sshd of a host is started by another program; afterwards as before."""
    machines.end(name, "sshd")
    machines.serve(name, prefix)
    try:
        yield
    finally:
        machines.end(name, "sshd")
        machines.serve(name)


CASES = {
    "frames between two hosts with different clocks give round trips, and no one-way delay": two_clocks,
    "frames from the right host to the left one are answered, too": backwards,
    "of frames on a path that drops one in 16, one in 16 is reported as lost": loses_one_in_sixteen,
    "of frames on a path that doubles one in 16, one in 16 is reported as a duplicate": doubles_one_in_sixteen,
    "a port of the frames that another program has is named with its host": occupied,
    "kill -9 of the lab leaves neither sender nor receiver of frames": killed_lab,
    "a host that is lost while frames flow is named, and the rest goes on": lost_in_mid_trial,
    "a host that forbids packet sockets is named with the right that it lacks": without_rights,
    "frames are sent by the lab's own version where the host has another": another_version,
    "a host where the lab's programs cannot run is named with the folder": nothing_runs_there,
    "the study of 2010 runs between two hosts, and what they cannot do is named": study_of_2010,
    "the study of 2010 on hosts is resumed without the file that named them": resumed_study,
}
