"""Policies with real packets: who is protected, who is not, who is dropped, and what the gateway says about it."""

import json
import subprocess
import time

from network.expect import expect
from network.gateway import program
from network.sites import AES_GCM, CLIENT, NETS, SERVER, Sites
from network.wire import Esp, Packet

HERE, THERE = NETS[4]
ENDS = "192.0.2.1-192.0.2.2"
BACK = "192.0.2.2-192.0.2.1"


def associations(first=0x1001, more=""):
    return (f"add 192.0.2.1 192.0.2.2 esp-udp {first:#x} -m tunnel -r 1024 {more} {AES_GCM.format(first % 251)};\n"
            f"add 192.0.2.2 192.0.2.1 esp-udp {first + 1:#x} -m tunnel -r 1024 {more} {AES_GCM.format(first % 251 + 1)};\n")


def mirrored(upper, action="ipsec esp/tunnel/{}/require", left=True, ports=("any", "any"), prio=""):
    """A policy of one gateway and its mirror image."""
    out, back = (ENDS, BACK)
    ways = ("out", "in") if left else ("in", "out")
    return (f"spdadd {HERE}[{ports[0]}] {THERE}[{ports[1]}] {upper} -P {ways[0]} {prio} {action.format(out)};\n"
            f"spdadd {THERE}[{ports[1]}] {HERE}[{ports[0]}] {upper} -P {ways[1]} {prio} {action.format(back)};\n")


def both(sites, text, sas=None):
    sas = associations() if sas is None else sas
    return [sites.start(name, sas + text(name == "left")) for name in ("left", "right")]


def sent(sites, wire, protocol="udp", port=5001, count=3):
    """Sends datagrams from the client to a port of the server; how many crossed the wire protected, and in clear."""
    wire.clear()
    sites.client.sh(f"""python3 -c "
import socket
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); s.bind(('{CLIENT[4]}', 5000))
for n in range({count}):
    try: s.sendto(b'x' * 100, ('{SERVER[4]}', {port}))
    except OSError: pass
" """)
    return on_the_wire(wire)


def spis(wire):
    """Through which associations of the left gateway packets have left."""
    packets = [packet for packet in map(Packet.of, wire.settle()) if packet and packet.source == "192.0.2.1"]
    return {esp.spi for esp in (Esp.find(packet.frame) for packet in packets) if esp}


def on_the_wire(wire):
    packets = [packet for packet in map(Packet.of, wire.settle())
               if packet and packet.source in ("192.0.2.1", CLIENT[4])]
    protected = [packet for packet in packets if Esp.find(packet.frame)]
    clear = [packet for packet in packets if packet.source == CLIENT[4]]
    return len(protected), len(clear)


def explained(gateway, *question):
    return gateway.ask("explain", *question)


def one_port_of_one_protocol():
    with Sites("po") as sites:
        left, _ = both(sites, lambda left: mirrored("udp", left=left, ports=("any", "5001")))
        wire = sites.listen(sites.wire, "left")
        protected, clear = sent(sites, wire, port=5001)
        expect(protected >= 1 and clear == 0, f"port 5001: {protected} protected, {clear} in clear")
        protected, clear = sent(sites, wire, port=5002)
        expect(protected == 0 and clear >= 3, f"port 5002: {protected} protected, {clear} in clear")
        wire.clear()
        expect(sites.ping() == 3, "ping, which no policy names, does not pass")
        expect(on_the_wire(wire)[0] == 0, "ping was protected though no policy names it")
        ends = CLIENT[4], SERVER[4]
        expect("sent protected" in explained(left, *ends, "udp", "5001"), "explain does not say so")
        expect("sent unencrypted" in explained(left, *ends, "udp", "5002"), "explain does not say so either")


def a_type_of_icmp():
    with Sites("po") as sites:
        def text(left):
            request = f"spdadd {HERE} {THERE} icmp 8,0 -P {'out' if left else 'in'} ipsec esp/tunnel/{ENDS}/require;\n"
            return request
        left, right = both(sites, text)
        wire = sites.listen(sites.wire, "left")
        expect(sites.ping() == 3, "no ping with its request protected and its reply in clear")
        packets = [packet for packet in map(Packet.of, wire.settle()) if packet]
        expect(any(Esp.find(packet.frame) for packet in packets), "the request was not protected")
        expect(not any(packet.source == CLIENT[4] for packet in packets), "the request left in clear")
        expect(any(packet.source == SERVER[4] for packet in packets), "the control failed: the reply was not in clear")


