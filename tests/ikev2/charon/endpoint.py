"""The endpoint of `ikev2/` alone on a host: its example has no sockets, clock or data plane, so all three are here.

ESP is scapy's, so that nothing of the gateway takes part: the exchanges and their keys are judged without it.
"""

import fcntl
import ipaddress
import json
import os
import select
import socket
import struct
import subprocess
import threading
import time

from dissected import row
from network.gateway import target_dir
from network.namespace import in_namespace
from network.timeout import slowed
from scapy.layers.inet import IP, UDP
from scapy.layers.ipsec import ESP, SecurityAssociation

UP_TIMEOUT_SECONDS = 12
TUNSETIFF, IFF_TUN, IFF_NO_PI = 0x400454CA, 1, 0x1000
MARKER = bytes(4)
CIPHERS = {"aes-gcm-16": "AES-GCM", "aes-ccm-16": "AES-CCM", "aes-cbc": "AES-CBC", "aes-ctr": "AES-CTR",
           "chacha20-poly1305": "CHACHA20-POLY1305", "3des-cbc": "3DES"}
INTEGRITY = {"hmac-sha1": "HMAC-SHA1-96", "hmac-sha2-256": "SHA2-256-128", "hmac-sha2-384": "SHA2-384-192",
             "hmac-sha2-512": "SHA2-512-256", "aes-cmac": "AES-CMAC-96"}


class Pair:
    """A pair of child SAs."""

    def __init__(self, installed, local):
        self.remote, self.port = installed["remote"], (installed["ports"] or [4500, 4500])[1]
        self.inbound_spi, self.outbound_spi = installed["spis"]
        self.inbound = association(self.inbound_spi, installed["inbound"], self.remote, local)
        self.outbound = association(self.outbound_spi, installed["outbound"], local, self.remote)
        self.is_fresh = True


def association(spi, suite, source, destination):
    (cipher, key), integrity = suite
    more = {"auth_algo": INTEGRITY[integrity[0]], "auth_key": bytes.fromhex(integrity[1])} if integrity else {}
    return SecurityAssociation(ESP, spi=spi, crypt_algo=CIPHERS[cipher], crypt_key=bytes.fromhex(key),
                               tunnel_header=IP(src=source, dst=destination),
                               nat_t_header=UDP(sport=4500, dport=4500), **more)


