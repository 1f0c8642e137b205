"""The outcome of a run, for a terminal and as a page: which values were judged together, and how it went."""

import datetime
import textwrap

from combination import CIPHERS, INTEGRITY, LEFT_OUT, NONE

COLUMNS = {
    "protocol": ["esp", "ah", "esp+ah", "ah+esp"],
    "shape": ["tunnel 4in4", "tunnel 6in6", "tunnel 4in6", "tunnel 6in4", "transport 4", "transport 6"],
    "encap": ["native", "udp"],
    "esn": [False, True],
    "window": [0, 32, 64, 1024, 4096],
}
HEADS = {"tunnel 4in4": "4in4", "tunnel 6in6": "6in6", "tunnel 4in6": "4in6", "tunnel 6in4": "6in4",
         "transport 4": "tr4", "transport 6": "tr6", "native": "raw", False: "seq", True: "esn"}
WIDTH = 8
PAGE = """# Comparison with the Linux kernel

Made by `tests/interop/run --write docs/interop.md` on {date} from one run; `make interop`
repeats it. The judge is Linux {release} (Debian, {place}), first with itself as its peer, which
proves the case, then with Esplanade, and then with `esplanade run --plane kernel` on {plane_release}.

{combinations} combinations are a pairwise cover: every two values of cipher, integrity, protocol, mode and families,
nesting, encapsulation, sequence numbers and window that are possible together are in one of them. Each combination must

- carry datagrams of every residue of a block, around the path MTU and far beyond it, asked from both ends;
- show nothing on the wire but its outermost protocol;
- refuse captured packets with one bit flipped in each region (where the outermost layer authenticates), packets of no
  association, packets seen before, and with windows of 32 and 64 what is left of the window, whose leftmost place is
  accepted; both ends count all of it at their outermost association as the model says (the edges of 1024 and 4096 are
  not reached: too few packets);
- carry traffic afterwards.

**{passed} verdicts hold, {failed} do not.** The numbers are combinations judged, kernel to kernel / Esplanade to
kernel / Esplanade's kernel plane to kernel; `x` marks a combination that failed.

```
{grids}
```

`tr` is transport mode, `raw` without UDP, `seq` 32-bit and `esn` extended sequence numbers, `w` the replay window. In
`esp+ah` ESP is inside, in `ah+esp` AH. In the rows `none` there is no cipher (AH alone), or no integrity algorithm
beside the cipher. `.` stands where the two values are not possible together, by one of the rules below.

## Combinations that are left out

{left_out}

## One by one, with TCP

{by_hand}

## What Linux does not have, and is therefore not judged here

- RFC 8750 (`aes-gcm-16-iiv`), and AES-GMAC in AH (RFC 4543 4: `aes-128-gmac`, `aes-192-gmac`, `aes-256-gmac`): *no
  kernel has it*. Its judge is `tests/scapy/gmac.py`, written from the RFCs. Every other algorithm of Esplanade is in
  this kernel, and in the tables above.

## AGGFRAG mode (RFC 9347)

Debian's kernels leave it out. `make iptfs` builds Linux 7.2.13 with `CONFIG_XFRM_IPTFS` from Debian's source and lets
each seal what the other opens: small and large outer packets, collected ones and single ones, IPv4 and IPv6 inside and
outside, with and without fragments and extended sequence numbers, 40 inner packets each way in five cases, bit for bit.
What this kernel sealed is kept under `tests/iptfs/captures`, and `make test` opens it again. Two faults of that kernel
damage packets that it receives, whatever the sender; the test avoids both by a veth device:

- Outer packets from a device without a link-layer header (TUN): the source address of every inner packet but the first
  of an outer one is overwritten.
- Outer packets whose buffer consists of pages (TAP and many network cards): the last 14 bytes of an inner packet that
  ends in an outer packet in front of another one are overwritten.
{rest}"""
BY_HAND = """\
Each case sends small and large pings and fetches a file over TCP; the wire shows nothing but ESP; a packet that is
sent again and one with a bit flipped are refused, and nothing else is. With `ipcomp` large pings are short on the
wire (RFC 3173). These cases are not run with `run --plane kernel`: the same kernel code would be on both ends, which
the column *kernel to kernel* judges. What the plane installs is judged by the tables above, and for IPComp and TCP by
`tests/scenarios/run ipcomp` and `tests/kernel-plane/run`."""
NOT_CARRIED = """
## What Esplanade does not carry yet

Combinations with AH stand in the tables with the kernel's own verdict only.
"""


def grids(rows):
    """Cipher and integrity down, everything else across."""
    return "\n\n".join(grid(rows, name, values) for name, values in
                       (("cipher", [*CIPHERS, NONE]), ("integrity", [*INTEGRITY, NONE])))


def grid(rows, name, values):
    columns = [(factor, value) for factor, all_values in COLUMNS.items() for value in all_values]
    heads = [f"w{value}" if factor == "window" else HEADS.get(value, str(value)) for factor, value in columns]
    lines = [f"{name:<14}" + "".join(f"{head:>{WIDTH + 1}}" for head in heads)]
    for value in values:
        mine = [row for row in rows if getattr(row[0], name) == value]
        cells = [cell([row for row in mine if getattr(row[0], factor) == wanted]) for factor, wanted in columns]
        if mine:
            lines.append(f"{value if value != NONE else 'none':<14}" + "".join(f"{text:>{WIDTH + 1}}" for text in cells))
    return "\n".join(lines)


def cell(rows):
    """How many combinations were judged: kernel / gateway / gateway on the kernel plane, each to the kernel."""
    counts = [len([row for row in rows if row[1] == kind]) for kind in ("kernel", "gateway", "kernel-plane")]
    failed = any(row[2] for row in rows)
    return ("." if not any(counts) else "/".join(map(str, counts))) + ("x" if failed else "")


def left_out():
    """The reasons, each once, as a list."""
    return "\n".join(textwrap.fill(f"- {why[0].upper()}{why[1:]}.", 120, subsequent_indent="  ",
                                   break_long_words=False, break_on_hyphens=False)
                     for why in dict.fromkeys(why for _, _, why in LEFT_OUT))


def by_hand(rows):
    """Cases down, with the kernel and with Esplanade on the left."""
    lines = [BY_HAND, "", "| case | kernel to kernel | Esplanade to kernel |", "|---|---|---|"]
    for name in dict.fromkeys(row[0].name for row in rows):
        outcomes = {kind: wrong for case, kind, wrong in rows if case.name == name}
        cells = ["not run" if kind not in outcomes else "fails" if any(outcomes[kind].values()) else "holds"
                 for kind in ("kernel", "gateway")]
        lines.append(f"| {name} | {cells[0]} | {cells[1]} |")
    return "\n".join(lines)


def write(path, releases, place, cases, covered):
    release, plane_release = releases
    everything = [*cases, *covered]
    failed = sum(1 for row in everything if any(row[2].values()))
    carried = {row[0].number for row in covered if row[1] == "gateway"}
    text = PAGE.format(date=datetime.date.today(), release=release, plane_release=plane_release, place=place,
                       by_hand=by_hand(cases), left_out=left_out(),
                       combinations=len({row[0].number for row in covered}), passed=len(everything) - failed,
                       failed=failed, grids=grids(covered),
                       rest="" if all(row[0].number in carried for row in covered) else NOT_CARRIED)
    with open(path, "w") as file:
        file.write(text)