def the_higher_priority_decides():
    with Sites("po") as sites:
        def text(left):
            return mirrored("any", left=left) + "".join(
                mirrored("udp", action=action, left=left, ports=("any", port), prio=f"prio {prio}")
                for action, port, prio in (("none", "5001", "high"), ("discard", "5002", "high"),
                                           ("discard", "5003", "low"), ("entrust", "5004", "high")))
        left, _ = both(sites, text)
        wire = sites.listen(sites.wire, "left")
        for port, wanted in ((5001, "clear"), (5002, "nothing"), (5003, "protected"), (5004, "clear"),
                             (5005, "protected")):
            protected, clear = sent(sites, wire, port=port)
            got = "protected" if protected and not clear else "clear" if clear and not protected else \
                "nothing" if not clear and not protected else "both"
            expect(got == wanted, f"port {port}: {got} where {wanted} was due")
            word = {"clear": "sent unencrypted", "nothing": "policy-discard", "protected": "sent protected"}[wanted]
            told = explained(left, CLIENT[4], SERVER[4], "udp", str(port))
            expect(word in told, f"explain, port {port}: {told}")


def use_passes_in_clear_without_association():
    with Sites("po") as sites:
        gateways = both(sites, lambda left: mirrored("any", "ipsec esp/tunnel/{}/use", left), sas="")
        wire = sites.listen(sites.wire, "left")
        expect(sites.ping() == 3, "no ping in clear")
        expect(on_the_wire(wire)[1] >= 3, "what passed was not in clear")
        for gateway in gateways:
            gateway.setkey_text(associations())
        wire.clear()
        expect(sites.ping() == 3, "no ping with associations")
        protected, clear = on_the_wire(wire)
        expect(protected >= 1 and clear == 0,
               f"{protected} protected, {clear} in clear, although there are associations")


def unique_takes_its_own_association():
    with Sites("po") as sites:
        both(sites, lambda left: mirrored("icmp", "ipsec esp/tunnel/{}/unique:7", left) + mirrored("udp", left=left),
             sas=associations(0x1001, "-u 7") + associations(0x2001))
        expect(sites.ping(count=4) == 4, "no ping")
        used = {sa["spi"]: sa["packets"] for sa in sites.gateways["left"].status()["associations"]}
        expect(used["0x00001001"] == 4 and used["0x00002001"] == 0, f"packets by association: {used}")


class Events:
    """`esplanade events --json`, from now on."""

    def __init__(self, gateway):
        self.path = f"{gateway.folder}/events"
        with open(self.path, "w") as file:
            gateway.host.start([program(), "events", "--json", "--control", gateway.control], stdout=file)
        # The first event proves that it listens.
        deadline = time.monotonic() + 5
        while not self.all() and time.monotonic() < deadline:
            gateway.setkey_text("add 192.0.2.77 192.0.2.78 esp 0x7001 -r 4 -E aes-gcm-16 0x" + "77" * 20 + ";"
                                "delete 192.0.2.77 192.0.2.78 esp 0x7001;"
                                "add 192.0.2.77 192.0.2.78 esp 0x7001 -r 4 -E aes-gcm-16 0x" + "77" * 20 + ";")
            gateway.setkey_text("delete 192.0.2.77 192.0.2.78 esp 0x7001;")
            time.sleep(0.1)

    def all(self):
        with open(self.path) as file:
            return [json.loads(line) for line in file if line.endswith("\n")]

    def wait(self, name, seconds=5, **facts):
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            for event in self.all():
                if event["event"] == name and facts.items() <= event.items():
                    return event
            time.sleep(0.05)
        raise AssertionError(f"no event {name} {facts} among {self.all()}")


