"""Keys, and what is made of them, in the gateway's memory: locked while in use, and nowhere afterwards."""

import os
import re

from network.expect import expect
from network.sites import OUTER, Sites, setkey_text

# Words of setkey; bytes of AES key and bytes of salt, or 0 and all bytes where it is not AES; bytes for integrity.
SUITES = {
    "aes-128-gcm": ("-E aes-gcm-16 {cipher}", 16, 4, 0),
    "aes-256-gcm": ("-E aes-gcm-16 {cipher}", 32, 4, 0),
    "aes-128-cbc with sha256": ("-E aes-cbc {cipher} -A hmac-sha2-256 {mac}", 16, 0, 32),
    "aes-256-cbc with sha1": ("-E aes-cbc {cipher} -A hmac-sha1 {mac}", 32, 0, 20),
    "aes-192-ctr with sha512": ("-E aes-ctr {cipher} -A hmac-sha2-512 {mac}", 24, 4, 64),
    "aes-128-ccm": ("-E aes-ccm-16 {cipher}", 16, 3, 0),
    "chacha20-poly1305": ("-E chacha20-poly1305 {cipher}", 0, 36, 0),
    "3des with xcbc": ("-E 3des-cbc {cipher} -A aes-xcbc-mac {mac}", 0, 24, 16),
}


def substitution():
    """The S-box of AES (FIPS 197 5.1.1), computed: the inverse in GF(2^8), then the affine map."""
    box, p, q = [0x63] * 256, 1, 1
    while True:
        p = (p ^ (p << 1) ^ (0x1B if p & 0x80 else 0)) & 0xFF
        q ^= q << 1
        q ^= q << 2
        q ^= q << 4
        q = (q ^ (0x09 if q & 0x80 else 0)) & 0xFF
        rotated = [((q << n) | (q >> (8 - n))) & 0xFF for n in range(5)]
        box[p] = rotated[0] ^ rotated[1] ^ rotated[2] ^ rotated[3] ^ rotated[4] ^ 0x63
        if p == 1:
            return box


BOX = substitution()


def round_keys(key):
    """The first and the last round key (FIPS 197 5.2)."""
    count, words, constant = len(key) // 4, [key[at:at + 4] for at in range(0, len(key), 4)], 1
    for at in range(count, 4 * (count + 7)):
        word = words[-1]
        if at % count == 0:
            word = bytes(BOX[byte] for byte in word[1:] + word[:1])
            word = bytes([word[0] ^ constant]) + word[1:]
            constant = (constant << 1) ^ (0x11B if constant & 0x80 else 0)
        elif count > 6 and at % count == 4:
            word = bytes(BOX[byte] for byte in word)
        words.append(bytes(a ^ b for a, b in zip(words[-count], word)))
    return b"".join(words[:4]), b"".join(words[-4:])


class Keys:
    """Random keys of one association, and all by which they can be known."""

    def __init__(self, suite):
        words, aes, rest, mac = SUITES[suite]
        cipher, mac = os.urandom(aes + rest), os.urandom(mac)
        self.words = words.format(cipher=f"0x{cipher.hex()}", mac=f"0x{mac.hex()}")
        self.traces = {"text": cipher.hex().encode(), "key": cipher[:aes or min(32, rest)]}
        if aes:
            self.traces["first round key"], self.traces["last round key"] = round_keys(cipher[:aes])
        if mac:
            self.traces["text for integrity"], self.traces["key for integrity"] = mac.hex().encode(), mac
        # The schedule of XCBC is made of an encrypted constant; only the key itself is looked for.


def maps(pid):
    """Ranges that can be read, each with its flags."""
    ranges, current = [], None
    with open(f"/proc/{pid}/smaps") as file:
        for line in file:
            found = re.match(r"([0-9a-f]+)-([0-9a-f]+) (\S+) \S+ \S+ \S+ *(.*)", line)
            if found:
                current = (int(found[1], 16), int(found[2], 16), found[3], found[4])
            elif line.startswith("VmFlags:") and current[2][0] == "r" and not current[3].startswith("[v"):
                ranges.append((*current, set(line.split()[1:])))
    return ranges


def find(gateway, keys):
    """Where traces of keys are: (trace, place, whether it is locked, neither dumped nor inherited)."""
    pid, found = gateway.process.pid, []
    with open(f"/proc/{pid}/mem", "rb", 0) as memory:
        for start, end, _, name, flags in maps(pid):
            for at in range(start, end, 64 << 20):
                try:
                    memory.seek(at)
                    data = memory.read(min(end - at, (64 << 20) + 4096))
                except OSError:
                    continue
                for each in keys:
                    for trace, pattern in each.traces.items():
                        for hit in re.finditer(re.escape(pattern), data):
                            found.append((trace, f"{name or 'memory'} at {at + hit.start():#x}", {"lo", "dd", "wf"} <= flags))
    return found


def associations(name, keys):
    """What `setkey_text` gives, with these keys: one pair of associations and the policies."""
    lines = setkey_text(name, inner=(4,), suite="{}").splitlines()
    return "".join(f"{line[:line.index(' -m tunnel')]} -m tunnel -r 1024 {key.words};\n" for line, key in zip(lines, keys)) \
        + "\n".join(lines[2:]) + "\n"


