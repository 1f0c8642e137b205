#!/usr/bin/env python3
"""Runs a program under the system calls that a systemd unit allows.

    tests/network/unit_filter.py UNIT PROGRAM [ARGUMENT...]

The lists behind the names are those of this machine's systemd. Any other call ends the program by SIGSYS, also where
the unit would let it fail instead: a program that goes on without such a call does less than it should.
"""

import ctypes
import os
import re
import struct
import subprocess
import sys

PR_SET_NO_NEW_PRIVS, PR_SET_SECCOMP, SECCOMP_MODE_FILTER = 38, 22, 2
AUDIT_ARCH_X86_64 = 0xC000003E
ALLOW, KILL = 0x7FFF0000, 0x80000000
LOAD, JUMP_IF_EQUAL, RETURN = 0x20, 0x15, 0x06
NUMBER_OFFSET, ARCHITECTURE_OFFSET = 0, 4


def names_of(word):
    """The system calls behind `@group`, which may contain groups, or the one of this name."""
    if not word.startswith("@"):
        return {word}
    asked = ["systemd-analyze", "syscall-filter", word]
    told = subprocess.run(asked, capture_output=True, text=True, check=True).stdout
    inside = [line.strip() for line in told.splitlines()[1:] if line.strip() and not line.strip().startswith("#")]
    return set().union(*map(names_of, inside))


def allowed_by(unit):
    """By the rules of systemd.exec(5): the first line makes it a list of what is allowed."""
    with open(unit) as file:
        lines = re.findall(r"^SystemCallFilter=(.*)", file.read(), re.MULTILINE)
    assert lines and not lines[0].startswith("~"), f"{unit}: no list of what is allowed"
    names = names_of("@default")
    for line in lines:
        of_line = set().union(*map(names_of, line.removeprefix("~").split()))
        names = names - of_line if line.startswith("~") else names | of_line
    return names


def numbers():
    told = subprocess.run(["cc", "-E", "-dM", "-include", "asm/unistd.h", "-x", "c", "/dev/null"], capture_output=True,
                          text=True, check=True).stdout
    return {name: int(number) for name, number in re.findall(r"#define __NR_(\w+) (\d+)", told)}


def instruction(code, value, if_true=0, if_false=0):
    return struct.pack("HBBI", code, if_true, if_false, value)


def confine(names):
    known = numbers()
    code = [instruction(LOAD, ARCHITECTURE_OFFSET), instruction(JUMP_IF_EQUAL, AUDIT_ARCH_X86_64, 1, 0),
            instruction(RETURN, KILL), instruction(LOAD, NUMBER_OFFSET)]
    for number in sorted(known[name] for name in names if name in known):
        code += [instruction(JUMP_IF_EQUAL, number, 0, 1), instruction(RETURN, ALLOW)]
    code.append(instruction(RETURN, KILL))
    buffer = ctypes.create_string_buffer(b"".join(code))
    program = ctypes.create_string_buffer(struct.pack("HxxxxxxQ", len(code), ctypes.addressof(buffer)))
    libc = ctypes.CDLL(None, use_errno=True)
    for arguments in ((PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0),
                      (PR_SET_SECCOMP, SECCOMP_MODE_FILTER, ctypes.c_void_p(ctypes.addressof(program)), 0, 0)):
        if libc.prctl(*arguments) != 0:
            raise OSError(ctypes.get_errno(), "prctl")


if __name__ == "__main__":
    confine(allowed_by(sys.argv[1]))
    os.execvp(sys.argv[2], sys.argv[2:])
