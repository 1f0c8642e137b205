"""Our gateway on a host, driven only by what its users have: the command line and JSON."""

import atexit
import contextlib
import functools
import glob
import json
import os
import shutil
import signal
import subprocess
import tempfile
import time

from network.timeout import slowed

READY_LIMIT = slowed(20)
# How long all threads of a process may take to stop.
HOLD_LIMIT_SECONDS = slowed(5)


class GatewayError(Exception):
    """The gateway did not do what it was asked; the text holds its own words."""


@functools.cache
def program(name="esplanade"):
    """The program under test: $ESPLANADE_BIN if set, otherwise what cargo built for tests."""
    folder = os.environ.get("ESPLANADE_BIN") or os.path.join(target_dir(), "debug")
    path = os.path.join(folder, name)
    if not os.path.exists(path):
        raise GatewayError(f"{path} is not there; run: cargo build --workspace --bins")
    return path


@functools.cache
def keeps_numbers():
    """Whether the program under test knows --state: builds of before did not."""
    told = subprocess.run([program(), "run", "--help"], capture_output=True, text=True, check=True).stdout
    return "--no-state" in told


def keeping(folder, options=()):
    """Options that have a gateway keep its numbers there, unless others say otherwise: never where another test's are."""
    chosen = any(option in ("--state", "--no-state") for option in options)
    return [] if chosen or not keeps_numbers() else ["--state", f"{folder}/kept"]


def target_dir():
    here = os.path.dirname(os.path.abspath(__file__))
    return subprocess.run([os.path.join(here, "..", "setup"), "--target-dir"], capture_output=True, text=True,
                          check=True).stdout.strip()


class Gateway:
    """`esplanade run` on a host, from start to stop."""

    def __init__(self, host, setkey, options=(), wrap=(), folder=None, started=True, keep=True):
        self.host, self.wrap, self.keep = host, wrap, keep
        self.folder = folder or tempfile.mkdtemp(prefix="esplanade-test-")
        # Not sooner: a test may still read the log of a gateway that it has let go.
        atexit.register(shutil.rmtree, self.folder, ignore_errors=True)
        self.control = f"{self.folder}/control.sock"
        self.setkey = f"{self.folder}/gateway.setkey"
        self.log = f"{self.folder}/log"
        with open(self.setkey, "w") as file:
            os.fchmod(file.fileno(), 0o600)
            file.write(setkey)
        self.options = options
        if started:
            self.start()

    def start(self):
        """Starts it, for the first time or again."""
        self.process = self.launch("run")
        return self

    def launch(self, command, more=(), wrap=()):
        """A process that runs it, or takes the place of the one that does."""
        argv = [*wrap, *self.wrap, program(), command, "--setkey", self.setkey, "--control", self.control,
                *self.options, *more, *(keeping(self.folder, self.options) if self.keep else [])]
        with open(self.log, "w" if command == "run" else "a") as log:
            return self.host.start(argv, stdout=log, stderr=subprocess.STDOUT)

    def replace(self):
        """Has another process take its place, and waits until that one answers."""
        old, self.process = self.process, self.launch("restart")
        deadline = time.monotonic() + READY_LIMIT
        while old.poll() is None:
            if self.process.poll() is not None or time.monotonic() > deadline:
                raise GatewayError(f"the gateway was not replaced:\n{self.words()}")
            time.sleep(0.01)
        return self.ready()

    def again(self, how=signal.SIGTERM, setkey=None):
        """Ends it and starts it again, with another file if one is given."""
        self.stop(how)
        if setkey is not None:
            with open(self.setkey, "w") as file:
                file.write(setkey)
        return self.start().ready()

    def ready(self):
        """Waits until the control socket answers."""
        deadline = time.monotonic() + READY_LIMIT
        while time.monotonic() < deadline:
            if self.process.poll() is not None:
                raise GatewayError(f"exit status {self.process.returncode} at start:\n{self.words()}")
            if os.path.exists(self.control) and self.attempt("status", "--json")[0] == 0:
                return self
            time.sleep(0.05)
        raise GatewayError(f"the control socket did not answer within {READY_LIMIT} s:\n{self.words()}")

    def attempt(self, *arguments):
        """Exit status and output of `esplanade ARGUMENTS --control ...` on the same host."""
        argv = self.host.argv([program(), *arguments, "--control", self.control])
        done = subprocess.run(argv, capture_output=True, text=True, timeout=slowed(30), stdin=subprocess.DEVNULL)
        return done.returncode, done.stdout + done.stderr

    def ask(self, *arguments):
        status, output = self.attempt(*arguments)
        if status != 0:
            raise GatewayError(f"esplanade {' '.join(arguments)}: exit status {status}:\n{output}")
        return output

    def setkey_text(self, text):
        """Changes associations and policies of the running gateway."""
        # The socket is a file, so it can be reached from every network namespace.
        done = subprocess.run([program("setkey"), "-c"], input=text, capture_output=True, text=True,
                              timeout=slowed(60), env={**os.environ, "ESPLANADE_CONTROL": self.control})
        if done.returncode != 0:
            raise GatewayError(f"setkey -c: exit status {done.returncode}:\n{done.stdout}{done.stderr}")
        return done.stdout

    def status(self):
        return json.loads(self.ask("status", "--json"))

    def drops(self, reason):
        """How many packets were dropped for a reason, by its name."""
        return json.loads(self.ask("drops", "--json"))["reasons"].get(reason, 0)

    @contextlib.contextmanager
    def held(self):
        """Holds it still. The signal returns before the threads on other processors have stopped."""
        self.process.send_signal(signal.SIGSTOP)
        try:
            deadline = time.monotonic() + HOLD_LIMIT_SECONDS
            while states := threads_that_run(self.process.pid):
                if time.monotonic() > deadline:
                    raise GatewayError(f"threads go on after SIGSTOP: {states}")
                time.sleep(0.001)
            yield
        finally:
            self.process.send_signal(signal.SIGCONT)

    def stop(self, how=signal.SIGTERM):
        """Ends the gateway and gives its exit status."""
        if self.process.poll() is None:
            # `ip netns exec` becomes the program itself, so the signal reaches it.
            self.process.send_signal(how)
        try:
            return self.process.wait(slowed(10))
        except subprocess.TimeoutExpired:
            self.process.kill()
            raise GatewayError(f"still running {slowed(10):.0f} s after signal {how}:\n{self.words()}") from None

    def words(self):
        with open(self.log) as file:
            return file.read()[-4000:]


def threads_that_run(pid):
    """The states of those threads of a process that are not stopped."""
    states = []
    for path in glob.glob(f"/proc/{pid}/task/*/stat"):
        with contextlib.suppress(FileNotFoundError, ProcessLookupError), open(path) as file:
            # Behind the name, which may hold anything.
            states.append(file.read().rpartition(")")[2].split()[0])
    return [state for state in states if state != "T"]
