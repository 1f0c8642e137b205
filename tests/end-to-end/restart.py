"""A gateway that is restarted goes on: with its numbers, its windows and its lifetimes, or it says why not."""

import os
import shutil
import signal
import subprocess
import tempfile
import time

from network.expect import expect, expect_refusal
from network.gateway import GatewayError, keeps_numbers, program
from network.timeout import slowed
from network.sites import AES_GCM, Sites, setkey_text
from network.wire import Esp
from refusals import run_gateway

IIV = "-E aes-gcm-16-iiv 0x{:02x}" + "5a" * 19
CBC = "-E aes-cbc 0x{0:02x}" + "5a" * 15 + " -A hmac-sha1 0x{0:02x}" + "a5" * 19
HOW = {"stopped": signal.SIGTERM, "killed": signal.SIGKILL}
OUT = 0x1001


def restarted(side, how):
    """README's own file, with fixed keys and `-r 1024`."""
    def test():
        with Sites("rs") as sites:
            gateways = dict(zip(("left", "right"), sites.start_both(inner=(4,))))
            expect(sites.ping(count=60) == 60, "the control failed: no ping before the restart")
            for _ in range(3):
                gateways[side].again(HOW[how])
                expect(sites.ping(count=10) == 10, f"pings are lost after the {side} gateway was {how} and started again")
            for gateway in gateways.values():
                expect(gateway.drops("replayed") + gateway.drops("too-old") == 0, gateway.ask("drops", "--json"))
    return test


def both_restart():
    with Sites("rs") as sites:
        left, right = sites.start_both(inner=(4,))
        expect(sites.ping(count=60) == 60, "the control failed: no ping before the restart")
        left.stop(signal.SIGKILL)
        right.stop()
        left.start().ready()
        right.start().ready()
        expect(sites.ping(count=10) == 10, "pings are lost")


def loaded_again(by):
    """`flush`, and the same associations again: by one text, and by a statement at a time."""
    def test():
        with Sites("rs") as sites:
            left, _ = sites.start_both(inner=(4,))
            wire = sites.listen(sites.wire, "left")
            text = "flush; spdflush;\n" + setkey_text("left", inner=(4,))
            for _ in range(3):
                expect(sites.ping(count=20) == 20, "pings are lost")
                by(left, text)
            expect(sites.ping(count=20) == 20, "pings are lost after the file was loaded again")
            numbers = sent(wire, OUT)
            expect(numbers == sorted(set(numbers)) and len(numbers) == 80, f"numbers on the wire: {numbers}")
            waste = numbers[-1] - numbers[0] - len(numbers) + 1
            expect(waste == 0, f"{waste} numbers were skipped")
    return test


def whole(gateway, text):
    with tempfile.NamedTemporaryFile("w", suffix=".setkey") as file:
        file.write(text)
        file.flush()
        subprocess.run([program("setkey"), "-f", file.name], check=True, capture_output=True,
                       env={**os.environ, "ESPLANADE_CONTROL": gateway.control})


def by_statement(gateway, text):
    gateway.setkey_text(text)


def sent(wire, spi):
    return [esp.sequence for esp in esps(wire, spi)]


def esps(wire, spi):
    return [esp for esp in map(Esp.find, wire.settle()) if esp and esp.spi == spi]


def there_and_back():
    """An update to other keys, and back to the first ones: no number of either comes twice."""
    with Sites("rs") as sites:
        gateways = sites.start_both(inner=(4,))
        left = gateways[0]
        wire, seen = sites.listen(sites.wire, "left"), {1: [], 7: []}
        for turn, key in enumerate((1, 7, 1, 7, 1)):
            wire.clear()
            for gateway in gateways:
                gateway.setkey_text(f"update 192.0.2.1 192.0.2.2 esp-udp {OUT:#x} -m tunnel -r 1024 {AES_GCM.format(key)};")
            expect(sites.ping(count=10) == 10, f"turn {turn}: pings are lost")
            seen[key] += sent(wire, OUT)
            if turn == 2:
                text = setkey_text("left", inner=(4,))
                left.again(signal.SIGKILL, text)
        for key, numbers in seen.items():
            expect(len(numbers) >= 20 and len(set(numbers)) == len(numbers), f"key {key}: {numbers}")


