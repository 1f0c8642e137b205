"""What the kernel's plane has to prove beside the scenarios: that setkey tells the kernel what iproute2 would."""

import base64
import os
import re
import tomllib

HERE = os.path.dirname(os.path.abspath(__file__))
ALGORITHMS = os.path.join(os.path.dirname(HERE), "interop", "algorithms.toml")
# What differs from one second to the next, or between two that were made one after the other.
PASSING = re.compile(r"^\s*(add |lastused|seq 0x|\d+\(bytes\)|replay-window \d+ replay \d+ failed \d+)")


class Disagreement(Exception):
    """The kernel has something else than it should."""


def say(name, check, guest):
    try:
        judged = check(guest)
    except Exception as error:
        print(f"     {name}: {type(error).__name__}: {error}")
        print(f"not ok kernel plane: {name}", flush=True)
        return False
    print(f"ok kernel plane: {name}: {judged}", flush=True)
    return True


def sh(shell, script, limit=120):
    status, output = shell.run(script, limit)
    if status != 0:
        raise Disagreement(f"exit status {status}: {script[:200]}\n{output}")
    return output


def give(shell, path, text):
    """Puts a file into the guest; its port takes lines of any length."""
    sh(shell, f"echo {base64.b64encode(text.encode()).decode()} | base64 -d > {path}")


def suites():
    """(setkey's words, iproute2's words, the lines of `setkey -D` with the keys) for every algorithm."""
    with open(ALGORITHMS, "rb") as file:
        table = tomllib.load(file)
    for cipher in table["cipher"].values():
        aead = cipher.get("aead")
        yield suite("esp", cipher, None if aead else table["integrity"]["sha1"], aead)
    for mac in table["integrity"].values():
        yield suite("esp", table["cipher"]["null"], mac, None)
        yield suite("ah", None, mac, None)


def suite(protocol, cipher, mac, aead):
    ours, theirs, lines = [], [], []
    options = ["-r 64"]
    if cipher:
        key = bytes(range(1, cipher["key"] + 1)).hex()
        ours.append(f"-E {cipher['setkey']} {'0x' + key if key else ''}")
        theirs.append(f'aead "{cipher["kernel"]}" 0x{key} {aead}' if aead else
                      f'enc "{cipher["kernel"]}" {"0x" + key if key else chr(34) * 2}')
        lines += [f"E: {cipher['setkey']}  {in_words(key)}"] if key else []
    if mac:
        key = bytes(range(101, 101 + mac["key"])).hex()
        ours.append(f"-A {mac['setkey']} 0x{key}")
        theirs.insert(0, f'auth-trunc "{mac["kernel"]}" 0x{key} {mac["auth"]}')
        lines.append(f"A: {mac['setkey'].replace('sha2-', 'sha')}  {in_words(key)}")
        options += [f"-o {mac['option']}"] if "option" in mac else []
    return protocol, " ".join(options + ours), " ".join(theirs), lines


def in_words(key):
    return " ".join(key[at:at + 8] for at in range(0, len(key), 8))


def every_suite(guest):
    """Each suite once by setkey, once by `ip xfrm`: the same in the kernel, bit for bit, and setkey reads it back."""
    shell = guest.left
    rows = list(suites())
    ours, theirs = [], []
    for spi, (protocol, setkey, ip, _) in enumerate(rows, 0x1000):
        ours.append(f"add 192.0.2.1 192.0.2.2 {protocol} {spi:#x} -m tunnel {setkey};")
        theirs.append(f"ip xfrm state add src 192.0.2.1 dst 192.0.2.2 proto {protocol} spi {spi:#x} mode tunnel "
                      f"replay-window 64 flag af-unspec {'flag align4' if protocol == 'ah' else ''} {ip}")
    states, dump = by_setkey(shell, "\n".join(ours), "state")
    same(states, by_ip(shell, theirs, "state"), "state")
    for spi, (protocol, _, _, lines) in enumerate(rows, 0x1000):
        entry = dump.split(f"spi={spi}(", 1)
        head = entry[1].split("\n192.0.2.1", 1)[0] if len(entry) == 2 else ""
        for line in [*lines, "replay=64", "state=mature"]:
            if line not in head:
                raise Disagreement(f"`setkey -D` does not show {line!r} for {protocol} {spi:#x}:\n{head}")
    return f"{len(rows)} suites as `ip xfrm` makes them"


