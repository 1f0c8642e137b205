"""Hooks of peers: programs that run when a peer is up or down, by a user without any privilege."""

import contextlib
import os
import re
import signal
import subprocess
import tempfile
import time

from ike import Keyed, config, ike_processes
from live_change import Stream
from network.expect import expect
from network.gateway import GatewayError, program
from network.sites import NETS, OUTER, Sites
from network.timeout import slowed

HOOK_USER = 65534
TIME_LIMIT_SECONDS = 10
LIMIT_SECONDS = slowed(20)
ORPHAN_SECONDS = slowed(20)

# What each run writes: one line of what it was told, what it is, and a last line.
LAST_LINE = "all is written"
SCRIPT = """#!/bin/sh
descriptors=$(ls /proc/self/fd)
{
  echo "run $ESPLANADE_EVENT"
  env | grep -v ^_= | sort
  grep -E '^(Uid|Gid|Groups|CapInh|CapPrm|CapEff|CapBnd|NoNewPrivs|Seccomp):' /proc/self/status
  echo "place $(pwd) arguments $*"
  echo "descriptors" $descriptors
  unshare --user true 2>/dev/null && echo "a namespace of its own"
  echo "LAST_LINE"
} >> "$1/log"
""".replace("LAST_LINE", LAST_LINE)


class HookFolder:
    """A folder with hooks that no other user may write, and a folder that they write to."""

    def __enter__(self):
        self.folder = tempfile.mkdtemp(prefix="esplanade-test-hooks-")
        os.chmod(self.folder, 0o755)
        self.out = f"{self.folder}/out"
        os.mkdir(self.out)
        os.chmod(self.out, 0o777)
        self.tells = self.program("tells", SCRIPT)
        return self

    def __exit__(self, *_):
        subprocess.run(["rm", "-rf", self.folder], check=True)

    def program(self, name, text):
        path = f"{self.folder}/{name}"
        with open(path, "w") as file:
            file.write(text)
        os.chmod(path, 0o755)
        return path

    def keys(self, up=None, down=None):
        """The two keys of a peer."""
        default = f'["{self.tells}", "{self.out}", "two words"]'
        return f"on_up = {up or default}\non_down = {down or default}\n"

    def runs(self):
        """What each run has written that is at its end, the oldest first."""
        with contextlib.suppress(FileNotFoundError), open(f"{self.out}/log") as file:
            runs = re.split(r"^run ", file.read(), flags=re.MULTILINE)[1:]
            return [run for run in runs if run.endswith(f"\n{LAST_LINE}\n")]
        return []

    def events(self):
        return [run.split("\n")[0] for run in self.runs()]

    def wait(self, *events):
        until(lambda: self.events() == list(events), lambda: f"told {self.events()}, expected {list(events)}")


def until(holds, what):
    deadline = time.monotonic() + LIMIT_SECONDS
    while not holds():
        expect(time.monotonic() < deadline, what())
        time.sleep(0.05)


def with_hooks(name, keys, more=""):
    return f'[gateway]\nhook_user = "{HOOK_USER}:{HOOK_USER}"\n' + config(name, keys + more)


def start(sites, name, text):
    gateway = Keyed(getattr(sites, name), text)
    sites.gateways[name] = gateway
    return gateway.ready()


def start_left(sites, keys, left_more=""):
    """A peer with hooks, and one without."""
    right = start(sites, "right", config("right", 'start = "wait"'))
    left = start(sites, "left", with_hooks("left", keys, left_more))
    left.wait("up")
    right.wait("up")
    return left, right


def runner_of(gateway):
    """The process that runs hooks."""
    with open(f"/proc/{gateway.process.pid}/task/{gateway.process.pid}/children") as file:
        children = file.read().split()
    for pid in children:
        with open(f"/proc/{pid}/cmdline") as file:
            if "hook-runner" in file.read():
                return int(pid)
    raise AssertionError("no hook-runner among the children of the gateway")


def value(run, name):
    return re.search(rf"^{name}[=:][ \t]*(.*)$", run, re.MULTILINE)[1]


