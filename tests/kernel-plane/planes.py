"""Two sites whose gateways each run on a plane, and how their traffic is judged: it passes, and the wire shows nothing."""

import ctypes
import fcntl
import json
import os
import re
import socket
import struct
import subprocess
import threading

from fail_closed import in_clear
from network.expect import expect
from network.gateway import program
from network.sites import CLIENT, OUTER, SERVER, Sites
from network.timeout import slowed
from network.wire import ESP, UDP, Packet

# Sixteen bytes, as many as ping repeats.
CANARY = b"canary-in-clear!"
SIZE = 200_000
PORT = 7007
AH = 51
SIOCETHTOOL, ETHTOOL_SSG, ETHTOOL_SGRO = 0x8946, 0x19, 0x2c
TIMEOUT_SECONDS = slowed(20)
FAULTS = ("bad-icv", "replayed", "policy-mismatch", "no-sa", "malformed", "bad-inner")
# `user`: every gateway on the user plane, which shows that a case itself is right.
STAND_IN = os.environ.get("ESPLANADE_PLANES") == "user"
STATE = re.compile(r"^src (\S+) dst (\S+)\n\s+proto (\w+) spi (0x\w+)\S* reqid \S+ mode (\w+)", re.MULTILINE)
CURRENT = re.compile(r"lifetime current:\s+(\d+)\(bytes\), (\d+)\(packets\)")


class PlaneSites(Sites):
    """Sites with a plane for each gateway."""

    def __init__(self, purpose, left="kernel", right="kernel"):
        super().__init__(purpose)
        self.planes = {"left": left, "right": right}

    def build(self):
        super().build()
        for port in ("left", "right"):
            without_scatter_gather(self.wire, port)

    def start(self, name, setkey=None, options=(), **more):
        return super().start(name, setkey, (*options_of(self.planes[name]), *options), **more)

    def on_kernel(self):
        """The gateways whose packets the kernel carries."""
        return {} if STAND_IN else {name: gateway for name, gateway in self.gateways.items()
                                    if self.planes[name] == "kernel"}

    def pairs(self, families=(4, 6)):
        """The hosts behind the gateways."""
        return [Pair(self.client, CLIENT[family], self.server, SERVER[family]) for family in families]

    def gateways_themselves(self, outer):
        return [Pair(self.left, OUTER[outer][0], self.right, OUTER[outer][1])]


def without_scatter_gather(host, device):
    """Frames are copied as they leave the device. Otherwise a tap that is read late shows what the receiving kernel
    has made of them since: it decrypts in place, in pages that both share."""
    set_feature(host, device, ETHTOOL_SSG, False)


def set_feature(host, device, command, is_on):
    """As `ethtool -K` does."""
    value = ctypes.create_string_buffer(struct.pack("II", command, is_on))
    request = struct.pack("16sP8x", device.encode(), ctypes.addressof(value))
    with host.socket(socket.AF_INET, socket.SOCK_DGRAM) as control:
        fcntl.ioctl(control, SIOCETHTOOL, request)


def on_planes(tests, *pairs):
    """Cases by name: each test with each pair of planes, of the left gateway and of the right one."""
    return {f"{name}, {left} and {right}": test(left, right) for left, right in pairs for name, test in tests.items()}


def options_of(plane):
    return () if STAND_IN else ("--plane", plane)


