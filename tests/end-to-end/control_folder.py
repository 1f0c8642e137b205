"""The folder of the control socket, its lock and its record, on a host whose other users mean harm; and `down`."""

import os
import shutil
import socket
import subprocess
import tempfile
import time

from network.expect import expect, expect_refusal
from network.gateway import keeping, program
from network.timeout import slowed
from network.sites import Sites, setkey_text
from refusals import run_gateway

UNPRIVILEGED = ("setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups")
# The names of this version and of the one before: an attacker would try both.
RECORDS = ("control.sock.state", "control.state")
LOCKS = ("control.sock.lock", "control.lock")
RULES = "nft list tables; ip rule; ip route show table all"


class Folder:
    """A folder below one that every user may pass through."""

    def __init__(self, mode):
        self.top = tempfile.mkdtemp(prefix="esplanade-folder-")
        os.chmod(self.top, 0o755)
        self.path = f"{self.top}/control"
        os.mkdir(self.path)
        os.chmod(self.path, mode)
        self.control = f"{self.path}/control.sock"
        self.victim = f"{self.top}/victim"
        with open(self.victim, "w") as file:
            file.write("precious")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        shutil.rmtree(self.top, ignore_errors=True)

    def unharmed(self):
        with open(self.victim) as file:
            return file.read() == "precious"

    def run_unprivileged(self, script):
        subprocess.run([*UNPRIVILEGED, "bash", "-c", script], cwd=self.path, check=True)


def down(host, control, *options):
    done = subprocess.run(host.argv([program(), "down", "--control", control, *options]),
                          capture_output=True, text=True, timeout=slowed(60), stdin=subprocess.DEVNULL)
    return done.returncode, done.stdout + done.stderr


def comes_up(host, folder, *options):
    """Whether a gateway starts there, and what it says; `down` ends it."""
    log = f"{folder.top}/log"
    with tempfile.NamedTemporaryFile("w", suffix=".setkey") as file, open(log, "w") as out:
        file.write(setkey_text("left"))
        file.flush()
        process = host.start([program(), "run", "--setkey", file.name, "--control", folder.control, *options,
                              *keeping(folder.top)], stdout=out, stderr=subprocess.STDOUT)
        deadline = time.monotonic() + 20
        while process.poll() is None and time.monotonic() < deadline:
            with open(log) as said:
                if "ready:" in said.read():
                    break
            time.sleep(0.05)
    with open(log) as said:
        return process.poll() is None, said.read()


def record(victim, tun="esp0"):
    """A record that would have `down` write to `victim`."""
    return ('{"tun":"%s","table":4500,"mark":268435456,"settings":[["../..%s","harmed"],'
            '["net/ipv4/conf/../../../..%s","harmed"]]}' % (tun, victim, victim))


def others_may_write():
    with Sites("cf") as sites, Folder(0o777) as folder:
        status, output = run_gateway(sites.left, setkey_text("left"), folder.control)
        expect_refusal(status, output, folder.path, "user 0", "mode 0777", "chown", "--control")
        for name in RECORDS:
            folder.run_unprivileged(f"echo '{record(folder.victim)}' > {name}")
        status, output = down(sites.left, folder.control)
        expect_refusal(status, output, "mode 0777")
        expect(folder.unharmed(), "`down` wrote where another user's record led it")
        os.chmod(folder.path, 0o755)
        os.chown(folder.path, 65534, 65534)
        status, output = run_gateway(sites.left, setkey_text("left"), folder.control)
        expect_refusal(status, output, folder.path, "user 65534")


def links_are_not_followed():
    with Sites("cf") as sites, Folder(0o777) as folder:
        for name in RECORDS:
            folder.run_unprivileged(f"ln -s {folder.victim} {name}.new")
        for name in LOCKS:
            folder.run_unprivileged(f"ln -s {folder.victim} {name}")
        comes_up(sites.left, folder, "--tun", "nobodys0")
        down(sites.left, folder.control)
        expect(folder.unharmed(), "a link in a folder that others may write was followed")
        # Where no other user may write only root could have put it there, and still it is not followed.
        os.chmod(folder.path, 0o755)
        for name in LOCKS:
            os.unlink(f"{folder.path}/{name}")
        up, output = comes_up(sites.left, folder)
        expect(up, f"it did not start: {output}")
        expect(folder.unharmed(), "a link was followed")
        expect(down(sites.left, folder.control)[0] == 0, "it did not go down")


