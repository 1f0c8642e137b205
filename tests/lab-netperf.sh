#!/usr/bin/env bash
# netperf as a load: the messages where it is missing, too old or broken, on any machine; and where it is installed,
# that it agrees with iperf3 on a link whose rate is known, over both families, both ways and through our tunnel.
set -uo pipefail
cd "$(dirname "$0")/.." || exit 1

apart=(--mount)
source tests/lab-begin.sh

mkdir "$place/bin"
PATH=$PATH:/usr/local/sbin:/usr/sbin:/sbin
installed=yes
{ command -v netperf && command -v netserver; } >/dev/null || installed=

measured=(
  a-stream-equals-that-of-iperf3
  a-stream-backwards-equals-that-of-iperf3
  a-stream-over-ipv6-equals-that-of-iperf3
  a-stream-through-our-tunnel-equals-that-of-iperf3
  writes-of-64-bytes-arrive
  datagrams-are-counted-where-they-arrive
  datagrams-backwards-over-ipv6-arrive
  datagrams-longer-than-the-tunnel-arrive
  questions-take-the-delay-of-the-wire-twice
  questions-over-ipv6-are-answered
  every-record-names-the-version
)

# The rate is far below what any machine carries, so that what is measured is the link.
cat >"$place/netperf.toml" <<'SPEC'
study = "netperf"
rounds = 3
duration = 2
load.warm_up_megabytes = 1
testbed.link.rate_mbit = 40
[[contender]]
kind = "plain"

[[part]]
name = "iperf3"
load.kind = "iperf3"
factors.direction = ["forward", "reverse"]
[[part]]
name = "stream"
load.kind = "netperf"
factors.direction = ["forward", "reverse"]
[[part]]
name = "iperf3-six"
testbed.families = "6in6"
load.kind = "iperf3"
[[part]]
name = "stream-six"
testbed.families = "6in6"
load.kind = "netperf"
[[part]]
name = "iperf3-tunnel"
load.kind = "iperf3"
[[part.contender]]
kind = "esplanade"
suite = "aes-128-gcm"
[[part]]
name = "stream-tunnel"
load.kind = "netperf"
[[part.contender]]
kind = "esplanade"
suite = "aes-128-gcm"
[[part]]
name = "small"
load.kind = "netperf"
load.message_bytes = 64
load.nodelay = true
[[part]]
name = "datagrams"
load.kind = "netperf-udp"
[[part]]
name = "datagrams-six"
testbed.families = "6in6"
load.kind = "netperf-udp"
load.message_bytes = 512
load.direction = "reverse"
[[part]]
name = "questions-six"
testbed.families = "6in6"
load.kind = "netperf-rr"
load.request_bytes = 1000
SPEC

# A box in the wire has no rate of its own; and of datagrams in two pieces, a queue that is always full takes the
# shorter pieces and no longer one.
cat >"$place/unshaped.toml" <<'SPEC'
study = "unshaped"
rounds = 1
duration = 2

[[part]]
name = "delayed"
load.kind = "netperf-rr"
testbed.impair.delay_ms = 5
[[part.contender]]
kind = "plain"
[[part]]
name = "datagrams-tunnel"
load.kind = "netperf-udp"
load.message_bytes = 1472
[[part.contender]]
kind = "esplanade"
suite = "aes-128-gcm"
SPEC