def events_tell_what_happens():
    with Sites("po") as sites:
        left = sites.start("left", mirrored("any"))
        events = Events(left)
        expect(sites.ping(count=1) == 0, "the control failed: a ping came back")
        acquired = events.wait("acquire")
        expect((acquired["source"], acquired["destination"]) == (CLIENT[4], SERVER[4]), f"{acquired}")
        left.setkey_text(associations())
        events.wait("sa-added", spi="0x00001001")
        left.setkey_text(associations().replace("add ", "update ").replace("-r 1024", "-r 2048"))
        events.wait("sa-updated", spi="0x00001001")
        left.setkey_text(f"spdadd {HERE} {THERE} tcp -P out none;")
        events.wait("policy-added", direction="out")
        left.setkey_text(f"spddelete {HERE} {THERE} tcp -P out;")
        events.wait("policy-deleted", direction="out")
        left.setkey_text("deleteall 192.0.2.1 192.0.2.2 esp-udp;")
        events.wait("sa-deleted", spi="0x00001001")


def listing(name, out, back=None, start=None):
    """A file of the second study: ends and directions right for the router, `out` with these two addresses."""
    near, far = ("192.0.2.1", "192.0.2.2") if name == "left" else ("192.0.2.2", "192.0.2.1")
    near, back = start or near, back or out[::-1]
    keys = {"left": (1, 2), "right": (2, 1)}[name]
    return (f"add {near} {far} esp {0x650 + 0x100 * keys[0]:#x} -m tunnel -r 1024 {AES_GCM.format(keys[0])};\n"
            f"add {far} {near} esp {0x650 + 0x100 * keys[1]:#x} -m tunnel -r 1024 {AES_GCM.format(keys[1])};\n"
            f"spdadd {out[0]} {out[1]} any -P out ipsec esp/tunnel/{near}-{far}/require;\n"
            f"spdadd {back[0]} {back[1]} any -P in ipsec esp/tunnel/{far}-{near}/require;\n")


TO_SERVER = (CLIENT[4], SERVER[4])
TO_CLIENT = TO_SERVER[::-1]
ROUTERS = {"left": TO_SERVER, "right": TO_CLIENT}


def found(gateway, question):
    """The answer of `explain` as JSON, and the names of what it finds wrong."""
    answer = json.loads(explained(gateway, *question, "--json"))
    return answer, [finding["finding"] for finding in answer["findings"]]


def the_printed_listing_is_found_on_both_routers():
    """The selectors of the two policies exchanged, as the second study printed them; then the file that it meant."""
    with Sites("po") as sites:
        gateways = {name: sites.start(name, listing(name, leaving[::-1])) for name, leaving in ROUTERS.items()}
        expect(sites.ping() == 0, "the printed files carry a ping")
        answer, _ = found(gateways["left"], TO_SERVER)
        expect(answer["reason"] == "not-forwarded", f"what becomes of the ping is not said: {answer}")
        clear = json.loads(gateways["left"].ask("drops", "--json"))["clear"]
        expect(sum(clear.values()) >= 3, f"the ping is not counted where explain says: {clear}")
        for name, gateway in gateways.items():
            right = listing(name, ROUTERS[name]).splitlines()[2:]
            for question in (TO_SERVER, TO_CLIENT):
                answer, names = found(gateway, question)
                expect(names == ["selectors-exchanged"], f"{name}: {names}")
                written = [correction["write"] for correction in answer["findings"][0]["corrections"]]
                expect(written == right, f"{name}: to be written is {written}, not {right}")
                told = explained(gateway, *question)
                expect("`out` policy 1 and `in` policy 2" in told and right[0] in told, f"{name}: {told}")
            gateway.setkey_text("spdflush;" + "".join(written))
        expect(sites.ping() == 3, "no ping with what explain said to write")


def a_correct_file_is_left_alone_whichever_way_is_asked():
    with Sites("po") as sites:
        gateways = {name: sites.start(name, listing(name, leaving)) for name, leaving in ROUTERS.items()}
        expect(sites.ping() == 3, "no ping")
        for name, gateway in gateways.items():
            leaves, names = found(gateway, ROUTERS[name])
            expect((leaves["outcome"], leaves["way"], names) == ("protected", "leaving", []), f"{name}: {leaves}")
            arrives, names = found(gateway, ROUTERS[name][::-1])
            expect((arrives["outcome"], arrives["way"]) == ("accepted-protected", "arriving"), f"{name}: {arrives}")
            expect(names == [], f"{name}: a correct file is found wrong: {arrives}")
            spis = {answer["associations"][0]["spi"] for answer in (leaves, arrives)}
            expect(len(spis) == 2, f"{name}: both ways by {spis}")


