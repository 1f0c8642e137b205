"""Rust source without what is no code: comments, texts and items behind `#[cfg(test)]` become spaces, lines stay where they are."""

import os
import re
import subprocess

SKIPPED = re.compile(
    r'//[^\n]*|/\*.*?\*/|b?r(?P<hashes>#*)".*?"(?P=hashes)|b?"(?:\\.|[^"\\])*"|b?\'(?:\\.[^\']*|[^\'\\])\'', re.DOTALL)
# Text that others wrote, kept byte for byte.
FOREIGN = re.compile(r"(^|/)(vectors|corpora|corpus)/")
TEST_FILE = re.compile(r"(^|/)(tests|examples|benches)/|(^|/)tests\.rs$")


def at_root():
    os.chdir(os.path.join(os.path.dirname(os.path.abspath(__file__)), "../.."))


def tracked(foreign=False):
    """Every file of the repository, in order; text that others wrote is left out unless `foreign`."""
    listed = subprocess.run(["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
                            capture_output=True, check=True, text=True).stdout.split("\0")
    return sorted({path for path in listed if os.path.isfile(path) and (foreign or not FOREIGN.search(path))})


def read(path):
    with open(path, encoding="utf-8") as file:
        return file.read()


def code(text):
    return SKIPPED.sub(lambda found: spaces(found[0]), text)


def spaces(text):
    return re.sub(r"[^\n]", " ", text)


def end_of_item(text, start):
    """The position behind the item at START: behind its closing brace, or its semicolon."""
    depth = 0
    for position in range(start, len(text)):
        letter = text[position]
        depth += (letter in "{([") - (letter in "})]")
        if depth == 0 and letter in "};":
            return position + 1
    return len(text)


def without_tests(text):
    while (start := text.find("#[cfg(test)]")) >= 0:
        end = end_of_item(text, start + len("#[cfg(test)]"))
        text = text[:start] + spaces(text[start:end]) + text[end:]
    return text
