"""strongSwan's charon on a host, with ESP in user space (kernel-libipsec) and a /run of its own."""

import os
import shutil
import signal
import subprocess
import time

from charon_commands import CHARON, CharonCommands
from network.timeout import slowed
from vici import Refused, Session

PLUGINS = ("random nonce openssl kdf hmac sha1 sha2 aes ccm xcbc cmac ctr gcm curve25519 kernel-libipsec "
           "kernel-netlink socket-default vici pem pkcs1 pkcs8 x509 revocation constraints pubkey")
READY_TIMEOUT, UP_TIMEOUT_SECONDS = 10, 12
# Requests are repeated after 0.5 s, 0.9 s and 1.6 s, and given up after 2.9 s more.
STRONGSWAN = """
charon {{
  load = {plugins}
  threads = 16
  # One address makes many half-open SAs in tests of broken messages.
  dos_protection = no
  retransmit_timeout = {retransmit_timeout}
  retransmit_tries = 3
  {fragment_size}
  plugins {{
    vici {{
      socket = unix://{socket}
    }}
  }}
  filelog {{
    log {{
      path = {log}
      default = 1
      cfg = 2
      flush_line = yes
    }}
  }}
}}
"""
CONNECTION = """
connections {{
  net {{
    version = 2
    local_addrs = {local}
    remote_addrs = {remote}
    encap = {encap}
    proposals = {ike}
    rekey_time = 0
    dpd_delay = {dpd}
    childless = {childless}
    local {{
      {mine}
    }}
    remote {{
      {theirs}
    }}
    children {{
      net {{
        local_ts = {networks}
        remote_ts = {peer_networks}
        esp_proposals = {esp}
        rekey_time = 0
        dpd_action = {dpd_action}
      }}
    }}
  }}
}}
"""
SECRETS = """
secrets {{
  ike-net {{
    id-1 = {identity}
    id-2 = {peer_identity}
    secret = "{secret}"
  }}
}}
"""


class Charon(CharonCommands):
    kind = "charon"
    plugins, encap = PLUGINS, "yes"
    # Its policies are no barrier: without associations it lets traffic pass in clear.
    fails_closed = False
    # Seconds between the datagrams of a flow; without one for so long, the rest is lost.
    flow_interval, patience = 0.005, 1

    def __init__(self, host, which, outer, folder, certificates):
        self.host, self.which, self.outer = host, which, outer
        self.folder, self.certificates = folder, certificates
        self.socket, self.log = f"{folder}/vici", f"{folder}/log"

    @staticmethod
    def takes(case):
        """Debian's charon logs no keys, and does not pass its work on to another process."""
        return not {"dissected", "replace"} & set(case.steps)

    def configure(self, case):
        """Writes strongswan.conf, swanctl.conf and what they name."""
        end = case.end(self.which)
        shutil.rmtree(self.folder, ignore_errors=True)
        for name in ("x509", "x509ca", "x509crl", "private"):
            os.makedirs(f"{self.folder}/swanctl/{name}")
        size = f"fragment_size = {case.fragment_size}" if case.fragment_size else ""
        self.write("strongswan.conf", STRONGSWAN.format(plugins=self.plugins, socket=self.socket, log=self.log,
                                                        retransmit_timeout=slowed(0.5), fragment_size=size))
        local, remote = self.outer[case.outer]
        mine, theirs = self.authentication(case, end)
        text = CONNECTION.format(local=local, remote=remote, encap=self.encap, mine=mine, theirs=theirs,
                                 ike=end.ike, esp=end.esp, networks=end.networks, peer_networks=end.peer_networks,
                                 childless="force" if case.childless else "allow",
                                 dpd="1s" if case.dpd else "0s", dpd_action="start" if case.dpd else "none")
        if case.auth == "psk":
            text += SECRETS.format(identity=end.identity, peer_identity=end.peer_identity, secret=end.secret)
        self.write("swanctl/swanctl.conf", text)

    def authentication(self, case, end):
        """The sections `local` and `remote`."""
        mine, theirs = [f"id = {end.identity}"], [f"id = {end.peer_identity}"]
        if case.auth == "psk":
            return "\n".join(mine + ["auth = psk"]), "\n".join(theirs + ["auth = psk"])
        name = case.certificate(self.which)
        for source, place in ((f"{name}.pem", "x509"), (f"{name}.key", "private"), ("authority.pem", "x509ca"),
                              ("revoked.crl", "x509crl")):
            shutil.copy(f"{self.certificates}/{source}", f"{self.folder}/swanctl/{place}")
        how = "auth = ike:rsa/pss-sha256" if case.auth == "rsa-pss" else "auth = pubkey"
        return "\n".join(mine + [how, f"certs = {name}.pem"]), "\n".join(theirs + [how])

    def write(self, name, text):
        with open(f"{self.folder}/{name}", "w") as file:
            file.write(text)

    def start(self):
        """Begins with an empty log at every start, and waits until the configuration is loaded."""
        script = f"mount -t tmpfs run /run; STRONGSWAN_CONF={self.folder}/strongswan.conf exec {CHARON}"
        with open(f"{self.folder}/output", "w") as output:
            self.process = self.host.start(["sh", "-c", script], stdout=output, stderr=subprocess.STDOUT)
        deadline = time.monotonic() + slowed(READY_TIMEOUT)
        while not self.answers():
            if self.process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"charon did not start:\n{self.words()}")
            time.sleep(0.02)
        self.load()

    def answers(self):
        try:
            with self.session() as session:
                return bool(session.ask("version"))
        except (OSError, ConnectionError):
            return False

    def load(self):
        self.swanctl("--load-all", "--noprompt")

    def swanctl(self, *words):
        """What it prints."""
        environment = {**os.environ, "STRONGSWAN_CONF": f"{self.folder}/strongswan.conf",
                       "SWANCTL_DIR": f"{self.folder}/swanctl"}
        done = subprocess.run(["swanctl", *words, "--uri", f"unix://{self.socket}"], env=environment,
                              capture_output=True, text=True, timeout=slowed(20))
        if done.returncode != 0:
            raise RuntimeError(f"swanctl {' '.join(words)}:\n{done.stdout}{done.stderr}")
        return done.stdout

    def session(self, timeout=UP_TIMEOUT_SECONDS + 5):
        return Session(self.socket, slowed(timeout))

    def initiate(self, childless=False):
        """Begins; gives nothing if the tunnel is up, otherwise what charon says."""
        timeout = int(slowed(UP_TIMEOUT_SECONDS) * 1000)
        try:
            with self.session() as session:
                if childless:
                    session.ask("initiate", ike="net", timeout=timeout)
                session.ask("initiate", ike="net", child="net", timeout=timeout)
        except Refused as refused:
            return str(refused)
        return None

    def is_up(self):
        return bool(self.children())

    def selectors(self):
        """The local and the remote ones of its only child SA."""
        child, = self.children()
        return child["local-ts"], child["remote-ts"]

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
        # What it leaves when it is killed: a device that goes with it, and routes with the device; the rule stays.
        self.host.attempt("ip rule del lookup 220 2>/dev/null; ip route flush table 220 2>/dev/null; rm -f " + self.socket)

    def again(self):
        self.stop()
        self.start()

    def kill(self):
        self.stop(signal.SIGKILL)

    def words(self):
        """All that it wrote."""
        texts = []
        for name in (self.log, f"{self.folder}/output"):
            if os.path.exists(name):
                with open(name, errors="replace") as file:
                    texts.append(file.read())
        return "\n".join(texts)
