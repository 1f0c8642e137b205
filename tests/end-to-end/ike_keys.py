"""Keys for Wireshark: `--key-log` writes its tables, and tshark reads IKE and ESP with nothing else."""

import os
import stat
import subprocess
import tempfile
import time

from ike import UP_SECONDS, config, start
from network import pcap
from network.expect import expect
from network.sites import Sites

TABLES = ("ikev2_decryption_table", "esp_sa")
PREFERENCES = "esp.enable_encryption_decode: TRUE\nesp.enable_authentication_check: TRUE\n"
# Payload types of IKEv2, and numbers of exchanges.
AUTH, IKE_AUTH, CREATE_CHILD_SA, TRAFFIC_SELECTOR = "39", "35", "36", "44"
# What is seen inside ESP: ICMP in tunnel mode.
READABLE = "esp && icmp"
# Wireshark 4.0 verifies ICVs with 32-bit sequence numbers alone, so the suites have `noesn`.


def dissected(profile, frames, shown, *fields):
    """The rows that tshark shows with a profile."""
    with tempfile.TemporaryDirectory(prefix="esplanade-test-") as folder:
        pcap.write(f"{folder}/wire.pcap", frames, pcap.ETHERNET)
        command = ["tshark", "-r", f"{folder}/wire.pcap", "-Y", shown, "-T", "fields",
                   *(word for field in fields for word in ("-e", field))]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, stdin=subprocess.DEVNULL,
                              env={**os.environ, "WIRESHARK_CONFIG_DIR": profile})
    expect(done.returncode == 0, f"tshark: {done.stderr}")
    return [row.split("\t") for row in done.stdout.splitlines()]


def proofs(profile, frames, exchange, payload):
    rows = dissected(profile, frames, f"isakmp.exchangetype == {exchange}", "isakmp.typepayload")
    return sum(payload in row[0].split(",") for row in rows)


def tshark_reads(suites):
    def test():
        with Sites("ik") as sites, tempfile.TemporaryDirectory(prefix="esplanade-test-") as log:
            wire = sites.listen(sites.wire, "left")
            right = start(sites, "right", config("right", 'start = "wait"\n' + suites))
            left = start(sites, "left", f'[gateway]\nkey_log = "{log}"\n' + config("left", suites))
            left.wait("up")
            right.wait("up")
            expect(sites.ping(4) == 3 and sites.ping(6) == 3, f"no ping: {left.words()}")
            # The IKE SA that replaces the first has keys of its own, by which the child SA is rekeyed.
            left.ask("rekey", "site", "--ike")
            left.ask("rekey", "site")
            settled(left)
            expect(sites.ping(4) == 3, f"no ping after the rekeys: {left.words()}")
            frames = wire.settle()
            with tempfile.TemporaryDirectory(prefix="esplanade-test-") as empty:
                expect(proofs(empty, frames, IKE_AUTH, AUTH) == 0, "the control failed: AUTH is seen without keys")
                expect(not dissected(empty, frames, READABLE, "esp.spi"), "the control failed: ESP is read without keys")
            with open(f"{log}/preferences", "w") as file:
                file.write(PREFERENCES)
            expect(proofs(log, frames, IKE_AUTH, AUTH) == 2, "tshark does not find AUTH in both messages of IKE_AUTH")
            renewed = proofs(log, frames, CREATE_CHILD_SA, TRAFFIC_SELECTOR)
            expect(renewed >= 2, f"traffic selectors are seen in {renewed} messages of CREATE_CHILD_SA")
            rows = dissected(log, frames, READABLE, "esp.spi", "esp.icv_good")
            expect(len({row[0] for row in rows}) == 4, f"packets of {len({row[0] for row in rows})} SPIs are read, not 4")
            expect(all(row[1] == "1" for row in rows), "an ICV is not good")
            for name in TABLES:
                mode = stat.S_IMODE(os.stat(f"{log}/{name}").st_mode)
                expect(mode == 0o600, f"{name} has mode {mode:o}")
            expect(left.words().count("are written to") == 1, f"the warning: {left.words()}")
            expect(f"keys are written to {log}" in left.ask("status"), left.ask("status"))
            return f"{len(rows)} packets of ESP read"
    return test


def settled(gateway):
    """Waits until one pair is left of those that replaced each other."""
    deadline = time.monotonic() + UP_SECONDS
    while len(gateway.peer()["children"]) != 1 and time.monotonic() < deadline:
        time.sleep(0.1)


def without_it_no_key_is_written():
    with Sites("ik") as sites:
        right = start(sites, "right", config("right", 'start = "wait"\n'))
        left = start(sites, "left", config("left"))
        left.wait("up")
        right.wait("up")
        for gateway in (left, right):
            found = [name for _, _, files in os.walk(gateway.folder) for name in files]
            expect(not set(TABLES) & set(found), f"in its folder: {found}")
            expect("keys are written" not in gateway.ask("status"), gateway.ask("status"))


def a_place_that_others_reach_is_refused():
    with Sites("ik") as sites, tempfile.TemporaryDirectory(prefix="esplanade-test-") as log:
        os.chmod(log, 0o777)
        text = f'[gateway]\nkey_log = "{log}"\n' + config("left")
        try:
            start(sites, "left", text)
        except Exception as refused:
            expect("chmod go-w" in str(refused), f"refused by: {refused}")
            return
        raise AssertionError("a folder that others may write is taken")


CASES = {
    "tshark reads IKE_AUTH, a rekeyed IKE SA and ESP, AES-GCM": tshark_reads('esp = ["aes256gcm16-x25519-noesn"]\n'),
    "tshark reads IKE_AUTH, a rekeyed IKE SA and ESP, AES-CBC with SHA-2":
        tshark_reads('ike = ["aes128-sha256-x25519"]\nesp = ["aes256-sha256-noesn"]\n'),
    "without it no key is written": without_it_no_key_is_written,
    "a folder that others may write is refused": a_place_that_others_reach_is_refused,
}
