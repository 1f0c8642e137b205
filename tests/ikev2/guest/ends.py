"""The two ends: charon in the guest, on its kernel's ESP and AH, and Esplanade on this machine."""

import contextlib
import os
import re
import shutil
import socket

from case import SECRET
from charon_commands import CHARON, KERNEL_PLUGINS, CharonCommands
from esplanade import Esplanade
from vici import Refused, Session

IKE = "aes256gcm16-prfsha384-ecp384"
NAMES = {"left": "left.example", "right": "right.example"}
OUTER = {"left": {4: "192.0.2.1", 6: "2001:db8::1"}, "right": {4: "192.0.2.2", 6: "2001:db8::2"}}
NETWORKS = {"left": "10.1.0.0/24", "right": "10.2.0.0/24"}
CONTROL_PORT = 4502
STRONGSWAN = """
charon {{
  load = {plugins}
  retransmit_timeout = 0.5
  retransmit_tries = 4
  plugins {{
    vici {{
      socket = tcp://{address}:{port}
    }}
  }}
  filelog {{
    log {{
      path = /tmp/charon.log
      default = 1
      knl = 2
      flush_line = yes
    }}
  }}
}}
"""
UP_TIMEOUT_SECONDS = 20
# What the kernel shows of an association, by the facts that a case decides.
STATE = re.compile(r"^src (\S+) dst (\S+)\n\s+proto (\w+) spi (0x\w+)\S* reqid \S+ mode (\w+)", re.MULTILINE)


class OnHost(Esplanade):
    """`esplanade run --config` with one peer."""

    def configure(self, case):
        shutil.rmtree(self.folder, ignore_errors=True)
        os.makedirs(self.folder)
        networks = (f'networks = {{ local = ["{NETWORKS["left"]}"], remote = ["{NETWORKS["right"]}"] }}'
                    if case.mode == "tunnel" else "")
        lines = ["[peer.net]", f'local = "{OUTER["left"][case.outer]}"', f'remote = "{OUTER["right"][case.outer]}"',
                 f'local_id = "{NAMES["left"]}"', f'remote_id = "{NAMES["right"]}"', f'psk = "{SECRET}"',
                 f'mode = "{"policy" if case.mode == "tunnel" else "transport"}"', networks,
                 f'ike = ["{IKE}"]', f'{case.protocol} = ["{case.proposal}"]', 'start = "wait"', 'dpd = "off"',
                 f'encapsulation = "{"force" if case.udp == "left" else "auto"}"']
        with open(f"{self.folder}/esplanade.toml", "w") as file:
            os.fchmod(file.fileno(), 0o600)
            file.write("\n".join(lines) + "\n")

    def children(self):
        """Its child SAs that are in use."""
        return [child for child in self.peer()["children"] if child["state"] == "active"]

    def packets(self):
        """What it has opened and sealed, each by SPI."""
        children = self.peer()["children"]
        return [{child["inbound_spi"]: child[way][0] for child in children} for way in ("received", "sent")]


class InGuest(CharonCommands):
    """charon in the guest's namespace `right`; its control socket is asked from the wire between the two ends."""

    def __init__(self, guest, wire_host):
        self.shell, self.wire_host = guest.right, wire_host
        self.case = None

    def sh(self, script, limit=60):
        status, output = self.shell.run(script, limit)
        if status != 0:
            raise RuntimeError(f"in the guest: {script}: exit status {status}\n{output}")
        return output

    def start(self):
        text = STRONGSWAN.format(plugins=KERNEL_PLUGINS, address=OUTER["right"][4], port=CONTROL_PORT)
        self.sh(f"""cat > /tmp/strongswan.conf <<'END'
{text}END
            rm -f /run/charon.pid
            STRONGSWAN_CONF=/tmp/strongswan.conf setsid {CHARON} > /tmp/charon.out 2>&1 < /dev/null &
            for try in $(seq 100); do
                grep -q 'spawning.*worker' /tmp/charon.log 2>/dev/null && [ -s /run/charon.pid ] && exit 0; sleep 0.1
            done; cat /tmp/charon.out /tmp/charon.log; exit 1""")

    def kill(self):
        """As if its machine had lost its power: nothing is left in the kernel."""
        self.sh("kill -9 $(cat /run/charon.pid); rm -f /tmp/charon.log; ip xfrm state flush; ip xfrm policy flush; "
                "ip rule del lookup 220; ip route flush table 220; true")

    def session(self):
        unconnected = self.wire_host.socket(socket.AF_INET, socket.SOCK_STREAM)
        return Session((OUTER["right"][4], CONTROL_PORT), UP_TIMEOUT_SECONDS + 5, unconnected)

    def load(self, case):
        self.case = case
        proposals = {f"{case.protocol}_proposals": [case.proposal]}
        selectors = ({"local_ts": [NETWORKS["right"]], "remote_ts": [NETWORKS["left"]]} if case.mode == "tunnel"
                     else {})
        child = {"mode": case.mode, "rekey_time": "0", **selectors, **proposals}
        connection = {"version": "2", "local_addrs": [OUTER["right"][case.outer]],
                      "remote_addrs": [OUTER["left"][case.outer]], "encap": "yes" if case.udp == "right" else "no",
                      "proposals": [IKE], "rekey_time": "0", "dpd_delay": "0",
                      "local": {"auth": "psk", "id": NAMES["right"]}, "remote": {"auth": "psk", "id": NAMES["left"]},
                      "children": {"net": child}}
        with self.session() as session:
            session.ask("load-shared", id="net", type="IKE", data=SECRET, owners=list(NAMES.values()))
            session.ask("load-conn", net=connection)

    def unload(self):
        with contextlib.suppress(Refused), self.session() as session:
            session.ask("terminate", ike="net", force="yes", timeout=2000)
        with contextlib.suppress(Refused), self.session() as session:
            session.ask("unload-conn", name="net")

    def initiate(self):
        """Begins; gives nothing if the tunnel is up, otherwise what charon says."""
        try:
            with self.session() as session:
                session.ask("initiate", ike="net", child="net", timeout=UP_TIMEOUT_SECONDS * 1000)
        except Refused as refused:
            return f"{refused}\n{self.words()}"
        return None

    def states(self):
        """The kernel's associations."""
        text = self.sh("ip -s xfrm state")
        starts = [found.start() for found in STATE.finditer(text)] + [len(text)]
        return [state_of(text[start:end]) for start, end in zip(starts, starts[1:])]

    def packets(self):
        """What the kernel has opened and sealed, each by SPI."""
        states = self.states()
        return [{state["spi"]: state["packets"] for state in states if state["inbound"] == way}
                for way in (True, False)]

    def errors(self):
        """The namespace's own counters of refused packets."""
        return {name: int(count) for name, count in map(str.split, self.sh("cat /proc/net/xfrm_stat").splitlines())}

    def words(self):
        return self.sh("tail -n 40 /tmp/charon.log")


def state_of(text):
    source, _, protocol, spi, mode = STATE.match(text).groups()
    packets = int(re.search(r"lifetime current:\s+\d+\(bytes\), (\d+)\(packets\)", text)[1])
    return {"inbound": source in OUTER["left"].values(), "protocol": protocol, "spi": spi, "mode": mode,
            "packets": packets, "esn": " esn" in text, "udp": "espinudp" in text}
