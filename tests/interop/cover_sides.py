"""The two ends of the pairwise cover: every combination at once, each between addresses of its own.

One kernel or one gateway holds the associations of a whole batch; what is told apart by address needs
no set-up between one combination and the next.
"""

import json
import re
import time
from dataclasses import dataclass

from combination import CIPHERS, GATEWAY, INTEGRITY, KERNEL_PLANE, NONE, RIGHT, is_aead
from guest_gateway import GuestGateway
from network.gateway import Gateway

ASK = "/tmp/ask"


@dataclass
class Tally:
    """What happened to the packets of one association."""
    accepted: int = 0
    replayed: int = 0
    old: int = 0
    forged: int = 0
    other: int = 0

    def __sub__(self, before):
        return Tally(*(getattr(self, name) - getattr(before, name) for name in self.__dataclass_fields__))

    def __str__(self):
        return ", ".join(f"{name} {count}" for name, count in vars(self).items() if count) or "nothing"


def ask_lines(batch, near, far):
    return "\n".join(f"{each.number} {each.inside(near)} {each.inside(far)}" for each in batch)


def parse_answers(text, sizes):
    """By number of the combination: how often each size was sent, and how often it came back."""
    answers = {}
    for line in re.findall(r"^(\d+)((?: \d+/\d+)+)$", text, re.MULTILINE):
        pairs = [tuple(map(int, pair.split("/"))) for pair in line[1].split()]
        answers[int(line[0])] = dict(zip(sizes, pairs))
    return answers


class KernelCover:
    """A namespace of the guest."""

    def __init__(self, shell, side, ends, neighbours):
        self.shell, self.side, self.ends = shell, side, ends
        self.neighbours = neighbours

    def prepare(self, combinations):
        """Addresses, routes to the others, and the server that echoes; they stay for all batches."""
        lines = []
        for each in combinations:
            for address in {each.inside(self.side), each.outside(self.side)}:
                lines.append(f"addr add {address}/{'128 dev lo nodad' if ':' in address else '32 dev lo'}")
        for other, ends in self.neighbours:
            for version, networks in other.networks().items():
                lines += [f"route add {network} via {ends.outer[version]}" for network in networks]
        self.ip(lines)
        self.sh("setsid probe echo > /dev/null 2>&1 < /dev/null &")

    def sh(self, script, limit=60):
        status, output = self.shell.run(script, limit)
        if status != 0:
            raise RuntimeError(f"in the guest: exit status {status}\n{script[:400]}\n{output[-2000:]}")
        return output

    def ip(self, lines, limit=240):
        if lines:
            self.sh("ip -batch - <<'END'\n" + "\n".join(lines) + "\nEND", limit)

    @staticmethod
    def carries(_each):
        return True

    def up(self, batch, other, secret=""):
        self.ip([line for each in batch for line in self.lines(each, other, secret)])

    def lines(self, each, other, secret):
        for source, destination in ((self.side, other), (other, self.side)):
            yield from self.states(each, source, destination, secret)
        for direction, source, destination in (("out", self.side, other), ("in", other, self.side)):
            templates = [f"tmpl src {layer.source} dst {layer.destination} proto {layer.protocol} "
                         f"reqid {layer.spi} mode {layer.mode}" for layer in each.layers(source, destination)]
            yield (f"xfrm policy add src {each.inside(source)} dst {each.inside(destination)} dir {direction} "
                   + " ".join(templates))

    def states(self, each, source, destination, secret="", options=""):
        for layer in each.layers(source, destination):
            flags = (["esn"] if each.esn else []) + (["af-unspec"] if layer.mode == "tunnel" else [])
            # RFC 4302 2.6 pads AH over IPv4 to 4 bytes; Linux does so only where it is told, and to 8 otherwise.
            flags += ["align4"] if layer.protocol == "ah" and ":" not in layer.source else []
            words = [f"xfrm state add src {layer.source} dst {layer.destination} proto {layer.protocol}",
                     f"spi {layer.spi} reqid {layer.spi} mode {layer.mode} replay-window {each.window}", options,
                     f"flag {' '.join(flags)}" if flags else "", *algorithm_words(each, layer, secret)]
            if each.encap == "udp":
                words.append(f"encap espinudp 4500 4500 {'::' if each.outer_version == 6 else '0.0.0.0'}")
            yield " ".join(filter(None, words))

    def renew(self, batch, other):
        """Inbound associations as if nothing had come yet."""
        self.ip([line for each in batch for layer in each.layers(other, self.side)
                 for line in [f"xfrm state delete dst {layer.destination} proto {layer.protocol} spi {layer.spi}"]]
                + [line for each in batch for line in self.states(each, other, self.side)])

    def down(self):
        self.sh("ip xfrm state flush; ip xfrm policy flush")

    def ask(self, batch, far, sizes, tries):
        text = self.sh(f"cat > {ASK} <<'END'\n{ask_lines(batch, self.side, far)}\nEND\n"
                       f"probe ask {ASK} {tries} {' '.join(map(str, sizes))}", 300)
        return parse_answers(text, sizes), text

    def tallies(self):
        """By protocol and SPI."""
        text = self.sh("""ip -s xfrm state | awk '
            $1 == "proto" { name = $2 " " $4 }
            /\\(packets\\)$/ && $1 ~ /^[0-9]+\\(bytes\\)/ { packets = $2 + 0 }
            $1 == "replay-window" && $3 == "replay" { print name, packets, $2, $4, $6 }'""")
        tallies = {}
        for protocol, spi, packets, old, replayed, forged in map(str.split, text.splitlines()):
            key = protocol, int(spi.split("(")[0], 16)
            tallies[key] = Tally(int(packets), int(replayed), int(old), int(forged))
        return tallies

    def totals(self):
        """The namespace's own counters, by their names; and under "no-sa" what no association was found for."""
        counts = {name: int(value) for name, value in map(str.split, self.sh("cat /proc/net/xfrm_stat").splitlines())}
        return {"no-sa": counts["XfrmInNoStates"]}, {name: count for name, count in counts.items() if count}


