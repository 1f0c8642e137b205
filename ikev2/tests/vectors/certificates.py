#!/usr/bin/env python3
"""Makes certificates.json: chains by `cryptography` (OpenSSL), what each is to be judged as, and when.

Run again, it makes others like them; their keys are thrown away.
"""

import ipaddress
import json
from datetime import datetime, timedelta, timezone
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.oid import ExtendedKeyUsageOID as EKU, NameOID

NOW = datetime(2027, 1, 15, 8, tzinfo=timezone.utc)
DAY = timedelta(days=1)
KEY_USAGE = ["digital_signature", "content_commitment", "key_encipherment", "data_encipherment", "key_agreement",
             "key_cert_sign", "crl_sign", "encipher_only", "decipher_only"]


def name(common):
    return x509.Name([x509.NameAttribute(NameOID.COUNTRY_NAME, "CH"),
                      x509.NameAttribute(NameOID.ORGANIZATION_NAME, "Example"),
                      x509.NameAttribute(NameOID.COMMON_NAME, common)])


def usage(*allowed):
    return x509.KeyUsage(**{one: one in allowed for one in KEY_USAGE})


class Entity:
    """A name with its key and certificate."""

    def __init__(self, common, issuer=None, key=None, ca=False, extensions=(), begin=-DAY, end=365 * DAY, algorithm=None,
                 signer=None):
        self.name = common if isinstance(common, x509.Name) else name(common)
        self.key = key or ec.generate_private_key(ec.SECP256R1())
        issuer = issuer or self
        builder = (x509.CertificateBuilder().subject_name(self.name).issuer_name(issuer.name)
                   .public_key(self.key.public_key()).serial_number(x509.random_serial_number())
                   .not_valid_before(NOW + begin).not_valid_after(NOW + end))
        if ca:
            path_length = None if ca is True else ca - 1
            builder = builder.add_extension(x509.BasicConstraints(True, path_length), True)
        for extension, critical in extensions:
            builder = builder.add_extension(extension, critical)
        key = (signer or issuer).key
        hashed = None if isinstance(key, ed25519.Ed25519PrivateKey) else algorithm or hashes.SHA256()
        self.certificate = builder.sign(key, hashed)

    @property
    def der(self):
        return self.certificate.public_bytes(Encoding.DER).hex()


def revoking(issuer, revoked, begin=-DAY, end=7 * DAY):
    builder = (x509.CertificateRevocationListBuilder().issuer_name(issuer.name)
               .last_update(NOW + begin).next_update(NOW + end)
               .add_extension(x509.CRLNumber(1), False))
    for entity in revoked:
        builder = builder.add_revoked_certificate(
            x509.RevokedCertificateBuilder().serial_number(entity.certificate.serial_number)
            .revocation_date(NOW + begin).build())
    return builder.sign(issuer.key, hashes.SHA256()).public_bytes(Encoding.DER).hex()


def names(*general):
    return x509.SubjectAlternativeName(general), False


