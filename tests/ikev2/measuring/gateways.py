"""The gateways that are measured: `esplanade run --config` with many peers, and charon."""

import os
import shutil
import signal
import subprocess
import time

from measuring import processes
from measuring.kinds import SECRET
from network.gateway import keeping, program

READY_SECONDS = 120
RESPONDER_NETWORK, INITIATOR_NETWORKS = "10.255.0.0/24", "10.64.0.0/10"
FIRST_INNER = (10 << 24) + (64 << 16)


def inner(number):
    """The address behind an initiator, as examples/many_peers.rs has it."""
    address = FIRST_INNER + number
    return ".".join(str(address >> shift & 255) for shift in (24, 16, 8, 0))


class Daemon:
    """A gateway on a host, pinned to a processor."""

    def __init__(self, host, folder, cpu):
        self.host, self.folder, self.cpu = host, folder, cpu
        shutil.rmtree(folder, ignore_errors=True)
        os.makedirs(folder)

    def write(self, name, text):
        path = f"{self.folder}/{name}"
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "w") as file:
            os.fchmod(file.fileno(), 0o600)
            file.write(text)

    def launch(self, argv, log):
        with open(log, "w") as output:
            self.process = self.host.start(["taskset", "-c", self.cpu, *argv], stdout=output,
                                           stderr=subprocess.STDOUT)

    def wait(self, is_ready, log):
        deadline = time.monotonic() + READY_SECONDS
        while not is_ready():
            if self.process.poll() is not None or time.monotonic() > deadline:
                with open(log, errors="replace") as file:
                    raise RuntimeError(f"{self.name} did not start:\n{file.read()[-3000:]}")
            time.sleep(0.02)

    def pids(self):
        return processes.pids(self.host)

    def stop(self):
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGKILL)
        self.process.wait()
        deadline = time.monotonic() + 10
        while self.pids() and time.monotonic() < deadline:
            time.sleep(0.01)


class Esplanade(Daemon):
    name = "esplanade"

    def configure(self, kind, count, certificates, local="192.0.2.2", remote="192.0.2.1", initiates=False, more=""):
        """One peer for each initiator: a pre-shared key is of exactly one identity."""
        peers = []
        for number in range(count):
            own, other = "gateway.example.org", f"p{number}.example.org"
            networks = [RESPONDER_NETWORK, f"{inner(number)}/32"]
            if initiates:
                own, other, networks = other, own, networks[::-1]
            name = f"p{number}" if initiates else "gateway"
            proof = f'psk = "{SECRET}"' if kind.key is None else (
                f'certificate = "{certificates}/{name}.pem"\n'
                f'key = "{certificates}/{"peer" if initiates else "gateway"}.key"\nca = "{certificates}/authority.pem"')
            peers.append(f"""[peer.p{number}]
local = "{local}"
remote = "{remote}"
local_id = "{own}"
remote_id = "{other}"
{proof}
networks = {{ local = ["{networks[0]}"], remote = ["{networks[1]}"] }}
mode = "policy"
ike = ["{kind.ike}"]
esp = ["{kind.esp}"]
start = "{"start" if initiates else "wait"}"
{more}
""")
        self.write("esplanade.toml", "".join(peers))

    def start(self):
        self.control, self.log = f"{self.folder}/control.sock", f"{self.folder}/log"
        self.launch([program(), "run", "--config", f"{self.folder}/esplanade.toml", "--control", self.control,
                     "--cpus", self.cpu, *keeping(self.folder)], self.log)

    def ready(self):
        self.start()
        self.wait(lambda: " ready: " in self.log_text(), self.log)
        # The three processes of key exchange are started behind that.
        self.wait(lambda: len(self.pids()) >= 4, self.log)
        time.sleep(0.3)

    def stop(self):
        super().stop()
        # The barriers stay when a gateway is killed.
        subprocess.run(self.host.argv([program(), "down", "--control", self.control]), capture_output=True, timeout=60)

    def log_text(self):
        with open(self.log, errors="replace") as file:
            return file.read()

    def status_seconds(self):
        """How long `esplanade status` takes, the start of the program included."""
        began = time.monotonic()
        done = subprocess.run(self.host.argv([program(), "status", "--control", self.control]),
                              capture_output=True, timeout=60)
        return time.monotonic() - began if done.returncode == 0 else float("inf")


