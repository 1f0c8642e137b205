"""A gateway under a flood of IKE_SA_INIT requests: its tunnel, and peers that start meanwhile."""

import json
import os
import re
import struct
import subprocess
import tempfile
import time

from ike import PSK, Keyed, config, ike_processes, start
from network.expect import expect
from network.sites import MACS, NETS, OUTER, SERVER, Sites
from network.timeout import slowed

HERE = os.path.dirname(os.path.abspath(__file__))
FLOOD_MAC = "02:00:00:00:66:66"
# Answers to the flood's addresses leave the victim by the same wire, and end behind it.
ROUTES = f"""ip route add default via 192.0.2.66
ip neigh replace 192.0.2.66 lladdr {FLOOD_MAC} dev wan nud permanent"""
DRAIN = f"""ip link add drain type veth peer name drained; ip link set drained up
ip link set drain master br0 up
bridge fdb replace {FLOOD_MAC} dev drain master static"""
IKE_PORT, CLOSED_PORT = 500, 501
PEERS = 100
UP_LIMIT_SECONDS = slowed(60)
# A peer that may come from any address: without one, a stranger is refused before anything is computed.
ANYWHERE = f"""
[peer.anywhere]
local = "{OUTER[4][1]}"
local_id = "right.example.org"
remote_id = "anywhere.example.org"
psk = "{PSK}"
mode = "policy"
networks = {{ local = ["{NETS[4][1]}"], remote = ["10.9.0.0/24"] }}
"""
ETHERNET_BYTES, IP_BYTES, UDP_BYTES = 14, 20, 8


class Flood:
    """Requests to the right gateway, as fast as they are asked for. `addresses`: that many answer cookies."""

    def __init__(self, sites, frame, rate, port=IKE_PORT, addresses=0):
        self.counters = tempfile.NamedTemporaryFile(prefix="esplanade-flood-")
        self.counters.write(bytes(16))
        self.counters.flush()
        with tempfile.TemporaryFile("w+") as text:
            text.write(frame.hex() + "\n")
            text.seek(0)
            argv = [program(), "right", str(rate), self.counters.name, str(port), str(addresses)]
            self.process = subprocess.Popen(sites.wire.argv(argv), stdin=text)
        self.began = time.monotonic()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.rate, self.cookies = self.so_far()
        self.process.kill()
        self.process.wait()

    def so_far(self):
        """Requests a second, and cookies answered."""
        with open(self.counters.name, "rb") as file:
            sent, cookies = struct.unpack("=QQ", file.read(16))
        return sent / (time.monotonic() - self.began), cookies


def program():
    """The generator, compiled once for this source."""
    source = os.path.join(HERE, "initflood.c")
    built = os.path.join(tempfile.gettempdir(), f"esplanade-initflood-{os.stat(source).st_mtime_ns}")
    if not os.path.exists(built):
        subprocess.run(["cc", "-O2", "-o", f"{built}.{os.getpid()}", source], check=True)
        os.rename(f"{built}.{os.getpid()}", built)
    return built


