"""Makes endpoints.json: a CA and a certificate with its key for each kind of key, for two endpoints in one process.

    python3 endpoints.py > endpoints.json      (needs the package cryptography)
"""
import datetime, json
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from cryptography.x509.oid import NameOID

BEGIN = datetime.datetime(2026, 1, 1)
END = datetime.datetime(2056, 1, 1)


def name(text):
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])


def certificate(subject, key, issuer, issuer_key, names=(), ca=False):
    builder = x509.CertificateBuilder().subject_name(name(subject)).issuer_name(name(issuer)).public_key(key.public_key())
    builder = builder.serial_number(x509.random_serial_number()).not_valid_before(BEGIN).not_valid_after(END)
    builder = builder.add_extension(x509.BasicConstraints(ca=ca, path_length=None), critical=True)
    if names:
        builder = builder.add_extension(x509.SubjectAlternativeName([x509.DNSName(n) for n in names]), critical=False)
    algorithm = None if isinstance(issuer_key, ed25519.Ed25519PrivateKey) else hashes.SHA256()
    return builder.sign(issuer_key, algorithm)


def pem(key):
    return key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8,
                             serialization.NoEncryption()).decode()


def main():
    ca_key = ec.generate_private_key(ec.SECP256R1())
    ca = certificate("Test CA", ca_key, "Test CA", ca_key, ca=True)
    keys = {"rsa": rsa.generate_private_key(65537, 2048), "ecdsa": ec.generate_private_key(ec.SECP256R1()),
            "ecdsa384": ec.generate_private_key(ec.SECP384R1()), "ed25519": ed25519.Ed25519PrivateKey.generate()}
    ends = {kind: {"key": pem(key), "name": f"{kind}.example.org",
                   "certificate": certificate(kind, key, "Test CA", ca_key, [f"{kind}.example.org"])
                   .public_bytes(serialization.Encoding.DER).hex()} for kind, key in keys.items()}
    other = certificate("Other CA", ca_key, "Other CA", ca_key, ca=True)
    der = lambda c: c.public_bytes(serialization.Encoding.DER).hex()
    print(json.dumps({"now": 1800000000, "ca": der(ca), "other_ca": der(other), "ends": ends}, indent=1))


if __name__ == "__main__":
    main()
