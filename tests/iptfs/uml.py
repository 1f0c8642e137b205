"""Linux as a program (see kernel.py), booted with this machine's own files: a Python program is its first process."""

import os
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.append(HERE)

from kernel import kernel  # noqa: E402


def command(folder, guest, memory="256M"):
    """What boots it. `folder` is /mnt there, and has the console's text in the file `console`."""
    return [kernel(), f"mem={memory}", "ncpus=1", "seccomp=on", "root=/dev/root", "rootfstype=hostfs", "rootflags=/",
            "ro", f"init={HERE}/init", f"FOLDER={folder}", f"PYTHON={sys.executable}", f"GUEST={guest}",
            f"uml_dir={folder}/", "umid=guest", "con=null", "con0=null,fd:1", "ssl=null", "quiet", "panic=-1"]


def boot(folder, guest, limit, memory="256M"):
    """Runs until the guest ends by itself, and gives the console's text."""
    with open(f"{folder}/console", "wb") as log:
        subprocess.run(command(folder, guest, memory), stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT,
                       timeout=limit)
    with open(f"{folder}/console", errors="replace") as log:
        return log.read()
