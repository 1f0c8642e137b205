"""Four hosts with a real sshd each, and one from which the lab runs."""

import json
import os
import shutil
import signal
import subprocess
import tempfile
import time

from network.gateway import program
from network.namespace import Network, run

LIMIT = 150
NETS = {"alpha": "10.99.1", "beta": "10.99.2", "gamma": "10.99.3", "delta": "10.99.4"}
PORTS = {"alpha": 2201, "beta": 2202, "gamma": 2203, "delta": 2204}
WIRES = {"alpha": "eth1", "beta": "eth7", "gamma": "lan0", "delta": "lan0"}
SPEC = """study = "machines"
[testbed]
kind = "pair"
[testbed.hosts.left]
ssh = "ssh://alpha"
wan = "eth1"
[testbed.hosts.right]
ssh = "ssh://root@beta:2202"
wan = "eth7"
wan_address = "192.0.2.77/24"
"""
# The same machines for a study that names none.
HOSTS_ONLY = SPEC[SPEC.index("[testbed.hosts.left]"):]
FOUR = SPEC.replace('"pair"', '"gateways"').replace("wan =", 'lan = "lan1"\nwan =') + """[testbed.hosts.client]
ssh = "ssh://gamma"
lan = "lan0"
[testbed.hosts.server]
ssh = "ssh://delta"
lan = "lan0"
"""
SSHD = """Port {port}
ListenAddress {net}.2
HostKey {folder}/host
AuthorizedKeysFile {folder}/user.pub
PermitRootLogin prohibit-password
PasswordAuthentication no
UsePAM no
StrictModes no
PidFile none
SetEnv TMPDIR={folder}/{name} PATH={folder}/{name}-bin:/usr/sbin:/usr/bin:/sbin:/bin
"""
SSH_HOST = """Host {name}
  HostName {net}.2
  {port}
"""
SSH = """Host *
  User root
  IdentityFile {folder}/user
  IdentitiesOnly yes
  UserKnownHostsFile {folder}/known
  StrictHostKeyChecking yes
"""


class Machines:
    """The hosts; as a context manager it removes them and everything of theirs."""

    run = None

    def __enter__(self):
        self.folder = tempfile.mkdtemp(prefix="esplanade-test-")
        self.network = Network("ssh").__enter__()
        try:
            self.build()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_):
        for name in NETS:
            self.end(name, "sshd")
        self.network.__exit__()
        shutil.rmtree(self.folder)

    def build(self):
        # Where an sshd that is about to ask for a user's rights locks itself in.
        os.makedirs("/run/sshd", exist_ok=True)
        self.hosts = {name: self.network.host(name) for name in ["lab", *NETS]}
        self.network.link(self.hosts["alpha"], WIRES["alpha"], self.hosts["beta"], WIRES["beta"])
        self.network.link(self.hosts["alpha"], "lan1", self.hosts["gamma"], "lan0")
        self.network.link(self.hosts["beta"], "lan1", self.hosts["delta"], "lan0")
        for name, net in NETS.items():
            self.network.link(self.hosts["lab"], name, self.hosts[name], "manage")
            self.hosts["lab"].sh(f"ip address add {net}.1/24 dev {name}; ip link set {name} up")
            self.hosts[name].sh(f"ip address add {net}.2/24 dev manage; ip link set manage up")
        # The left wire is down and bare, the right one up and with an address of its own.
        self.hosts["beta"].sh("ip address add 192.0.2.77/24 dev eth7; ip link set eth7 up")
        self.keys()
        for name in NETS:
            self.serve(name)
        self.untouched = self.pictures()

    def keys(self):
        for key in ["host", "user"]:
            run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", f"{self.folder}/{key}"])
        host = open(f"{self.folder}/host.pub").read()
        with open(f"{self.folder}/known", "w") as known:
            known.writelines(f"[{net}.2]:{PORTS[name]} {host}" for name, net in NETS.items())
        with open(f"{self.folder}/config", "w") as config:
            for name, net in NETS.items():
                # The spec itself says the port of beta.
                port = "" if name == "beta" else f"Port {PORTS[name]}"
                config.write(SSH_HOST.format(name=name, net=net, port=port))
            config.write(SSH.format(folder=self.folder))
        for name in NETS:
            os.makedirs(f"{self.folder}/{name}")
            os.makedirs(f"{self.folder}/{name}-bin")
        for name in ["esplanade", "esplanade-lab"]:
            os.symlink(program(name), f"{self.folder}/beta-bin/{name}")

    def serve(self, name, prefix=()):
        """Starts the sshd of a host, for the first time or again; a prefix is a program that starts it."""
        path = f"{self.folder}/{name}.conf"
        with open(path, "w") as file:
            file.write(SSHD.format(folder=self.folder, name=name, net=NETS[name], port=PORTS[name]))
        self.hosts[name].start([*prefix, "/usr/sbin/sshd", "-D", "-f", path], stdout=subprocess.DEVNULL,
                               stderr=subprocess.DEVNULL)
        until(lambda: self.hosts[name].attempt(f"ss -Htln sport = :{PORTS[name]} | grep -q .")[0] == 0,
              f"the sshd of {name} does not listen")

    def lab(self, spec, *options, config=None, study=None):
        """Starts a run; its folder is new. A study of the lab's own runs on the hosts of the spec."""
        self.run = Run(self, spec, options, config or f"{self.folder}/config", study)
        return self.run

    def abandon(self):
        """Ends a run that a test has left behind, for the next one's sake."""
        if self.run is not None and self.run.process.poll() is None:
            self.run.process.kill()
            self.run.process.wait()
        self.unchanged(self.untouched)

    def processes(self, name):
        """Ids and command lines of what runs on a host."""
        ids = self.hosts[name].sh(f"ip netns pids {self.hosts[name].name}").split()
        found = {}
        for number in ids:
            try:
                words = open(f"/proc/{number}/cmdline", "rb").read().replace(b"\0", b" ").decode().strip()
            except OSError:
                continue
            # The shell that asks, and a process that has just ended, are none.
            if words and "ip netns pids" not in words:
                found[int(number)] = words
        return found

    def having(self, name, words):
        return [number for number, line in self.processes(name).items() if words in line]

    def end(self, name, words, how=signal.SIGKILL):
        for number in self.having(name, words):
            try:
                os.kill(number, how)
            except ProcessLookupError:
                pass

    def picture(self, name):
        """All that a run may have changed on a host."""
        device = WIRES[name]
        text = self.hosts[name].sh(f"""ip -o link | sed -E 's/NO-CARRIER,|,LOWER_UP//g; s/ qdisc .*//'; ip -o address | sed 's/valid_lft.*//'
            ip -d route show table all | grep -v ff00; ip rule; ip -6 rule; nft list ruleset
            ethtool -k {device}; cd /proc/sys/net/ipv4; grep . ip_forward tcp_sack tcp_timestamps tcp_rmem
            ls -A {self.folder}/{name}; ls /tmp | grep esplanade-lab || true""")
        # IPv6 gives itself addresses in its own time.
        lines = [line for line in text.splitlines() if "fe80" not in line and " proto kernel " not in line]
        running = sorted(line for line in self.processes(name).values())
        return "\n".join([*lines, *running])

    def pictures(self):
        return {name: self.picture(name) for name in NETS}

    def unchanged(self, before):
        """Waits until both hosts are as they were."""
        until(lambda: self.pictures() == before, lambda: "left behind:\n" + difference(before, self.pictures()))


