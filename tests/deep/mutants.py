"""Mutants: the program changed in one place at a time, to see whether a test notices.

cargo-mutants makes them and runs the tests of their crate. What was caught once is not tried again; survivors that no
test could notice are in survivors.toml, each with its reason.
"""

import os
import re
import tomllib

HERE = os.path.dirname(os.path.abspath(__file__))

VERSION = "27.1.0"
TOOL = ".cache/deep/tools"
# A mutant that makes an endless loop is ended after so many seconds; building one takes longer on a busy machine.
TEST_LIMIT, BUILD_LIMIT = 180, 600

# Each slice: the files that are changed, and which tests of the crate judge them.
FOLDERS = {
    "sa": ("ipsec/src/sa.rs", "ipsec/src/sa/**", "--lib --tests"),
    "esp": ("ipsec/src/esp.rs", "ipsec/src/esp/**", "--lib --tests"),
    "ah": ("ipsec/src/ah.rs", "ipsec/src/ah/**", "--lib --tests"),
    "database": ("ipsec/src/database.rs", "ipsec/src/database/**", "--lib --tests"),
    "inbound": ("dataplane/src/inbound.rs", "dataplane/src/inbound/**", "--lib --test pipeline"),
    "outbound": ("dataplane/src/outbound.rs", "dataplane/src/outbound/**", "--lib --test pipeline"),
}
# Not the program's own conduct.
PASSED_OVER = ("**/fuzz_body.rs", "**/tests.rs", "**/tests/**", "**/model.rs")

PLACE = re.compile(r":\d+:\d+")


def command(place, name):
    """Installs the tool where it is missing and tries the mutants of one slice."""
    *files, tests = FOLDERS[name]
    chosen = " ".join([f"--file '{file}'" for file in files] + [f"--exclude '{file}'" for file in PASSED_OVER])
    output = f"{place}/mutants/{name}"
    return (f"{install()} && mkdir -p {output} && "
            f"env -u CARGO_TARGET_DIR {TOOL}/bin/cargo-mutants mutants --iterate --jobs 1 --colors never --no-times "
            f"--timeout {TEST_LIMIT} --build-timeout {BUILD_LIMIT} {chosen} --output {output} -- --locked {tests}")


def install():
    return (f"{{ grep -qs '^\"cargo-mutants {VERSION} ' {TOOL}/.crates.toml || "
            f"{{ echo 'Installing cargo-mutants {VERSION} into {TOOL}' && "
            f"cargo install --quiet --locked --root {TOOL} --version {VERSION} cargo-mutants; }}; }}")


def judge(place, name):
    """Reads what cargo-mutants has left; its exit status says that mutants survived, and not which may."""
    def by_lists(status, _lines):
        folder = f"{place}/mutants/{name}/mutants.out"
        kinds = ("caught", "previously_caught", "missed", "timeout")
        caught, before, missed, late = (listed(folder, kind) for kind in kinds)
        explained = survivors()
        new = [mutant for mutant in missed if PLACE.sub("", mutant) not in explained]
        tried = len(set(caught + before + late))
        said = f"{tried} caught, {len(missed) - len(new)} explained, {len(new)} survived"
        if new:
            said += ": " + "; ".join(new[:20])
        return status in (0, 2, 3) and tried > 0 and not new, said
    return by_lists


def listed(folder, kind):
    path = f"{folder}/{kind}.txt"
    if not os.path.exists(path):
        return []
    with open(path) as file:
        return file.read().splitlines()


def survivors():
    """Mutants that no test can notice, by their names without line and column."""
    with open(os.path.join(HERE, "survivors.toml"), "rb") as file:
        return {row["mutant"]: row["why"] for row in tomllib.load(file).get("survivor", [])}
