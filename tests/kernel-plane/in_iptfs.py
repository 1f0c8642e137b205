"""The cases in a guest whose kernel has IPTFS (tests/iptfs/kernel.py). It sees this machine's own files, so it needs
nothing but its words; as its first process this file runs them."""

import ctypes
import json
import os
import subprocess
import sys
import tempfile
import threading
import time

HERE = os.path.dirname(os.path.abspath(__file__))
GIVEN = "/mnt/words"
SAID, STATUS = "/mnt/said", "/mnt/status"
LIMIT_SECONDS, LOOK_INTERVAL_SECONDS = 1800, 0.5
# How many times longer tests wait there.
SLOWNESS = "3"
MEMORY = "768M"


def follow(words):
    """Prints the lines of the cases as they are said, and gives their exit status."""
    import uml
    from network.gateway import program
    with tempfile.TemporaryDirectory(prefix="esplanade-kernel-plane-") as folder:
        with open(f"{folder}/words", "w") as file:
            json.dump({"words": words, "programs": os.path.dirname(program())}, file)
        guest = threading.Thread(target=uml.boot, args=(folder, os.path.abspath(__file__), LIMIT_SECONDS, MEMORY))
        guest.start()
        seen = 0
        while guest.is_alive() or seen < size(f"{folder}/said"):
            time.sleep(LOOK_INTERVAL_SECONDS)
            seen += show(f"{folder}/said", seen)
        if not os.path.exists(f"{folder}/status"):
            with open(f"{folder}/console", errors="replace") as file:
                print(file.read()[-3000:], flush=True)
            return 2
        with open(f"{folder}/status") as file:
            return int(file.read())


def size(path):
    return os.path.getsize(path) if os.path.exists(path) else 0


def show(path, start):
    """Prints the whole lines behind `start`, and gives how many bytes they are."""
    if not os.path.exists(path):
        return 0
    with open(path, "rb") as file:
        file.seek(start)
        lines, _, _ = file.read().rpartition(b"\n")
    if not lines:
        return 0
    print(lines.decode(errors="replace"), flush=True)
    return len(lines) + 1


def main():
    with open(GIVEN) as file:
        given = json.load(file)
    environment = {**os.environ, "ESPLANADE_BIN": given["programs"], "ESPLANADE_SLOWNESS": SLOWNESS,
                   "ESPLANADE_KERNEL": "iptfs"}
    with open(SAID, "wb") as said:
        done = subprocess.run([sys.executable, "-B", "-u", f"{HERE}/in_guest.py", *given["words"]], env=environment,
                              stdin=subprocess.DEVNULL, stdout=said, stderr=subprocess.STDOUT)
    with open(STATUS, "w") as file:
        file.write(str(done.returncode))


if __name__ == "__main__":
    try:
        main()
    finally:
        os.sync()
        # LINUX_REBOOT_CMD_POWER_OFF
        ctypes.CDLL(None).reboot(0x4321FEDC)
