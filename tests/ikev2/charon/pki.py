"""Certificates of the cases: one authority, and for each kind of key and each end a certificate.

    authority.pem  revoked.crl            of the authority that both ends trust
    stranger.pem                          an authority that neither trusts
    left-p256.pem, left-p256.key …        the ends, whose names are left.example and right.example
"""

import datetime
import os

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

KEYS = {"rsa": lambda: rsa.generate_private_key(65537, 2048),
        "p256": lambda: ec.generate_private_key(ec.SECP256R1()),
        "p384": lambda: ec.generate_private_key(ec.SECP384R1()),
        "p521": lambda: ec.generate_private_key(ec.SECP521R1()),
        "ed25519": ed25519.Ed25519PrivateKey.generate}
# What is wrong with a certificate of a P-256 key.
FLAWS = ["expired", "revoked", "stranger", "another-name"]
DAY = datetime.timedelta(days=1)


def make(folder):
    """Writes everything; gives the folder."""
    os.makedirs(folder, exist_ok=True)
    authority, stranger = Authority("Authority"), Authority("Stranger")
    revoked = []
    for end in ("left", "right"):
        for kind, new in KEYS.items():
            authority.issue(folder, f"{end}-{kind}", new(), f"{end}.example")
        for flaw in FLAWS:
            issuer = stranger if flaw == "stranger" else authority
            name = "somewhere-else.example" if flaw == "another-name" else f"{end}.example"
            made = issuer.issue(folder, f"{end}-{flaw}", KEYS["p256"](), name, days=-1 if flaw == "expired" else 30)
            revoked += [made.serial_number] if flaw == "revoked" else []
    store(folder, "authority.pem", authority.certificate.public_bytes(Encoding.PEM))
    store(folder, "stranger.pem", stranger.certificate.public_bytes(Encoding.PEM))
    store(folder, "revoked.crl", authority.revoke(revoked))
    return folder


class Authority:
    def __init__(self, name):
        self.key = KEYS["p256"]()
        self.name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        usage = x509.KeyUsage(digital_signature=False, content_commitment=False, key_encipherment=False,
                              data_encipherment=False, key_agreement=False, key_cert_sign=True, crl_sign=True,
                              encipher_only=False, decipher_only=False)
        self.certificate = (self.builder(self.name, self.key.public_key(), 3650)
                            .add_extension(x509.BasicConstraints(ca=True, path_length=None), True)
                            .add_extension(usage, True).sign(self.key, hashes.SHA256()))

    def builder(self, subject, public, days):
        now = datetime.datetime.now(datetime.timezone.utc)
        identifier = x509.SubjectKeyIdentifier.from_public_key(public)
        issuer = x509.AuthorityKeyIdentifier.from_issuer_public_key(self.key.public_key())
        return (x509.CertificateBuilder().subject_name(subject).issuer_name(self.name).public_key(public)
                .serial_number(x509.random_serial_number()).not_valid_before(now - 60 * DAY)
                .not_valid_after(now + days * DAY).add_extension(identifier, False).add_extension(issuer, False))

    def issue(self, folder, file, key, name, days=30):
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        usage = x509.KeyUsage(digital_signature=True, content_commitment=False, key_encipherment=False,
                              data_encipherment=False, key_agreement=False, key_cert_sign=False, crl_sign=False,
                              encipher_only=False, decipher_only=False)
        purposes = x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH])
        made = (self.builder(subject, key.public_key(), days)
                .add_extension(x509.BasicConstraints(ca=False, path_length=None), True)
                .add_extension(x509.SubjectAlternativeName([x509.DNSName(name)]), False)
                .add_extension(usage, True).add_extension(purposes, False).sign(self.key, hashes.SHA256()))
        store(folder, f"{file}.pem", made.public_bytes(Encoding.PEM))
        store(folder, f"{file}.key", key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
        return made

    def revoke(self, serials):
        now = datetime.datetime.now(datetime.timezone.utc)
        made = x509.CertificateRevocationListBuilder().issuer_name(self.name).last_update(now - DAY)
        made = made.next_update(now + 30 * DAY).add_extension(x509.CRLNumber(1), False).add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_public_key(self.key.public_key()), False)
        for serial in serials:
            made = made.add_revoked_certificate(x509.RevokedCertificateBuilder().serial_number(serial)
                                                .revocation_date(now - DAY).build())
        return made.sign(self.key, hashes.SHA256()).public_bytes(Encoding.PEM)


def store(folder, name, data):
    with open(os.path.join(folder, name), "wb") as file:
        os.fchmod(file.fileno(), 0o600)
        file.write(data)
