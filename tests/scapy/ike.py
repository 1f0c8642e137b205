"""scapy and tshark as judges of IKE messages.

    tests/scapy/ike

scapy reads what we print: the same payloads, field for field, and the same bytes when it prints them again. We read
what scapy prints and print the same bytes. tshark finds nothing malformed in ours, and finds a message that is cut.
"""

import os
import subprocess
import sys
import tempfile

from scapy.contrib import ikev2
from scapy.layers.inet import IP, UDP
from scapy.packet import NoPayload, Raw
from scapy.utils import wrpcap

PROGRAM = ["cargo", "run", "--quiet", "--locked", "--package", "ikev2", "--example", "ike_messages", "--"]
# What scapy 2.8 has a layer for, in the order in which we print it.
EXPECTED = {
    "ike-sa-init": ["Notify", "SA", "KE", "Nonce", "Notify", "Notify", "Notify", "Notify", "VendorID"],
    "clear-auth": ["IDi", "CERT", "CERTREQ", "IDr", "AUTH", "CP", "SA", "TSi", "TSr", "Notify"],
    "clear-informational": ["Delete", "Delete", "Notify"],
    "sealed": ["Encrypted"],
    "fragment": ["Encrypted_Fragment"],
}


def main():
    ours = printed_by_us()
    failed = scapy_reads(ours) + we_read_scapy() + tshark_reads(ours)
    return 1 if failed else 0


def printed_by_us():
    lines = subprocess.run(PROGRAM, check=True, capture_output=True, text=True).stdout.splitlines()
    messages = [(name, bytes.fromhex(digits)) for name, digits in (line.split() for line in lines)]
    assert {name for name, _ in messages} == set(EXPECTED), "a message is missing"
    return messages


def layers(packet):
    while not isinstance(packet, NoPayload):
        yield packet
        packet = packet.payload


def scapy_reads(messages):
    failed = 0
    for name, data in messages:
        packet = ikev2.IKEv2(data)
        found = [type(layer).__name__.removeprefix("IKEv2_") for layer in layers(packet)][1:]
        same = bytes(packet) == data and not packet.haslayer(Raw)
        # Built anew from the fields alone, with scapy's own lengths.
        fine = found == EXPECTED[name] and same and packet.length == len(data)
        print(f"{'ok' if fine else 'not ok'} scapy reads {name}: {' '.join(found)}")
        failed += not fine
    return failed


def built_by_scapy():
    transform = ikev2.IKEv2_Transform
    transforms = (transform(next_payload=3, transform_type=1, transform_id=20, length=12, key_length=256)
                  / transform(next_payload=3, transform_type=2, transform_id=6)
                  / transform(next_payload=0, transform_type=4, transform_id=31))
    proposal = ikev2.IKEv2_Proposal(proposal=1, proto=1, trans_nb=3, trans=transforms)
    head = {"init_SPI": b"\x01" * 8, "resp_SPI": b"\x02" * 8, "exch_type": 34, "flags": "Initiator", "id": 0}
    yield "SA, KE, Nonce", (ikev2.IKEv2(next_payload=33, **head) / ikev2.IKEv2_SA(next_payload=34, prop=proposal)
                            / ikev2.IKEv2_KE(next_payload=40, group=31, ke=b"\x05" * 32)
                            / ikev2.IKEv2_Nonce(next_payload=0, nonce=b"\x06" * 32))
    yield "N", ikev2.IKEv2(next_payload=41, **head) / ikev2.IKEv2_Notify(type=16390, notify=b"cookie")
    yield "IDi, AUTH", (ikev2.IKEv2(next_payload=35, **head)
                        / ikev2.IKEv2_IDi(next_payload=39, IDtype=2, ID=b"left.example")
                        / ikev2.IKEv2_AUTH(next_payload=0, auth_type=2, load=b"\x07" * 32))
    yield "V", ikev2.IKEv2(next_payload=43, **head) / ikev2.IKEv2_VendorID(vendorID=b"scapy")


def we_read_scapy():
    messages = [(name, bytes(packet)) for name, packet in built_by_scapy()]
    text = "".join(data.hex() + "\n" for _, data in messages)
    output = subprocess.run(PROGRAM + ["read"], input=text, check=True, capture_output=True, text=True).stdout
    failed = 0
    for (name, data), line in zip(messages, output.splitlines(), strict=True):
        fine = line == data.hex()
        print(f"{'ok' if fine else 'not ok'} we read scapy's {name}{'' if fine else ': ' + line}")
        failed += not fine
    return failed


def tshark_reads(messages):
    failed = 0
    with tempfile.TemporaryDirectory(prefix="esplanade-ike-") as folder:
        # The control: a notification whose length goes past the end of the message.
        cut = dict(messages)["clear-informational"][:-6]
        cut = cut[:24] + len(cut).to_bytes(4, "big") + cut[28:]
        for name, data, malformed in [(name, data, 0) for name, data in messages] + [("a message that is cut", cut, 1)]:
            found = count_malformed(os.path.join(folder, "ike.pcap"), data)
            fine = found == malformed
            print(f"{'ok' if fine else 'not ok'} tshark reads {name}: malformed {found}")
            failed += not fine
    return failed


def count_malformed(path, data):
    wrpcap(path, [IP(src="192.0.2.1", dst="192.0.2.2") / UDP(sport=500, dport=500) / Raw(data)])
    def lines(condition):
        command = ["tshark", "-r", path, "-Y", condition, "-T", "fields", "-e", "frame.number"]
        return len(subprocess.run(command, check=True, capture_output=True, text=True).stdout.split())
    assert lines("isakmp") == 1, "tshark does not take it for IKE"
    return lines("_ws.malformed || isakmp.payloadlength.invalid || _ws.expert.severity == \"Error\"")


if __name__ == "__main__":
    sys.exit(main())
