"""What the options of `esplanade run` promise, and how a service manager sees it."""

import os
import socket
import tempfile
import time

import refusals
from fail_closed import in_clear
from network.expect import expect
from network.gateway import Gateway
from network.sites import Sites, setkey_text
from path_mtu import fetch, serve


def fail_open_takes_the_rules_away():
    with Sites("st") as sites:
        left = sites.start("left", options=("--fail-open",))
        sites.start("right", options=("--fail-open",))
        expect(sites.ping() == 3, "no ping through the tunnel")
        for gateway in sites.gateways.values():
            gateway.stop()
        wire = sites.listen(sites.wire, "left")
        expect(sites.ping() == 3, "the network does not work as if there had been no gateway")
        expect(in_clear(wire.settle()), "the control failed: nothing passed in clear")
        expect("esplanade" not in sites.left.sh("nft list tables"), "the rules stayed")
        expect(not os.path.exists(left.control), "the control socket stayed")


def of_threads(gateway, ask):
    """What `ask` answers for each thread of a gateway, under its name."""
    threads = {}
    for task in os.listdir(f"/proc/{gateway.process.pid}/task"):
        with open(f"/proc/{gateway.process.pid}/task/{task}/comm") as comm:
            threads[comm.read().strip()] = ask(int(task))
    return threads


def threads_stay_on_their_processors():
    cpu = max(os.sched_getaffinity(0))
    with Sites("st") as sites:
        left = sites.start("left", options=("--cpus", str(cpu), "--workers", "1"))
        sites.start("right")
        expect(sites.ping() == 3, "no ping through the tunnel")
        threads = of_threads(left, os.sched_getaffinity)
        for name in ("outbound", "inbound", "worker-0"):
            expect(threads.get(name) == {cpu}, f"{name} may run on {threads.get(name)}: {threads}")


def threads_that_carry_packets_stand_before_others():
    with Sites("st") as sites:
        if sites.left.attempt("chrt -r 1 true")[0] != 0:
            return refusals.CASES["a priority that is not allowed"]()
        left = sites.start("left", options=(*refusals.REALTIME, "--workers", "1"))
        right = sites.start("right")
        expect(sites.ping() == 3, "no ping through the tunnel")
        threads = of_threads(left, os.sched_getscheduler)
        for name in ("outbound", "inbound", "worker-0"):
            expect(threads.get(name) == os.SCHED_RR, f"{name} is scheduled by {threads.get(name)}: {threads}")
        expect(threads["esplanade"] == os.SCHED_OTHER, f"the thread that only answers stands before others, too: {threads}")
        expect("priority realtime" in left.ask("status"), "`status` does not show it")
        threads = of_threads(right, os.sched_getscheduler)
        expect(set(threads.values()) == {os.SCHED_OTHER}, f"without the option: {threads}")


def workers_come_when_asked_for_and_else_when_needed():
    with Sites("st") as sites:
        left = sites.start("left", options=("--workers", "2"))
        right = sites.start("right")
        expect(sites.ping() == 3, "no ping through the tunnel")
        time.sleep(0.3)
        forced, chosen = left.status(), right.status()
        for lane in forced["lanes"]:
            told = (lane["mode"], lane["workers"], lane["why"])
            expect(told == ("workers", 2, "set by option"), f"two workers were asked for: {lane}")
        expect((forced["workers_asked"], forced["workers"]) == ("2", 2), f"{forced['workers_asked']}, {forced['workers']}")
        expect(chosen["workers_asked"] == "auto", f"the default is {chosen['workers_asked']}")
        expect([lane["direction"] for lane in chosen["lanes"]] == ["outbound", "inbound"], f"{chosen['lanes']}")
        for lane in chosen["lanes"]:
            expect(lane["mode"] == "inline" and "keeps up" in lane["why"], f"three pings keep a thread busy: {lane}")
        for gateway, workers in ((left, {"worker-0", "worker-1"}), (right, set())):
            names = set(of_threads(gateway, str))
            expect({name for name in names if name.startswith("worker")} == workers, f"threads are {names}")