class Endpoint:
    kind = "endpoint"
    fails_closed = False
    # Seconds between the datagrams of a flow, as scapy needs milliseconds for a packet; without one for so long, the
    # rest is lost.
    flow_interval, patience = 0.05, 4

    def __init__(self, host, which, outer, folder, certificates):
        self.host, self.which, self.outer = host, which, outer
        self.folder, self.certificates = folder, certificates
        self.running = False

    @staticmethod
    def takes(case):
        """Whether scapy's ESP, the addresses here and one process are enough for a case."""
        words = case.left.esp.split("-")
        is_unknown = any(word.endswith(("gcm8", "gcm12", "ccm8", "ccm12")) or word == "aesxcbc" for word in words)
        return case.outer == 4 and "replace" not in case.steps and not is_unknown

    def configure(self, case):
        os.makedirs(self.folder, exist_ok=True)
        end = case.end(self.which)
        self.local, remote = self.outer[case.outer]
        self.networks = end.networks, end.peer_networks
        self.connection = {"name": "net", "local": [self.local], "remote": [] if remote == "%any" else [remote],
                           "local_id": end.identity, "remote_id": end.peer_identity, "ike": [end.ike],
                           "esp": [end.esp], "start": case.dpd, "dpd_ms": 1000 if case.dpd else None,
                           "networks": bounds(end.networks), "peer_networks": bounds(end.peer_networks),
                           "childless": case.childless, "fragment_bytes": case.fragment_size or None}
        if case.auth == "psk":
            self.connection["psk"] = end.secret
            return
        name = case.certificate(self.which)
        for key, file in (("certificate", f"{name}.pem"), ("key", f"{name}.key"), ("ca", "authority.pem"),
                          ("crl", "revoked.crl")):
            with open(f"{self.certificates}/{file}") as text:
                self.connection[key] = text.read()
        self.connection["rsa_padding"] = "pss" if case.auth == "rsa-pss" else "pkcs1"

    def start(self):
        self.process = subprocess.Popen([f"{target_dir()}/debug/examples/endpoint"], stdin=subprocess.PIPE,
                                        stdout=subprocess.PIPE, stderr=open(f"{self.folder}/output", "w"), text=True)
        self.began, self.next, self.lock = time.monotonic(), None, threading.RLock()
        self.pairs, self.out, self.events, self.keys = {}, None, [], []
        family = socket.AF_INET6 if ":" in self.local else socket.AF_INET
        self.sockets = {port: self.host.socket(family, socket.SOCK_DGRAM) for port in (500, 4500)}
        for port, each in self.sockets.items():
            each.bind((self.local, port))
        self.tun = in_namespace(self.host.name, open_tun)
        self.host.sh(f"""ip link set ike0 mtu 1300 up; ip route add {self.networks[1]} dev ike0 table 77
            ip rule add to {self.networks[1]} lookup 77""")
        self.running = True
        self.thread = threading.Thread(target=self.run, daemon=True)
        self.call(do="configure", connection=self.connection)
        self.thread.start()

    def stop(self, how=None):
        if not self.running:
            return
        if how is None:
            try:
                self.call(do="down", name="net")
                time.sleep(0.1)
            except (OSError, ValueError):
                pass
        self.running = False
        self.thread.join()
        self.process.kill()
        self.process.wait()
        for each in self.sockets.values():
            each.close()
        os.close(self.tun)
        self.host.attempt(f"ip rule del to {self.networks[1]} lookup 77")

    def kill(self):
        self.stop("at once")

    def again(self):
        self.stop()
        self.start()

    def run(self):
        while self.running:
            wait = 0.2
            if self.next is not None:
                wait = min(wait, max(0, self.next / 1000 - (time.monotonic() - self.began)))
            ready, _, _ = select.select([*self.sockets.values(), self.tun], [], [], wait)
            try:
                for each in ready:
                    self.leave(os.read(self.tun, 65536)) if each == self.tun else self.arrive(each)
                if self.next is not None and time.monotonic() - self.began >= self.next / 1000:
                    self.call(do="timer")
            except (OSError, ValueError) as error:
                self.events.append(f"{type(error).__name__}: {error}")
                if self.process.poll() is not None:
                    return

    def call(self, **values):
        with self.lock:
            now = int((time.monotonic() - self.began) * 1000)
            self.process.stdin.write(json.dumps({**values, "now": now, "unix": int(time.time())}) + "\n")
            self.process.stdin.flush()
            answer = json.loads(self.process.stdout.readline())
            for action in answer.get("actions", []):
                self.perform(action)
            self.next = answer.get("next", self.next)
            return answer

    def perform(self, action):
        if "send" in action:
            port = int(action["from"].rpartition(":")[2])
            address, _, to = action["to"].rpartition(":")
            for datagram in action["send"]:
                data = (MARKER if port == 4500 else b"") + bytes.fromhex(datagram)
                self.sockets[port].sendto(data, (address.strip("[]"), int(to)))
        elif "install" in action:
            self.pairs[action["install"]] = Pair(action, self.local)
            if action["active"]:
                self.out = action["install"]
        elif "use" in action:
            self.out = action["use"]
        elif "remove" in action:
            self.pairs.pop(action["remove"], None)
        elif "keys" in action:
            self.keys.append(action)
        else:
            self.events.append(action["event"])

    def arrive(self, each):
        data, source = each.recvfrom(65536)
        port = each.getsockname()[1]
        if port == 4500 and data[:4] != MARKER:
            return self.open(data)
        address = f"[{source[0]}]" if ":" in source[0] else source[0]
        here = f"[{self.local}]" if ":" in self.local else self.local
        self.call(do="datagram", bytes=data[4 if port == 4500 else 0:].hex(), **{"from": f"{address}:{source[1]}"},
                  to=f"{here}:{port}")

    def open(self, data):
        for number, pair in list(self.pairs.items()):
            if len(data) > 8 and int.from_bytes(data[:4], "big") == pair.inbound_spi:
                packet = IP(src=pair.remote, dst=self.local) / UDP(sport=4500, dport=4500) / ESP(data)
                inner = bytes(pair.inbound.decrypt(IP(bytes(packet))))
                if pair.is_fresh:
                    pair.is_fresh = False
                    self.call(do="received", child=number)
                os.write(self.tun, inner)

    def leave(self, packet):
        pair = self.pairs.get(self.out)
        if pair and packet[0] >> 4 == 4:
            sealed = pair.outbound.encrypt(IP(packet))
            self.sockets[4500].sendto(bytes(sealed[ESP]), (pair.remote, pair.port))

    # What cases ask for.

    def initiate(self, childless=False):
        self.call(do="up", name="net")
        deadline = time.monotonic() + slowed(UP_TIMEOUT_SECONDS)
        while not self.is_up() and time.monotonic() < deadline:
            if any("failed" in event for event in self.events):
                break
            time.sleep(0.05)
        return None if self.is_up() else self.words()

    def rekey(self, what):
        self.call(do="rekey", name="net", ike=what == "ike")

    def terminate(self):
        self.call(do="down", name="net")

    def report(self):
        return self.call(do="report", name="net")

    def decryption_table(self):
        """Wireshark's table of the keys of IKE."""
        return "".join(row(logged) for logged in self.keys)

    def children(self):
        ikes = [ike for peer in self.report()["report"] for ike in peer["ike"]]
        return [child for ike in ikes for child in ike["children"]]

    def is_up(self):
        return bool(self.children())

    def words(self):
        why = self.report()["why"]
        with open(f"{self.folder}/output") as file:
            return "\n".join([*self.events, *(step["text"] for step in why["steps"])]) + "\n" + file.read()


def bounds(network):
    made = ipaddress.ip_network(network)
    return [str(made[0]), str(made[-1])]


def open_tun():
    device = os.open("/dev/net/tun", os.O_RDWR)
    fcntl.ioctl(device, TUNSETIFF, struct.pack("16sH", b"ike0", IFF_TUN | IFF_NO_PI))
    return device