STATES = [
    ("-m transport", "mode transport flag af-unspec"),
    ("-m any", "mode transport flag af-unspec"),
    ("-m tunnel -u 7 -r 32", "mode tunnel reqid 7 replay-window 32 flag af-unspec"),
    ("-m tunnel -r 4096 -o esn=yes", "mode tunnel replay-window 4096 flag af-unspec esn"),
    ("-m tunnel -o encap=4500,4501", "mode tunnel flag af-unspec encap espinudp 4500 4501 0.0.0.0"),
    ("-m tunnel -o ecn=no -o df=clear", "mode tunnel flag af-unspec noecn nopmtudisc"),
    ("-m tunnel -o dscp=0", "mode tunnel flag af-unspec extra-flag dont-encap-dscp"),
    ("-m tunnel -lh 300 -ls 200 -bh 9000 -bs 8000 -o hard-packets=30 -o soft-packets=20 -o hard-use=70 -o soft-use=60",
     "mode tunnel flag af-unspec limit time-hard 300 limit time-soft 200 limit byte-hard 9000 limit byte-soft 8000 "
     "limit packet-hard 30 limit packet-soft 20 limit time-use-hard 70 limit time-use-soft 60"),
]


def every_extension(guest):
    """Modes, windows, numbers, encapsulation, header rules and lifetimes."""
    ours, theirs = [], []
    key = bytes(range(20)).hex()
    for spi, (setkey, ip) in enumerate(STATES, 0x2000):
        ours.append(f"add 192.0.2.1 192.0.2.2 esp {spi:#x} {setkey} -E aes-gcm-16 0x{key};")
        theirs.append(f"ip xfrm state add src 192.0.2.1 dst 192.0.2.2 proto esp spi {spi:#x} {ip} "
                      f'aead "rfc4106(gcm(aes))" 0x{key} 128')
    same(by_setkey(guest.left, "\n".join(ours), "state")[0], by_ip(guest.left, theirs, "state"), "state")
    return f"{len(STATES)} associations as `ip xfrm` makes them"


HOPS, BACK = "192.0.2.1-192.0.2.2", "src 192.0.2.1 dst 192.0.2.2"
# 2147483648 stands for setkey's `def`; in the kernel a smaller number goes first.
POLICIES = [
    (f"10.1.0.0/24 10.2.0.0/24 any -P out ipsec esp/tunnel/{HOPS}/require",
     f"src 10.1.0.0/24 dst 10.2.0.0/24 dir out priority 2147483648 tmpl {BACK} proto esp mode tunnel"),
    ("10.1.0.0/24 10.2.0.0/24[53] udp -P out prio high discard",
     "src 10.1.0.0/24 dst 10.2.0.0/24 proto 17 dport 53 dir out priority 1073741824 action block"),
    ("10.1.0.0/24 10.2.0.0/24 icmp 8,3 -P out prio low + 5 none",
     "src 10.1.0.0/24 dst 10.2.0.0/24 proto 1 type 8 code 3 dir out priority 3221225467"),
    ("192.0.2.1 192.0.2.2 tcp -P in ipsec esp/transport//use ah/transport//unique:9",
     "src 192.0.2.1 dst 192.0.2.2 proto 6 dir in priority 2147483648 "
     "tmpl proto esp mode transport level use tmpl proto ah mode transport reqid 9"),
    (f"fd00:1::/64 fd00:2::/64 any -P fwd ipsec esp/tunnel/{HOPS}/require",
     f"src fd00:1::/64 dst fd00:2::/64 dir fwd priority 2147483648 tmpl {BACK} proto esp mode tunnel"),
]


def every_policy(guest):
    """Selectors, actions, priorities, templates and levels."""
    shell = guest.left
    text = "\n".join(f"spdadd {setkey};" for setkey, _ in POLICIES)
    ours, dump = by_setkey(shell, text, "policy", "-k")
    same(ours, by_ip(shell, [f"ip xfrm policy add {ip}" for _, ip in POLICIES], "policy"), "policy")
    for line in [f"esp/tunnel/{HOPS}/require", "out prio high discard", "out prio low + 5 none", "icmp 8,3",
                 "esp/transport//use", "ah/transport//unique:9"]:
        if line not in dump:
            raise Disagreement(f"`setkey -DP` does not show {line!r}:\n{dump}")
    sh(shell, f"echo '{text}' > /tmp/again; setkey --plane kernel -k -f /tmp/again")
    sh(shell, "sed 's/spdadd/spddelete/' /tmp/again | setkey --plane kernel -k -c")
    if "No SPD entries" not in sh(shell, "setkey --plane kernel -DP"):
        raise Disagreement("what `spdadd` made `spddelete` did not find")
    return f"{len(POLICIES)} policies as `ip xfrm` makes them"


