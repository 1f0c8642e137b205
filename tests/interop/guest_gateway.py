"""`esplanade run --plane kernel` in a guest: the whole gateway, whose packets the guest's kernel carries.

Driven by scripts alone, for the guests of these tests have no Python. It needs a guest whose kernel has nftables'
family `inet`, which is a barrier of the gateway: Debian's User Mode Linux has none, so that it is QEMU's.
"""

import base64
import json

from network.gateway import program

GUEST = "qemu"
PROGRAMS = ("esplanade", "setkey")
MODULES = ["sch_ingress", "cls_bpf", "nf_tables"]
START_LIMIT_SECONDS = 120
POLL_INTERVAL_SECONDS = 0.05
END_OF_SCRIPT = "END-OF-SCRIPT"
# In a shell's words, what is left of a gateway. Associations without an SPI are the kernel's, which waits for keys, and
# the table `translation` is a scenario's own.
LEFT = ("ip xfrm state | grep -w spi | grep -v 'spi 0x00000000'; ip xfrm policy; nft list tables | grep -v translation; "
        "true")


def programs():
    """What the guest has to be given."""
    return [*map(program, PROGRAMS), "/usr/sbin/nft"]


def ready_for_gateways(root):
    status, output = root.run(f"modprobe -a {' '.join(MODULES)}")
    if status != 0:
        raise SystemExit(f"the guest cannot have gateways:\n{output}")


class Namespace:
    """A shell of the guest in a network namespace of its own."""

    def __init__(self, root, shell, name):
        self.shell, self.name = shell, name
        status, output = root.run(f"ip netns add {name} && ip -n {name} link set lo up")
        if status != 0:
            raise SystemExit(f"no namespace in the guest:\n{output}")

    def run(self, script, limit=60):
        """Exit status and output. The script is read from descriptor 3, because a word of a command holds no long one."""
        return self.shell.run(f"ip netns exec {self.name} bash /proc/self/fd/3 3<<'{END_OF_SCRIPT}'\n{script}\n"
                              f"{END_OF_SCRIPT}", limit)


class GuestGateway:
    """One gateway at a time, each with a state of its own or none; `sh` runs a script in its namespace, or raises."""

    def __init__(self, sh, place, state=True):
        self.sh, self.place, self.control = sh, place, f"{place}/control.sock"
        self.runs = False
        self.state = f"--state {place}/kept" if state else "--no-state"

    def start(self, setkey):
        self.sh(self.begun(setkey) + f"""
            until [ -S {self.control} ] && esplanade status --json --control {self.control} > /dev/null 2>&1; do
                kill -0 $pid 2> /dev/null || {{ cat {self.place}/said; exit 1; }}
                sleep {POLL_INTERVAL_SECONDS}
            done""", START_LIMIT_SECONDS)
        self.runs = True

    def begun(self, setkey):
        """The script that starts it and gives its process as $pid."""
        text = self.in_script(setkey, f"{self.place}/gateway.setkey")
        return (f"rm -rf {self.place}; mkdir -p {self.place}; umask 077\n{text}\n"
                f"setsid esplanade run --plane kernel --setkey {self.place}/gateway.setkey --control {self.control} "
                f"{self.state} > {self.place}/said 2>&1 < /dev/null & pid=$!; echo $pid > {self.place}/pid\n")

    @staticmethod
    def in_script(text, path):
        """Words of a shell that write a file; base64 in lines that no port is too narrow for."""
        return f"base64 -d > {path} <<'END'\n{base64.encodebytes(text.encode()).decode()}END"

    def refusal(self, setkey):
        """What it says where it refuses to start; nothing where it starts."""
        marker = f"{self.place}/status"
        self.sh(self.begun(setkey) + f"wait $pid; echo $? > {marker}", START_LIMIT_SECONDS)
        status, said = self.sh(f"cat {marker} {self.place}/said").split("\n", 1)
        return said if int(status) != 0 else None

    def ask(self, words):
        return self.sh(f"esplanade {words} --control {self.control}", START_LIMIT_SECONDS)

    def status(self):
        return json.loads(self.ask("status --json"))

    def drops(self):
        reasons = json.loads(self.ask("drops --json"))["reasons"]
        return {name: count for name, count in reasons.items() if count}

    def setkey_text(self, text):
        """Changes associations and policies of the running gateway."""
        path = f"{self.place}/change.setkey"
        self.sh(f"{self.in_script(text, path)}\nESPLANADE_CONTROL={self.control} setkey -f {path}", START_LIMIT_SECONDS)

    def expect_nothing_left(self):
        if left := self.sh(LEFT).strip():
            raise RuntimeError(f"a gateway that is down leaves: {left}")

    def down(self):
        """Ends it with all that it has installed."""
        if not self.runs:
            return
        self.runs = False
        self.sh(f"""
            esplanade down --control {self.control} > {self.place}/down 2>&1 || {{
                cat {self.place}/said {self.place}/down; exit 1; }}
            while kill -0 $(cat {self.place}/pid) 2> /dev/null; do sleep {POLL_INTERVAL_SECONDS}; done""")
        self.expect_nothing_left()
