#!/usr/bin/env python3
"""A second implementation of IKEv2's keys and AUTH, on `cryptography`; it shares no line with `ikev2/`.

    tests/ikev2/run         prints `ok NAME` or `not ok NAME: why` for each case

Every run has other nonces, keys and messages.
"""

import json
import os
import subprocess
import sys
import warnings

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import cmac, hashes, hmac
from cryptography.hazmat.primitives.asymmetric import dh, ec, ed25519, padding, rsa, utils, x25519
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat

SHA = {"sha1": hashes.SHA1, "sha256": hashes.SHA256, "sha384": hashes.SHA384, "sha512": hashes.SHA512}
PRFS = {2: "sha1", 4: "xcbc", 5: "sha256", 6: "sha384", 7: "sha512", 8: "cmac"}
INTEGRITY_LEN = {"hmac-sha1": 20, "hmac-sha2-256": 32, "hmac-sha2-512": 64, "aes-xcbc-mac": 16, None: 0}
PROTECTIONS = [("aes-cbc", 32, "hmac-sha2-256"), ("aes-gcm-16", 36, None), ("aes-ctr", 20, "hmac-sha1"),
               ("chacha20-poly1305", 36, None), ("3des-cbc", 24, "aes-xcbc-mac"), (None, 0, "hmac-sha2-512")]
CURVES = {19: (ec.SECP256R1(), 32), 20: (ec.SECP384R1(), 48), 21: (ec.SECP521R1(), 66)}
# Object identifiers of RFC 7427 A, after the tag and length of a SEQUENCE.
PKCS1 = {"sha256": "300d06092a864886f70d01010b0500", "sha384": "300d06092a864886f70d01010c0500",
         "sha512": "300d06092a864886f70d01010d0500"}
ECDSA = {"sha256": "300a06082a8648ce3d040302", "sha384": "300a06082a8648ce3d040303",
         "sha512": "300a06082a8648ce3d040304"}
PSS = {name: "304106092a864886f70d01010a3034a00f300d06096086480165030402" + number + "0500a11c301a06092a864886f70d010108"
       "300d06096086480165030402" + number + "0500a2030201" + salt
       for name, number, salt in [("sha256", "01", "20"), ("sha384", "02", "30"), ("sha512", "03", "40")]}
ED25519 = "300506032b6570"


def aes(key, block):
    encryptor = Cipher(algorithms.AES(key), modes.ECB()).encryptor()
    return encryptor.update(block) + encryptor.finalize()


def xor(one, other):
    return bytes(a ^ b for a, b in zip(one, other))


def xcbc(key, message):
    first, complete, padded = (aes(key, bytes([number]) * 16) for number in (1, 2, 3))
    blocks = [message[at:at + 16] for at in range(0, len(message), 16)] or [b""]
    if len(blocks[-1]) == 16:
        last = xor(blocks[-1], complete)
    else:
        last = xor((blocks[-1] + b"\x80").ljust(16, b"\0"), padded)
    chain = bytes(16)
    for block in blocks[:-1] + [last]:
        chain = aes(first, xor(chain, block))
    return chain


def aes_cmac(key, message):
    made = cmac.CMAC(algorithms.AES(key))
    made.update(message)
    return made.finalize()


def prf(number, key, message):
    name = PRFS[number]
    if name == "xcbc":
        key = key.ljust(16, b"\0") if len(key) <= 16 else xcbc(bytes(16), key)
        return xcbc(key, message)
    if name == "cmac":
        return aes_cmac(key if len(key) == 16 else aes_cmac(bytes(16), key), message)
    made = hmac.HMAC(key, SHA[name]())
    made.update(message)
    return made.finalize()


def prf_plus(number, key, seed, length):
    output = block = b""
    count = 0
    while len(output) < length:
        count += 1
        block = prf(number, key, block + seed + bytes([count]))
        output += block
    return output[:length]


def cut(material, *lengths):
    for length in lengths:
        yield material[:length].hex() if length else None
        material = material[length:]
    assert not material


def ike_keys(number, skeyseed, seed, protection):
    size = len(prf(number, b"", b""))
    _, key_len, integrity = protection
    mac_len = INTEGRITY_LEN[integrity]
    material = prf_plus(number, skeyseed, seed, 3 * size + 2 * (key_len + mac_len))
    d, ai, ar, ei, er, pi, pr = cut(material, size, mac_len, mac_len, key_len, key_len, size, size)
    return bytes.fromhex(d), {"initiator": [ei, ai], "responder": [er, ar], "pi": pi, "pr": pr}


def child_keys(number, d, seed, protection):
    _, key_len, integrity = protection
    mac_len = INTEGRITY_LEN[integrity]
    material = prf_plus(number, d, seed, 2 * (key_len + mac_len))
    ei, ai, er, ar = cut(material, key_len, mac_len, key_len, mac_len)
    return [[ei, ai], [er, ar]]


