"""An IKEv2 peer in Python, on scapy's messages and `cryptography`; it shares no line with `ikev2/`.

It authenticates by a pre-shared key, has one suite (AES-CBC-128, HMAC-SHA-256, P-256 or X25519), and does what its
caller wants, so that a caller can misbehave: every message is built, sealed and sent in steps of their own.
"""

import hashlib
import hmac
import os
import select
import socket
import struct
import time

from cryptography.hazmat.primitives.asymmetric import ec, x25519
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from scapy.contrib import ikev2 as layers
from scapy.layers.inet import ICMP, IP, UDP
from scapy.layers.ipsec import ESP, SecurityAssociation
from scapy.packet import NoPayload

from judge import prf, prf_plus

IKE_SA_INIT, IKE_AUTH, CREATE_CHILD_SA, INFORMATIONAL = 34, 35, 36, 37
INITIATOR, RESPONSE = 0x08, 0x20
SK, SKF = 46, 53
NUMBERS = {layers.IKEv2_SA: 33, layers.IKEv2_KE: 34, layers.IKEv2_IDi: 35, layers.IKEv2_IDr: 36, layers.IKEv2_AUTH: 39,
           layers.IKEv2_Nonce: 40, layers.IKEv2_Notify: 41, layers.IKEv2_Delete: 42, layers.IKEv2_VendorID: 43,
           layers.IKEv2_TSi: 44, layers.IKEv2_TSr: 45, layers.IKEv2_Encrypted: 46}
NOTIFY = {"UNSUPPORTED_CRITICAL_PAYLOAD": 1, "INVALID_IKE_SPI": 4, "INVALID_MAJOR_VERSION": 5, "INVALID_SYNTAX": 7,
          "INVALID_MESSAGE_ID": 9, "INVALID_SPI": 11, "NO_PROPOSAL_CHOSEN": 14, "INVALID_KE_PAYLOAD": 17,
          "AUTHENTICATION_FAILED": 24, "TS_UNACCEPTABLE": 38, "TEMPORARY_FAILURE": 43, "CHILD_SA_NOT_FOUND": 44,
          "INITIAL_CONTACT": 16384, "NAT_DETECTION_SOURCE_IP": 16388, "NAT_DETECTION_DESTINATION_IP": 16389,
          "COOKIE": 16390, "REKEY_SA": 16393, "FRAGMENTATION_SUPPORTED": 16430}
PRF_SHA256, BLOCK, ICV = 5, 16, 16
MARKER = bytes(4)
# How long an answer may take; silence is judged by the shorter one.
ANSWER_TIMEOUT, SILENCE_SECONDS = 5.0, 0.4


class Unknown(layers.IKEv2_Payload):
    """A payload of a type that no document defines."""
    name = "unknown"


class Silent(Exception):
    """No answer came."""