def settings_outside_are_left_alone():
    with Sites("cf") as sites, Folder(0o755) as folder:
        for name in RECORDS:
            with open(f"{folder.path}/{name}", "w") as file:
                file.write(record(folder.victim))
        status, output = down(sites.left, folder.control)
        expect(status == 0 and "../.." in output and "ignored" in output, f"`down` says: {output}")
        expect(folder.unharmed(), "`down` wrote outside of /proc/sys")


def another_user_cannot_take_the_lock():
    # As most systems have it: what is made without thought can be read by all.
    os.umask(0o022)
    with Sites("cf") as sites, Folder(0o755) as folder:
        expect(comes_up(sites.left, folder)[0], "the control failed: it did not start")
        down(sites.left, folder.control)
        locks = [f"{folder.path}/{name}" for name in LOCKS if os.path.exists(f"{folder.path}/{name}")]
        expect(locks, "the control failed: no lock file was left")
        holder = subprocess.Popen([*UNPRIVILEGED, "python3", "-c", """
import fcntl, sys, time
held = []
for name in sys.argv[1:]:
    try:
        held.append(open(name)); fcntl.flock(held[-1], fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        print(error, flush=True)
print('there', flush=True); time.sleep(60)""", *locks], stdout=subprocess.PIPE, text=True)
        try:
            for line in holder.stdout:
                if line == "there\n":
                    break
            up, output = comes_up(sites.left, folder)
            expect(up, f"another user's lock keeps the gateway from starting: {output}")
        finally:
            holder.kill()
            holder.wait()
            down(sites.left, folder.control)


def other_users_are_told():
    with Sites("cf") as sites:
        left = sites.start("left")
        for mode in (0o755, 0o700):
            os.chmod(left.folder, mode)
            for words in (["status"], ["down"], ["drops"], ["setkey", "-D"]):
                done = subprocess.run(sites.left.argv([*UNPRIVILEGED, program(), *words, "--control", left.control]),
                                      capture_output=True, text=True, timeout=slowed(30))
                output = done.stdout + done.stderr
                expect(done.returncode != 0 and "belongs to another user: run this as root" in output,
                       f"{words} with folder mode {mode:o}: {output}")
        expect(left.attempt("status")[0] == 0, "root is not answered any more")


def strangers_are_told_nothing():
    """A socket of another user's gets no keys from root."""
    with Folder(0o755) as folder:
        os.chown(folder.path, 65534, 65534)
        listener = subprocess.Popen([*UNPRIVILEGED, "python3", "-c", """
import socket, sys
s = socket.socket(socket.AF_UNIX); s.bind(sys.argv[1]); s.listen(); print('there', flush=True)
c, _ = s.accept(); c.settimeout(3); print(len(c.recv(4096)), flush=True)""", folder.control], stdout=subprocess.PIPE,
                                    text=True)
        try:
            expect(listener.stdout.readline() == "there\n", "the control failed: no process listens")
            key = "add 192.0.2.1 192.0.2.2 esp 0x1001 -E aes-gcm-16 0x" + "5a" * 20 + ";"
            done = subprocess.run([program("setkey"), "-c"], input=key, capture_output=True, text=True,
                                  timeout=slowed(30),
                                  env={**os.environ, "ESPLANADE_CONTROL": folder.control})
            expect(done.returncode != 0 and "user 65534" in done.stderr, f"setkey says: {done.stdout}{done.stderr}")
            expect(listener.stdout.readline() == "0\n", "the stranger was told something")
        finally:
            listener.kill()
            listener.wait()


def down_elsewhere_changes_nothing():
    with Sites("cf") as sites:
        left, right = sites.start_both()
        expect(sites.ping() == 3, "no ping through the tunnel")
        left.stop(9)
        before = sites.right.sh(RULES)
        expect("esplanade" in before, f"the control failed: no rules of the right gateway:\n{before}")
        status, output = down(sites.right, left.control)
        expect_refusal(status, output, "another network namespace", f"ip netns exec {sites.left.name}", left.control)
        expect(sites.right.sh(RULES) == before, "the rules of a gateway that lives here were changed")
        status, output = down(sites.right, left.control, "--force")
        expect_refusal(status, output, "a running gateway owns", "esp0")
        expect(sites.right.sh(RULES) == before, "--force changed the rules of a gateway that lives here")
        status, output = run_gateway(sites.server, setkey_text("left"), left.control)
        expect_refusal(status, output, "another network namespace", f"ip netns exec {sites.left.name}")
        status, output = down(sites.left, left.control)
        expect(status == 0 and "esplanade" not in sites.left.sh("nft list tables"), f"where it is: {output}")
        expect(right.attempt("status")[0] == 0, "the other gateway does not answer any more")


