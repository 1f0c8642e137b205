"""tshark reads an exchange with the keys that the left end logs, as a user of Wireshark would."""

import os
import subprocess
import tempfile

from network import pcap
from network.expect import expect

ENCRYPTION = {"aes-cbc": "AES-CBC-{bits} [RFC3602]", "aes-gcm-16": "AES-GCM-{bits} with 16 octet ICV [RFC5282]"}
INTEGRITY = {"hmac-sha2-256": "HMAC_SHA2_256_128 [RFC4868]", None: "NONE [RFC4306]"}
IKE_AUTH, AUTH = "35", "39"
SALT = 4


def row(logged):
    """A line of Wireshark's `ikev2_decryption_table`."""
    (cipher, initiator), (_, responder) = (keys[0] for keys in logged["keys"])
    macs = [keys[1] for keys in logged["keys"]]
    length = len(initiator) // 2 - (SALT if "gcm" in cipher else 0)
    first, second = (mac[1] if mac else "" for mac in macs)
    names = ENCRYPTION[cipher].format(bits=8 * length), INTEGRITY[macs[0][0] if macs[0] else None]
    return f'{",".join(logged["spis"])},{initiator},{responder},"{names[0]}",{first},{second},"{names[1]}"\n'


def proofs_seen(frames, table):
    """In how many IKE_AUTH messages tshark finds an AUTH payload."""
    with tempfile.TemporaryDirectory(prefix="esplanade-tshark-") as folder:
        pcap.write(f"{folder}/ike.pcap", frames, pcap.ETHERNET)
        with open(f"{folder}/ikev2_decryption_table", "w") as file:
            file.write(table)
        done = subprocess.run(["tshark", "-r", f"{folder}/ike.pcap", "-Y", f"isakmp.exchangetype == {IKE_AUTH}",
                               "-T", "fields", "-e", "isakmp.typepayload"], capture_output=True, text=True, timeout=60,
                              env={**os.environ, "WIRESHARK_CONFIG_DIR": folder})
    expect(done.returncode == 0, f"tshark: {done.stderr}")
    return sum(AUTH in line.split(",") for line in done.stdout.splitlines())


def dissected(bench, _):
    table = bench.left.decryption_table()
    expect(proofs_seen(bench.handshake, "") == 0, "the control failed: AUTH is seen without keys")
    seen = proofs_seen(bench.handshake, table)
    expect(seen == 2, f"tshark finds AUTH in {seen} of 2 IKE_AUTH messages")
