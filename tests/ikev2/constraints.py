#!/usr/bin/env python3
"""OpenSSL's verdict on each chain of name_constraints.json, which has to be the one that the file demands.

    tests/ikev2/run         runs it too: `ok NAME` or `not ok NAME: why` for each chain

Where OpenSSL judges otherwise, the chain has the reason; one with a reason where it no longer does fails too. The crate
is asked as well.
"""

import base64
import json
import subprocess
import sys
import tempfile
from pathlib import Path

VECTORS = Path(__file__).resolve().parents[2] / "ikev2/tests/vectors/name_constraints.json"


def pem(path, certificates):
    """Writes certificates to a file, which OpenSSL takes in PEM alone where there are several."""
    text = "".join("-----BEGIN CERTIFICATE-----\n" + base64.encodebytes(bytes.fromhex(one)).decode()
                   + "-----END CERTIFICATE-----\n" for one in certificates)
    path.write_text(text)
    return path


def openssl(folder, case, now):
    """Whether OpenSSL takes the chain, and what it says."""
    peer, *others = case["chain"]
    command = ["openssl", "verify", "-attime", str(now), "-no-CApath", "-no-CAstore",
               "-CAfile", pem(folder / "root", [case["root"]])]
    if others:
        command += ["-untrusted", pem(folder / "others", others)]
    ended = subprocess.run([*command, pem(folder / "peer", [peer])], capture_output=True, text=True)
    return ended.returncode == 0, " ".join((ended.stdout + ended.stderr).split())


def main():
    vectors = json.loads(VECTORS.read_text(encoding="utf-8"))
    crate = subprocess.Popen([sys.argv[1]], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    failed = 0
    with tempfile.TemporaryDirectory() as folder:
        for case in vectors["cases"]:
            question = {"ask": "chain", "chain": case["chain"], "root": case["root"], "now": vectors["now"],
                        "lists": [], "lists_required": False}
            print(json.dumps(question), file=crate.stdin, flush=True)
            answer = json.loads(crate.stdout.readline())
            taken, said = openssl(Path(folder), case, vectors["now"])
            wanted = case["verdict"] == "good"
            wrong = []
            if answer["taken"] != wanted:
                wrong.append(f"the crate said: taken {answer['taken']} {answer['why']}")
            if taken != (wanted != bool(case["openssl"])):
                wrong.append(f"OpenSSL said: {said}")
            name = f"name constraints: {case['title']}"
            print(f"not ok {name}: {'; '.join(wrong)}" if wrong else f"ok {name}")
            failed += bool(wrong)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