class Run:
    """A run of the lab."""

    count = 0

    def __init__(self, machines, spec, options, config, study):
        Run.count += 1
        self.out = f"{machines.folder}/out-{Run.count}"
        self.log = f"{self.out}.log"
        path = f"{self.out}.toml"
        with open(path, "w") as file:
            file.write(spec)
        what = [study, "--hosts", path] if study else [path]
        argv = [program("esplanade-lab"), "run", *what, "--out", self.out, "--seed", "1", "--ssh-config", config,
                *options]
        with open(self.log, "w") as log:
            self.process = machines.hosts["lab"].start(argv, stdout=log, stderr=subprocess.STDOUT)
        self.machines = machines

    def ends(self, code):
        """Waits for the end, with the exit code it must have."""
        got = self.process.wait(LIMIT * 2)
        if got != code:
            raise AssertionError(f"exit code {got}, not {code}: {self.words()} {self.outcomes()}")
        return self

    def loads(self, ago=0):
        """Waits until a load flows in a trial after so many that are on record."""
        def flows():
            if self.process.poll() is not None:
                raise AssertionError(f"the run ended before its load: {self.words()} {self.outcomes()}")
            return len(self.records()) >= ago and self.machines.having("alpha",
                                                                       "iperf3 --client 192.0.2.77 --port 5201 "
                                                  "--connect-timeout 3000 --json --time")
        until(flows, lambda: f"no load flows: {self.words()}")
        return self

    def words(self):
        with open(self.log) as file:
            return file.read()[-3000:]

    def records(self):
        path = f"{self.out}/records.jsonl"
        if not os.path.exists(path):
            return []
        with open(path) as file:
            return [json.loads(line) for line in file if line.endswith("\n")]

    def outcomes(self):
        return [(record["contender"], record["outcome"]["status"],
                 record["outcome"].get("stage"), record["outcome"].get("why")) for record in self.records()]


def until(true, why):
    """Waits, long enough for a busy machine."""
    deadline = time.monotonic() + LIMIT
    while not true():
        if time.monotonic() > deadline:
            raise AssertionError(why if isinstance(why, str) else why())
        time.sleep(0.1)


def difference(before, now):
    lines = []
    for name, text in before.items():
        old, new = text.splitlines(), now[name].splitlines()
        lines += [f"{name}: - {line}" for line in old if line not in new]
        lines += [f"{name}: + {line}" for line in new if line not in old]
    return "\n".join(lines)
