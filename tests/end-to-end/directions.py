"""What comes out of the tunnel: `in` judges what is delivered here, `fwd` what is forwarded, each alone; and whose it
is."""

import json
import re
import socket
import subprocess
import time

from network.expect import expect
from network.gateway import GatewayError, program
from network.sites import AES_GCM, CLIENT, NETS, SERVER, Sites, setkey_text
from path_mtu import fetch, serve

HERE, THERE = NETS[4]
GATEWAY = {4: "10.2.0.1", 6: "fd00:2::1"}
TOWARDS = "ipsec esp/tunnel/192.0.2.1-192.0.2.2/require"
SSH = 22


def alone(way, destination):
    """One direction discards what goes there; the other one goes on as before."""
    text = f"spdadd {HERE} {destination} any -P {way} prio high discard;\n"
    return text + (f"spddelete {HERE} {destination} any -P fwd;\n" if way == "in" else "")


def closed_to_the_gateway(name, family):
    """Statements after which what comes for this side is forwarded and never delivered."""
    (source, destination), ends = NETS[family], "192.0.2.1-192.0.2.2"
    if name == "left":
        source, destination, ends = destination, source, "192.0.2.2-192.0.2.1"
    return (f"spdupdate {source} {destination} any -P in discard;\n"
            f"spdupdate {source} {destination} any -P fwd ipsec esp/tunnel/{ends}/require;\n")


def listening(sites, host, address):
    """A program that takes connections, as sshd does."""
    script = (f"import socket; s = socket.create_server(('{address}', {SSH})); print('up', flush=True)\n"
              "while True: s.accept()[0].send(b'SSH-2.0')")
    process = host.start(["python3", "-c", script], stdout=subprocess.PIPE)
    expect(process.stdout.readline() == b"up\n", "the listener does not listen")


def answers(sites, address):
    """Whether the client hears the listener."""
    script = (f"import socket; s = socket.create_connection(('{address}', {SSH}), 2); s.settimeout(2); "
              "print(s.recv(7).decode())")
    return "SSH-2.0" in sites.client.attempt(f'python3 -c "{script}"')[1]


def in_discard_closes_the_gateway_and_nothing_else():
    with Sites("di") as sites:
        sites.start("left")
        right = sites.start("right")
        listening(sites, sites.right, GATEWAY[4])
        listening(sites, sites.server, SERVER[4])
        expect(answers(sites, GATEWAY[4]) and answers(sites, SERVER[4]), "the control failed: nothing answers")
        right.setkey_text(alone("in", GATEWAY[4]))
        expect(answers(sites, SERVER[4]), "what is forwarded does not pass any more")
        expect(not answers(sites, GATEWAY[4]), "the gateway's own port is reached through the tunnel")
        expect(right.drops("policy-in") >= 1, f"drops: {right.ask('drops')}")


def fwd_discard_closes_the_host_behind_and_nothing_else():
    with Sites("di") as sites:
        sites.start("left")
        right = sites.start("right")
        listening(sites, sites.right, GATEWAY[4])
        listening(sites, sites.server, SERVER[4])
        expect(answers(sites, GATEWAY[4]) and answers(sites, SERVER[4]), "the control failed: nothing answers")
        right.setkey_text(alone("fwd", SERVER[4]))
        expect(answers(sites, GATEWAY[4]), "the gateway does not answer any more")
        expect(not answers(sites, SERVER[4]), "it is forwarded")
        expect(right.drops("policy-fwd") >= 1, f"drops: {right.ask('drops')}")


def a_live_change_takes_effect_at_once_and_back():
    with Sites("di") as sites:
        sites.start("left")
        right = sites.start("right")
        ends = f"{HERE} {THERE} any"
        for says, through in (("discard", 0), (TOWARDS, 3)) * 2:
            right.setkey_text(f"spdupdate {ends} -P fwd {says};")
            expect(sites.ping() == through, f"fwd {says}: not {through} pings pass")
            _, output = sites.client.attempt(f"ping -q -n -c 3 -i 0.05 -W 1 {GATEWAY[4]}")
            expect(" 3 received" in output, f"fwd {says}: the gateway does not answer: {output}")