def carry(sites):
    expect(sites.ping(count=40, size=56, more="-f") >= 38, "no ping through the tunnel")
    expect(sites.ping(count=20, size=1300, more="-f") >= 18, "no large ping through the tunnel")


def nowhere(gateway, keys, when):
    found = find(gateway, keys)
    expect(not found, f"{when}: {[(trace, place) for trace, place, _ in found]}")


def locked(gateway, keys, suite):
    """The positive control: while in use the key is found, and nowhere but in locked pages."""
    found = find(gateway, keys)
    traces = {trace for trace, _, _ in found}
    wanted = {"key", *(["first round key", "last round key"] if "aes" in suite else [])}
    expect(wanted <= traces, f"the control failed: {suite}: of a key in use only {traces} are found")
    stray = [(trace, place) for trace, place, safe in found if not safe]
    expect(not stray, f"{suite}: outside of locked pages: {stray}")
    texts = [place for trace, place, _ in found if trace.startswith("text")]
    expect(not texts, f"{suite}: the text of a key in use is still there: {texts}")


def all_ways(suite, options=()):
    with Sites("km") as sites:
        keys = [Keys(suite), Keys(suite)]
        gateways = [sites.start(name, associations(name, keys), options) for name in ("left", "right")]
        left = gateways[0]
        carry(sites)
        locked(left, keys, suite)
        # Rekeyed by hand, as `update` does it.
        new = [Keys(suite), Keys(suite)]
        for gateway in gateways:
            gateway.setkey_text("".join(f"update {line[4:]}\n" for line in associations("left", new).splitlines()[:2]))
        carry(sites)
        locked(left, new, suite)
        nowhere(left, keys, "after a rekey")
        # Refused: by its grammar, and by what is there already once the first statement is done.
        for mistake in ("nonsense;", f"add {OUTER[4][0]} {OUTER[4][1]} esp 0x1001 {new[0].words};"):
            lost = Keys(suite)
            try:
                left.setkey_text(f"add 192.0.2.1 192.0.2.9 esp 0x2001 {lost.words};\n{mistake}\n")
            except Exception as refusal:
                expect("exit status 1" in str(refusal), str(refusal))
            else:
                expect(False, f"the control failed: {mistake} was applied")
            nowhere(left, [lost], "after a failed change")
        left.setkey_text("dump;\n")
        locked(left, new, suite)
        left.setkey_text(f"delete {OUTER[4][0]} {OUTER[4][1]} esp 0x1001;\n")
        nowhere(left, new[:1], "after delete")
        locked(left, new[1:], suite)
        left.setkey_text("flush;\n")
        nowhere(left, new, "after flush")


def reloaded(suite):
    """`reload` with other keys, and one that is refused for its last line."""
    with Sites("km") as sites:
        keys, new, lost = ([Keys(suite), Keys(suite)] for _ in range(3))
        gateways = {name: sites.start(name, associations(name, keys)) for name in ("left", "right")}
        carry(sites)
        locked(gateways["left"], keys, suite)
        for name, gateway in gateways.items():
            write(gateway, associations(name, new))
            gateway.ask("reload")
        carry(sites)
        for gateway in gateways.values():
            locked(gateway, new, suite)
            nowhere(gateway, keys, "after a reload")
        write(gateways["left"], associations("left", lost) + "nonsense;\n")
        expect(gateways["left"].attempt("reload")[0] != 0, "the control failed: nonsense was applied")
        nowhere(gateways["left"], lost, "after a reload that was refused")


def write(gateway, text):
    with open(gateway.setkey, "w") as file:
        file.write(text)


def limited():
    """Where locking is refused one warning says so, and all goes on."""
    with Sites("km") as sites:
        rights = ("setpriv", "--bounding-set", "-sys_resource,-ipc_lock", "--inh-caps", "-sys_resource,-ipc_lock")
        keys = [Keys("aes-128-gcm"), Keys("aes-128-gcm")]
        enter = sites.left.argv
        sites.left.argv = lambda argv: enter(["bash", "-c", "ulimit -l 8; exec \"$@\"", "bash", *rights, *argv])
        left = sites.start("left", associations("left", keys))
        sites.left.argv = enter
        sites.start("right", associations("right", keys))
        carry(sites)
        left.setkey_text("add 192.0.2.1 192.0.2.9 esp 0x2001 -E null -A hmac-sha1 0x" + "22" * 20 + ";\n")
        told = [line for line in left.status()["warnings"] if "swapped out" in line]
        expect(len(told) == 1 and "ulimit -l" in told[0], f"it warns: {left.status()['warnings']}")
        told = left.words().count("swapped out")
        expect(told == 1, f"the warning was told {told} times")
        right = sites.gateways["right"]
        expect(not [line for line in right.status()["warnings"] if "swapped out" in line], "the control failed")
        left.setkey_text("flush;\n")
        nowhere(left, keys, "after flush")


CASES = {
    **{f"{suite}, locked while in use and nowhere after delete, flush, rekey or a failed change":
       lambda suite=suite: all_ways(suite) for suite in SUITES},
    "with workers, the same": lambda: all_ways("aes-256-cbc with sha1", ("--workers", "2")),
    "after a reload the keys of before are nowhere": lambda: reloaded("aes-128-gcm"),
    "where locking is refused there is one warning": limited,
}