def force_spares_one_that_forwards():
    """It has no TUN device that shows that it runs: its table of drop rules has an owner (since Linux 6.9)."""
    with Sites("cf") as sites, tempfile.TemporaryDirectory() as folder:
        left = sites.start("left", options=("--forward", "lan"))
        before = sites.left.sh(RULES)
        elsewhere = f"{folder}/control.sock"
        status, output = down(sites.left, elsewhere, "--force", "--forward", "lan")
        expect_refusal(status, output, "a running gateway owns", "lan")
        expect(sites.left.sh(RULES) == before, "--force changed the rules of a gateway that runs")
        left.stop(9)
        status, output = down(sites.left, elsewhere, "--force", "--forward", "lan")
        expect(status == 0, f"--force after kill -9: {output}")
        expect("esplanade" not in sites.left.sh("nft list tables"), "the table of a killed gateway stayed")


def leftovers_are_named_and_removed():
    with Sites("cf") as sites:
        clean = sites.left.sh(RULES)
        left = sites.start("left")
        left.stop(9)
        for name in RECORDS:
            if os.path.exists(f"{left.folder}/{name}"):
                os.unlink(f"{left.folder}/{name}")
        status, output = run_gateway(sites.left, setkey_text("left"), left.control)
        expect_refusal(status, output, "esplanade down --force --tun esp0 --table 4500")
        expect("belong to another gateway" not in output, f"one's own leftovers are said to be another's: {output}")
        expect("esplanade" in sites.left.sh("nft list tables"), "the barrier is gone before it was asked for")
        advice = output[output.index("down --force"):].split("`")[0].split()[1:]
        status, output = down(sites.left, left.control, *advice)
        expect(status == 0, f"--force: {output}")
        expect(sites.left.sh(RULES) == clean, f"something stayed:\n{sites.left.sh(RULES)}")
        left.start().ready()


def a_namespace_that_is_gone():
    with Sites("cf") as sites, tempfile.TemporaryDirectory() as folder:
        control = f"{folder}/control.sock"
        other = sites.network.host("other")
        with tempfile.NamedTemporaryFile("w", suffix=".setkey") as file, tempfile.TemporaryDirectory() as kept:
            file.write("spdflush;\n")
            file.flush()
            process = other.start([program(), "run", "--setkey", file.name, "--control", control, *keeping(kept)])
            # The record is written after the socket is there.
            while not os.path.exists(f"{control}.state"):
                expect(process.poll() is None, "the gateway did not start")
                time.sleep(0.05)
            process.kill()
            process.wait()
        sites.client.sh(f"ip netns del {other.name}")
        status, output = down(sites.left, control)
        expect(status == 0 and "nothing to clean up" in output and "net:[" in output, f"`down` says: {output}")
        # The numbers that a killed gateway wrote last are for the next start.
        left = sorted(os.listdir(folder))
        kept = ["control.sock.lock", "control.sock.numbers", "control.sock.recent"]
        expect(left == kept, f"left in the folder: {left}")


def down_then_run():
    """`down` returns when another gateway can start: twenty times."""
    with Sites("cf") as sites:
        left = sites.start("left", options=("--workers", "2"))
        for turn in range(20):
            status, output = left.attempt("down")
            expect(status == 0, f"turn {turn}: down: {output}")
            left.start()
            expect(left.process.pid and left.ready(), f"turn {turn}")
    return "20 of 20"


def a_failed_start_leaves_no_folder():
    with Sites("cf") as sites, tempfile.TemporaryDirectory() as folder:
        bad = "add 192.0.2.1 192.0.2.2 esp 0x1001 -E aes-cbc 0x0011 -A hmac-sha1 0x" + "22" * 20 + ";\n"
        for setkey, options in ((bad, ()), (setkey_text("left"), ("--outer-device", "absent0")),
                                (setkey_text("left"), ("--tun", "wan"))):
            status, output = run_gateway(sites.left, setkey, f"{folder}/a/b/control.sock", *options)
            expect(status != 0, f"the control failed: it started: {output}")
            expect(os.listdir(folder) == [], f"left behind: {os.listdir(folder)} after {output}")


