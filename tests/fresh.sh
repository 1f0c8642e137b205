#!/usr/bin/env bash
# Proves that the project works from nothing: a bare Debian 12, a bare checkout, three commands.
#
#   tests/fresh.sh [TARGET...]        as root; by default check, test and demo
#   FRESH_KEEP=1 tests/fresh.sh ...   go on in the system of the last run instead of a new one
#
# Debian is made by debootstrap once and kept under .cache; every run unpacks it anew. Only the Rust
# toolchain and cargo's downloads come from this machine, because Debian 12 has no cargo that is new
# enough: before they are put there, make must name the one command that gets them. Mounts and
# processes live in namespaces of their own and end with this script. Too long for every change
# (three builds from nothing), so .ci/run does not call it.
set -euo pipefail
cd "$(dirname "$0")/.."

place=$PWD/.cache/fresh
root=$place/root
targets=("$@")
[ ${#targets[@]} -gt 0 ] || targets=(check test demo)

if [ "$(id -u)" -ne 0 ]; then
  echo "tests/fresh.sh makes a whole system and needs root" >&2
  exit 1
fi
if [ -z "${FRESH_INSIDE:-}" ]; then
  FRESH_INSIDE=1 exec unshare --mount --pid --fork --kill-child -- "$0" "$@"
fi

make_base() {
  [ -e "$place/debian-12.tar" ] && return
  rm -rf "$place/base"
  mkdir -p "$place/base"
  debootstrap --variant=minbase bookworm "$place/base" >"$place/debootstrap.log" 2>&1 || {
    tail -n 5 "$place/debootstrap.log" >&2
    exit 1
  }
  tar -C "$place/base" -cf "$place/debian-12.tar.new" .
  mv "$place/debian-12.tar.new" "$place/debian-12.tar"
  rm -rf "$place/base"
}

unpack() {
  rm -rf "$root"
  mkdir -p "$root"
  tar -C "$root" -xf "$place/debian-12.tar"
  git clone --quiet --no-hardlinks . "$root/esplanade"
  # How this machine reaches the network: names, certificates, proxies.
  cp /etc/resolv.conf "$root/etc/resolv.conf"
  # An installed machine knows its own name; a bootstrapped one does not yet.
  printf '127.0.0.1\tlocalhost\n::1\tlocalhost\n' >"$root/etc/hosts"
  mkdir -p "$root/usr/local/share/ca-certificates"
  find /usr/local/share/ca-certificates -name '*.crt' -exec cp {} "$root/usr/local/share/ca-certificates/" \;
}

mount_kernel() {
  # The root of the new system is a mount point, as it is on any machine: the lab keeps its mounts private.
  mount --bind "$root" "$root"
  mount -t proc proc "$root/proc"
  mount -t sysfs sys "$root/sys"
  mount --rbind /dev "$root/dev"
  mount -t tmpfs tmpfs "$root/run"
}

mount_rust() {
  local sysroot
  sysroot=$(rustc --print sysroot)
  mkdir -p "$root/opt/rust" "$root/home/.cargo/registry"
  mount --bind "$sysroot" "$root/opt/rust"
  mount --bind "${CARGO_HOME:-$HOME/.cargo}/registry" "$root/home/.cargo/registry"
}

# A command in the new system, with none of this machine's settings but the way to the network. pivot_root makes the new
# system the root of a mount namespace: in a chroot the kernel refuses user namespaces (EPERM), which some tests make.
inside() {
  # shellcheck disable=SC2016 # the shell inside expands them
  env -i PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin:/opt/rust/bin HOME=/home LANG=C.UTF-8 \
    ${http_proxy:+http_proxy="$http_proxy"} ${https_proxy:+https_proxy="$https_proxy"} \
    unshare --mount bash -c 'cd "$0" && pivot_root . mnt && umount -l /mnt && cd /esplanade && exec bash -c "$1"' \
    "$root" "$1" </dev/null
}

step() {
  local name=$1 started=$SECONDS
  shift
  if "$@" >"$place/log" 2>&1; then
    echo "ok fresh $name: $((SECONDS - started)) s"
  else
    tail -n 60 "$place/log"
    echo "not ok fresh $name: its last lines stand above"
    exit 1
  fi
}

names_the_toolchain() {
  local said
  said=$(inside 'make check' 2>&1) && return 1
  echo "$said"
  grep -q 'rustup' <<<"$said"
}

target_and_count() {
  inside "make $1" || return 1
  case "$1" in
    demo) inside 'test -s demo-out/table.txt && test -s demo-out/capture.pcap && cat demo-out/table.txt' ;;
    *) grep -qE '^[1-9][0-9]* passed, 0 failed$' "$place/log" ;;
  esac
}

mkdir -p "$place"
step "Debian 12" make_base
[ -n "${FRESH_KEEP:-}" ] || step "unpacked with a checkout" unpack
mount_kernel
step "make itself" inside 'apt-get update && apt-get install -y --no-install-recommends make ca-certificates'
[ -n "${FRESH_KEEP:-}" ] || step "without cargo, make names the command that gets it" names_the_toolchain
mount_rust
for target in "${targets[@]}"; do
  step "make $target" target_and_count "$target"
  sed -nE '/^([0-9]+ passed, [0-9]+ failed$|canary:)/p' "$place/log"
done