class Pair:
    """Two hosts that talk to each other, from one address to the other."""

    def __init__(self, near, near_address, far, far_address):
        self.ends = [(near, near_address), (far, far_address)]
        self.kind = socket.AF_INET6 if ":" in near_address else socket.AF_INET

    def __str__(self):
        return " and ".join(address for _, address in self.ends)

    def pings(self, count=3, size=56):
        """How many pings come back, each way."""
        return [self.ping(host, source, target, count, size)
                for (host, source), (_, target) in (self.ends, self.ends[::-1])]

    def ping(self, host, source, target, count, size):
        words = f"ping -q -n -c {count} -i 0.05 -W 1 -s {size} -p {CANARY.hex()} -I {source} {target}"
        found = re.search(r" (\d+) received", host.attempt(words)[1])
        return int(found[1]) if found else 0

    def transfer(self, size=SIZE):
        """Canaries over TCP, there and back; whether all of them came."""
        text = CANARY * (size // len(CANARY))
        (near, source), (far, target) = self.ends
        with far.socket(self.kind, socket.SOCK_STREAM) as listener, near.socket(self.kind, socket.SOCK_STREAM) as one:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            for each in (listener, one):
                each.settimeout(TIMEOUT_SECONDS)
            listener.bind((target, PORT))
            listener.listen(1)
            answer = threading.Thread(target=send_back, args=(listener, len(text)), daemon=True)
            answer.start()
            try:
                one.bind((source, 0))
                one.connect((target, PORT))
                writer = threading.Thread(target=one.sendall, args=(text,), daemon=True)
                writer.start()
                got = received(one, len(text))
            except OSError as error:
                return f"{type(error).__name__}: {error}"
            return None if got == text else f"{len(got)} bytes came back, not all of them right"


def send_back(listener, length):
    try:
        one, _ = listener.accept()
        with one:
            one.settimeout(TIMEOUT_SECONDS)
            one.sendall(received(one, length))
    except OSError:
        pass


def received(one, length):
    got = bytearray()
    while len(got) < length and (piece := one.recv(65536)):
        got += piece
    return bytes(got)


def seen_without_a_tunnel(sites, pairs):
    """The control of secrecy: the canary is on the wire, each way and in pings too. Gives the tap."""
    wire = sites.listen(sites.wire, "left")
    for pair in pairs:
        wire.clear()
        expect(pair.pings() == [3, 3], f"the plain network does not work between {pair}")
        expect(canaries(wire.settle()), f"the control failed: no canary of a ping between {pair}")
        wire.clear()
        trouble = pair.transfer()
        expect(trouble is None, f"the plain network does not work between {pair}: {trouble}")
        expect(canaries(wire.settle()), f"the control failed: no canary of TCP between {pair}")
    wire.clear()
    return wire


def canaries(frames):
    return [frame for frame in frames if CANARY in frame]


def carried(sites, pairs, wire, protocols=(UDP, ESP), hidden=True):
    """Pings and TCP pass each way; on the wire are these protocols alone, and nothing that can be read."""
    before = faults(sites)
    wire.clear()
    for pair in pairs:
        expect((got := pair.pings()) == [3, 3], f"of 3 pings came back {got} between {pair}\n{words(sites)}")
        trouble = pair.transfer()
        expect(trouble is None, f"no TCP between {pair}: {trouble}\n{words(sites)}")
    frames = wire.settle()
    secret(frames, hidden)
    outer = [packet for packet in map(Packet.of, frames) if packet and not packet.is_neighbour_discovery()]
    expect({packet.protocol for packet in outer} <= set(protocols),
           f"protocols on the wire: {sorted({packet.protocol for packet in outer})}, wanted {protocols}")
    expect(sum(len(packet.frame) for packet in outer) > 2 * len(pairs) * 1000, "hardly anything was on the wire")
    no_faults(sites, before)
    return frames


def secret(frames, hidden=True):
    expect(not in_clear(frames), f"{len(in_clear(frames))} packets with inner addresses in clear on the wire")
    found = canaries(frames) if hidden else []
    expect(not found, f"{len(found)} canaries on the wire, the first one in {found[0].hex() if found else None}")


def ended(streams):
    """Datagrams sent, lost and reordered by all of them; their ports are free again."""
    figures = [stream.finish() for stream in streams]
    for stream in streams:
        stream.receiver.close()
        stream.sender.close()
    return [sum(column) for column in zip(*figures)]


def closed(sites, pairs, wire, far_side=True):
    """Nothing passes, nothing is on the wire. Without a gateway of its own the far side would send in clear."""
    wire.clear()
    for pair in pairs:
        (near, source), (far, target) = pair.ends
        expect(pair.ping(near, source, target, 2, 56) == 0, f"pings are answered between {pair}")
        if far_side:
            expect(pair.ping(far, target, source, 2, 56) == 0, f"pings of the far side are answered between {pair}")
    secret(wire.settle())


def no_faults(sites, before):
    """None but those of `before`: what came in clear is counted there too."""
    after = faults(sites)
    expect(after == before, f"the gateways dropped packets: before {before}, after {after}")


def faults(sites):
    """For each gateway and reason, how many packets it dropped that it should have let in."""
    told = {name: drops(gateway) for name, gateway in sites.gateways.items()}
    return {(name, reason): count for name, reasons in told.items() for reason, count in reasons.items()
            if reason in FAULTS and count}


def drops(gateway):
    return json.loads(gateway.ask("drops", "--json"))["reasons"]


def words(sites):
    """What each gateway and its kernel have to say about packets that did not come."""
    shown = "grep -vE '[[:space:]]0$' /proc/net/xfrm_stat; ip -s xfrm state | grep -E '^src|proto|bytes'"
    return "\n".join(f"{name}: {gateway.attempt('drops')[1]}{gateway.host.attempt(shown)[1]}{gateway.words()[-600:]}"
                     for name, gateway in sites.gateways.items())


def states(host):
    """What the kernel of a host has of associations, as `ip -s xfrm state` shows it."""
    text = host.sh("ip -s xfrm state")
    starts = [found.start() for found in STATE.finditer(text)] + [len(text)]
    return [state_of(text[start:end]) for start, end in zip(starts, starts[1:])]


def state_of(text):
    source, destination, protocol, spi, mode = STATE.match(text).groups()
    octets, packets = map(int, CURRENT.search(text).groups())
    return {"source": source, "destination": destination, "protocol": protocol, "spi": int(spi, 16), "mode": mode,
            "bytes": octets, "packets": packets, "text": text}


def counted_by_the_kernel(sites, protocols):
    """On each side that is on the kernel's plane its own counters rose, and there is no TUN device."""
    for name, gateway in sites.on_kernel().items():
        told = [state for state in states(gateway.host) if state["packets"] > 0]
        for protocol in protocols:
            busy = {(state["destination"], state["spi"]) for state in told if state["protocol"] == protocol}
            expect(len(busy) >= 2, f"{name}: the kernel carried nothing by {protocol}:\n"
                                   f"{gateway.host.sh('ip -s xfrm state')}")
        expect(gateway.host.attempt("ip link show esp0")[0] != 0, f"{name}: there is an esp0")
        says_its_plane(gateway, "kernel")


def says_its_plane(gateway, plane):
    """`status`, as JSON, and as text where it is not the default."""
    if STAND_IN:
        return
    text = gateway.ask("status")
    expect(plane == "user" or f"plane {plane}" in text, f"`status` does not say plane {plane}:\n{text}")
    told = gateway.status().get("plane")
    expect(told == plane, f"`status --json` says plane {told}")


def setkey(gateway, *options):
    """What `setkey` prints about a running gateway."""
    done = subprocess.run([program("setkey"), *options], capture_output=True, text=True, timeout=slowed(60),
                          env={**os.environ, "ESPLANADE_CONTROL": gateway.control})
    expect(done.returncode == 0, f"setkey {' '.join(options)}: exit status {done.returncode}: {done.stderr}")
    return done.stdout
