#!/usr/bin/env bash
# Every study that `lab list` names runs to its end with --smoke, and leaves what a run must leave: records of which
# some are measurements, a table, a page with its title, and an order from which the run could go on.
set -uo pipefail
cd "$(dirname "$0")/.." || exit 1

apart=(--mount)
source tests/lab-begin.sh

bad() {
  echo "not ok lab-smoke-$1: $2"
  failed=1
}

# holds FILE WORDS: the file says the words.
holds() {
  grep -qF -- "$2" "$1" 2>/dev/null
}

# Says what is missing in the folder of a study's run, if anything is.
lacking() {
  local folder=$1 title=$2
  local records=$folder/records.jsonl
  holds "$records" '"status":"measured"' || echo "no record is a measurement"
  # Without the TUN device tunnels are absent; where it is here, ours must have carried packets.
  if [ -w /dev/net/tun ] && grep -q '"contender":"esplanade' "$records"; then
    grep -q '"contender":"esplanade.*"status":"measured"' "$records" || echo "Esplanade was never measured"
  fi
  holds "$folder/table.txt" "goodput" || echo "the table has no column of goodput"
  holds "$folder/report.html" "<title>$title</title>" || echo "the page lacks its title"
  holds "$folder/report.html" "</html>" || echo "the page is not whole"
  holds "$folder/order.json" '"--smoke"' || echo "the order does not say how it was asked for"
  [ "$(grep -c '"schema":' "$records")" -eq "$(wc -l <"$records")" ] || echo "a line of the records is no record"
}

smoke() {
  local study=$1 title=$2 said code why
  local folder=$place/$study
  said=$(timeout --foreground 120 "$lab" run "$study" --smoke --seed 1 --out "$folder" </dev/null 2>&1)
  code=$?
  if [ "$code" -ne 0 ]; then
    bad "$study" "exit code $code: $(grep -E 'failed|error' <<<"$said" | tail -n 3 | tr '\n' ' ')$(tail -n 1 <<<"$said")"
    return
  fi
  why=$(lacking "$folder" "$title" | tr '\n' ';')
  [ -z "$why" ] || {
    bad "$study" "$why"
    return
  }
  if ! "$lab" report "$folder" --html "$folder/again.html" >/dev/null 2>&1 ||
    ! cmp -s "$folder/report.html" "$folder/again.html"; then
    bad "$study" "the page written again from its records is another"
    return
  fi
  echo "ok lab-smoke-$study"
}

studies=$("$lab" list | grep -E '^[a-z]') || { bad list "lab list names no study"; exit 1; }
while IFS= read -r line; do
  if [ $# -eq 0 ] || [[ " $* " == *" ${line%%: *} "* ]]; then smoke "${line%%: *}" "${line#*: }"; fi
done <<<"$studies"
exit "$failed"