class Peer:
    """One IKE SA with another gateway, of which it begins the first exchange or is asked."""

    def __init__(self, host, local, remote, identity, peer_identity, secret, group=19):
        self.local, self.remote, self.group = local, remote, group
        self.identity, self.peer_identity, self.secret = identity.encode(), peer_identity.encode(), secret.encode()
        self.sockets = {port: bound(host, local, port) for port in (500, 4500)}
        self.port, self.peer_port = 500, 500
        self.begins = True
        self.spi, self.peer_spi = os.urandom(8), bytes(8)
        self.nonce = os.urandom(32)
        self.next_id = 0
        # Set where the secret is known without an exchange.
        self.secret_of_exchange = None
        self.esp_spi = os.urandom(4)

    def close(self):
        for each in self.sockets.values():
            each.close()

    # Messages: built, sealed, opened.

    def header(self, exchange, number, response=False, **fields):
        initiator, responder = (self.spi, self.peer_spi) if self.begins else (self.peer_spi, self.spi)
        flags = (INITIATOR if self.begins else 0) | (RESPONSE if response else 0)
        return layers.IKEv2(**{"init_SPI": initiator, "resp_SPI": responder, "exch_type": exchange, "flags": flags,
                               "id": number, **fields})

    def plain(self, exchange, number, payloads, response=False, **fields):
        first, body = chain(payloads)
        head = bytes(self.header(exchange, number, response, next_payload=first, **fields))
        return head + body if "length" in fields else with_length(head + body)

    def sealed(self, exchange, number, payloads, response=False, **fields):
        """An encrypted payload of payloads, or of bytes behind the number of the first."""
        first, body = payloads if isinstance(payloads, tuple) else chain(payloads)
        return self.seal(exchange, number, SK, b"", first, body, response, **fields)

    def fragments(self, exchange, number, payloads, size, response=False):
        """The same in fragments (RFC 7383)."""
        first, body = chain(payloads)
        parts = [body[at:at + size] for at in range(0, len(body), size)]
        return [self.seal(exchange, number, SKF, struct.pack("!HH", at + 1, len(parts)), 0 if at else first, part,
                          response) for at, part in enumerate(parts)]

    def seal(self, exchange, number, kind, numbers, first, body, response, padding=None, **fields):
        """RFC 7296 3.14: generic header, initialization vector, ciphertext with padding, check value."""
        cipher_key, mac_key = self.keys["mine"]
        vector = os.urandom(BLOCK)
        fill = -(len(body) + 1) % BLOCK
        plain = body + bytes(fill) + bytes([fill if padding is None else padding])
        encryptor = Cipher(algorithms.AES(cipher_key), modes.CBC(vector)).encryptor()
        inside = numbers + vector + encryptor.update(plain) + encryptor.finalize()
        payload = struct.pack("!BBH", first, 0, 4 + len(inside) + ICV) + inside
        fields = {"next_payload": kind, "length": 28 + len(payload) + ICV, **fields}
        message = bytes(self.header(exchange, number, response, **fields)) + payload
        return message + hmac.digest(mac_key, message, "sha256")[:ICV]

    def opened(self, message):
        """The payloads inside; raises where the check value or the padding is wrong."""
        cipher_key, mac_key = self.keys["theirs"]
        if not hmac.compare_digest(hmac.digest(mac_key, message[:-ICV], "sha256")[:ICV], message[-ICV:]):
            raise ValueError("wrong check value")
        kind, first = message[16], message[28]
        at = 28 + 4 + (4 if kind == SKF else 0)
        decryptor = Cipher(algorithms.AES(cipher_key), modes.CBC(message[at:at + BLOCK])).decryptor()
        plain = decryptor.update(message[at + BLOCK:-ICV]) + decryptor.finalize()
        return parse(first, plain[:len(plain) - 1 - plain[-1]])

    # On the wire.

    def send(self, message, port=None):
        port = port or self.port
        data = (MARKER if 4500 in (port, self.peer_port) else b"") + message
        self.sockets[port].sendto(data, (self.remote, self.peer_port))

    def receive(self, wanted=lambda message: True, timeout=ANSWER_TIMEOUT):
        """The next message that is wanted; ESP, and other messages, are dropped."""
        deadline = time.monotonic() + timeout
        while True:
            left = deadline - time.monotonic()
            if left <= 0:
                raise Silent
            message = self.one(left)
            if message and wanted(message):
                return message

    def one(self, timeout):
        ready, _, _ = select.select(list(self.sockets.values()), [], [], timeout)
        for each in ready:
            data, source = each.recvfrom(65536)
            port = each.getsockname()[1]
            if port == 4500:
                if data[:4] != MARKER or len(data) < 5:
                    return None
                data = data[4:]
            self.came_by = port, source[1]
            return data
        return None

    def response_to(self, message, timeout=ANSWER_TIMEOUT):
        """Sends a request and gives the response of the same message ID, raw."""
        self.send(message)
        number = message[20:24]
        return self.receive(lambda came: came[19] & RESPONSE and came[20:24] == number and
                            came[:8] == message[:8], timeout)

    def is_silent_after(self, message, seconds=SILENCE_SECONDS):
        self.send(message)
        try:
            came = self.receive(lambda came: came[:8] == message[:8], seconds)
        except Silent:
            return True
        self.broke_silence = came
        return False

    def ask(self, exchange, payloads, **fields):
        """The payloads of the response to a sealed request."""
        number, self.next_id = self.next_id, self.next_id + 1
        return self.opened(self.response_to(self.sealed(exchange, number, payloads, **fields)))

    def alive(self):
        """Whether the other end still answers a liveness check (RFC 7296 1.4)."""
        try:
            return self.ask(INFORMATIONAL, []) == []
        except (Silent, ValueError):
            return False

    # IKE_SA_INIT.

    def detection(self, name, address, port, responder):
        spis = (self.spi + responder) if self.begins else (self.peer_spi + self.spi)
        digest = hashlib.sha1(spis + socket.inet_aton(address) + struct.pack("!H", port)).digest()
        return notify(name, digest)

    def init_payloads(self, **changed):
        """SA, KE, Ni and what is announced; `changed` puts another payload, or none, in the place of one."""
        self.private, public = new_key(self.group)
        here, there = (self.local, self.port, self.peer_spi), (self.remote, self.peer_port, self.peer_spi)
        made = {"sa": layers.IKEv2_SA(prop=ike_proposal(self.group)),
                "ke": layers.IKEv2_KE(group=self.group, ke=public), "nonce": layers.IKEv2_Nonce(nonce=self.nonce),
                "source": self.detection("NAT_DETECTION_SOURCE_IP", *here),
                "destination": self.detection("NAT_DETECTION_DESTINATION_IP", *there),
                "fragmentation": notify("FRAGMENTATION_SUPPORTED")}
        return [each for each in {**made, **changed}.values() if each is not None]

    def init(self, **changed):
        """The whole exchange as initiator; a COOKIE is sent back."""
        payloads = self.init_payloads(**changed)
        self.init_request = self.plain(IKE_SA_INIT, 0, payloads)
        self.init_response = self.response_to(self.init_request)
        answer = parse(self.init_response[16], self.init_response[28:])
        if cookie := found_notify(answer, "COOKIE"):
            self.init_request = self.plain(IKE_SA_INIT, 0, [notify("COOKIE", cookie.notify), *payloads])
            self.init_response = self.response_to(self.init_request)
            answer = parse(self.init_response[16], self.init_response[28:])
        return self.agree(answer, self.init_response)

    def agree(self, answer, message):
        if not (ke := found(answer, layers.IKEv2_KE)):
            return answer
        self.peer_spi = message[8:16] if self.begins else message[:8]
        self.peer_nonce = found(answer, layers.IKEv2_Nonce).nonce
        self.derive(ke.ke)
        self.next_id = 1 if self.begins else 0
        # RFC 7296 2.23: port 4500 may be used whether there is a NAT or not.
        if self.begins:
            self.port = self.peer_port = 4500
        return answer

    def derive(self, public):
        shared = self.secret_of_exchange or agreed(self.private, public, self.group)
        nonces = self.ordered(self.nonce, self.peer_nonce)
        seed = b"".join(nonces) + b"".join(self.ordered(self.spi, self.peer_spi))
        material = prf_plus(PRF_SHA256, prf(PRF_SHA256, b"".join(nonces), shared), seed, 32 * 5 + 16 * 2)
        lengths, parts = (32, 32, 32, 16, 16, 32, 32), []
        for length in lengths:
            parts.append(material[:length])
            material = material[length:]
        self.sk_d, ai, ar, ei, er, pi, pr = parts
        initiator, responder = (ei, ai), (er, ar)
        self.keys = {"mine": initiator if self.begins else responder, "theirs": responder if self.begins else initiator}
        self.sk_p = {"mine": pi if self.begins else pr, "theirs": pr if self.begins else pi}

    def ordered(self, mine, theirs):
        return (mine, theirs) if self.begins else (theirs, mine)

    # IKE_AUTH.

    def auth(self, message, nonce, identity, sk_p):
        """RFC 7296 2.15, by the shared key."""
        octets = message + nonce + prf(PRF_SHA256, sk_p, identity)
        return prf(PRF_SHA256, prf(PRF_SHA256, self.secret, b"Key Pad for IKEv2"), octets)

    def auth_payloads(self, networks=("10.2.0.0", "10.1.0.0"), **changed):
        identity = b"\2\0\0\0" + self.identity
        mine, theirs = (layers.IKEv2_IDi, layers.IKEv2_IDr) if self.begins else (layers.IKEv2_IDr, layers.IKEv2_IDi)
        message = self.init_request if self.begins else self.init_response
        here, there = selector(networks[0]), selector(networks[1])
        tsi, tsr = (here, there) if self.begins else (there, here)
        made = {"id": mine(IDtype=2, ID=self.identity),
                "peer": theirs(IDtype=2, ID=self.peer_identity) if self.begins else None,
                "contact": notify("INITIAL_CONTACT") if self.begins else None,
                "auth": layers.IKEv2_AUTH(auth_type=2, load=self.auth(message, self.peer_nonce, identity,
                                                                     self.sk_p["mine"])),
                "sa": layers.IKEv2_SA(prop=esp_proposal(self.esp_spi)),
                "tsi": layers.IKEv2_TSi(traffic_selector=[tsi]), "tsr": layers.IKEv2_TSr(traffic_selector=[tsr])}
        return [each for each in {**made, **changed}.values() if each is not None]

    def authenticate(self, **changed):
        """The whole exchange as initiator; gives the payloads of the answer."""
        self.auth_request = self.sealed(IKE_AUTH, 1, self.auth_payloads(**changed))
        self.auth_response = self.response_to(self.auth_request)
        self.next_id = 2
        return self.accept(self.opened(self.auth_response))

    def accept(self, answer):
        """Verifies the AUTH of the other end, and takes its child SA."""
        if auth := found(answer, layers.IKEv2_AUTH):
            identity = found(answer, layers.IKEv2_IDr if self.begins else layers.IKEv2_IDi)
            message = self.init_response if self.begins else self.init_request
            wanted = self.auth(message, self.nonce, bytes(identity)[4:8 + len(self.peer_identity)], self.sk_p["theirs"])
            self.authentic = hmac.compare_digest(auth.load, wanted) and bytes(identity.ID) == self.peer_identity
            if sa := found(answer, layers.IKEv2_SA):
                self.peer_esp_spi = bytes(sa.prop.SPI)
                self.child_keys(self.nonce, self.peer_nonce)
        return answer

    def child_keys(self, nonce, peer_nonce):
        """RFC 7296 2.17: initiator to responder first, encryption before integrity."""
        material = prf_plus(PRF_SHA256, self.sk_d, b"".join(self.ordered(nonce, peer_nonce)), 2 * (16 + 32))
        forth, back = material[:48], material[48:]
        mine, theirs = (forth, back) if self.begins else (back, forth)
        self.esp_out = association(self.peer_esp_spi, mine, self.local, self.remote)
        self.esp_in = association(self.esp_spi, theirs, self.remote, self.local)

    def establish(self):
        self.init()
        self.authenticate()
        if not getattr(self, "authentic", False):
            raise AssertionError("the other end did not authenticate itself")
        return self

    # As responder.

    def answer_init(self, message, **changed):
        """Takes an IKE_SA_INIT request and sends the response."""
        self.begins = False
        self.init_request = message
        request = parse(message[16], message[28:])
        self.peer_spi = message[:8]
        payloads = self.init_payloads(**changed)
        self.init_response = self.plain(IKE_SA_INIT, 0, payloads, response=True)
        self.agree(request, message)
        self.reply(self.init_response)
        return request

    def answer_auth(self, message, **changed):
        request = self.opened(message)
        child = layers.IKEv2_SA(prop=esp_proposal(self.esp_spi))
        self.accept(request)
        self.auth_response = self.sealed(IKE_AUTH, 1, self.auth_payloads(sa=child, **changed), response=True)
        self.reply(self.auth_response)
        return request

    def reply(self, message):
        """To where the last message came from."""
        port, source = self.came_by
        self.port, self.peer_port = port, source
        data = (MARKER if port == 4500 else b"") + message
        self.sockets[port].sendto(data, (self.remote, source))

    # ESP in UDP.

    def ping_inside(self, source, destination, timeout=2):
        """Whether a ping through the child SA comes back through it."""
        packet = IP(src=source, dst=destination) / ICMP(id=7, seq=1) / b"through the peer in Python"
        self.sockets[4500].sendto(bytes(self.esp_out.encrypt(packet)[ESP]), (self.remote, self.peer_port))
        deadline = time.monotonic() + timeout
        while (left := deadline - time.monotonic()) > 0:
            ready, _, _ = select.select([self.sockets[4500]], [], [], left)
            data = self.sockets[4500].recv(65536) if ready else b""
            if data[:4] == self.esp_spi:
                outer = IP(src=self.remote, dst=self.local) / UDP(sport=4500, dport=4500) / ESP(data)
                inner = self.esp_in.decrypt(IP(bytes(outer)))
                return ICMP in inner and inner[ICMP].type == 0 and inner.src == destination
        return False