def recorded(how):
    """Who has recorded packets and sends them again: those up to the edge that was kept are refused, exactly those."""
    def test():
        with Sites("rs") as sites:
            left, right = sites.start_both(inner=(4,))
            wire = sites.listen(sites.wire, "left")
            flood = sites.client.start(["ping", "-q", "-f", "-c", "100000", "10.2.0.2"], stdout=subprocess.DEVNULL)
            while len(wire.frames) < 3000:
                expect(flood.poll() is None, "the control failed: the flood ended")
            right.stop(HOW[how])
            flood.kill()
            frames = [esp for esp in esps(wire, OUT)]
            right.start().ready()
            (edge,) = [sa["sequence"] for sa in right.status()["associations"] if sa["spi"] == f"{OUT:#010x}"]
            refused = [esp for esp in frames if esp.sequence <= edge]
            expect(len(refused) > 500, f"only {len(refused)} of {len(frames)} packets are behind the edge {edge}")
            toward = sites.listen(sites.wire, "right")
            for part in range(0, len(frames), 50):
                for esp in frames[part:part + 50]:
                    toward.inject(esp.again())
                toward.settle(0.02)
            taken = right.status()["inbound"]["packets"]
            expect(taken == len(frames) - len(refused), f"{taken} of {len(frames)} were taken, {len(refused)} are behind the edge")
            expect(right.drops("replayed") + right.drops("too-old") == len(refused), right.ask("drops", "--json"))
            expect(sites.ping(count=5) == 5, "nothing new passes")
            return f"{len(refused)} of {len(frames)} refused"
    return test


# Each sync of a disk takes this long.
SLOW_SYNC_MILLISECONDS = 1500
SLOW_SYNC = f"""
#define _GNU_SOURCE
#include <time.h>
#include <unistd.h>
#include <sys/syscall.h>
int fdatasync(int file) {{
    struct timespec time = {{ {SLOW_SYNC_MILLISECONDS // 1000}, {SLOW_SYNC_MILLISECONDS % 1000 * 1_000_000} }};
    nanosleep(&time, 0);
    return (int) syscall(SYS_fdatasync, file);
}}
"""


def recorded_beside_a_slow_sync():
    """What arrived while the disk was busy for seconds is refused after a `kill -9`, up to 100 ms before it."""
    with Sites("rs") as sites, tempfile.TemporaryDirectory() as folder:
        slow = f"{folder}/slow.so"
        subprocess.run(["cc", "-shared", "-fPIC", "-o", slow, "-x", "c", "-"], input=SLOW_SYNC.encode(), check=True)
        sites.start("left", inner=(4,))
        right = sites.start("right", inner=(4,), wrap=("env", f"LD_PRELOAD={slow}"))
        wire = sites.listen(sites.wire, "left")
        # The first round has begun a sync: what follows comes beside it.
        expect(sites.ping(count=2) == 2, "the control failed: no ping")
        time.sleep(0.3)
        expect(sites.ping(count=60) == 60, "pings are lost beside a slow sync")
        time.sleep(slowed(0.3))
        right.stop(signal.SIGKILL)
        frames = esps(wire, OUT)
        right.wrap = ()
        right.start().ready()
        toward = sites.listen(sites.wire, "right")
        for esp in frames:
            toward.inject(esp.again())
        toward.settle(0.1)
        refused = right.drops("replayed") + right.drops("too-old")
        expect(len(frames) == 62 and refused == 62, f"{refused} of {len(frames)} were refused")
        expect(sites.ping(count=5) == 5, "nothing new passes")


def iiv_text(name, fresh):
    text = setkey_text(name, inner=(4,), suite=IIV)
    return text.replace("-r 1024", "-r 1024 -o key=fresh") if fresh and keeps_numbers() else text


def nonces_never_repeat():
    """RFC 8750: the sequence number is the nonce. Restarted in every way, no two packets have one in common."""
    with Sites("rs") as sites:
        left = sites.start("left", iiv_text("left", True))
        sites.start("right", iiv_text("right", True))
        wire, streams, came_back = sites.listen(sites.wire, "left"), {}, []
        for how in (signal.SIGTERM, signal.SIGKILL, signal.SIGKILL, signal.SIGTERM):
            came_back.append(sites.ping(count=20, size=100))
            left.again(how, iiv_text("left", False))
        came_back.append(sites.ping(count=20, size=100))
        for esp in esps(wire, OUT):
            # Two ciphertexts of one nonce give the XOR of their plaintexts away: of two pings, mostly zeroes.
            body = esp.frame[esp.offset + 8:]
            before = streams.setdefault(esp.sequence, body)
            differing = sum(a != b for a, b in zip(before, body))
            expect(before is body, f"number {esp.sequence} twice; the two plaintexts differ in {differing} of {len(body)} bytes")
        expect(len(streams) == 100 and came_back == [20] * 5, f"{len(streams)} packets were seen, came back: {came_back}")


