#!/usr/bin/env bash
# Nothing that the lab makes outlives it: not after a good end, not after Ctrl-C, not after kill -9.
#
# Each case runs the lab, ends it while a load is flowing, and then looks for what may be left: processes (each bears a
# mark in its environment), links, routes, rules, nftables, mounts, named namespaces, temporary files. It all happens in
# a network and mount namespace of its own, so that other programs' links confuse nothing.
set -uo pipefail
cd "$(dirname "$0")/.." || exit 1

apart=(--net --mount)
source tests/lab-begin.sh

mount -t tmpfs lab-cleanup /run
export TMPDIR=$place/tmp
mkdir "$TMPDIR"

# Two gateways with their TUN devices, rules and sockets leave the most behind, where they can run.
contender=plain-no-offloads
if [ -x "$(dirname "$lab")/esplanade" ] && [ -w /dev/net/tun ]; then contender=esplanade-aes-128-gcm; fi
mark=LAB_CLEANUP_MARK=$$.$RANDOM

# The ids of living processes that bear the mark. One program looks at all of them: machines may be busy.
marked() {
  # A process that goes while grep looks is an error to grep, and none here.
  { grep -lzxF "$mark" /proc/[0-9]*/environ 2>/dev/null || true; } | cut -d/ -f3
}

# Waits until the client of a load runs beside its server, 20 s at the most.
wait_for_load() {
  local loads end=$((SECONDS + 20))
  while [ "$SECONDS" -lt "$end" ]; do
    loads=$(marked | sed 's|.*|/proc/&/comm|' | xargs -r grep -lx iperf3 2>/dev/null | wc -l)
    [ "$loads" -ge 2 ] && return 0
    sleep 0.05
  done
  return 1
}

# Waits until no marked process lives, 5 s at the most.
wait_for_nothing() {
  for _ in $(seq 100); do
    [ -z "$(marked)" ] && return 0
    sleep 0.05
  done
  return 1
}

# Everything of this namespace that the lab could have changed. Others' named namespaces come and go below the old /run.
picture() {
  ip -o link | sed 's/ state .*//'
  ip route show table all
  ip rule
  nft list ruleset 2>&1
  cut -d' ' -f 5- /proc/self/mountinfo | grep -v '^/run/netns'
  find /run "$TMPDIR"
}

# Ends the lab, whose process id is given, in the named way.
end_by() {
  case "$1" in
    itself) ;;
    ctrl-c) kill -INT -- "-$2" ;;
    two-ctrl-c) kill -INT "$2" && sleep 0.05 && kill -INT "$2" 2>/dev/null ;;
    sigterm) kill -TERM "$2" ;;
    kill-9) kill -KILL "$2" ;;
    kill-9-inside) pkill -KILL -P "$2" ;;
  esac
}

report() {
  if [ -z "$2" ]; then
    echo "ok lab-cleanup-$1"
  else
    echo "not ok lab-cleanup-$1: $2"
    failed=1
  fi
}

# Runs the lab, ends it in the named way, expects the exit code, and looks.
after() {
  local way=$1 expected=$2 out=$place/$1 log=$place/$1.log before now code trouble=
  before=$(picture)
  env "$mark" setsid "$lab" run demo --only "$contender" --rounds 2 --duration 3 --seed 1 --out "$out" >"$log" 2>&1 &
  local lab_id=$!
  wait_for_load || trouble="no load within 20 s: $(tail -n 1 "$log")"
  end_by "$way" "$lab_id"
  wait "$lab_id" 2>/dev/null
  code=$?
  [ "$code" -eq "$expected" ] || trouble+=" exit code $code, not $expected;"
  wait_for_nothing || trouble+=" processes left: $(marked | tr '\n' ' ');"
  now=$(picture)
  [ "$before" = "$now" ] || trouble+=" changed: $(diff <(echo "$before") <(echo "$now") | tr '\n' ' ');"
  "$lab" report "$out" >/dev/null 2>&1 || trouble+=" the records cannot be read;"
  report "after-$way" "$trouble"
}

# A control group is what the kernel does not take away by itself.
cat >"$place/share.toml" <<'SPEC'
study = "share"
rounds = 1
duration = 3
load.warm_up_megabytes = 0
[[contender]]
kind = "esplanade"
suite = "aes-128-gcm"
share = 0.3
SPEC

# The folder with the control groups of the marked processes, as it is reached from here.
share_folder() {
  local path top kind
  path=$(marked | sed 's|.*|/proc/&/cgroup|' | xargs -r cat 2>/dev/null | grep -om1 '/[^:]*esplanade-lab-[^/]*') || return 1
  while read -r _ top kind _; do
    [[ $kind == cgroup* ]] && [ -d "$top$path" ] && echo "$top$path" && return 0
  done </proc/self/mounts
  return 1
}

# Starts a lab that limits a gateway to a share, and waits until it does: `lab_id` and `folder`. Fails where it cannot.
hold() {
  local end=$((SECONDS + 20))
  folder=
  env "$mark" setsid "$lab" run "$place/share.toml" --seed 1 --out "$place/$1" >"$place/$1.log" 2>&1 &
  lab_id=$!
  while [ "$SECONDS" -lt "$end" ] && ! grep -qs '"status":"absent"' "$place/$1/records.jsonl"; do
    folder=$(share_folder) && return 0
    sleep 0.05
  done
  wait "$lab_id"
  return 1
}