def one_way_alone_keeps_trains_and_messages():
    """All that comes for the server comes out of the device for what may only be forwarded."""
    with Sites("di") as sites:
        gateways = [sites.start(name,
                                setkey_text(name) + "".join(closed_to_the_gateway(name, family) for family in (4, 6)))
                    for name in ("left", "right")]
        serve(sites)
        for family in (4, 6):
            fetch(sites, family)
            header = 28 if family == 4 else 48
            _, output = sites.client.attempt(f"ping -n -c 3 -i 0.1 -W 1 -M do -s {1500 - header} {SERVER[family]}")
            expect(re.search(r"mtu ?= ?1[34]\d\d", output), f"the sender got no MTU, IPv{family}:\n{output}")
        _, output = sites.client.attempt(f"ping -n -c 1 -t 1 {SERVER[4]}; ping -n -c 1 -W 1 {GATEWAY[4]}")
        expect("Time to live exceeded" in output, f"the sender got no \"time exceeded\":\n{output}")
        expect(" 0 received" in output, f"the gateway answers though only fwd protects:\n{output}")
        into_left = gateways[0].status()["inbound"]
        expect(into_left["packets"] > 2 * into_left["calls"], f"no trains: {into_left}")
        expect(all("-fwd" in gateway.host.sh("ip -brief link") for gateway in gateways), "no device for it")


def reverse_path_checks_let_it_through():
    with Sites("di") as sites:
        sites.start("left")
        sites.right.sh("sysctl -qw net.ipv4.conf.all.rp_filter=1")
        right = sites.start("right", setkey_text("right") + closed_to_the_gateway("right", 4))
        for strictness in (1, 2, 0):
            sites.right.sh(f"sysctl -qw net.ipv4.conf.all.rp_filter={strictness}")
            expect(sites.ping() == 3, f"rp_filter {strictness}: no ping, drops {right.ask('drops')}")


def a_healthy_start_counts_nothing():
    with Sites("di") as sites:
        gateways = sites.start_both()
        expect(sites.ping() == 3 and sites.ping(6) == 3, "no ping")
        # Reports of groups are repeated after a second or two.
        time.sleep(2.5)
        for gateway in gateways:
            drops = json.loads(gateway.ask("drops", "--json"))
            expect(drops["total"] == 0, f"{drops['reasons']}")


SEEN, FAR, PORT = "203.0.113.77", "192.0.2.2", 7000


def transport(ends=("192.0.2.1", FAR), left=True):
    """One host for any host: a selector as wide as the Internet, and one association."""
    near, far = ends
    ways = ("out", "in") if left else ("in", "out")
    any_host = near if left else "0.0.0.0/0"
    return (f"add {near} {far} esp-udp 0x1001 -m transport -r 1024 {AES_GCM.format(1)};\n"
            f"add {far} {near} esp-udp 0x1002 -m transport -r 1024 {AES_GCM.format(2)};\n"
            f"spdadd {any_host} {far}[{PORT}] udp -P {ways[0]} ipsec esp/transport//require;\n"
            f"spdadd {far}[{PORT}] {any_host} udp -P {ways[1]} ipsec esp/transport//require;\n")