def by_setkey(shell, text, kind, *options):
    """What the kernel has after setkey, and what setkey reads back."""
    sh(shell, "/usr/bin/ip xfrm state flush; /usr/bin/ip xfrm policy flush")
    give(shell, "/tmp/plane.conf", text)
    sh(shell, f"setkey --plane kernel {' '.join(options)} -f /tmp/plane.conf")
    listing = sh(shell, f"/usr/bin/ip -s xfrm {kind}")
    dump = sh(shell, f"setkey --plane kernel -D{'P' if kind == 'policy' else ''}")
    sh(shell, "setkey --plane kernel -F; setkey --plane kernel -FP")
    if sh(shell, "/usr/bin/ip xfrm state; /usr/bin/ip xfrm policy").strip():
        raise Disagreement("`setkey -F` and `-FP` left something")
    return listing, dump


def by_ip(shell, commands, kind):
    give(shell, "/tmp/plane.batch", "\n".join(line.removeprefix("ip ") for line in commands))
    sh(shell, "/usr/bin/ip -batch /tmp/plane.batch")
    listing = sh(shell, f"/usr/bin/ip -s xfrm {kind}")
    sh(shell, "/usr/bin/ip xfrm state flush; /usr/bin/ip xfrm policy flush")
    return listing


def same(ours, theirs, kind):
    """Compares two listings entry by entry, without times and indices."""
    for left, right in zip(entries(ours), entries(theirs)):
        if left != right:
            raise Disagreement(f"the kernel has otherwise, by setkey:\n{left}\nby ip xfrm {kind}:\n{right}")
    if ours.count("\nsrc ") != theirs.count("\nsrc "):
        raise Disagreement(f"{ours.count('src ')} entries by setkey, {theirs.count('src ')} by ip xfrm {kind}")


def entries(listing):
    found = re.split(r"^(?=src )", listing, flags=re.MULTILINE)[1:]
    return ["\n".join(re.sub(r" index \d+", "", line) for line in entry.splitlines() if not PASSING.match(line))
            for entry in found]


def all_or_nothing(guest):
    """A text whose last statement the kernel refuses leaves everything as it was, keys and counters included."""
    shell = guest.left
    key = bytes(range(20)).hex()
    add = "add 192.0.2.1 192.0.2.2 esp {} -m tunnel -r 64 -E aes-gcm-16 0x" + key + ";"
    sh(shell, "/usr/bin/ip xfrm state flush; /usr/bin/ip xfrm policy flush")
    give(shell, "/tmp/first", f"{add.format('0x3001')}\n{add.format('0x3002')}\n"
         f"spdadd 10.1.0.0/24 10.2.0.0/24 any -P out ipsec esp/tunnel/{HOPS}/require;")
    sh(shell, "setkey --plane kernel -f /tmp/first")
    before = everything(shell)
    # Only the kernel itself knows that template: a transport template cannot change the family.
    refused = "spdadd fd00:1::/64 fd00:2::/64 any -P out ipsec esp/transport/192.0.2.1-192.0.2.2/require;"
    give(shell, "/tmp/second", f"flush;\nspdflush;\n{add.format('0x3003')}\n{refused}")
    status, output = shell.run("setkey --plane kernel -f /tmp/second", 60)
    if status == 0 or "/tmp/second:4:1" not in output or key in output:
        raise Disagreement(f"exit status {status}, where line 4 should have been blamed:\n{output}")
    after = everything(shell)
    sh(shell, "setkey --plane kernel -F; setkey --plane kernel -FP")
    if before != after:
        raise Disagreement(f"before:\n{before}\nafter:\n{after}")
    return "a flush is taken back when line 4 is refused"


def everything(shell):
    listing = sh(shell, "/usr/bin/ip -s xfrm state; /usr/bin/ip -s xfrm policy")
    return sorted(entries(listing))


