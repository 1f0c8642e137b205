"""What holds of the lab over SSH: a sentence, and the function that proves it."""

import glob
import json
import os
import signal
import subprocess
import tempfile

from machines import FOUR, LIMIT, SPEC, until
from network.expect import expect
from network.gateway import program

PLAIN = '[[contender]]\nkind = "plain"\n'
OURS = '[[contender]]\nkind = "esplanade"\nsuite = "aes-128-gcm"\n'
SOAKER = "[measure]\nsoaker = true\n"
PROFILE = "[measure]\nprofile = true\n"
SHORT = ["--rounds", "1", "--duration", "1"]
# Longer than it takes to end it: every test does.
LONG = ["--duration", "600"]


def whole_run(machines):
    before = machines.pictures()
    own = f"mtu = 1600\noffloads = false\ntcp.sack = false\n{PLAIN}{OURS}"
    spec = SPEC.replace("[testbed]\n", "[testbed]\n" + own.split("[[")[0]) + own[own.index("[["):]
    run = machines.lab(spec, *SHORT).ends(0)
    records = {record["contender"]: record for record in run.records()}
    expect(sorted(records) == ["esplanade-aes-128-gcm-transport-no-offloads", "plain-no-offloads"], run.outcomes())
    for name, record in records.items():
        outcome = record["outcome"]
        expect(outcome["status"] == "measured", run.outcomes())
        canaries = [canary["wire"] for canary in outcome["check"]["canaries"]]
        expect(canaries == ([1, 1] if name.startswith("plain") else [0, 0]), canaries)
        expect(outcome["readings"]["left.if.wan.tx_packets"] > 100, outcome["readings"])
        expect("left = ssh://alpha" in record["provenance"]["testbed"], record["provenance"])
        expect("--ssh-config" in record["provenance"]["command"], record["provenance"])
    expect("esplanade" in records["plain-no-offloads"]["provenance"]["versions"], records)
    expect(os.path.exists(f"{run.out}/report.html") and os.path.exists(f"{run.out}/config"), os.listdir(run.out))
    expect(os.path.getsize(f"{run.out}/capture.pcap") > 1000, "nothing was captured")
    machines.unchanged(before)


def four_machines(machines):
    before = machines.pictures()
    run = machines.lab(FOUR + PLAIN + OURS, *SHORT).ends(0)
    expect(sorted(name for name, *_ in run.outcomes()) == ["esplanade-aes-128-gcm", "plain"], run.outcomes())
    expect({status for _, status, *_ in run.outcomes()} == {"measured"}, run.outcomes())
    expect("client = ssh://gamma" in run.records()[0]["provenance"]["testbed"], run.records()[0]["provenance"])
    machines.unchanged(before)


def brought_or_found(machines):
    before = machines.pictures()
    run = machines.lab(SPEC + PLAIN, *LONG).loads()
    [sent] = glob.glob(f"{machines.folder}/alpha/esplanade-lab.*/esplanade-lab")
    [linked] = glob.glob(f"{machines.folder}/beta/esplanade-lab.*/esplanade-lab")
    expect(os.path.islink(linked) and not os.path.islink(sent), (sent, linked))
    run.process.send_signal(signal.SIGINT)
    run.ends(130)
    left = glob.glob(f"{machines.folder}/*/esplanade-lab.*")
    expect(not left, f"the lab has ended before {left} was gone")
    machines.unchanged(before)
    expect(run.outcomes()[0][1] == "interrupted", run.outcomes())


def soaked(machines):
    before = machines.pictures()
    run = machines.lab(SPEC + SOAKER + PLAIN, *SHORT).ends(0)
    outcomes = [record["outcome"] for record in run.records()]
    expect([outcome["status"] for outcome in outcomes] == ["measured", "examined"], run.outcomes())
    expect("soaker.load_ratio" not in outcomes[0]["readings"], outcomes[0]["readings"])
    loads = [share for name,
             share in outcomes[1]["readings"].items() if name.startswith("soaker.") and name.endswith("load_ratio")]
    expect(len(loads) >= 2 and all(0 <= share <= 1 for share in loads), outcomes[1]["readings"])
    machines.unchanged(before)


def killed_lab_of_a_soaker(machines):
    before = machines.pictures()
    run = machines.lab(SPEC + SOAKER + PLAIN, "--rounds", "1", "--duration", "10")
    until(lambda: machines.having("alpha", "tool soak"), "no soaker runs on alpha")
    run.process.kill()
    run.ends(-signal.SIGKILL)
    machines.unchanged(before)


def profiled(machines):
    before = machines.pictures()
    run = machines.lab(SPEC + PROFILE + OURS, *SHORT).ends(0)
    outcomes = [record["outcome"] for record in run.records()]
    expect([outcome["status"] for outcome in outcomes] == ["measured", "examined"], run.outcomes())
    expect("profile.idle_ratio" not in outcomes[0]["readings"], outcomes[0]["readings"])
    readings = {name: value for name, value in outcomes[1]["readings"].items() if name.startswith("profile.")}
    expect(readings["profile.samples_count"] > 50, readings)
    shares = [share for name, share in readings.items() if name.endswith("_ratio") and "busiest" not in name]
    expect(0.98 < sum(shares) < 1.02, readings)
    expect(sum(share for name, share in readings.items() if name.startswith("profile.left.")) > 0.01, readings)
    [folded] = glob.glob(f"{run.out}/stacks/*.folded")
    stacks = [line.rsplit(" ", 1) for line in open(folded)]
    busy = readings["profile.samples_count"] * (1 - readings["profile.idle_ratio"])
    expect(abs(sum(int(count) for _, count in stacks) - busy) < 1, (stacks[:3], busy))
    machines.unchanged(before)


