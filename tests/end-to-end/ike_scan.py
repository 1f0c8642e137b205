"""What ike-scan finds out about a gateway. It is the tool with which gateways that exchange keys are looked for."""

import re
import subprocess

from ike import config, start, start_both
from network.expect import expect
from network.sites import OUTER, Sites

WAITS = 'start = "wait"\n'
# With --ikev2 ike-scan offers 3DES, SHA-1 and a group of 1024 bits, among others.
OLD_SUITE = 'ike = ["3des-sha1-prfsha1-modp1024"]\n'
GATEWAY, STRANGER = OUTER[4][1], "192.0.2.77"
PORTS = ((), ("--nat-t",))
IKEV1 = ((), ("--aggressive", "--id=initiator.example.org"))


def scan(host, *options):
    """What ike-scan on a host prints about the right gateway, and how many handshakes and notifies came back."""
    argv = ["ike-scan", "--retry=2", "--timeout=400", "--multiline", *options, GATEWAY]
    done = subprocess.run(host.argv(argv), capture_output=True, text=True, timeout=60)
    sums = re.search(r"(\d+) returned handshake; (\d+) returned notify", done.stdout)
    expect(sums, f"ike-scan did not come to its end:\n{done.stdout}{done.stderr}")
    return done.stdout, (int(sums[1]), int(sums[2]))


def expect_silence(host, *options):
    text, answers = scan(host, *options)
    expect(answers == (0, 0), f"ike-scan {' '.join(options)} was answered:\n{text}")


def a_configured_address_is_told_that_no_proposal_fits():
    with Sites("is") as sites:
        right = start(sites, "right", config("right", WAITS))
        for port in PORTS:
            text, answers = scan(sites.left, "--ikev2", *port)
            expect(answers == (0, 1) and "Notify message 14 (NO_PROPOSAL_CHOSEN)" in text, text)
            expect("IKEv2" in text, text)
        story = right.ask("why", "site")
        for words in ("no proposal fits", "the peer offers prfsha1", "the peer offers sha1, md5"):
            expect(words in story, f"`why` does not say {words!r}:\n{story}")


def a_proposal_that_fits_is_chosen_and_read_by_it():
    with Sites("is") as sites:
        start(sites, "right", config("right", WAITS + OLD_SUITE))
        for port in PORTS:
            text, answers = scan(sites.left, "--ikev2", *port)
            expect(answers == (1, 0), text)
            expect("SA=(Encr=3DES Prf=HMAC_SHA1 Integ=HMAC_SHA1_96 DH_Group=2:modp1024)" in text, text)
            expect("KeyExchange(132 bytes)" in text and "Nonce(" in text, text)


def a_stranger_gets_silence():
    with Sites("is") as sites:
        sites.wire.sh(f"ip addr add {STRANGER}/24 dev br0")
        start(sites, "right", config("right", WAITS + OLD_SUITE))
        sites.wire.sh(f"ping -q -c 1 -W 2 {GATEWAY}")
        for port in PORTS:
            _, answers = scan(sites.left, "--ikev2", *port)
            expect(answers == (1, 0), "the control failed: the configured address is not answered")
            expect_silence(sites.wire, "--ikev2", *port)


def ikev1_gets_silence_from_a_configured_address_too():
    with Sites("is") as sites:
        start(sites, "right", config("right", WAITS + OLD_SUITE))
        for mode in IKEV1:
            for port in PORTS:
                expect_silence(sites.left, *mode, *port)


def a_scan_does_not_disturb_a_tunnel():
    with Sites("is") as sites:
        _, right = start_both(sites)
        before = right.peer()["children"]
        # From the address of the left gateway, which has the ports of IKE itself.
        text, _ = scan(sites.left, "--ikev2", "--sport=0")
        expect("NO_PROPOSAL_CHOSEN" in text, text)
        expect(sites.ping(4) == 3, f"no ping behind a scan: {right.words()}")
        after = right.peer()["children"]
        spis = [[child["inbound_spi"] for child in children] for children in (before, after)]
        expect(spis[0] == spis[1], f"other child SAs than before: {spis}")


CASES = {
    "a configured address is told that no proposal fits, and `why` names what differs":
        a_configured_address_is_told_that_no_proposal_fits,
    "a proposal that fits is chosen": a_proposal_that_fits_is_chosen_and_read_by_it,
    "a stranger gets silence": a_stranger_gets_silence,
    "IKEv1 gets silence": ikev1_gets_silence_from_a_configured_address_too,
    "a scan does not disturb a tunnel": a_scan_does_not_disturb_a_tunnel,
}