# Each line a verdict. The medians of three rounds are compared: one that was starved decides nothing.
judge() {
  python3 - "$place" "${measured[@]}" <<'PYTHON'
import json, pathlib, statistics, sys

place, names = pathlib.Path(sys.argv[1]), sys.argv[2:]
records = []
for study in ("netperf", "unshaped"):
    records += [json.loads(line) for line in (place / study / "records.jsonl").open()]


def status(record):
    return record["outcome"]["status"]


def of(part, direction="forward"):
    here = [r for r in records if r["factors"].get("part") == part
            and r["factors"].get("direction", "forward") == direction and status(r) != "absent"]
    wrong = [r["outcome"] for r in here if status(r) != "measured"]
    assert not wrong, f"{part}: {json.dumps(wrong[0])[:600]}"
    return here


def median(part, figure, direction="forward"):
    here = of(part, direction)
    assert here, f"{part} was not measured"
    return statistics.median(r["figures"][figure] for r in here)


def equal(one, other, direction="forward"):
    ratio = median(one, "goodput_bps", direction) / median(other, "goodput_bps", direction)
    assert 0.95 < ratio < 1.05, f"{one} carries {ratio:.3f} of {other}"


def in_tunnel(judge):
    if any(r["contender"].startswith("esplanade") and status(r) == "absent" for r in records):
        print("Esplanade is absent here")
    else:
        judge()


def counted():
    # 1024 bytes of user data, 28 of IP and UDP, 38 of the frame around them.
    ratio = median("datagrams", "goodput_bps") / (40e6 * 1024 / (1024 + 28 + 38))
    assert 0.95 < ratio < 1.05, f"{ratio:.3f} of what the link can carry"
    lost = 1 - median("datagrams", "goodput_bps") / median("datagrams", "sent_bps")
    told = median("datagrams", "loss_ratio")
    assert abs(lost - told) < 0.05, f"lost {lost:.3f}, told {told:.3f}"
    # The far end does not sit through the seconds that it would wait for more.
    window = statistics.median(r["outcome"]["readings"]["window_s"] for r in of("datagrams"))
    assert window < 5, f"the load took {window} s"


def arrive(part, direction="forward"):
    assert median(part, "goodput_bps", direction) > 1e5, part


def delayed():
    figures = of("delayed")[0]["figures"]
    assert 10_000 <= figures["rtt.p50_us"] < 20_000, figures
    assert figures["rtt.p50_us"] <= figures["rtt.p99_us"] <= figures["rtt.max_us"] * 1.01, figures
    assert 0.8 < figures["transactions_per_s"] * figures["rtt.mean_us"] / 1e6 < 1.2, figures


def answered():
    assert median("questions-six", "transactions_per_s") > 10


def named():
    tools = {r["outcome"]["carried"]["tool"] for r in records
             if r["load"].startswith("netperf") and status(r) == "measured"}
    assert len(tools) == 1 and tools.pop().startswith("netperf 2."), tools


judges = [
    lambda: equal("stream", "iperf3"),
    lambda: equal("stream", "iperf3", "reverse"),
    lambda: equal("stream-six", "iperf3-six"),
    lambda: in_tunnel(lambda: equal("stream-tunnel", "iperf3-tunnel")),
    lambda: arrive("small"),
    counted,
    lambda: arrive("datagrams-six", "reverse"),
    lambda: in_tunnel(lambda: arrive("datagrams-tunnel")),
    delayed,
    answered,
    named,
]
for name, judge in zip(names, judges, strict=True):
    try:
        judge()
        print(f"ok lab-netperf-{name}")
    except Exception as why:
        print(f"not ok lab-netperf-{name}: {type(why).__name__}: {why}")
PYTHON
}

if [ -n "$installed" ]; then
  for study in netperf unshaped; do
    timeout --foreground 300 "$lab" run "$place/$study.toml" --seed 1 --out "$place/$study" \
      </dev/null >"$place/$study.log" 2>&1
  done
  verdicts=$(judge)
  echo "$verdicts"
  if grep -q '^not ok' <<<"$verdicts" || [ "$(grep -c '^ok' <<<"$verdicts")" -ne "${#measured[@]}" ]; then
    tail -n 40 "$place"/*.log
    failed=1
  fi
else
  for test in "${measured[@]}"; do echo "not here lab-netperf-$test: netperf"; done
fi

# A program that behaves like a broken one.
program() {
  printf '#!/bin/sh\n%s\n' "$2" >"$place/bin/$1"
  chmod +x "$place/bin/$1"
}

printf 'study = "alone"\nrounds = 1\nduration = 1\nload.kind = "netperf"\n[[contender]]\nkind = "plain"\n' >"$place/alone.toml"

# expect NAME CODE WORDS: the run must end with the code and say the words.
expect() {
  local said got
  said=$(timeout --foreground 60 "$lab" run "$place/alone.toml" --out "$place/$1" </dev/null 2>&1)
  got=$?
  if [ "$got" -eq "$2" ] && [[ $said == *"$3"* ]]; then
    echo "ok lab-netperf-$1"
  else
    echo "not ok lab-netperf-$1: exit code $got, not $2, or not said \`$3\`: $(tail -n 3 <<<"$said" | tail -c 400 | tr '\n' ' ')"
    failed=1
  fi
}

for program in netperf netserver; do
  [ -z "$installed" ] || mount --bind /dev/null "$(command -v "$program")"
done
expect a-missing-netperf-is-said-with-its-remedy 1 "netperf is not installed. Fix: apt-get install netperf"

PATH=$place/bin:$PATH
program netperf 'echo Netperf version 2.7.0'
expect a-missing-netserver-is-said 1 "netserver is not installed"
program netserver 'echo Netperf version 2.6.0'
expect two-versions-are-said-to-differ 1 "netperf 2.7.0 and netserver 2.6.0 may be incompatible"
program netperf 'echo Netperf version 2.4.5'
expect an-old-one-is-said-to-be-old 1 "netperf 2.4.5 is too old"
# shellcheck disable=SC2016 # the broken program expands it
program netserver '[ "$1" = -V ] && exec echo Netperf version 2.7.0; echo "Unable to start netserver" >&2; exit 1'
program netperf 'echo Netperf version 2.7.0'
expect a-netserver-that-ends-is-named 3 "the netperf server ended with 1: Unable to start netserver"

exit "$failed"