def implicit_needs_the_state():
    with Sites("rs") as sites, tempfile.TemporaryDirectory() as folder:
        control = f"{folder}/control.sock"
        status, output = run_gateway(sites.left, iiv_text("left", False), control)
        expect_refusal(status, output, ":1:1", "key=fresh", "sequence=N")
        status, output = run_gateway(sites.left, iiv_text("left", True), control, "--no-state")
        expect_refusal(status, output, ":1:1", "--state DIR")
        left = sites.start("left", iiv_text("left", True))
        left.setkey_text(iiv_text("left", False).split("\n", 1)[0].replace("add", "update", 1))
        try:
            left.setkey_text("add 192.0.2.1 192.0.2.9 esp 0x7001 -m tunnel -r 64 " + IIV.format(9) + ";")
            expect(False, "keys that are not known were taken")
        except GatewayError as error:
            expect("key=fresh" in str(error), str(error))


def a_lifetime_goes_on():
    with Sites("rs") as sites:
        line, rest = setkey_text("left", inner=(4,)).split("\n", 1)
        left = sites.start("left", line.replace("-r 1024", "-r 1024 -o hard-packets=20") + "\n" + rest)
        sites.start("right", inner=(4,))
        expect(sites.ping(count=15) == 15, "pings are lost")
        left.again()
        expect(sites.ping(count=10) == 5, "not exactly the five packets that were left have passed")
        left.again()
        expect(sites.ping(count=3) == 0, "a key whose life is over was given another")
        expect("reached their hard limit" in left.words(), f"the log says nothing: {left.words()}")


def a_full_disk():
    """Room for 32 associations; what comes then stops if its nonce is a counter, and goes on otherwise."""
    with Sites("rs") as sites, tempfile.TemporaryDirectory() as folder:
        subprocess.run(["mount", "-t", "tmpfs", "-o", "size=16k,mode=700", "none", folder], check=True)
        try:
            options = ("--state", folder)
            left = sites.start("left", setkey_text("left", inner=(4,)), options)
            right = sites.start("right", inner=(4,))
            expect(sites.ping() == 3, "the control failed: no ping")
            left.setkey_text("".join(f"add 192.0.2.1 192.0.2.9 esp {0x6000 + n:#x} -m tunnel -r 64 {AES_GCM.format(n)};\n"
                                     for n in range(40)))
            expect("No space left" in left.words() and "No space left" in left.status()["numbers"], left.words())
            expect(sites.ping() == 3, "what has its room does not go on")
            for name, spi, suite in (("counter", 0x5001, AES_GCM), ("random", 0x5002, CBC)):
                new = f"add 192.0.2.1 192.0.2.2 esp-udp {spi:#x} -m tunnel -r 1024 {suite.format(9)};"
                right.setkey_text(new)
                left.setkey_text(new)
                expect(sites.ping() == (0 if name == "counter" else 3), f"a {name} nonce on a full disk")
                if name == "counter":
                    expect(left.drops("state-not-kept") >= 3, left.ask("drops", "--json"))
            left.setkey_text("delete 192.0.2.1 192.0.2.2 esp-udp 0x5002;")
            subprocess.run(["mount", "-o", "remount,size=1m", folder], check=True)
            expect(sites.ping(count=10) >= 8, "there is room again, and nothing passes")
            expect("are written to" in left.words(), left.words())
        finally:
            left.stop()
            subprocess.run(["umount", "-l", folder], check=True)


def a_clone_is_refused():
    with Sites("rs") as sites:
        left = sites.start("left")
        state = f"{left.folder}/kept/numbers.state"
        left.stop()
        shutil.copy(state, state + ".copy")
        os.rename(state + ".copy", state)
        status, output = run_again(left)
        expect_refusal(status, output, "is a copy", "--fresh-keys")
        left.options = ("--fresh-keys",)
        left.start().ready()
        expect("is replaced by a new one" in left.words(), left.words())
        left.options = ()
        left.again()
        left.stop()
        with tempfile.NamedTemporaryFile("w") as other:
            other.write("0123456789abcdef0123456789abcdef\n")
            other.flush()
            elsewhere = ("unshare", "-m", "sh", "-c", 'mount --bind "$0" /etc/machine-id; exec "$@"', other.name)
            left.wrap = elsewhere
            status, output = run_again(left)
            expect_refusal(status, output, "another machine", "--fresh-keys")
            left.wrap = ()
            left.start().ready()


