"""The parts of `make deep`, each a function that makes its slices: a name, a shell command, a limit and who judges."""

import os
import re
import subprocess
from dataclasses import dataclass
from typing import Callable

import mutants

TRIPLE = "x86_64-unknown-linux-gnu"
# Stable has the runtime of AddressSanitizer; only the option's name is kept for nightly.
SANITIZED = "RUSTC_BOOTSTRAP=1 RUSTFLAGS=-Zsanitizer=address ASAN_OPTIONS=detect_leaks=1:detect_stack_use_after_return=1"
CRATES = {"ipsec": "fuzz_corpora", "multibuffer": None, "dataplane": None, "gateway": None}

BUILD = "cargo build --quiet --locked --workspace --bins"

# Of the end-to-end tests, those of a host that does not cooperate.
IN_GUESTS = ["hostile_host", "taken_away", "device_filters", "directions", "fail_closed", "restart", "control_folder",
             "keys_in_memory", "marked", "link_local", "reload"]

HOUR = 3600
COUNTS = re.compile(r"^test result: \w+\. (\d+) passed; (\d+) failed")
LINE = re.compile(r"^(ok|not ok) ")
# What a guest prints when it is up, and what is printed where its kernel has no package any more.
RELEASE = re.compile(r"^guest \(\w+\) up after [\d.]+ s: (\S+)")
GONE = re.compile(r"^none of .* is in the package index")


@dataclass
class Plan:
    """What all parts are told."""
    place: str
    seconds: int
    rounds: int

    def target_dir(self):
        asked = subprocess.run(["tests/setup", "--target-dir"], capture_output=True, text=True, check=True)
        return asked.stdout.strip()


@dataclass
class Slice:
    part: str
    name: str
    command: str
    limit: int
    judge: Callable
    missing: str = ""
    # Whether its kernel is what Debian's unstable release has on that day.
    is_unstable: bool = False

    def is_new(self, lines, before):
        """Whether this failure is the kernel's news: its package is gone, or this slice has passed on other releases
        and was never run on this one. `before` are the outcomes of this slice so far."""
        releases = [found[1] for found in map(RELEASE.match, lines) if found]
        gone = any(map(GONE.match, lines))
        known = any(row.get("release") in releases for row in before)
        return self.is_unstable and (gone or bool(releases) and not known and any(row["passed"] for row in before))


def by_status(status, _lines):
    return status == 0, f"exit status {status}"


def by_cargo(status, lines):
    """Sums of `cargo test`: at least one test has to have run."""
    sums = [tuple(map(int, found.groups())) for found in map(COUNTS.match, lines) if found]
    passed, failed = (sum(column) for column in zip(*sums)) if sums else (0, 0)
    return status == 0 and passed > 0 and failed == 0, f"{passed} tests passed, {failed} failed"


def by_lines(status, lines):
    verdicts = [found[1] for found in map(LINE.match, lines) if found]
    wrong = verdicts.count("not ok")
    return status == 0 and bool(verdicts) and not wrong, f"{len(verdicts) - wrong} passed, {wrong} failed"


def asan(plan):
    folder = f"{plan.target_dir()}/asan"
    for crate, corpora in CRATES.items():
        build = f"cargo test --locked --target {TRIPLE} --target-dir {folder} -p {crate} --lib --bins"
        build += f" --test {corpora}" if corpora else ""
        yield Slice("asan", crate, f"export {SANITIZED}; {build} --no-run && tests/runner/isolated {build} --no-fail-fast",
                    HOUR, by_cargo)


def fuzz(plan):
    for file in sorted(os.listdir("fuzz/fuzz_targets")):
        target = file.removesuffix(".rs")
        yield Slice("fuzz", target, f"fuzz/run {plan.seconds} {target}", HOUR + plan.seconds, by_lines)


def mutant_tests(plan):
    for name in mutants.FOLDERS:
        yield Slice("mutants", name, mutants.command(plan.place, name), 12 * HOUR, mutants.judge(plan.place, name))