def reserved_spi(guest):
    """getspi, then update: the way in which keys come to a reserved SPI; and what update may change later."""
    shell, key = guest.left, bytes(range(20)).hex()
    spi = sh(shell, "echo 'getspi 192.0.2.1 192.0.2.2 esp 0;' | setkey --plane kernel -c").split("(")[0]
    text = f"192.0.2.1 192.0.2.2 esp {spi} -m tunnel -r 64"
    for extensions, status in (("", 0), ("-lh 60", 0), ("-u 5", 1)):
        got, output = shell.run(f"echo 'update {text} {extensions} -E aes-gcm-16 0x{key};' | setkey --plane kernel -c", 60)
        if got != status:
            raise Disagreement(f"update {extensions}: exit status {got}\n{output}")
    dump = sh(shell, "setkey --plane kernel -D")
    sh(shell, f"echo 'delete 192.0.2.1 192.0.2.2 esp {spi};' | setkey --plane kernel -c")
    if "hard: 60(s)" not in dump:
        raise Disagreement(f"the update changed nothing:\n{dump}")
    return "keys and lifetimes by update, other keys refused"


def ping(guest):
    """Two namespaces of the guest, each keyed by setkey, talk through a tunnel and count it."""
    sh(guest.root, """set -e
        ip link add pl netns left type veth peer name pr netns right
        ip -n left addr add 198.51.100.1/24 dev pl; ip -n right addr add 198.51.100.2/24 dev pr
        ip -n left addr add 10.8.0.1/32 dev lo; ip -n right addr add 10.9.0.1/32 dev lo
        ip -n left link set lo up; ip -n left link set pl up; ip -n right link set pr up
        ip -n left route add 10.9.0.0/24 dev pl src 10.8.0.1; ip -n right route add 10.8.0.0/24 dev pr src 10.9.0.1""")
    keys = [bytes(range(start, start + 36)).hex() for start in (1, 101)]
    sas = (f"add 198.51.100.1 198.51.100.2 esp 0x4001 -m tunnel -r 64 -E chacha20-poly1305 0x{keys[0]};"
           f"add 198.51.100.2 198.51.100.1 esp 0x4002 -m tunnel -r 64 -E chacha20-poly1305 0x{keys[1]};")
    for shell, out, back in ((guest.left, "out", "in"), (guest.right, "in", "out")):
        give(shell, "/tmp/ping.conf", sas +
             f"spdadd 10.8.0.0/24 10.9.0.0/24 any -P {out} ipsec esp/tunnel/198.51.100.1-198.51.100.2/require;"
             f"spdadd 10.9.0.0/24 10.8.0.0/24 any -P {back} ipsec esp/tunnel/198.51.100.2-198.51.100.1/require;")
        sh(shell, "setkey --plane kernel -f /tmp/ping.conf")
    output = sh(guest.left, "ping -q -c 3 -i 0.1 -W 3 10.9.0.1")
    dump = sh(guest.left, "setkey --plane kernel -D")
    for shell in (guest.left, guest.right):
        sh(shell, "setkey --plane kernel -F; setkey --plane kernel -FP")
    if " 3 received" not in output or dump.count("allocated: 3") != 2 or "current: 252(bytes)" not in dump:
        raise Disagreement(f"{output}\n{dump}")
    sh(guest.root, "ip -n left link del pl")
    return "3 of 3 pings, 3 packets counted each way"


def run_refused(guest):
    """`esplanade run` does not start where the kernel owns the association: it would never see the packets."""
    shell, key = guest.left, bytes(range(20)).hex()
    sa = f"add 192.0.2.1 192.0.2.2 esp 0x5001 -m tunnel -r 64 -E aes-gcm-16 0x{key};"
    give(shell, "/tmp/owned.conf", sa)
    sh(shell, "modprobe tun; ip link set lo up; ip addr replace 192.0.2.2/32 dev lo; mkdir -p /run/esplanade")
    sh(shell, "setkey --plane kernel -f /tmp/owned.conf")
    status, output = shell.run("esplanade run --setkey /tmp/owned.conf", 30)
    sh(shell, "setkey --plane kernel -F; ip addr del 192.0.2.2/32 dev lo")
    if status == 0 or "ip xfrm state delete" not in output:
        raise Disagreement(f"exit status {status}:\n{output}")
    return "the kernel has the SPI, and the message says how to take it away"


CHECKS = [("every suite", every_suite), ("every extension", every_extension), ("every policy", every_policy),
          ("all or nothing", all_or_nothing), ("reserved SPI", reserved_spi), ("ping", ping),
          ("run is refused", run_refused)]
