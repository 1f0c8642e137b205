"""What is measured: how both sides prove who they are, and the suites."""

from dataclasses import dataclass

SECRET = "fe3MFfmoZ3p0pSVRb2m0ZZ0sBN1CFHkWj1sQPNGzhLw"


@dataclass(frozen=True)
class Kind:
    name: str
    # Of pki.KEYS; none: a pre-shared key.
    key: str | None
    ike: str
    # The bar: handshakes per second of processor time, as a multiple of charon's.
    factor: float
    esp: str = "aes128gcm16"

    @property
    def auth(self):
        """The words of swanctl.conf."""
        return "psk" if self.key is None else "pubkey"


KINDS = {kind.name: kind for kind in (
    Kind("psk", None, "aes128gcm16-prfsha256-x25519", 2.5),
    Kind("ecdsa", "p256", "aes128gcm16-prfsha256-x25519", 2.5),
    Kind("rsa", "rsa", "aes128gcm16-prfsha256-modp2048", 1.3),
)}