def up_and_down_are_told_with_all_that_matters():
    with Sites("hk") as sites, HookFolder() as place:
        left, _ = start_left(sites, place.keys())
        place.wait("up")
        run = place.runs()[0]
        for name, expected in (("PEER", "site"), ("EVENT", "up"), ("MODE", "policy"),
                               ("LOCAL_ADDRESS", OUTER[4][0]), ("REMOTE_ADDRESS", OUTER[4][1]),
                               ("LOCAL_ID", "left.example.org"), ("REMOTE_ID", "right.example.org"),
                               ("LOCAL_NETWORKS", f"{NETS[4][0]} {NETS[6][0]}"),
                               ("REMOTE_NETWORKS", f"{NETS[4][1]} {NETS[6][1]}")):
            expect(value(run, f"ESPLANADE_{name}") == expected, f"{name}: {run}")
        expect("ESPLANADE_REASON" not in run and "ESPLANADE_DEVICE" not in run, run)
        names = set(re.findall(r"^([A-Z_a-z]+)=", run, re.MULTILINE))
        strangers = {name for name in names if not name.startswith("ESPLANADE_")} - {"PATH", "PWD", "SHLVL", "OLDPWD"}
        expect(not strangers, f"the environment has more: {strangers}")
        expect(f"place / arguments {place.out} two words" in run, run)
        left.ask("down", "site")
        place.wait("up", "down")
        expect(value(place.runs()[1], "ESPLANADE_REASON"), "no reason")
        expect(value(place.runs()[1], "ESPLANADE_REMOTE_ADDRESS") == OUTER[4][1], "the facts are not those of up")
        left.ask("up", "site")
        place.wait("up", "down", "up")
        left.stop()
        place.wait("up", "down", "up", "down")
        expect("gateway stops" in value(place.runs()[3], "ESPLANADE_REASON"), place.runs()[3])


def it_has_no_privileges():
    with Sites("hk") as sites, HookFolder() as place:
        left, _ = start_left(sites, place.keys())
        place.wait("up")
        run = place.runs()[0]
        for name in ("Uid", "Gid"):
            expect(set(value(run, name).split()) == {str(HOOK_USER)}, run)
        expect(value(run, "Groups").split() in ([], [str(HOOK_USER)]), run)
        for name in ("CapInh", "CapPrm", "CapEff"):
            expect(int(value(run, name), 16) == 0, run)
        expect(value(run, "NoNewPrivs") == "1" and value(run, "Seccomp") == "2", run)
        # `ls` has those three and the folder that it lists.
        expect("\ndescriptors 0 1 2 3\n" in run, run)
        expect("a namespace of its own" not in run, "a hook has made a user namespace")
        with open(f"/proc/{runner_of(left)}/status") as file:
            own = file.read()
        expect(re.search(r"^CapPrm:\s+0+$", own, re.MULTILINE) and "NoNewPrivs:\t1" in own, own)
        links = [os.readlink(f"/proc/{runner_of(left)}/fd/{one}") for one in os.listdir(f"/proc/{runner_of(left)}/fd")]
        sockets = [link for link in links if link.startswith("socket:")]
        expect(len(set(sockets)) == 1, f"the runner has descriptors of others: {links}")


def rekeys_and_a_restart_of_ike_tell_nothing():
    with Sites("hk") as sites, HookFolder() as mine, HookFolder() as theirs:
        right = start(sites, "right", with_hooks("right", theirs.keys(), 'start = "wait"\n'))
        left = start(sites, "left", with_hooks("left", mine.keys()))
        for place in (mine, theirs):
            place.wait("up")
        for gateway in (left, right):
            gateway.ask("rekey", "site")
            time.sleep(1)
            gateway.ask("rekey", "site", "--ike")
        os.kill(ike_processes(left)[0], signal.SIGKILL)
        until(lambda: left.status()["ike"]["starts"] == 2, lambda: "it is not started again")
        left.wait("up")
        deadline = time.monotonic() + ORPHAN_SECONDS
        while len(left.peer()["children"]) > 1 and time.monotonic() < deadline:
            time.sleep(0.1)
        expect([child["state"] for child in left.peer()["children"]] == ["active"], f"{left.peer()}")
        time.sleep(1)
        for place in (mine, theirs):
            expect(place.events() == ["up"], f"told {place.events()}\n{left.words()}\n{right.words()}")
        left.ask("down", "site")
        for place in (mine, theirs):
            place.wait("up", "down")


