#!/usr/bin/env python3
"""Makes keys.json: private keys in every form that files have, and signatures by `cryptography` (OpenSSL) over one message.

The keys are of no use but to tests. Run again, it makes others.
"""

import json
from pathlib import Path

from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, padding, rsa, utils
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption, Encoding, NoEncryption, PrivateFormat, PublicFormat)

MESSAGE = b"the first message, a nonce and an identity"
SHA = {"sha1": hashes.SHA1(), "sha256": hashes.SHA256(), "sha384": hashes.SHA384(), "sha512": hashes.SHA512()}
CURVES = {"p256": (ec.SECP256R1(), 32), "p384": (ec.SECP384R1(), 48), "p521": (ec.SECP521R1(), 66)}


def forms(key, traditional):
    text = lambda form, encryption=NoEncryption(): key.private_bytes(Encoding.PEM, form, encryption).decode()
    made = {"pkcs8": text(PrivateFormat.PKCS8), "encrypted": text(PrivateFormat.PKCS8, BestAvailableEncryption(b"x"))}
    if traditional:
        made["traditional"] = text(PrivateFormat.TraditionalOpenSSL)
    return made


def rsa_signatures(key):
    for name, algorithm in SHA.items():
        yield f"pkcs1-{name}", key.sign(MESSAGE, padding.PKCS1v15(), algorithm)
        pss = padding.PSS(mgf=padding.MGF1(algorithm), salt_length=algorithm.digest_size)
        yield f"pss-{name}", key.sign(MESSAGE, pss, algorithm)


def ec_signatures(key, size):
    for name, algorithm in SHA.items():
        der = key.sign(MESSAGE, ec.ECDSA(algorithm))
        yield f"ecdsa-{name}", der
        yield f"fixed-{name}", b"".join(part.to_bytes(size, "big") for part in utils.decode_dss_signature(der))


def entry(key, signatures, traditional=True):
    public = key.public_key().public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    return {"private": forms(key, traditional), "public": public.hex(),
            "signatures": {name: signature.hex() for name, signature in signatures}}


def main():
    made = {"message": MESSAGE.hex(), "keys": {}}
    for bits in (1024, 2048, 3072):
        key = rsa.generate_private_key(65537, bits)
        made["keys"][f"rsa{bits}"] = entry(key, rsa_signatures(key) if bits > 1024 else [])
    for name, (curve, size) in CURVES.items():
        key = ec.generate_private_key(curve)
        made["keys"][name] = entry(key, ec_signatures(key, size))
    other = ec.generate_private_key(ec.SECP256K1())
    made["keys"]["secp256k1"] = entry(other, [])
    key = ed25519.Ed25519PrivateKey.generate()
    made["keys"]["ed25519"] = entry(key, [("ed25519", key.sign(MESSAGE))], traditional=False)
    Path(__file__).with_name("keys.json").write_text(json.dumps(made, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
