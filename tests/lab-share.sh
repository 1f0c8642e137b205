#!/usr/bin/env bash
# Gateways that are limited to a share of a processor: what each used by the kernel's account, what the record says of
# it, what is left out because nothing limits it, and all of it without root, in a control group of another user.
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

if [[ $said == *"skipped: \`kernel-xfrm\` runs in the kernel"* ]]; then
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

judge() {
  local name=$1 record=$2 why
  why=$(python3 "$place/judge.py" <<<"$record" 2>&1 | tr '\n' ' ')
  if [ -z "$why" ]; then ok "$name"; else bad "$name" "$why"; fi
}

for contender in esplanade-aes-128-gcm wireguard-go; do
  for share in 0.1 0.4; do
    name=$contender-of-$share-processors
    record=$(grep "\"contender\":\"$contender\"" "$records" | grep "\"share\":\"$share\"")
    case $record in
      *'"status":"absent"'*)
        # One that is not installed says how it is got.
        case $record in
          *"go install golang.zx2c4.com/wireguard"*) echo "not here lab-share-$name: wireguard-go" ;;
          *) echo "not here lab-share-$name: processor-share" ;;
        esac
        ;;
      *) judge "$name" "$record" ;;
    esac
  done
done

# A user without privileges, and a control group as an administrator gives it to such a user: owned by that user, who is
# inside. In version two a group with others below it has no members, so the user is one further down.
user=65534
give_group() {
  local top kind options
  while read -r _ top kind options _; do
    given=$top/given-$$
    case $kind,$options, in
      cgroup,*,cpu,*) inside=$given ;;
      cgroup2,*) echo +cpu >"$top/cgroup.subtree_control" && inside=$given/inside ;;
      *) continue ;;
    esac 2>/dev/null || continue
    mkdir -p "$inside" && chown -R "$user" "$given" && return 0
  done </proc/self/mounts
  return 1
}

take_group() {
  [ "$inside" = "$given" ] || rmdir "$inside"
  rmdir "$given"
}

as_user() (
  echo "$BASHPID" >"$inside/cgroup.procs" && cd "$place" &&
    exec setpriv --reuid "$user" --regid "$user" --clear-groups --no-new-privs env HOME="$place/user" "$@"
)

# A user who is given a group is given the programs and the TUN device, too: here both may be for root alone.
without_root() {
  chmod 711 "$place"
  install -d -o "$user" "$place/user"
  install -m 755 "$lab" "$(dirname "$lab")/esplanade" "$place"
  mknod -m 666 "$place/tun" c 10 200 && mount --bind "$place/tun" /dev/net/tun
  as_user timeout --foreground 120 "$place/esplanade-lab" run "$place/share.toml" --only esplanade --seed 1 \
    --out "$place/user/out" </dev/null >"$place/user.log" 2>&1
}

name=without-root-in-a-group-that-was-given
if [ "$(id -u)" -ne 0 ] || grep '"contender":"esplanade' "$records" | grep -q '"status":"absent"' || ! give_group; then
  echo "not here lab-share-$name: processor-share"
elif ! as_user unshare --user --map-root-user --net --mount true; then
  take_group
  echo "not here lab-share-$name: user-namespaces"
else
  if without_root; then
    judge "$name" "$(grep '"share":"0.4"' "$place/user/out/records.jsonl")"
  else
    bad "$name" "exit code $?: $(tail -n 3 "$place/user.log" | tr '\n' ' ')"
  fi
  if take_group; then ok nothing-is-left-in-it; else bad nothing-is-left-in-it "$(ls -R "$given")"; fi
fi
exit "$failed"
