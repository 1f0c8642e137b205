"""What cannot work is refused at once, with one clear error, and leaves nothing half done."""

import os
import subprocess
import tempfile

from network.expect import expect, expect_refusal
from network.gateway import keeping, program
from network.timeout import slowed
from network.sites import Sites, setkey_text

STATE = "nft list ruleset; ip rule; ip -6 rule; ip route show table all; ip -brief link | cut -d' ' -f1"


def run_gateway(host, setkey, control, *options, wrap=()):
    """Exit status and output of a gateway that is expected not to stay."""
    with tempfile.NamedTemporaryFile("w", suffix=".setkey") as file, tempfile.TemporaryDirectory() as kept:
        file.write(setkey)
        file.flush()
        argv = host.argv([*wrap, program(), "run", "--setkey", file.name, "--control", control, *options,
                          *keeping(kept, options)])
        try:
            done = subprocess.run(argv, capture_output=True, text=True, timeout=slowed(15), stdin=subprocess.DEVNULL)
        except subprocess.TimeoutExpired:
            return 0, "it kept running"
    return done.returncode, done.stdout + done.stderr


def refused(*words, setkey=None, options=(), wrap=(), before=lambda sites: None):
    """A test: the gateway refuses to start, says the words, and the host is as it was."""
    def test():
        with Sites("rf") as sites, tempfile.TemporaryDirectory() as folder:
            before(sites)
            state = sites.left.sh(STATE)
            status, output = run_gateway(sites.left, setkey or setkey_text("left"), f"{folder}/control.sock",
                                         *options, wrap=wrap)
            expect_refusal(status, output, *words)
            expect(sites.left.sh(STATE) == state, f"something stayed behind:\n{sites.left.sh(STATE)}")
            expect(not os.path.exists(f"{folder}/control.sock"), "the control socket stayed behind")
    return test


def second_on_the_same_socket():
    with Sites("rf") as sites:
        left, _ = sites.start_both()
        status, output = run_gateway(sites.left, setkey_text("left"), left.control, "--tun", "other0")
        expect_refusal(status, output, "control.sock")
        expect(sites.ping() == 3, "the first one carries nothing any more")
        expect(left.attempt("status")[0] == 0, "the first one does not answer any more")


def second_on_the_same_device():
    with Sites("rf") as sites, tempfile.TemporaryDirectory() as folder:
        sites.start("left", options=("--tun", "same0"))
        sites.start("right")
        status, output = run_gateway(sites.left, setkey_text("left"), f"{folder}/other.sock", "--tun", "same0")
        expect_refusal(status, output, "same0")
        expect(sites.ping() == 3, "the first one carries nothing any more")


def a_stale_socket_is_no_obstacle():
    with Sites("rf") as sites:
        left, _ = sites.start_both()
        left.stop(9)
        expect(os.path.exists(left.control), "the control failed: kill -9 should leave the socket file")
        left.start().ready()
        expect(sites.ping() == 3, "no ping through the tunnel")


def take_port(sites):
    sites.left.start(["python3", "-c", "import socket,time\ns=socket.socket(socket.AF_INET,socket.SOCK_DGRAM)\n"
                                       "s.bind(('0.0.0.0',4500))\ntime.sleep(60)"])
    sites.left.sh("for i in $(seq 50); do ss -lnu | grep -q :4500 && exit 0; sleep 0.1; done; exit 1")


NO_TUN = ("unshare", "--mount", "bash", "-c", 'mount -t tmpfs none /dev/net && exec "$@"', "bash")
NO_RIGHTS = ("setpriv", "--bounding-set", "-net_admin,-net_raw,-sys_admin", "--inh-caps", "-net_admin,-net_raw")
NO_PRIORITY = ("setpriv", "--bounding-set", "-sys_nice,-sys_resource", "--inh-caps", "-sys_nice,-sys_resource")
REALTIME = ("--priority", "realtime")
SHORT_KEY = "add 192.0.2.1 192.0.2.2 esp 0x1001 -E aes-cbc 0x0011 -A hmac-sha1 0x" + "22" * 20 + ";\n"

CASES = {
    "a second gateway on the same socket": second_on_the_same_socket,
    "a second gateway on the same device": second_on_the_same_device,
    "a socket left behind by a dead gateway is no obstacle": a_stale_socket_is_no_obstacle,
    "no TUN device": refused("/dev/net/tun", wrap=NO_TUN),
    "missing privileges": refused("CAP_NET_ADMIN", wrap=NO_RIGHTS),
    "a priority that is not allowed": refused("--priority realtime", "ulimit -r", options=REALTIME, wrap=NO_PRIORITY),
    "threads that never sleep and stand before all others": refused("--wake busy", options=(*REALTIME, "--wake", "busy")),
    "a port in use": refused("4500", before=take_port),
    "a key that does not fit": refused(":1:", "aes-cbc", setkey=SHORT_KEY),
    "a word that does not exist": refused(":1:", setkey="ad 192.0.2.1 192.0.2.2 esp 0x1001 -E null;\n"),
    "a device name that is too long": refused("name", options=("--tun", "a-name-that-is-too-long")),
}