def one_that_hangs_is_killed_and_nothing_waits():
    with Sites("hk") as sites, HookFolder() as place:
        hangs = place.program("hangs", '#!/bin/sh\necho stuck >&2\n(sleep 40; echo late > "$1/late") &\nwait\n')
        left, _ = start_left(sites, place.keys(up=f'["{hangs}", "{place.out}"]'))
        until(lambda: left.peer()["hooks"].get("running"), lambda: f"it does not run: {left.peer()['hooks']}")
        stream = Stream(sites)
        for command in ("down", "up", "down", "up"):
            began = time.monotonic()
            left.ask(command, "site")
            left.status()
            expect(time.monotonic() - began < slowed(3), f"`{command}` and `status` wait for a hook")
        left.wait("up")
        expect("hangs" in left.peer()["hooks"]["running"], f"the control failed: {left.peer()['hooks']}")
        expect("runs for" in left.ask("status"), "the table does not show what runs")
        stream.finish()
        expect(sites.ping(4) == 3, "no ping while a hook hangs")
        until(lambda: left.peer()["hooks"]["last"], lambda: "it is never killed")
        hooks = left.peer()["hooks"]
        expect("killed" in hooks["last"] and "stuck" in hooks["last"] and hooks["failed"], f"{hooks}")
        expect("killed" in left.ask("why", "site"), "`why` does not say it")
        expect("FAILED" in left.ask("status"), "the table does not say it")
        # Down and up while it ran have cancelled each other out.
        expect(not hooks.get("running") and hooks["told"] == "up" and place.events() == [], f"{hooks} {place.events()}")
        left.ask("down", "site")
        place.wait("down")
        found = still_running()
        expect(not found, f"what it has started goes on: {found}")


def still_running():
    """What the hooks' user still runs. Those that have ended may wait for their parent."""
    argv = ["ps", "-u", str(HOOK_USER), "-o", "stat=,args="]
    lines = subprocess.run(argv, capture_output=True, text=True).stdout.splitlines()
    return [line for line in lines if not line.startswith("Z") and "hook-runner" not in line]


def a_failure_is_shown_and_the_tunnel_is_up():
    with Sites("hk") as sites, HookFolder() as place:
        fails = place.program("fails", '#!/bin/sh\nprintf "cannot \\033[1mreach\\n" >&2\nexit 7\n')
        left, _ = start_left(sites, place.keys(up=f'"{fails}"'))
        until(lambda: left.peer()["hooks"]["last"], lambda: f"{left.peer()['hooks']}")
        last = left.peer()["hooks"]["last"]
        expect("exit status 7" in last and "cannot [1mreach" in last, last)
        expect("exit status 7" in left.ask("why", "site") and "exit status 7" in left.words(), left.words())
        expect(sites.ping(4) == 3, "no ping after a hook has failed")


def without_the_runner_the_tunnel_carries_on():
    with Sites("hk") as sites, HookFolder() as place:
        left, _ = start_left(sites, place.keys())
        place.wait("up")
        stream = Stream(sites)
        os.kill(runner_of(left), signal.SIGKILL)
        until(lambda: left.status()["ike"].get("hook_trouble"), lambda: f"{left.status()['ike']}")
        expect("restart" in left.status()["ike"]["hook_trouble"], left.status()["ike"]["hook_trouble"])
        expect("hooks:" in left.ask("status"), "the table does not say it")
        left.ask("rekey", "site")
        sent, lost, _ = stream.finish()
        expect(lost == 0, f"of {sent} lost {lost}")
        left.ask("down", "site")
        until(lambda: left.peer()["hooks"]["failed"], lambda: f"{left.peer()['hooks']}")
        expect("not run" in left.peer()["hooks"]["last"] and place.events() == ["up"], f"{left.peer()['hooks']}")
        left.again()
        place.wait("up", "up")


def a_reload_tells_peers_that_go_and_what_needs_a_restart():
    with Sites("hk") as sites, HookFolder() as place:
        left, _ = start_left(sites, place.keys())
        place.wait("up")
        other = place.program("other", "#!/bin/sh\n")

        def reload(text):
            with open(left.setkey, "w") as file:
                file.write(text)
            return left.ask("reload")

        said = reload(with_hooks("left", place.keys(down=f'"{other}"')))
        expect(other in said and "restart" in said, f"the reload says {said}")
        expect(place.tells not in said, f"the reload says {said}")
        said = reload(with_hooks("left", place.keys()))
        expect("restart" not in said, f"the reload says {said}")
        another = config("left").replace("[peer.site]", "[peer.other]").replace(OUTER[4][1], "192.0.2.9")
        another = another.replace(NETS[4][1], "10.9.0.0/24").replace(NETS[6][1], "fd00:9::/64")
        reload(another)
        place.wait("up", "down")
        expect(value(place.runs()[1], "ESPLANADE_REASON"), "no reason")


def a_dead_peer_is_told_down():
    with Sites("hk") as sites, HookFolder() as place:
        more = 'dpd = "1s"\nretransmit = { first = "100ms", longest = "200ms", repetitions = 3 }\n'
        start_left(sites, place.keys(), more)
        place.wait("up")
        sites.right.sh("ip link set wan down")
        place.wait("up", "down")