# Ends such a lab in the named way, and looks for the groups.
after_share() {
  local way=$1 expected=$2 name=share-after-$1 code trouble=
  if ! hold "$name"; then
    absent_or_bad "$name"
    return
  fi
  end_by "$way" "$lab_id"
  wait "$lab_id" 2>/dev/null
  code=$?
  [ "$code" -eq "$expected" ] || trouble="exit code $code, not $expected;"
  wait_for_nothing || trouble+=" processes left: $(marked | tr '\n' ' ');"
  [ ! -e "$folder" ] || trouble+=" $folder is left;"
  report "$name" "$trouble"
}

absent_or_bad() {
  if grep -qs '"status":"absent"' "$place/$1/records.jsonl"; then
    echo "not here lab-cleanup-$1: processor-share"
  else
    report "$1" "no gateway was ever held: $(tail -n 1 "$place/$1.log")"
  fi
}

# Where the cleanup daemon is killed, too, the next lab that makes groups removes them.
after_cleanup_daemon() {
  local name=share-without-a-cleanup-daemon daemon trouble=
  if ! hold "$name"; then
    absent_or_bad "$name"
    return
  fi
  daemon=$(marked | sed 's|.*|/proc/&/comm|' | xargs -r grep -lx lab-cleanup 2>/dev/null | cut -d/ -f3)
  kill -KILL "$daemon" "$lab_id"
  wait "$lab_id" 2>/dev/null
  wait_for_nothing || trouble="processes left: $(marked | tr '\n' ' ');"
  [ -d "$folder" ] || trouble+=" something else took $folder away;"
  env "$mark" "$lab" run "$place/share.toml" --duration 1 --out "$place/$name-next" >"$place/$name.log" 2>&1 ||
    trouble+=" the next lab ended with $?: $(tail -n 1 "$place/$name.log");"
  [ ! -e "$folder" ] || trouble+=" the next lab left $folder;"
  report "$name" "$trouble"
}

after itself 0
after ctrl-c 130
after two-ctrl-c 130
after sigterm 130
after kill-9 137
after kill-9-inside 137

after_share itself 0
after_share ctrl-c 130
after_share kill-9 137
after_share kill-9-inside 137
after_cleanup_daemon

# A soaker takes whole processors for as long as it lives, and lives no longer than its lab.
soaked() {
  local end=$((SECONDS + 30)) log=$place/soaked.log found=0 trouble=
  printf '%s\n' 'study = "soaked"' 'rounds = 1' 'duration = 8' '[measure]' 'soaker = true' '[[contender]]' 'kind = "plain"' >"$place/soaked.toml"
  env "$mark" setsid "$lab" run "$place/soaked.toml" --out "$place/soaked" >"$log" 2>&1 &
  local lab_id=$!
  while [ "$found" -eq 0 ] && [ "$SECONDS" -lt "$end" ]; do
    found=$(marked | sed 's|.*|/proc/&/cmdline|' | xargs -r grep -lzx soak 2>/dev/null | wc -l)
  done
  [ "$found" -gt 0 ] || trouble="no soaker within 30 s: $(tail -n 1 "$log");"
  kill -KILL "$lab_id"
  wait "$lab_id" 2>/dev/null
  wait_for_nothing || trouble+=" processes left: $(marked | tr '\n' ' ');"
  report after-kill-9-of-a-soakers-lab "$trouble"
}
soaked

log=$place/ctrl-c.log
if grep -q '^interrupted: ' "$log" && grep -q '^saved in ' "$log"; then
  report ctrl-c-says-what-was-kept ""
else
  report ctrl-c-says-what-was-kept "$(tail -n 1 "$log")"
fi

# A run that was cut short goes on: what was recorded stays byte for byte, and in the end every trial of the plan is
# there.
resumed() {
  local out=$place/$1 trouble="" before measured said
  cp "$out/records.jsonl" "$place/before.jsonl"
  before=$(grep -c . "$place/before.jsonl")
  said=$(env "$mark" "$lab" run --resume "$out" 2>&1) || trouble="exit code $?: $(tail -n 1 <<<"$said");"
  cmp -s -n "$(wc -c <"$place/before.jsonl")" "$place/before.jsonl" "$out/records.jsonl" ||
    trouble+=" earlier records changed;"
  measured=$(grep -o '"trial":[0-9]*,.*"status":"measured"' "$out/records.jsonl" | cut -d, -f1 | sort -u | wc -l)
  [ "$measured" -eq 2 ] || trouble+=" $measured of 2 trials are measured;"
  [ -s "$out/report.html" ] || trouble+=" no page;"
  [[ $said == *"$before records exist"* ]] || trouble+=" it does not say what is there;"
  report "resume-after-$1" "$trouble"
}
resumed ctrl-c
resumed sigterm

if env "$mark" "$lab" run --resume "$place/itself" >"$place/nothing.log" 2>&1 &&
  [ "$(grep -c . "$place/itself/records.jsonl")" -eq 2 ]; then
  report resume-of-a-whole-run-measures-nothing ""
else
  report resume-of-a-whole-run-measures-nothing "$(tail -n 1 "$place/nothing.log")"
fi

# The next start in the same place works, and keeps what the killed one had measured.
out=$place/kill-9
if env "$mark" "$lab" run demo --only "$contender" --rounds 1 --duration 1 --out "$out" >"$place/again.log" 2>&1 &&
  [ -f "$out.1/records.jsonl" ] && [ -f "$out/table.txt" ]; then
  report next-start-keeps-earlier-records ""
else
  report next-start-keeps-earlier-records "$(tail -n 1 "$place/again.log")"
fi

exit "$failed"