PLUGINS = ("random nonce openssl kdf hmac sha1 sha2 kernel-libipsec kernel-netlink socket-default vici pem pkcs1 pkcs8 "
           "x509 revocation constraints pubkey")
STRONGSWAN = """charon {
  load = """ + PLUGINS + """
  threads = 16
  # Many half-open SAs of one address are what is measured.
  dos_protection = no
  # No signature that was verified once serves again.
  cert_cache = no
  fragment_size = 1280
  filelog {
    log {
      path = /run/charon.log
      default = 1
      flush_line = no
    }
  }
}
"""


class Charon(Daemon):
    name = "charon"

    def __init__(self, host, folder, cpu, root="/"):
        super().__init__(host, folder, cpu)
        self.root = root

    def configure(self, kind, count, certificates):
        """One connection for all initiators, which is what costs charon least."""
        for name in ("run", "swanctl/x509", "swanctl/x509ca", "swanctl/private"):
            os.makedirs(f"{self.folder}/{name}")
        certs = ""
        if kind.key:
            for source, place in (("gateway.pem", "x509"), ("gateway.key", "private"), ("authority.pem", "x509ca")):
                shutil.copy(f"{certificates}/{source}", f"{self.folder}/swanctl/{place}")
            certs = "certs = gateway.pem"
        self.write("strongswan.conf", STRONGSWAN)
        self.write("swanctl/swanctl.conf", f"""connections {{
  all {{
    version = 2
    local_addrs = 192.0.2.2
    encap = yes
    unique = never
    mobike = no
    dpd_delay = 30s
    proposals = {kind.ike}
    local {{
      auth = {kind.auth}
      id = gateway.example.org
      {certs}
    }}
    remote {{
      auth = {kind.auth}
      id = *.example.org
    }}
    children {{
      all {{
        local_ts = {RESPONDER_NETWORK}
        remote_ts = {INITIATOR_NETWORKS}
        esp_proposals = {kind.esp}
      }}
    }}
  }}
}}
secrets {{
  ike-all {{
    secret = "{SECRET}"
  }}
}}
""")

    def inside(self, command):
        """A shell line that runs a command in the root of charon, with a /run and an /etc of its own."""
        root = self.root.rstrip("/")
        mounts = f"""mount --make-rprivate /
{"" if not root else f"mount -t proc proc {root}/proc; mount --rbind /dev {root}/dev"}
mount --bind {self.folder}/run {root}/run
mount --bind {self.folder}/strongswan.conf {root}/etc/strongswan.conf
mount --bind {self.folder}/swanctl {root}/etc/swanctl
exec {f"chroot {root}" if root else ""} {command}"""
        return ["unshare", "-m", "sh", "-c", mounts]

    def ready(self):
        log = f"{self.folder}/output"
        self.launch(self.inside("/usr/lib/ipsec/charon"), log)
        self.wait(lambda: os.path.exists(f"{self.folder}/run/charon.vici"), log)
        done = subprocess.run(self.host.argv(self.inside("swanctl --load-all --noprompt")), capture_output=True,
                              text=True, timeout=60)
        if done.returncode != 0:
            raise RuntimeError(f"swanctl --load-all:\n{done.stdout}{done.stderr}")

    def version(self):
        root = self.root.rstrip("/")
        argv = (["chroot", root] if root else []) + ["/usr/lib/ipsec/charon", "--version"]
        return subprocess.run(argv, capture_output=True, text=True).stdout.split()[-1]

    def log_text(self):
        with open(f"{self.folder}/run/charon.log", errors="replace") as file:
            return file.read()
