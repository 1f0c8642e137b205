# shellcheck shell=bash
# What the tests of the lab begin with. Each sources this from the repository's root, with the namespaces that it needs
# of its own in `apart`, and then has `lab` (the program, the newest build), `place` (a folder that goes with the test)
# and `failed` (0).

name=$(basename "$0" .sh)

if [ -z "${LAB_TEST_INSIDE:-}" ]; then
  export LAB_TEST_INSIDE=1
  [ "$(id -u)" -eq 0 ] || apart+=(--map-root-user)
  exec unshare "${apart[@]}" "tests/$name.sh" "$@"
fi

target=$(tests/setup --target-dir 2>/dev/null || echo "${CARGO_TARGET_DIR:-target}")
lab=
for candidate in "$target"/{debug,release}/esplanade-lab; do
  if [ -x "$candidate" ] && { [ -z "$lab" ] || [ "$candidate" -nt "$lab" ]; }; then lab=$candidate; fi
done
if [ -z "$lab" ]; then
  echo "not ok $name: build esplanade-lab first (cargo build -p lab)"
  exit 1
fi

place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
# shellcheck disable=SC2034 # for the test
failed=0