def bound(host, address, port):
    made = host.socket(socket.AF_INET, socket.SOCK_DGRAM)
    made.bind((address, port))
    return made


def association(spi, keys, source, destination):
    return SecurityAssociation(ESP, spi=int.from_bytes(spi, "big"), crypt_algo="AES-CBC", crypt_key=keys[:16],
                               auth_algo="SHA2-256-128", auth_key=keys[16:48],
                               tunnel_header=IP(src=source, dst=destination), nat_t_header=UDP(sport=4500, dport=4500))


def chain(payloads):
    """The type of the first payload, and all as bytes, each naming the next."""
    numbers = [getattr(each, "number", None) or NUMBERS[type(each)] for each in payloads]
    body = b""
    for each, following in zip(payloads, numbers[1:] + [0]):
        each.next_payload = following
        body += bytes(each)
    return (numbers[0] if numbers else 0), body


def with_length(message):
    return message[:24] + struct.pack("!I", len(message)) + message[28:]


def parse(first, data):
    """Payloads that follow each other, by scapy; the last one has no next."""
    head = layers.IKEv2(next_payload=first, init_SPI=bytes(8), resp_SPI=bytes(8), length=28 + len(data))
    found_layers, layer = [], layers.IKEv2(bytes(head) + data).payload
    while data and not isinstance(layer, NoPayload):
        found_layers.append(layer)
        layer = layer.payload
    for each in found_layers:
        each.remove_payload()
    return found_layers


