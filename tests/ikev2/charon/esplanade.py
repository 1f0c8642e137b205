"""`esplanade run --config` on a host, driven by what its users have: the file, the command line, JSON."""

import json
import os
import shutil
import signal
import subprocess
import time

from network.gateway import READY_LIMIT, keeping, program
from network.timeout import slowed

UP_TIMEOUT_SECONDS = 12
PEER = """
[gateway]
key_log = "keys"

[peer.net]
local = "{local}"
{remote}
local_id = "{identity}"
remote_id = "{peer_identity}"
{proof}
networks = {{ local = ["{networks}"], remote = ["{peer_networks}"] }}
ike = ["{ike}"]
esp = ["{esp}"]
start = "{start}"
dpd = {dpd}
retransmit = {{ first = "500ms", longest = "2s", repetitions = 4 }}
{more}
"""


class Esplanade:
    kind = "esplanade"
    fails_closed = True
    # Seconds between the datagrams of a flow; without one for so long, the rest is lost.
    flow_interval, patience = 0.005, 1
    # More words of the command line.
    options = ()
    # ESP in UDP without a NAT too.
    always_udp = False

    def __init__(self, host, which, outer, folder, certificates):
        self.host, self.which, self.outer = host, which, outer
        self.folder, self.certificates = folder, certificates
        self.control, self.log = f"{folder}/control.sock", f"{folder}/log"

    @staticmethod
    def takes(_):
        return True

    def decryption_table(self):
        """Wireshark's table of the keys of IKE."""
        with open(f"{self.folder}/keys/ikev2_decryption_table") as file:
            return file.read()

    def configure(self, case):
        """Writes esplanade.toml and what it names."""
        shutil.rmtree(self.folder, ignore_errors=True)
        os.makedirs(self.folder)
        end = case.end(self.which)
        local, remote = self.outer[case.outer]
        more = [f"fragment_bytes = {case.fragment_size}"] if case.fragment_size else []
        more += ["childless = true"] if case.childless else []
        more += ['encapsulation = "force"'] if self.always_udp else []
        remote = "" if remote == "%any" else f'remote = "{remote}"'
        text = PEER.format(local=local, remote=remote, proof=self.proof(case, end), identity=end.identity,
                           peer_identity=end.peer_identity, networks=end.networks,
                           peer_networks=end.peer_networks, ike=end.ike, esp=end.esp,
                           start="start" if case.dpd else "wait", dpd='"1s"' if case.dpd else '"off"',
                           more="\n".join(more))
        with open(f"{self.folder}/esplanade.toml", "w") as file:
            os.fchmod(file.fileno(), 0o600)
            file.write(text)

    def proof(self, case, end):
        if case.auth == "psk":
            return f'psk = "{end.secret}"'
        name = case.certificate(self.which)
        for source in (f"{name}.pem", f"{name}.key", "authority.pem", "revoked.crl"):
            shutil.copy(f"{self.certificates}/{source}", self.folder)
        lines = [f'certificate = "{name}.pem"', f'key = "{name}.key"', 'ca = "authority.pem"', 'crl = "revoked.crl"']
        if case.auth.startswith("rsa"):
            lines.append(f'rsa_padding = "{"pss" if case.auth == "rsa-pss" else "pkcs1"}"')
        return "\n".join(lines)

    def start(self):
        self.launch("run")
        self.wait_until_ready()

    def launch(self, command):
        argv = [program(), command, "--config", f"{self.folder}/esplanade.toml", "--control", self.control,
                *self.options, *keeping(self.folder)]
        with open(self.log, "a") as log:
            self.process = self.host.start(argv, stdout=log, stderr=subprocess.STDOUT)

    def wait_until_ready(self):
        deadline = time.monotonic() + READY_LIMIT
        while not os.path.exists(self.control) or self.attempt("status", "--json")[0] != 0:
            if self.process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"esplanade did not start:\n{self.log_text()}")
            time.sleep(0.05)

    def attempt(self, *arguments):
        argv = self.host.argv([program(), *arguments, "--control", self.control])
        done = subprocess.run(argv, capture_output=True, text=True, timeout=slowed(30), stdin=subprocess.DEVNULL)
        return done.returncode, done.stdout + done.stderr

    def ask(self, *arguments):
        status, output = self.attempt(*arguments)
        if status != 0:
            raise RuntimeError(f"esplanade {' '.join(arguments)}: exit status {status}:\n{output}")
        return output

    def initiate(self, childless=False):
        """Begins; gives nothing if the tunnel is up, otherwise the story of the attempt."""
        status, output = self.attempt("up", "net")
        deadline = time.monotonic() + slowed(UP_TIMEOUT_SECONDS)
        while status == 0 and not self.is_up() and time.monotonic() < deadline:
            time.sleep(0.05)
        return None if self.is_up() else output + self.attempt("why", "net")[1]

    def rekey(self, what):
        self.ask("rekey", "net", *(["--ike"] if what == "ike" else []))

    def terminate(self):
        self.ask("down", "net")

    def peer(self):
        return next(peer for peer in json.loads(self.ask("status", "--json"))["peers"] if peer["name"] == "net")

    def children(self):
        return self.peer()["children"]

    def is_up(self):
        return bool(self.children())

    def stop(self, how=signal.SIGTERM):
        if not hasattr(self, "process"):
            return
        if self.process.poll() is None:
            self.process.send_signal(how)
        try:
            self.process.wait(slowed(10))
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        if how == signal.SIGTERM:
            # The barriers stay when a gateway stops.
            self.attempt("down")

    def again(self):
        self.stop()
        self.start()

    def replace(self):
        """Another process takes the place of this one."""
        old = self.process
        self.launch("restart")
        old.wait(READY_LIMIT)
        self.wait_until_ready()

    def kill(self):
        self.stop(signal.SIGKILL)

    def log_text(self):
        with open(self.log, errors="replace") as file:
            return file.read()

    def words(self):
        """All that it has to tell about the last attempt."""
        return self.log_text() + self.attempt("why", "net")[1]