def described(protection):
    return dict(zip(("encryption", "key_len", "integrity"), protection))


class Ours:
    def __init__(self, program):
        self.process = subprocess.Popen([program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def ask(self, question, **values):
        values = {key: value.hex() if isinstance(value, bytes) else value for key, value in values.items()}
        self.process.stdin.write(json.dumps({"ask": question, **values}) + "\n")
        self.process.stdin.flush()
        return json.loads(self.process.stdout.readline())


failed = 0


def report(name, good, why=""):
    global failed
    failed += not good
    print(f"ok {name}" if good else f"not ok {name}: {why or 'differs'}")


def judge_keys(ours):
    for number, name in PRFS.items():
        for ike in PROTECTIONS[:-1]:
            for child in PROTECTIONS:
                ni, nr = os.urandom(16 + number * 5), os.urandom(32)
                spi_i, spi_r, shared, newer = os.urandom(8), os.urandom(8), os.urandom(66), os.urandom(256)
                key = ni[:8] + nr[:8] if name in ("xcbc", "cmac") else ni + nr
                d, first = ike_keys(number, prf(number, key, shared), ni + nr + spi_i + spi_r, ike)
                _, second = ike_keys(number, prf(number, d, newer + ni + nr), ni + nr + spi_i + spi_r, ike)
                children = [child_keys(number, d, extra + ni + nr, child) for extra in (b"", newer)]
                found = ours.ask("keys", prf=number, ike=described(ike), child=described(child), ni=ni, nr=nr,
                                 spi_i=spi_i, spi_r=spi_r, shared=shared, shared_new=newer)
                expected = {"ike": first, "rekeyed": second, "children": children}
                report(f"keys {name} {ike[0]} {child[0] or 'ah'}", found == expected)


def octets(number):
    parts = {"message": os.urandom(300), "nonce": os.urandom(32), "identity": os.urandom(24), "sk_p": os.urandom(32)}
    made = parts["message"] + parts["nonce"] + prf(number, parts["sk_p"], parts["identity"])
    return {"prf": number, **parts}, made


def judge_secrets(ours):
    for number, name in PRFS.items():
        for length in (0, 1, 16, 20, 64, 200):
            secret, (parts, signed) = os.urandom(length), octets(number)
            auth = prf(number, prf(number, secret, b"Key Pad for IKEv2"), signed)
            found = ours.ask("secret", secret=secret, theirs=auth, **parts)
            report(f"secret {name} of {length} bytes", found == {"auth": auth.hex(), "taken": True}, found)
            wrong = ours.ask("secret", secret=secret + b"x", theirs=auth, **parts)
            report(f"another secret {name} of {length} bytes", not wrong["taken"])


def primes():
    """The primes of RFC 2409 and 3526, as the vectors have them: computed from pi by modp.py."""
    path = os.path.join(os.path.dirname(__file__), "../../multibuffer/tests/vectors/modp.json")
    numbers = {1024: 2, 1536: 5, 2048: 14, 3072: 15, 4096: 16, 6144: 17, 8192: 18}
    with open(path, encoding="utf-8") as file:
        return {numbers[case["bits"]]: int(case["prime"], 16) for case in json.load(file)}


def judge_groups(ours):
    random = bytes([1]) + os.urandom(80)
    for number, prime in primes().items():
        size = (prime.bit_length() + 7) // 8
        private = dh.DHParameterNumbers(prime, 2).parameters().generate_private_key()
        public = private.public_key().public_numbers().y.to_bytes(size, "big")
        found = ours.ask("exchange", group=number, random=random, peer=public)
        peer = dh.DHPublicNumbers(int(found["public"], 16), dh.DHParameterNumbers(prime, 2)).public_key()
        report(f"group {number}", found["shared"] == private.exchange(peer).rjust(size, b"\0").hex())
    for number, (curve, size) in CURVES.items():
        private = ec.generate_private_key(curve)
        public = private.public_key().public_bytes(Encoding.X962, PublicFormat.UncompressedPoint)[1:]
        found = ours.ask("exchange", group=number, random=random, peer=public)
        peer = ec.EllipticCurvePublicKey.from_encoded_point(curve, b"\4" + bytes.fromhex(found["public"]))
        report(f"group {number}", found["shared"] == private.exchange(ec.ECDH(), peer).hex())
    private = x25519.X25519PrivateKey.generate()
    public = private.public_key().public_bytes(Encoding.Raw, PublicFormat.Raw)
    found = ours.ask("exchange", group=31, random=random, peer=public)
    peer = x25519.X25519PublicKey.from_public_bytes(bytes.fromhex(found["public"]))
    report("group 31", found["shared"] == private.exchange(peer).hex())


def pss(name):
    return padding.PSS(mgf=padding.MGF1(SHA[name]()), salt_length=SHA[name].digest_size)


def fixed(der, size):
    return b"".join(part.to_bytes(size, "big") for part in utils.decode_dss_signature(der))


def with_identifier(identifier, signature):
    identifier = bytes.fromhex(identifier)
    return bytes([len(identifier)]) + identifier + signature


def rsa_cases(key):
    for name in ("sha1", "sha256", "sha384", "sha512"):
        yield f"1 {name}", 1, lambda m, h=name: key.sign(m, padding.PKCS1v15(), SHA[h]())
    for name in PKCS1:
        yield (f"14 pkcs1 {name}", 14,
               lambda m, h=name: with_identifier(PKCS1[h], key.sign(m, padding.PKCS1v15(), SHA[h]())))
        yield f"14 pss {name}", 14, lambda m, h=name: with_identifier(PSS[h], key.sign(m, pss(h), SHA[h]()))


def ec_cases(key, method, own, size):
    yield f"{method}", method, lambda m: fixed(key.sign(m, ec.ECDSA(SHA[own]())), size)
    for name in ECDSA:
        yield f"14 {name}", 14, lambda m, h=name: with_identifier(ECDSA[h], key.sign(m, ec.ECDSA(SHA[h]())))


def verified(verify):
    try:
        verify()
        return True
    except InvalidSignature:
        return False


def judge_theirs(ours, title, key, cases):
    """What Python signs, we take; changed in a bit, we do not."""
    public = key.public_key().public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    for name, method, make in cases:
        parts, signed = octets(5)
        data = make(signed)
        ask = lambda what: ours.ask("check", key=public, method=method, data=what, **parts)["taken"]
        report(f"we check {title} {name}", ask(data) and not ask(data[:-1] + bytes([data[-1] ^ 1])))


def judge_ours(ours, title, key, hashes_, method, verify, pkcs1=False):
    """What we sign, Python takes."""
    pem = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode()
    parts, signed = octets(7)
    found = ours.ask("sign", key=pem, hashes=hashes_, pkcs1=pkcs1, **parts)
    data = bytes.fromhex(found["data"])
    good = found["method"] == method and verified(lambda: verify(data, signed))
    report(f"we sign {title} by method {method}", good and not verified(lambda: verify(data, signed + b".")), found)


def behind(identifier, data):
    """The signature, if it stands behind this identifier."""
    expected = with_identifier(identifier, b"")
    if not data.startswith(expected):
        raise InvalidSignature
    return data[len(expected):]


def judge_signatures(ours):
    key = rsa.generate_private_key(65537, 2048)
    public = key.public_key()
    judge_theirs(ours, "RSA", key, rsa_cases(key))
    judge_ours(ours, "RSA", key, None, 1, lambda d, m: public.verify(d, m, padding.PKCS1v15(), hashes.SHA256()))
    for number, name in ((2, "sha256"), (3, "sha384"), (4, "sha512")):
        judge_ours(ours, f"RSA PSS {name}", key, [number], 14,
                   lambda d, m, h=name: public.verify(behind(PSS[h], d), m, pss(h), SHA[h]()))
        judge_ours(ours, f"RSA PKCS#1 {name}", key, [number], 14,
                   lambda d, m, h=name: public.verify(behind(PKCS1[h], d), m, padding.PKCS1v15(), SHA[h]()), pkcs1=True)
    for (curve, size), method, name in zip(CURVES.values(), (9, 10, 11), ("sha256", "sha384", "sha512")):
        judge_curve(ours, ec.generate_private_key(curve), size, method, name)
    key = ed25519.Ed25519PrivateKey.generate()
    judge_theirs(ours, "Ed25519", key, [("14", 14, lambda m: with_identifier(ED25519, key.sign(m)))])
    judge_ours(ours, "Ed25519", key, [2, 5], 14, lambda d, m: key.public_key().verify(behind(ED25519, d), m))


def judge_curve(ours, key, size, method, name):
    public, title = key.public_key(), f"ECDSA {key.curve.name}"

    def verify_fixed(data, message):
        r, s = int.from_bytes(data[:size], "big"), int.from_bytes(data[size:], "big")
        public.verify(utils.encode_dss_signature(r, s), message, ec.ECDSA(SHA[name]()))

    judge_theirs(ours, title, key, ec_cases(key, method, name, size))
    judge_ours(ours, title, key, None, method, verify_fixed)
    judge_ours(ours, title, key, [2, 3, 4], 14,
               lambda d, m: public.verify(behind(ECDSA[name], d), m, ec.ECDSA(SHA[name]())))


def main():
    # That MODP groups are not the future is known.
    warnings.simplefilter("ignore")
    ours = Ours(sys.argv[1])
    judge_keys(ours)
    judge_secrets(ours)
    judge_groups(ours)
    judge_signatures(ours)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