def run_again(gateway):
    gateway.start()
    try:
        return gateway.process.wait(slowed(15)), gateway.words()
    except subprocess.TimeoutExpired:
        return 0, "it kept running"


def an_older_state_is_refused():
    """A file that was put back with the same number in the file system, as a snapshot of it is."""
    with Sites("rs") as sites:
        left = sites.start("left")
        state = f"{left.folder}/kept/numbers.state"
        left.stop()
        with open(state, "rb") as file:
            before = file.read()
        for leave in (left.stop, lambda: left.attempt("down")):
            left.start().ready()
            leave()
            with open(state, "rb") as file:
                latest = file.read()
            with open(state, "r+b") as file:
                file.write(before)
            status, output = run_again(left)
            expect_refusal(status, output, "is older", "--fresh-keys")
            with open(state, "r+b") as file:
                file.write(latest)


def others_folders_are_refused():
    with Sites("rs") as sites, tempfile.TemporaryDirectory() as folder, tempfile.TemporaryDirectory() as kept:
        for owner, mode in ((65534, 0o755), (0, 0o777)):
            os.chown(kept, owner, owner)
            os.chmod(kept, mode)
            status, output = run_gateway(sites.left, setkey_text("left"), f"{folder}/control.sock", "--state", kept)
            expect_refusal(status, output, kept, f"user {owner}", "--state")
            expect(os.listdir(kept) == [], f"something was put there: {os.listdir(kept)}")
        os.chmod(kept, 0o755)
        os.symlink("/etc/hostname", f"{kept}/numbers.state")
        status, output = run_gateway(sites.left, setkey_text("left"), f"{folder}/control.sock", "--state", kept)
        expect_refusal(status, output, "not a regular file", "--state")


def without_a_state():
    with Sites("rs") as sites:
        left = sites.start("left", options=("--no-state",))
        sites.start("right")
        expect(sites.ping() == 3, "no ping")
        left.setkey_text("flush; spdflush;\n" + setkey_text("left"))
        said = [line for line in left.words().splitlines() if "not stored across restarts" in line]
        expect(len(said) == 1, f"warned {len(said)} times: {left.words()}")
        expect("not stored" in left.status()["numbers"], left.ask("status", "--json"))


def where_the_default_cannot_be_made():
    with Sites("rs") as sites:
        closed = ("unshare", "-m", "sh", "-c", 'mount -t tmpfs -o ro none /var/lib; exec "$0" "$@"')
        left = sites.start("left", wrap=closed, options=("--port", "4500"), keep=False)
        sites.start("right")
        expect(sites.ping() == 3, "no ping")
        expect("not stored across restarts (cannot use /var/lib/esplanade" in left.words(), left.words())


def two_gateways_one_folder():
    with Sites("rs") as sites, tempfile.TemporaryDirectory() as folder:
        left = sites.start("left")
        status, output = run_gateway(sites.right, setkey_text("right"), f"{folder}/control.sock", "--state",
                                     f"{left.folder}/kept")
        expect_refusal(status, output, f"process {left.process.pid}", "net:[", "--state")


CASES = {
    **{f"the {side} gateway is {how} and goes on": restarted(side, how) for side in ("left", "right") for how in HOW},
    "both at once go on": both_restart,
    "a file with flush is loaded again as a whole and no number is skipped": loaded_again(whole),
    "a file with flush is loaded again by statements and no number is skipped": loaded_again(by_statement),
    "an update changes keys and back, and no number of either comes twice": there_and_back,
    **{f"recorded packets are refused after the receiver was {how}": recorded(how) for how in HOW},
    "recorded packets are refused though the disk was slow": recorded_beside_a_slow_sync,
    "implicit nonces never repeat": nonces_never_repeat,
    "implicit nonces need the state": implicit_needs_the_state,
    "a lifetime goes on": a_lifetime_goes_on,
    "a full disk stops counter nonces alone": a_full_disk,
    "a clone is refused until keys are fresh": a_clone_is_refused,
    "a state that is older is refused": an_older_state_is_refused,
    "folders of others and links are refused": others_folders_are_refused,
    "without a state one warning": without_a_state,
    "where the default folder cannot be made one warning": where_the_default_cannot_be_made,
    "two gateways do not share a state": two_gateways_one_folder,
}