def one_that_hangs_at_the_end_does_not_keep_the_gateway():
    with Sites("hk") as sites, HookFolder() as place:
        hangs = place.program("hangs", "#!/bin/sh\nsleep 40 & sleep 40\n")
        left, _ = start_left(sites, place.keys(down=f'"{hangs}"'))
        place.wait("up")
        expect(left.stop() == 0, left.words())
        expect("hooks still run" in left.words(), left.words())
        until(lambda: not still_running(), lambda: f"what it has started goes on: {still_running()}")


def a_replaced_gateway_tells_nothing_and_the_next_one_tells_down():
    with Sites("hk") as sites, HookFolder() as place:
        left, _ = start_left(sites, place.keys())
        told_over_restarts(left, place)


def told_over_restarts(left, place):
    """Its child SAs carry on. A peer that is configured otherwise goes down, and up again."""
    place.wait("up")
    left.replace()
    left.wait("up")
    until(lambda: len(left.peer()["children"]) == 1, lambda: f"orphans stay: {left.peer()}")
    place.wait("up")
    with open(left.setkey, "a") as file:
        file.write('dpd = "77s"\n')
    left.replace()
    left.wait("up")
    place.wait("up", "down", "up")
    left.stop()
    place.wait("up", "down", "up", "down")


def the_device_of_a_peer_is_told():
    with Sites("hk") as sites, HookFolder() as place:
        start(sites, "right", config("right", 'start = "wait"'))
        text = with_hooks("left", place.keys()).replace('mode = "policy"', 'mode = "route"')
        start(sites, "left", text).wait("up")
        place.wait("up")
        run = place.runs()[0]
        expect(value(run, "ESPLANADE_MODE") == "route", run)
        expect(value(run, "ESPLANADE_DEVICE") in sites.left.sh("ls /sys/class/net").split(), run)


def root_is_refused():
    with Sites("hk") as sites, HookFolder() as place:
        right = Keyed(sites.right, config("right", place.keys()), ["--user", "root"])
        try:
            right.ready()
        except GatewayError as error:
            expect("hook_user" in str(error) and "root" in str(error), str(error))
            return
        right.stop()
        raise AssertionError("hooks run as root")


def check(gateway):
    """Exit status and output of `config check`."""
    made = subprocess.run([program(), "config", "check", gateway.setkey], capture_output=True, text=True)
    return made.returncode, made.stdout + made.stderr


def others_may_not_replace_them():
    with Sites("hk") as sites, HookFolder() as place:
        loose = place.program("loose", "#!/bin/sh\n")
        os.chmod(loose, 0o777)
        foreign = place.program("foreign", "#!/bin/sh\n")
        os.chown(foreign, HOOK_USER, HOOK_USER)
        inside = f"{place.out}/inside"
        with open(inside, "w") as file:
            file.write("#!/bin/sh\n")
        os.chmod(inside, 0o755)
        for path, words in ((loose, "chmod go-w"), (foreign, f"belongs to user {HOOK_USER}"), (inside, place.out)):
            left = Keyed(sites.left, config("left", place.keys(up=f'"{path}"')), started=False)
            status, output = check(left)
            expect(status != 0 and words in output and "on_up" in output, f"{path}: {output}")


CASES = {
    "up and down are told once each, with all that matters": up_and_down_are_told_with_all_that_matters,
    "a hook has no privileges, no descriptors of others and a user of its own": it_has_no_privileges,
    "rekeys and a kill -9 of the ike process tell nothing, at either end": rekeys_and_a_restart_of_ike_tell_nothing,
    "one that hangs is killed with all that it started, and nothing waits for it":
        one_that_hangs_is_killed_and_nothing_waits,
    "a failure is shown with its last words, and the tunnel is up": a_failure_is_shown_and_the_tunnel_is_up,
    "without its runner the tunnel carries on, and status says it": without_the_runner_the_tunnel_carries_on,
    "a reload tells peers that go, and says what needs a restart":
        a_reload_tells_peers_that_go_and_what_needs_a_restart,
    "a peer that is dead is told as down": a_dead_peer_is_told_down,
    "one that hangs at the end of the gateway is killed, and the gateway ends":
        one_that_hangs_at_the_end_does_not_keep_the_gateway,
    "a gateway that is replaced tells nothing, and the next one tells down":
        a_replaced_gateway_tells_nothing_and_the_next_one_tells_down,
    "with a device for the peer its name is told": the_device_of_a_peer_is_told,
    "they do not run as root": root_is_refused,
    "programs that others can replace are refused": others_may_not_replace_them,
}
