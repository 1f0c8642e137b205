#!/usr/bin/env bash
# Gateways that are held to a share of a processor: what each used by the kernel's own account, what the record says of it,
# and what is left out because nothing holds it.
set -uo pipefail
cd "$(dirname "$0")/.." || exit 1

apart=(--mount)
source tests/lab-begin.sh

cat >"$place/share.toml" <<'SPEC'
study = "share"
rounds = 1
duration = 2
load.warm_up_megabytes = 0
[factors]
share = [0.1, 0.4]
[[contender]]
kind = "esplanade"
suite = "aes-128-gcm"
[[contender]]
kind = "wireguard-go"
[[contender]]
kind = "kernel-xfrm"
suite = "aes-128-gcm"
SPEC

said=$(timeout --foreground 120 "$lab" run "$place/share.toml" --seed 1 --out "$place/out" </dev/null 2>&1)
code=$?
records=$place/out/records.jsonl

ok() {
  echo "ok lab-share-$1"
}

bad() {
  echo "not ok lab-share-$1: $2"
  failed=1
}

if [[ $said == *"left out: \`kernel-xfrm\` is carried by the kernel"* ]]; then
  ok what-no-quota-holds-is-left-out-and-said
else
  bad what-no-quota-holds-is-left-out-and-said "exit code $code: $(tail -n 3 <<<"$said" | tr '\n' ' ')"
fi

# Says what is wrong with the record of a gateway under a share, if anything is. What the processes used is the kernel's
# account of each (proc(5), utime and stime); a quota is an upper bound, however busy the machine is with others.
cat >"$place/judge.py" <<'PYTHON'
import json
import sys

record = json.loads(sys.stdin.read())
outcome, share = record["outcome"], float(record["factors"]["share"])
if outcome["status"] != "measured":
    sys.exit(print(outcome))
readings = outcome["readings"]
most = share * readings["window_s"] + 0.2
for side in ("left", "right"):
    used = readings[f"{side}.cpu.user_s"] + readings[f"{side}.cpu.system_s"]
    periods, throttled = (readings[f"{side}.share.{name}_count"] for name in ("periods", "throttled"))
    if used > most:
        print(f"{side} used {used} s, more than {most};")
    if not 0 <= throttled <= periods or periods == 0:
        print(f"{side} was stopped in {throttled} of {periods} periods;")
PYTHON

for contender in esplanade-aes-128-gcm wireguard-go; do
  for share in 0.1 0.4; do
    name=$contender-of-$share-processors
    record=$(grep "\"contender\":\"$contender\"" "$records" | grep "\"share\":\"$share\"")
    case $record in
      *'"status":"absent"'*)
        if [ "$contender" = wireguard-go ]; then echo "$contender is absent here"; else echo "not here lab-share-$name: processor-share"; fi
        continue
        ;;
    esac
    why=$(python3 "$place/judge.py" <<<"$record" 2>&1 | tr '\n' ' ')
    if [ -z "$why" ]; then ok "$name"; else bad "$name" "$why"; fi
  done
done
exit "$failed"