def found(payloads, kind):
    return next((each for each in payloads if isinstance(each, kind)), None)


def found_notify(payloads, name):
    all_of_them = (each for each in payloads if isinstance(each, layers.IKEv2_Notify))
    return next((each for each in all_of_them if each.type == NOTIFY[name]), None)


def errors(payloads):
    """Names of the error notifications among payloads."""
    names = {number: name for name, number in NOTIFY.items()}
    return [names.get(each.type, each.type) for each in payloads
            if isinstance(each, layers.IKEv2_Notify) and each.type < 16384]


def notify(name, data=b"", protocol=0, spi=b""):
    return layers.IKEv2_Notify(type=NOTIFY[name], notify=data, proto=protocol, SPI=spi)


def unknown(number, critical):
    made = Unknown(flags=0x80 if critical else 0, load=b"of no known type")
    made.number = number
    return made


def transforms(*rows):
    made = None
    for at, (kind, number, size) in enumerate(rows):
        each = layers.IKEv2_Transform(next_payload=0 if at == len(rows) - 1 else 3, transform_type=kind,
                                      transform_id=number, **({"length": 12, "key_length": size} if size else {}))
        made = each if made is None else made / each
    return made


def ike_proposal(group):
    return layers.IKEv2_Proposal(next_payload=0, proposal=1, proto=1, trans_nb=4,
                                 trans=transforms((1, 12, 128), (2, 5, 0), (3, 12, 0), (4, group, 0)))


def esp_proposal(spi, group=None):
    rows = [(1, 12, 128), (3, 12, 0), *([(4, group, 0)] if group else []), (5, 0, 0)]
    return layers.IKEv2_Proposal(next_payload=0, proposal=1, proto=3, SPI=spi, trans_nb=len(rows),
                                 trans=transforms(*rows))


def selector(network):
    return layers.IPv4TrafficSelector(IP_protocol_ID=0, starting_address_v4=network,
                                      ending_address_v4=network.rpartition(".")[0] + ".255")


def new_key(group):
    if group == 31:
        private = x25519.X25519PrivateKey.generate()
        return private, private.public_key().public_bytes(Encoding.Raw, PublicFormat.Raw)
    private = ec.generate_private_key(ec.SECP256R1())
    return private, private.public_key().public_bytes(Encoding.X962, PublicFormat.UncompressedPoint)[1:]


def agreed(private, public, group):
    if group == 31:
        return private.exchange(x25519.X25519PublicKey.from_public_bytes(public))
    return private.exchange(ec.ECDH(), ec.EllipticCurvePublicKey.from_encoded_point(ec.SECP256R1(), b"\4" + public))