def without_descriptors_it_goes_on():
    """A limit that is reached already: who asks is turned away, traffic passes, and afterwards there are answers."""
    with Sites("cf") as sites:
        sites.start("right")
        left = sites.start("left")
        expect(sites.ping() == 3, "no ping through the tunnel")
        opened = os.listdir(f"/proc/{left.process.pid}/fd")
        limit = max(map(int, opened)) + 1
        left.host.sh(f"prlimit --pid {left.process.pid} --nofile={limit}:")
        filled = [socket.socket(socket.AF_UNIX) for _ in range(limit - len(opened))]
        for each in filled:
            each.connect(left.control)
        for _ in range(3):
            expect_refusal(*left.attempt("status"), "no descriptor or memory left")
        expect(sites.ping() == 3 and left.process.poll() is None, f"the gateway does not go on:\n{left.words()}")
        for each in filled:
            each.close()
        left.host.sh(f"prlimit --pid {left.process.pid} --nofile={limit + 100}:")
        deadline = time.monotonic() + slowed(10)
        while (answer := left.attempt("status"))[0] != 0:
            expect(time.monotonic() < deadline, f"no answer once there are descriptors: {answer[1]}\n{left.words()}")
            time.sleep(0.1)


def listeners_leave_room():
    with Sites("cf") as sites:
        left = sites.start("left")
        listeners = [sites.left.start([program(), "events", "--control", left.control],
                                      stdout=subprocess.DEVNULL, stderr=subprocess.PIPE) for _ in range(64)]
        turned_away, deadline = [], time.monotonic() + 20
        while time.monotonic() < deadline and len(turned_away) < 16:
            turned_away = [process for process in listeners if process.poll() is not None]
            time.sleep(0.05)
        status, output = left.attempt("status")
        expect(status == 0, f"64 listeners lock `status` out: {output}")
        expect(len(turned_away) == 16, f"{len(turned_away)} of 64 listeners were turned away")
        words = turned_away[0].stderr.read().decode()
        expect("48 clients listen to events already" in words, f"it was told: {words}")


def lax_key_files():
    with Sites("cf") as sites, tempfile.TemporaryDirectory() as folder:
        said = {}
        for mode in (0o600, 0o666, 0o644):
            left = sites.start("left")
            left.stop()
            os.chmod(left.setkey, mode)
            left.start().ready()
            said[mode] = [line for line in left.status()["warnings"] if left.setkey in line]
            expect(left.attempt("down")[0] == 0, "it did not go down")
        expect(not said[0o600], f"a file that is well kept: {said[0o600]}")
        expect(len(said[0o666]) == 1 and "others may write it (mode 0666)" in said[0o666][0], f"{said[0o666]}")
        expect(len(said[0o644]) == 1 and "everybody may read it" in said[0o644][0], f"{said[0o644]}")


CASES = {
    "a folder that others may write or own is refused, and no record in it believed": others_may_write,
    "links in place of its files are not followed": links_are_not_followed,
    "a record that names other settings changes nothing": settings_outside_are_left_alone,
    "another user cannot take the lock": another_user_cannot_take_the_lock,
    "other users get a clear error": other_users_are_told,
    "a socket of another user's gets no keys": strangers_are_told_nothing,
    "down in another network namespace changes nothing and says where to go": down_elsewhere_changes_nothing,
    "down --force spares a gateway that forwards without a TUN device": force_spares_one_that_forwards,
    "leftovers without a record are told truthfully and removed by --force": leftovers_are_named_and_removed,
    "what was left in a namespace that is gone is forgotten": a_namespace_that_is_gone,
    "down returns when the process has ended": down_then_run,
    "a failed start leaves no folder": a_failed_start_leaves_no_folder,
    "64 listeners of events do not lock out status": listeners_leave_room,
    "without a descriptor clients are turned away and the gateway goes on": without_descriptors_it_goes_on,
    "a key file that others may read or write draws a warning": lax_key_files,
}
