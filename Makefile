# Everything works from a bare checkout on Debian 12: each target first installs what it misses
# (as root) or prints the one command that does. CONTRIBUTING.md says what each tier proves.

# A toolchain that rustup put there a minute ago is not yet on the path of this shell.
export PATH := $(PATH):$(HOME)/.cargo/bin

.PHONY: help demo build check test interop iptfs lint fresh fuzz deep dist clean

help:
	@echo 'make demo     build, measure a tunnel between two gateways, show the table (demo-out/)'
	@echo 'make check    formatting, clippy, unit tests: the quick half'
	@echo 'make test     every test: cargo, scapy, tshark, two gateways end to end'
	@echo 'make interop  the Linux kernel in a guest as our peer, with its matrix'
	@echo 'make iptfs    AGGFRAG and the kernel plane on a Linux with IPTFS, built from its source (needs the Internet once)'
	@echo 'make lint     formatting, clippy, licences, scripts, documentation, words, paths, structure'
	@echo 'make fresh    check, test and demo inside a bare Debian 12 (slow; needs root)'
	@echo 'make dist     the archive of a release, with its software bill of materials (dist-out/)'
	@echo 'make deep     what takes hours, and goes on where it was interrupted: sanitizer, fuzzing, mutants, faults'
	@echo 'make fuzz     the fuzz targets for a minute each, with AddressSanitizer'

demo: build
	@exec "$$(tests/setup --target-dir)/release/esplanade" lab run demo

build:
	@tests/setup demo
	cargo build --release --locked --workspace --bins

check test interop lint:
	@tests/setup $@
	@exec tests/run $@

iptfs:
	@tests/setup interop
	cargo build --locked -p gateway --bins
	@tests/iptfs/run
	@exec tests/runner/isolated tests/kernel-plane/run --guest iptfs its refusal

fresh:
	@tests/setup fresh
	@exec tests/fresh.sh

fuzz:
	@tests/setup check
	@exec fuzz/run

deep:
	@tests/setup deep
	@exec tests/deep/run --resume

dist:
	@tests/setup demo
	@exec packaging/dist

clean:
	cargo clean
	rm -rf .cache demo-out