def killed_lab_of_a_profile(machines):
    before = machines.pictures()
    run = machines.lab(SPEC + PROFILE + PLAIN, "--rounds", "1", "--duration", "10")
    until(lambda: machines.having("alpha", "perf record") and machines.having("alpha", "--delay=-1"),
          "no perf runs on alpha")
    run.process.kill()
    run.ends(-signal.SIGKILL)
    machines.unchanged(before)


def killed_lab(machines):
    before = machines.pictures()
    run = machines.lab(SPEC + OURS, *LONG).loads()
    expect(machines.having("beta", "esplanade run --setkey"), machines.processes("beta"))
    expect("table inet" in machines.picture("alpha"), "no gateway drops what must not leave in clear")
    run.process.kill()
    run.ends(-signal.SIGKILL)
    machines.unchanged(before)


def killed_session(machines):
    before = machines.pictures()
    run = machines.lab(SPEC + OURS, "--rounds", "2", *LONG).loads()
    machines.end("beta", "sshd: root")
    run.loads(ago=1)
    expect(run.outcomes() == [("esplanade-aes-128-gcm-transport", "failed", "load", run.outcomes()[0][3])],
           run.outcomes())
    run.process.send_signal(signal.SIGTERM)
    run.ends(130)
    machines.unchanged(before)


def killed_agent(machines):
    before = machines.pictures()
    run = machines.lab(SPEC + OURS, "--rounds", "2", *LONG).loads()
    machines.end("alpha", "esplanade-lab tool agent /")
    run.loads(ago=1)
    [(_, status, _, why)] = run.outcomes()
    expect(status == "failed" and "left (ssh://alpha): the connection is lost" in why, run.outcomes())
    run.process.send_signal(signal.SIGTERM)
    run.ends(130)
    machines.unchanged(before)


def dead_host(machines):
    before = machines.pictures()
    run = machines.lab(SPEC + PLAIN, "--rounds", "3", *LONG).loads()
    machines.end("beta", "sshd")
    try:
        run.ends(3)
    finally:
        machines.serve("beta")
    stages = [(status, stage) for _, status, stage, _ in run.outcomes()]
    expect(stages == [("failed", "load"), ("failed", "testbed"), ("failed", "testbed")], run.outcomes())
    expect("Connection refused" in run.outcomes()[2][3], run.outcomes())
    machines.unchanged(before)


def locked_door(machines):
    config = f"{machines.folder}/stranger"
    with open(f"{machines.folder}/config") as file, open(config, "w") as other:
        other.write(file.read().replace("/user\n", "/host\n"))
    words = machines.lab(SPEC + PLAIN, *SHORT, config=config).ends(1).words()
    expect("Permission denied" in words and "must work without a password: ssh ssh://alpha true" in words, words)


def silent_lab(_machines):
    sleep = {"program": "sleep", "arguments": ["4242"], "binds": [], "input": ""}
    request = {"number": 1, "ask": {"start": {"command": sleep}}}
    note = {"number": 2, "ask": {"write_file": {"name": "a/b", "text": "c"}}}
    with tempfile.TemporaryDirectory() as folder:
        agent = subprocess.Popen([program("esplanade-lab"), "tool", "agent", folder, "--silence", "1"],
                                     stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        # Both in one breath: a busy machine may be silent between two.
        agent.stdin.write(f"{json.dumps(request)}\n{json.dumps(note)}\n")
        agent.stdin.flush()
        expect(agent.stdout.readline() == "ready\n", "it is not ready")
        started = json.loads(agent.stdout.readline())["answer"]["Ok"]["started"]
        expect("text" in json.loads(agent.stdout.readline())["answer"]["Ok"], "it writes nothing")
        expect(agent.wait(LIMIT) == 0, "it does not end well")
        until(lambda: not os.path.exists(f"/proc/{started[1]}"), "its program is left")
        expect(os.listdir(folder) == [], os.listdir(folder))
        agent.stdin.close()
        agent.stdout.close()


CASES = {
    "plain IP and Esplanade are measured between two hosts, which then are as they were": whole_run,
    "and between a client and a server behind two gateways": four_machines,
    "programs are brought along where the host has not the same, and Ctrl-C ends in order": brought_or_found,
    "kill -9 of the lab leaves nothing on the hosts": killed_lab,
    "a soaker runs on a host elsewhere, in a trial of its own": soaked,
    "and ends there with a lab that is killed": killed_lab_of_a_soaker,
    "so does a profile, and its stacks come home": profiled,
    "and a profile ends there with a lab that is killed": killed_lab_of_a_profile,
    "a session that dies is recorded, and the rest goes on": killed_session,
    "an agent that is killed is cleaned up after, and the rest goes on": killed_agent,
    "a host that is gone is recorded trial by trial, and the run ends": dead_host,
    "a host that refuses every login is named with what must work": locked_door,
    "an agent that hears nothing ends by itself": silent_lab,
}