def every_call(_plan):
    refused = "ESPLANADE_EVERY_CALL=1 tests/runner/isolated tests/end-to-end/run injected_faults"
    for what in ("change", "start", "stop"):
        yield Slice("every-call", what, f"{BUILD} && {refused} '{what} refused'", 2 * HOUR, by_lines)


def kill9(plan):
    yield hostile_host(plan, "kill9", "each-step", "killed")


def kernels(_plan):
    # The oldest and the newest of which Debian has packages; further ones have to be brought.
    for guest in ("uml", "qemu"):
        for suite in ("interop", "scenarios"):
            run = f"tests/venv tests/scapy/requirements.txt >/dev/null && tests/runner/isolated tests/{suite}/run --guest {guest}"
            yield Slice("kernels", f"{guest}-{suite}", f"{BUILD} && {run}", 2 * HOUR, by_lines)
    # A gateway on those of Debian 12 and of its unstable release, in QEMU. Their processor is emulated, so the rate is
    # low.
    for guest in ("debian12", "unstable"):
        fetch = f"{BUILD} && python3 -B tests/hostile-host/inside.py {guest} && tests/runner/isolated"
        hostile = f"{fetch} tests/hostile-host/run --guest {guest} --rounds 1 --rate 300"
        yield Slice("kernels", f"{guest}-all-kinds", hostile, 3 * HOUR, by_lines, is_unstable=guest == "unstable")
        for module in IN_GUESTS:
            run = f"{fetch} tests/end-to-end/run --guest {guest} {module}"
            yield Slice("kernels", f"{guest}-{module}", run, 2 * HOUR, by_lines, is_unstable=guest == "unstable")


def fresh(_plan):
    yield Slice("fresh", "debian-12", "tests/fresh.sh", 3 * HOUR, by_lines,
                "" if os.geteuid() == 0 else "tests/fresh.sh makes a whole system and needs root")


def packages(_plan):
    # Compiled anew in between: the archive of what lies there already would prove little.
    ours = " ".join(f"-p {crate}" for crate in (*CRATES, "lab"))
    twice = (f"packaging/dist && (cd dist-out && sha256sum *.tar.gz >../.cache/deep/sums) && cargo clean --release {ours} && "
             "packaging/dist && cd dist-out && sha256sum -c ../.cache/deep/sums")
    yield Slice("packages", "equal-bytes", twice, 2 * HOUR, by_status)


def hostile(plan):
    yield hostile_host(plan, "hostile", "bars", "--rate 106000 --bars")
    yield hostile_host(plan, "hostile", "all-kinds", "--rate 106000")


def hostile_host(plan, part, name, words):
    run = f"tests/runner/isolated tests/hostile-host/run --rounds {plan.rounds} {words}"
    return Slice(part, name, f"{BUILD} && {run}", 6 * HOUR, by_lines)


def kernel_plane(_plan):
    run = "tests/runner/isolated tests/kernel-plane/run"
    yield Slice("kernel-plane", "cases", f"{BUILD} && {run} --all", 3 * HOUR, by_lines)
    for guest in ("debian12", "unstable"):
        fetch = f"{BUILD} && python3 -B tests/hostile-host/inside.py {guest}"
        yield Slice("kernel-plane", f"{guest}-cases", f"{fetch} && {run} --guest {guest} --all", 3 * HOUR, by_lines,
                    is_unstable=guest == "unstable")
    yield Slice("kernel-plane", "iptfs", f"{BUILD} && {run} --guest iptfs IPTFS", HOUR, by_lines)
    for what in ("killed at writes", "writes of a move"):
        yield Slice("kernel-plane", f"every-{what.replace(' ', '-')}",
                    f"{BUILD} && ESPLANADE_EVERY_CALL=1 {run} '{what}'", 6 * HOUR, by_lines)


def order(plan):
    yield Slice("order", "trials", f"{BUILD} && tests/runner/isolated tests/deep/order --out {plan.place}/order-out",
                HOUR, by_lines)


PARTS = {"asan": asan, "fuzz": fuzz, "mutants": mutant_tests, "every-call": every_call, "kill9": kill9,
         "kernels": kernels, "fresh": fresh, "packages": packages, "hostile": hostile, "order": order,
         "kernel-plane": kernel_plane}
