#!/usr/bin/env bash
# Our gateway, and OpenVPN where it is installed, carry IPv4 and IPv6 in IPv4 and IPv6: correctly, and loaded both ways
# at once.
set -uo pipefail
cd "$(dirname "$0")/.." || exit 1

apart=(--mount)
source tests/lab-begin.sh

cat >"$place/families.toml" <<'SPEC'
study = "families"
rounds = 1
duration = 1
load.direction = "both"
load.warm_up_megabytes = 1
factors.families = ["4in4", "6in4", "4in6", "6in6"]
[[contender]]
kind = "plain"
[[contender]]
kind = "esplanade"
suite = "aes-128-gcm"
[[contender]]
kind = "esplanade"
suite = "aes-128-gcm"
encapsulation = "native"
[[contender]]
kind = "openvpn"
SPEC

said=$(timeout --foreground 240 "$lab" run "$place/families.toml" --seed 1 --out "$place/out" </dev/null 2>&1)
code=$?
records=$place/out/records.jsonl
# A machine without the TUN device or OpenVPN has fewer; each that is there must have been measured.
for contender in plain esplanade-aes-128-gcm esplanade-aes-128-gcm-native openvpn-aes-128-gcm; do
  for families in 4in4 6in4 4in6 6in6; do
    if [ "$contender" = plain ] && [ "${families:0:1}" != "${families: -1}" ]; then continue; fi
    found=$(grep "\"contender\":\"$contender\"" "$records" | grep "\"families\":\"$families\"")
    case $found in
      *'"status":"measured"'*'"reverse.goodput_bps":'*) echo "ok lab-families-$contender-$families" ;;
      *'"status":"absent"'*) echo "$contender is absent here" ;;
      *)
        echo "not ok lab-families-$contender-$families: exit code $code: $(grep -E 'failed|error' <<<"$said" | tail -n 3 | tr '\n' ' ')"
        failed=1
        ;;
    esac
  done
done
exit "$failed"