def readiness_is_told():
    """systemd's protocol: a datagram to $NOTIFY_SOCKET once traffic can flow, another one at the end."""
    with Sites("st") as sites, tempfile.TemporaryDirectory() as folder:
        manager = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        manager.bind(f"{folder}/notify")
        manager.settimeout(10)
        os.environ["NOTIFY_SOCKET"] = f"{folder}/notify"
        try:
            left = Gateway(sites.left, setkey_text("left"))
        finally:
            del os.environ["NOTIFY_SOCKET"]
        expect(b"READY=1" in manager.recv(4096), "it did not say that it is ready")
        expect(left.attempt("status")[0] == 0, "it said to be ready before it answered")
        left.stop()
        expect(b"STOPPING=1" in manager.recv(4096), "it did not say that it stops")
        manager.close()


def statements_are_obeyed_as_they_come():
    """`setkey -c` obeys each statement once its semicolon has come, not when its input has ended."""
    from network.gateway import program
    import subprocess
    with Sites("st") as sites:
        left = sites.start("left", "spdflush;\n")
        typed = subprocess.Popen([program("setkey"), "-c"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
                                 env={**os.environ, "ESPLANADE_CONTROL": left.control})
        try:
            for line in setkey_text("left", inner=(4,)).splitlines()[:2]:
                # A statement may come in pieces, and a semicolon in a comment or a key ends none.
                for part in (line[:20], line[20:] + " # not yet; not yet\n"):
                    typed.stdin.write(part)
                    typed.stdin.flush()
            deadline = time.monotonic() + 5
            while len(left.status()["associations"]) < 2:
                expect(time.monotonic() < deadline, "what was typed is not applied before the input ends")
                time.sleep(0.05)
            expect(typed.poll() is None, "setkey has ended although its input has not")
            typed.stdin.write("nonsense;\n")
            typed.stdin.close()
            expect(typed.wait(5) == 1, "a mistake at the end leaves exit status 0")
            expect(len(left.status()["associations"]) == 2, "a later mistake undid what was applied before")
        finally:
            typed.kill()


def offloads_that_fail_are_not_used():
    """A host that loses large datagrams on its loopback device stands for a kernel whose segmentation does not work."""
    with Sites("st") as sites:
        narrow = "nft 'add table inet narrow; add chain inet narrow out { type filter hook output priority 0; }; "
        sites.left.sh(narrow + "add rule inet narrow out oifname lo meta length gt 2000 drop'")
        for name in ("left", "right"):
            sites.start(name)
        line = {name: next(line for line in gateway.status()["sockets"] if line.startswith("ESP in UDP over IPv4"))
                for name, gateway in sites.gateways.items()}
        expect("GSO/GRO: receive only (failed verification)" in line["left"], f"the left gateway says: {line['left']}")
        expect("GSO/GRO: send and receive (verified)" in line["right"], f"the right gateway says: {line['right']}")
        warnings = {name: [words for words in gateway.status()["warnings"] if "failed verification" in words]
                    for name, gateway in sites.gateways.items()}
        expect(len(warnings["left"]) == 1 and not warnings["right"], f"they warn: {warnings}")
        expect(line["left"] in sites.gateways["left"].ask("status"), "`status` for people does not show it")
        serve(sites)
        fetch(sites, 4)


CASES = {
    "with --fail-open everything passes in clear after a stop": fail_open_takes_the_rules_away,
    "with --cpus the threads stay on their processors": threads_stay_on_their_processors,
    "with --priority realtime the threads that carry packets stand before others": threads_that_carry_packets_stand_before_others,
    "workers come when they are asked for, and else when they are needed": workers_come_when_asked_for_and_else_when_needed,
    "a service manager is told when traffic can flow, and of the end": readiness_is_told,
    "setkey -c obeys each statement as it comes": statements_are_obeyed_as_they_come,
    "UDP offloads that fail verification are not used, with a warning": offloads_that_fail_are_not_used,
}
