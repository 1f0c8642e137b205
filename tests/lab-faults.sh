#!/usr/bin/env bash
# What the lab does when something is missing, broken, stuck or full: it says so clearly, records it, goes on with the
# rest, and exits with a code that tells.
set -uo pipefail
cd "$(dirname "$0")/.." || exit 1

apart=(--mount)
source tests/lab-begin.sh

mkdir "$place/bin"
trap 'umount "$place/tiny" 2>/dev/null; rm -rf "$place"' EXIT

# expect NAME CODE WORDS COMMAND...: the command must end with the code and say the words.
expect() {
  local name=$1 code=$2 words=$3 said got
  shift 3
  said=$("$@" 2>&1)
  got=$?
  if [ "$got" -eq "$code" ] && [[ $said == *"$words"* ]]; then
    echo "ok lab-faults-$name"
  else
    echo "not ok lab-faults-$name: exit code $got, not $code, or not said \`$words\`: $(tail -n 3 <<<"$said" | tail -c 400 | tr '\n' ' ')"
    failed=1
  fi
}

# A program that behaves like a broken `esplanade`.
program() {
  printf '#!/bin/sh\n%s\n' "$2" >"$place/bin/$1"
  chmod +x "$place/bin/$1"
}

short=(--rounds 1 --duration 1)
mixed=("${short[@]}" --only plain --only esplanade-aes-128-gcm)

if [ -w /dev/net/tun ]; then
  program refusing 'echo "no such device: tun9" >&2; exit 4'
  expect a-gateway-that-ends-is-named 3 "gateway ended with 4: no such device: tun9" \
    "$lab" run demo "${mixed[@]}" --out "$place/refusing" --esplanade "$place/bin/refusing"
  expect the-others-are-measured-all-the-same 0 2 \
    grep -c '"contender":"plain.*"status":"measured"' "$place/refusing/records.jsonl"
  expect the-failure-is-on-record 0 '"status":"failed","stage":"up"' cat "$place/refusing/records.jsonl"

  # shellcheck disable=SC2016 # the broken program expands it
  program mute 'case "$1" in run) sleep 60 ;; *) echo "cannot reach the gateway" >&2; exit 1 ;; esac'
  expect a-gateway-that-never-answers-is-given-up 3 "does not answer" \
    "$lab" run demo "${short[@]}" --only esplanade-aes-128-gcm --out "$place/mute" --esplanade "$place/bin/mute"

  # shellcheck disable=SC2016
  program idle 'case "$1" in run) sleep 60 ;; *) echo "{\"reasons\": {}}" ;; esac'
  expect a-tunnel-that-protects-nothing-is-caught 3 "plaintext on the wire" \
    "$lab" run demo "${short[@]}" --only esplanade-aes-128-gcm --out "$place/idle" --esplanade "$place/bin/idle"
else
  program any 'exit 1'
  expect a-missing-tun-device-is-said-with-its-remedy 0 "absent: /dev/net/tun cannot be opened" \
    "$lab" run demo "${mixed[@]}" --out "$place/no-tun" --esplanade "$place/bin/any"
fi

# Without control groups nothing holds a gateway to a share: it is left out, never measured as if it were held.
printf '%s\n' 'study = "share"' 'load.warm_up_megabytes = 0' '[[contender]]' 'kind = "plain"' \
  '[[contender]]' 'kind = "esplanade"' 'suite = "aes-128-gcm"' 'share = 0.5' >"$place/share.toml"
if [ -w /dev/net/tun ] && [ -x "$(dirname "$lab")/esplanade" ] && mount -t tmpfs none /sys/fs/cgroup; then
  expect a-share-that-nothing-gives-is-said-and-the-rest-measured 0 "CPU quotas cannot be set" \
    "$lab" run "$place/share.toml" "${short[@]}" --out "$place/no-groups"
  expect what-has-no-share-is-measured-all-the-same 0 1 \
    grep -c '"contender":"plain".*"status":"measured"' "$place/no-groups/records.jsonl"
  umount /sys/fs/cgroup
fi

mkdir "$place/tiny"
mount -t tmpfs -o size=36k,nr_inodes=40 tiny "$place/tiny"
expect a-full-disk-is-said-and-the-table-still-shown 1 "No space left on device" \
  "$lab" run demo --only plain --rounds 4 --duration 1 --out "$place/tiny/out"
expect what-was-kept-before-it-was-full-is-readable 1 "plain IP" "$lab" report "$place/tiny/out"
expect a-page-that-has-no-room-goes-elsewhere 0 "page: $place/elsewhere.html" \
  "$lab" report "$place/tiny/out" --html "$place/elsewhere.html"

mkdir "$place/letters"
echo dear >"$place/letters/one"
expect a-foreign-folder-is-not-touched 1 "is not a result of the lab" \
  "$lab" run demo "${short[@]}" --out "$place/letters"
expect a-foreign-folder-keeps-its-file 0 dear cat "$place/letters/one"

expect a-foreign-folder-is-not-resumed 1 "can be resumed" "$lab" run --resume "$place/letters"
expect a-budget-too-small-is-said 1 "more than the budget" \
  "$lab" run demo --only plain --budget 2s --out "$place/budget"
expect a-budget-without-unit-is-said 2 "a number with its unit, as 90s, 60m or 2h" \
  "$lab" run demo --budget 60 --out "$place/budget"
expect an-unknown-study-is-answered-with-the-known 1 "there is no study \`dmeo\`. Known: demo" "$lab" run dmeo
printf 'study = "x"\n[[contender]]\nkind = "plian"\n' >"$place/x.toml"
expect a-bad-spec-gets-line-and-advice 1 "did you mean \`plain\`?" "$lab" run "$place/x.toml"
expect a-report-of-nothing-says-where-it-looked 1 "cannot read $place/none/records.jsonl" "$lab" report "$place/none"

mount --bind /dev/null "$(command -v iperf3)"
expect a-missing-iperf3-is-said-with-its-package 1 "iperf3 is not installed. Fix: apt-get install iperf3" \
  "$lab" run demo "${short[@]}" --only plain --out "$place/no-iperf3"
expect the-doctor-finds-it-too 1 "iperf3 is missing" "$lab" doctor

exit "$failed"