def a_rewritten_outer_source_is_not_believed():
    """An attacker on the path without a key changes the outer source: it is the inner one too, and no ICV covers
    it."""
    with Sites("di") as sites:
        sites.start("left", transport())
        right = sites.start("right", transport(left=False))
        server = sites.right.socket(socket.AF_INET, socket.SOCK_DGRAM)
        server.bind((FAR, PORT))
        server.settimeout(2)
        client = sites.left.socket(socket.AF_INET, socket.SOCK_DGRAM)
        client.bind(("192.0.2.1", 0))
        client.sendto(b"genuine", (FAR, PORT))
        expect(server.recvfrom(100)[1][0] == "192.0.2.1", "the control failed")
        # On the wire itself, behind everything that the left host does.
        sites.wire.sh(f"""nft add table bridge attack
            nft add chain bridge attack on '{{ type filter hook prerouting priority 0; }}'
            nft add rule bridge attack on iifname left ip saddr 192.0.2.1 udp dport 4500 ip saddr set {SEEN}""")
        client.sendto(b"rewritten", (FAR, PORT))
        try:
            data, (address, _) = server.recvfrom(100)
            raise AssertionError(f"{data} was delivered as from {address}")
        except TimeoutError:
            pass
        expect(right.drops("source-not-of-association") == 1, f"drops: {right.ask('drops')}")
        sites.wire.sh("nft delete table bridge attack")
        client.sendto(b"genuine", (FAR, PORT))
        expect(server.recvfrom(100)[1][0] == "192.0.2.1", "nothing passes any more")


def two_hosts_behind_one_nat_are_told_apart_or_refused():
    with Sites("di") as sites:
        right = sites.start("right", transport(left=False))
        second = (f"add 192.0.2.1[4501] {FAR} esp-udp 0x2001 -m transport {{}} {AES_GCM.format(3)};"
                  f"add {FAR} 192.0.2.1[4501] esp-udp 0x2002 -m transport {{}} {AES_GCM.format(4)};")
        try:
            right.setkey_text(second.format("", ""))
            raise AssertionError("the second host was accepted")
        except GatewayError as error:
            expect("behind one NAT" in str(error) and "4501" in str(error), f"{error}")
        right.setkey_text(second.format("-u 7", "-u 7"))


def an_association_that_takes_anothers_traffic_is_told():
    with Sites("di") as sites:
        left = sites.start("left")
        sites.start("right")
        text = f"add 192.0.2.1 192.0.2.2 esp 0x3001 -m tunnel -r 1024 {AES_GCM.format(9)};"
        done = subprocess.run([program("setkey"), "-c", "--control", left.control], input=text, capture_output=True,
                              text=True)
        said = done.stdout + done.stderr
        expect(done.returncode == 0 and "0x00003001" in said and "0x00001001" in said, f"nothing is said: {said}")
        expect("in UDP 4500-4500" in said and "native" in said, f"not in what they differ: {said}")
        idle = next(sa for sa in left.status()["associations"] if sa["spi"] == "0x00001001")
        expect(idle["carried_by"]["spi"] == "0x00003001", f"status: {idle}")
        explained = left.ask("explain", CLIENT[4], SERVER[4])
        expect("0x00001001" in explained and "unused:" in explained, f"explain: {explained}")
        renewal = f"add 192.0.2.1 192.0.2.2 esp 0x3003 -m tunnel -r 1024 {AES_GCM.format(10)};"
        done = subprocess.run([program("setkey"), "-c", "--control", left.control], input=renewal, capture_output=True,
                              text=True)
        expect("0x00003001" not in done.stderr, f"a renewal in kind is told: {done.stderr}")


CASES = {
    "in discard closes the gateway's own port, and what is forwarded passes": in_discard_closes_the_gateway_and_nothing_else,
    "fwd discard closes the host behind, and the gateway answers": fwd_discard_closes_the_host_behind_and_nothing_else,
    "a live change of one direction takes effect at once, and back": a_live_change_takes_effect_at_once_and_back,
    "one direction alone keeps trains, and senders hear what fits": one_way_alone_keeps_trains_and_messages,
    "one direction alone passes reverse path checks": reverse_path_checks_let_it_through,
    "a healthy start counts no drops": a_healthy_start_counts_nothing,
    "transport mode: a rewritten outer source is not believed": a_rewritten_outer_source_is_not_believed,
    "transport mode: two hosts behind one NAT are told apart or refused": two_hosts_behind_one_nat_are_told_apart_or_refused,
    "an association that takes another's traffic is told": an_association_that_takes_anothers_traffic_is_told,
}
