"""Certificates of a measurement: one authority, the gateway, and a certificate of its own for every initiator.

The initiators share one key: making thousands of RSA keys would take longer than all handshakes, and the responder
cannot tell.
"""

import os
import sys

from cryptography.hazmat.primitives.serialization import Encoding

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "charon"))

from pki import KEYS, Authority, store  # noqa: E402

IDENTITY = "p{}.example.org"
GATEWAY = "gateway.example.org"


class Issuer(Authority):
    """An authority whose own key is of the kind that is measured."""

    def __init__(self, kind):
        original = KEYS["p256"]
        KEYS["p256"] = KEYS[kind]
        try:
            super().__init__("Measurement")
        finally:
            KEYS["p256"] = original


def make(folder, kind, count):
    """Writes authority.pem, gateway.pem and .key, peer.key, p0.pem …; gives the folder."""
    os.makedirs(folder, exist_ok=True)
    issuer, key = Issuer(kind), KEYS[kind]()
    store(folder, "authority.pem", issuer.certificate.public_bytes(Encoding.PEM))
    issuer.issue(folder, "gateway", KEYS[kind](), GATEWAY)
    for number in range(count):
        issuer.issue(folder, f"p{number}", key, IDENTITY.format(number))
    os.replace(f"{folder}/p0.key", f"{folder}/peer.key")
    for number in range(1, count):
        os.remove(f"{folder}/p{number}.key")
    return folder


__all__ = ["GATEWAY", "IDENTITY", "make"]