def algorithm_words(each, layer, secret):
    if layer.protocol == "esp":
        row = CIPHERS[layer.cipher]
        key = each.key(layer, "cipher", row["key"], secret) if row["key"] else '""'
        if is_aead(layer.cipher):
            yield f"aead {row['kernel']} {key} {row['aead']}"
        else:
            yield f"enc {row['kernel']} {key}"
    if layer.integrity != NONE and not is_aead(layer.cipher):
        row = INTEGRITY[layer.integrity]
        yield f"auth-trunc {row['kernel']} {each.key(layer, 'integrity', row['key'], secret)} {row['auth']}"


class BySetkey:
    """What a gateway is told of a batch, and what it says of its associations."""

    @staticmethod
    def carries(_each):
        return True

    def text(self, batch, other, secret=""):
        return "\n".join(line for each in batch for line in self.lines(each, other, secret)) + "\n"

    def lines(self, each, other, secret):
        for source, destination in ((self.side, other), (other, self.side)):
            yield from self.states(each, source, destination, secret)
        for direction, source, destination in (("out", self.side, other), ("in", other, self.side)):
            templates = [f"{layer.protocol}/{layer.mode}/{ends_of(layer)}/require"
                         for layer in each.layers(source, destination)]
            yield (f"spdadd {each.inside(source)} {each.inside(destination)} any -P {direction} ipsec "
                   f"{' '.join(templates)};")

    def states(self, each, source, destination, secret="", options=""):
        for layer in each.layers(source, destination):
            protocol = "esp-udp" if each.encap == "udp" else layer.protocol
            words = [f"add {layer.source} {layer.destination} {protocol} {layer.spi:#x} -m {layer.mode}",
                     f"-r {each.window}", "-o esn=yes" if each.esn else "", options]
            if layer.protocol == "esp":
                row = CIPHERS[layer.cipher]
                key = each.key(layer, "cipher", row["key"], secret) if row["key"] else ""
                suite = [f"-E {row['setkey']} {key}"]
            else:
                suite = []
            if layer.integrity != NONE and not is_aead(layer.cipher):
                row = INTEGRITY[layer.integrity]
                words.append(f"-o {row['option']}" if "option" in row else "")
                suite.append(f"-A {row['setkey']} {each.key(layer, 'integrity', row['key'], secret)}")
            yield " ".join(filter(None, words + suite)) + ";"

    def renew(self, batch, other):
        gone = [f"delete {layer.source} {layer.destination} {layer.protocol} {layer.spi:#x};"
                for each in batch for layer in each.layers(other, self.side)]
        # By two texts: what one text takes out and puts back goes on from where it was.
        for lines in (gone, [line for each in batch for line in self.states(each, other, self.side)]):
            self.gateway.setkey_text("\n".join(lines) + "\n")

    def tallies(self):
        return {(sa["protocol"], int(sa["spi"], 16)): tally_of(sa) for sa in self.gateway.status()["associations"]}