def main():
    cases = []

    def case(title, chain, root, verdict="good", at=0, claimed="vpn.example.org", lists=(), required=False):
        cases.append({"title": title, "chain": [entity.der for entity in chain], "root": root.der, "verdict": verdict,
                      "at": at, "claimed": claimed, "lists": list(lists), "required": required})

    signing = (usage("key_cert_sign", "crl_sign"), True)
    host = names(x509.DNSName("vpn.example.org"))
    root = Entity("Root", ca=True, extensions=[signing])
    middle = Entity("Middle", root, ca=True, extensions=[signing])
    peer = lambda *extensions, issuer=middle, **more: Entity("vpn", issuer, extensions=[host, *extensions], **more)
    plain = peer()

    case("a chain of three", [plain, middle], root)
    case("others in any order", [plain, peer(issuer=root), middle], root)
    case("signed by the root itself", [peer(issuer=root)], root)
    case("digitalSignature", [peer((usage("digital_signature"), True)), middle], root)
    case("nonRepudiation", [peer((usage("content_commitment"), True)), middle], root)
    for title, key in [("RSA", rsa.generate_private_key(65537, 2048)), ("Ed25519", ed25519.Ed25519PrivateKey.generate()),
                       ("P-384", ec.generate_private_key(ec.SECP384R1())), ("P-521", ec.generate_private_key(ec.SECP521R1()))]:
        case(f"a peer with a key of {title}", [peer(key=key), middle], root)
        top = Entity("Other", key=key, ca=True)
        case(f"a root with a key of {title}", [peer(issuer=top)], top)
    case("keyEncipherment alone", [peer((usage("key_encipherment"), True)), middle], root, "KeyUsage")
    for purpose in (EKU.IPSEC_IKE, EKU.SERVER_AUTH, EKU.CLIENT_AUTH, EKU.ANY_EXTENDED_KEY_USAGE):
        case(f"purpose {purpose.dotted_string}", [peer((x509.ExtendedKeyUsage([EKU.CODE_SIGNING, purpose]), True)), middle], root)
    case("purpose codeSigning alone", [peer((x509.ExtendedKeyUsage([EKU.CODE_SIGNING]), False)), middle], root, "Purpose")
    case("expired", [peer(begin=-9 * DAY, end=-DAY), middle], root, "Expired")
    case("not valid yet", [peer(begin=DAY), middle], root, "NotYetValid")
    old = Entity("Old", root, ca=True, begin=-9 * DAY, end=-DAY)
    case("an expired CA", [peer(issuer=old), old], root, "Expired", 1)
    case("the CA is missing", [plain], root, "UnknownIssuer")
    case("another root", [plain, middle], Entity("Elsewhere", ca=True), "UnknownIssuer", 1)
    twin = Entity("Root", ca=True, extensions=[signing])
    case("a root of the same name", [plain, middle], twin, "Signature", 1)
    case("a forged peer", [peer(signer=twin), middle], root, "Signature", 0)
    no_ca = Entity("NoCa", root)
    case("a CA without basicConstraints", [peer(issuer=no_ca), no_ca], root, "NotCa", 1)
    mute = Entity("Mute", root, ca=True, extensions=[(usage("crl_sign"), True)])
    case("a CA whose key usage forbids it", [peer(issuer=mute), mute], root, "KeyUsage", 1)
    short = Entity("Short", root, ca=1, extensions=[signing])
    below = Entity("Below", short, ca=True, extensions=[signing])
    case("a path that is too long", [peer(issuer=below), below, short], root, "PathLength")
    case("a path as long as allowed", [peer(issuer=short), short], root)
    case("a CA as peer", [Entity("vpn", middle, ca=True, extensions=[host]), middle], root, "IsCa")
    unknown = x509.UnrecognizedExtension(x509.ObjectIdentifier("1.3.6.1.4.1.55555.1"), b"\x05\x00")
    case("an unknown critical extension", [peer((unknown, True)), middle], root, "CriticalExtension")
    case("an unknown extension", [peer((unknown, False)), middle], root)
    for title, subtree, verdict in [("permits", "example.org", "good"), ("does not permit", "example.net", "NameConstraint")]:
        limits = x509.NameConstraints([x509.DNSName(subtree)], None), True
        limited = Entity("Limited", root, ca=True, extensions=[signing, limits])
        case(f"a CA that {title} the name", [peer(issuer=limited), limited], root, verdict)
    limits = x509.NameConstraints(None, [x509.IPAddress(ipaddress.ip_network("192.0.2.0/24"))]), True
    limited = Entity("Excluding", root, ca=True, extensions=[signing, limits])
    address = names(x509.IPAddress(ipaddress.ip_address("192.0.2.7")))
    case("an excluded address", [Entity("vpn", limited, extensions=[address]), limited], root, "NameConstraint", claimed="192.0.2.7")

    case("a stranger's name", [plain, middle], root, "Identity", claimed="other.example.org")
    case("case of a domain", [plain, middle], root, claimed="VPN.Example.ORG")
    case("the common name is no domain", [Entity("vpn.example.org", root)], root, "Identity")
    starred = Entity("star", root, extensions=[names(x509.DNSName("*.example.org"))])
    case("a star is no domain", [starred], root, "Identity")
    many = Entity("many", root, extensions=[
        names(x509.RFC822Name("me@Example.org"), x509.IPAddress(ipaddress.ip_address("2001:db8::7")),
              x509.DirectoryName(name("also"))),
        (x509.SubjectKeyIdentifier(b"\x01\x02\xff"), False)])
    for claimed, verdict in [("me@example.org", "good"), ("ME@example.org", "Identity"), ("2001:db8::7", "good"),
                             ("2001:db8::8", "Identity"), ("C=CH, O=example, CN=MANY", "good"), ("CN=also,O=Example,C=CH", "good"),
                             ("O=Example, CN=many", "Identity"), ("keyid:0x0102ff", "good"), ("keyid:0x0102", "Identity")]:
        case(f"claims {claimed}", [many], root, verdict, claimed=claimed)

    empty, full = revoking(middle, []), revoking(middle, [plain])
    of_root, of_middle = revoking(root, []), revoking(root, [middle])
    case("revoked", [plain, middle], root, "Revoked", lists=[full])
    case("a revoked CA", [plain, middle], root, "Revoked", 1, lists=[empty, of_middle])
    case("lists that revoke others", [plain, middle], root, lists=[empty, of_root], required=True)
    case("a list that is missing, not needed", [plain, middle], root, lists=[of_root])
    case("a list that is missing", [plain, middle], root, "RevocationUnknown", lists=[of_root], required=True)
    case("no list at all", [plain, middle], root, "RevocationUnknown", required=True)
    stale = revoking(middle, [], begin=-9 * DAY, end=-DAY)
    case("an old list", [plain, middle], root, "RevocationListExpired", lists=[stale, of_root], required=True)
    case("an old list, not needed", [plain, middle], root, lists=[stale, of_root])
    case("an old list that revokes", [plain, middle], root, "Revoked", lists=[revoking(middle, [plain], begin=-9 * DAY, end=-DAY)])

    made = {"now": int(NOW.timestamp()), "cases": cases}
    Path(__file__).with_name("certificates.json").write_text(json.dumps(made, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