class Flooded:
    """Two gateways with a tunnel, a third with many peers, and the request that the flood repeats."""

    def __init__(self, sites):
        self.sites = sites
        sites.wire.sh(DRAIN)
        sites.right.sh(ROUTES)
        sites.many = sites.network.host("many")
        sites.network.link(sites.many, "wan", sites.wire, "many")
        sites.wire.sh("ip link set many master br0 up")
        sites.many.sh("ip link set wan up; sysctl -qw net.ipv4.ip_forward=1\n" + "\n".join(
            f"ip addr add 192.0.2.{101 + n}/24 dev wan" for n in range(PEERS)))
        wire = sites.listen(sites.wire, "right")
        branches = "".join(one_of_many(n, True) for n in range(PEERS))
        self.right = start(sites, "right", config("right", 'start = "wait"\n') + branches + ANYWHERE)
        self.left = start(sites, "left", config("left"))
        self.left.wait("up")
        self.right.wait("up")
        expect(sites.ping() == 3, "no ping through the tunnel")
        self.frame = first_request(wire.settle())

    def flood(self, rate, **more):
        return Flood(self.sites, self.frame, rate, **more)

    def goodput(self, seconds):
        """Bits a second of one TCP stream through the tunnel."""
        for _ in range(3):
            status, output = self.sites.client.attempt(f"iperf3 -J -c {SERVER[4]} -t {seconds}", limit=seconds + 30)
            if status == 0:
                return json.loads(output)["end"]["sum_received"]["bits_per_second"]
            time.sleep(1)
        raise RuntimeError(f"iperf3: {output[-500:]}")

    def seconds_until_all_are_up(self):
        """A gateway with many peers starts: seconds until each has its child SAs, and how many do."""
        text = "".join(one_of_many(n, False) for n in range(PEERS))
        gateway = Keyed(self.sites.many, text)
        began = time.monotonic()
        up = 0
        while up < PEERS and time.monotonic() < began + UP_LIMIT_SECONDS:
            status, output = gateway.attempt("status", "--json")
            if status == 0:
                peers = json.loads(output)["peers"]
                up = sum(peer["state"] == "up" and bool(peer["children"]) for peer in peers)
            time.sleep(0.05)
        took = time.monotonic() - began
        # The next one has a folder of its own, so this one's rules have to go.
        gateway.ask("down")
        return took, up

    def dirty_kilobytes(self):
        """Private dirty memory of the processes of key exchange on the right."""
        return sum(int(line.split()[1]) for pid in ike_processes(self.right)
                   for line in open(f"/proc/{pid}/smaps_rollup") if line.startswith("Private_Dirty"))

    def cpu_seconds(self):
        """Processor time of the ike process on the right, system calls included."""
        ticks = 0
        for pid in ike_processes(self.right):
            with open(f"/proc/{pid}/stat") as file:
                ticks += sum(map(int, file.read().rsplit(")", 1)[1].split()[11:13]))
        return ticks / os.sysconf("SC_CLK_TCK")


def one_of_many(number, is_responder):
    """The section of one of many peers: as the gateway has it that waits, or as the one that begins."""
    here, there = f"192.0.2.{101 + number}", OUTER[4][1]
    names = [f"branch{number}.example.org", "right.example.org"]
    networks = [[f"10.{100 + number}.0.0/24"], [NETS[4][1]]]
    if is_responder:
        names.reverse()
        networks.reverse()
        ends = f'local = "{there}"\nremote = "{here}"\nstart = "wait"\n'
    else:
        ends = f'local = "{here}"\nremote = "{there}"\n'
    return f"""
[peer.branch{number}]
{ends}local_id = "{names[0]}"
remote_id = "{names[1]}"
psk = "{PSK}"
mode = "policy"
networks = {{ local = {json.dumps(networks[0])}, remote = {json.dumps(networks[1])} }}
"""


def first_request(frames):
    """The first IKE_SA_INIT request that was captured, from the flood's Ethernet address."""
    for frame in frames:
        ike = frame[ETHERNET_BYTES + IP_BYTES + UDP_BYTES:]
        is_ike = frame[12:14] == b"\x08\x00" and frame[23] == 17 and frame[36:38] == IKE_PORT.to_bytes(2, "big")
        if is_ike and ike[18:19] == b"\x22" and ike[8:16] == bytes(8):
            mac = bytes.fromhex(FLOOD_MAC.replace(":", ""))
            return bytes.fromhex(MACS["right"].replace(":", "")) + mac + frame[12:]
    raise AssertionError("no IKE_SA_INIT request was captured")


def drops(sites):
    """What the sockets of the right gateway could not take, by port."""
    text = sites.right.sh("ss -4Hulnmp")
    return {port: int(lost) for port, lost in re.findall(r":(500|4500) .*?,d(\d+)\)", text.replace("\n\t", " "))}