def tally_of(sa):
    drops = dict(sa["drops"])
    tally = Tally(sa["packets"], *(drops.pop(name, 0) for name in ("replayed", "too-old", "bad-icv")))
    tally.other = sum(drops.values())
    return tally


class GatewayCover(BySetkey):
    """Our gateway, with a client behind it."""

    def __init__(self, host, client, ends, program):
        self.side, self.ends = GATEWAY, ends
        self.host, self.client, self.program = host, client, program
        self.gateway = None

    def prepare(self, combinations):
        host, client = [], []
        for each in combinations:
            inside, outside = (bare(address) for address in (each.inside(self.side), each.outside(self.side)))
            (host if each.ends_at_host() else client).append(f"addr add {inside} dev lo")
            if outside != inside:
                host.append(f"addr add {outside} dev lo")
        (outer4, inner4), (outer6, inner6) = RIGHT.networks().values()
        host += [f"route add {outer4} via 192.0.2.2", f"route add {outer6} via 2001:db8::2",
                 "route add 10.1.16.0/20 via 10.1.0.2", "route add fd00:1:1::/48 via fd00:1::2"]
        for machine, lines in ((self.host, host), (self.client, client)):
            machine.sh("ip -batch - <<'END'\n" + "\n".join(lines) + "\nEND")
            machine.start([self.program, "echo"])

    def up(self, batch, other, secret=""):
        # One that keeps its numbers knows the keys of associations that have gone, and what came under them.
        self.gateway = Gateway(self.host, self.text(batch, other, secret), ["--no-state"]).ready()

    def down(self):
        if self.gateway is not None:
            gateway, self.gateway = self.gateway, None
            gateway.stop()
            gateway.attempt("down")

    def ask(self, batch, far, sizes, tries):
        answers, said = {}, ""
        for host, at_host in ((self.host, True), (self.client, False)):
            part = [each for each in batch if each.ends_at_host() == at_host]
            _, text = host.attempt(f"{self.program} ask /dev/stdin {tries} {' '.join(map(str, sizes))} <<'END'\n"
                                   f"{ask_lines(part, self.side, far)}\nEND", 300)
            answers.update(parse_answers(text, sizes))
            said += text
        return answers, said

    def totals(self):
        reasons = json.loads(self.gateway.ask("drops", "--json"))["reasons"]
        return {"no-sa": reasons.get("no-sa", 0)}, reasons


class KernelPlaneCover(BySetkey, KernelCover):
    """Our gateway on the kernel plane, in a namespace of a guest."""

    def __init__(self, shell, ends, neighbours):
        super().__init__(shell, KERNEL_PLANE, ends, neighbours)
        self.gateway = GuestGateway(self.sh, "/tmp/cover", state=False)

    def up(self, batch, other, secret=""):
        self.gateway.start(self.text(batch, other, secret))

    def down(self):
        self.gateway.down()

    def totals(self):
        reasons = self.gateway.drops()
        return {"no-sa": reasons.get("no-sa", 0)}, reasons


def ends_of(layer):
    return f"{layer.source}-{layer.destination}" if layer.mode == "tunnel" else ""


def bare(address):
    return f"{address}/128 nodad" if ":" in address else f"{address}/32"


def settled(side, seconds=0.3):
    """The tallies once they no longer change."""
    before = side.tallies()
    while True:
        time.sleep(seconds)
        after = side.tallies()
        if after == before:
            return after
        before = after