def the_other_gateways_file_is_found():
    with Sites("po") as sites:
        left = sites.start("left", listing("right", ROUTERS["right"]))
        for question in (TO_SERVER, TO_CLIENT):
            answer, names = found(left, question)
            expect(names == ["directions-exchanged"], f"{answer}")


def a_tunnel_that_starts_elsewhere_is_found():
    for protocol in ("esp", "esp-udp"):
        with Sites("po") as sites:
            text = listing("left", TO_SERVER, start="192.0.2.9").replace(" esp 0x", f" {protocol} 0x")
            left = sites.start("left", text)
            wire = sites.listen(sites.wire, "left")
            told = explained(left, *TO_SERVER)
            expect("192.0.2.9 is not an address of this host" in told, f"explain does not say so: {told}")
            expect("sent protected" not in told, f"it is said to leave: {told}")
            answer, _ = found(left, TO_SERVER)
            expect((answer["outcome"], answer["reason"]) == ("dropped", "send-failed"), f"{answer}")
            expect(sites.ping() == 0, "a ping came back")
            expect(on_the_wire(wire) == (0, 0), "something left")
            # The numbers of an association that starts elsewhere are not reserved beforehand.
            lost = left.drops("send-failed"), left.drops("state-not-kept")
            expect(lost[0] >= 1 and sum(lost) >= 3, f"counted otherwise than explained: {left.ask('drops')}")
            left.host.sh("ip address add 192.0.2.9/32 dev wan")
            answer, names = found(left, TO_SERVER)
            expect((answer["outcome"], names) == ("protected", []), f"with the address: {answer}")


def flows_are_spread():
    def named(port):
        told = explained(left, CLIENT[4], SERVER[4], "udp", str(port), "--source-port", "5000")
        expect("spread over" in told, f"explain does not tell of the others: {told}")
        return int(told.split("association: ")[1].split("0x")[1][:8], 16)

    def leaves_by(port, spi):
        sent(sites, wire, port=port)
        left_by = spis(wire)
        expect(left_by == {spi}, f"port {port} left by {left_by} where explain said {spi:#x}")

    with Sites("po") as sites:
        left, right = both(sites, lambda left: mirrored("any", left=left).replace("-P out", "-o spread=4 -P out"),
                           sas="".join(associations(first) for first in (0x1001, 0x1003, 0x1005, 0x1007)))
        wire = sites.listen(sites.wire, "left")
        expect(sites.ping() == 3, "no ping")
        # So many that a gateway which uses all four leaves one out once in a thousand million runs.
        port_of = {named(port): port for port in range(6000, 6080)}
        expect(sorted(port_of) == [0x1001, 0x1003, 0x1005, 0x1007], f"not all four take part: {port_of}")
        for spi, port in port_of.items():
            leaves_by(port, spi)
        left.setkey_text("delete 192.0.2.1 192.0.2.2 esp 0x1003;\n")
        orphan = port_of.pop(0x1003)
        expect(named(orphan) in port_of, "explain still names the association that was deleted")
        port_of[named(orphan)] = orphan
        for spi, port in port_of.items():
            leaves_by(port, spi)
        for reason in ("bad-icv", "replayed", "policy-mismatch", "no-sa"):
            expect(right.drops(reason) == 0, f"the right gateway dropped packets: {right.ask('drops')}")


CASES = {
    "one port of one protocol is protected and the rest is left alone": one_port_of_one_protocol,
    "one type of ICMP is protected": a_type_of_icmp,
    "the higher priority decides: none, discard, entrust, ipsec": the_higher_priority_decides,
    "use passes in clear without association and protected with one": use_passes_in_clear_without_association,
    "unique takes the association of its number": unique_takes_its_own_association,
    "spread takes four associations, each flow keeps one, and one that goes moves its own flows alone": flows_are_spread,
    "events tell what was acquired, added, updated and deleted": events_tell_what_happens,
    "explain finds the exchanged selectors of a listing on both routers, and says what to write":
        the_printed_listing_is_found_on_both_routers,
    "explain leaves a correct file alone, whichever way is asked": a_correct_file_is_left_alone_whichever_way_is_asked,
    "explain finds the other gateway's file": the_other_gateways_file_is_found,
    "explain finds a tunnel that starts at an address of another host": a_tunnel_that_starts_elsewhere_is_found,
}
