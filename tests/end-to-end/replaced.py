"""Another process takes the place of a gateway: what is on its way waits for it, and nothing passes in clear."""

import os
import socket
import subprocess
import time

from fail_closed import in_clear
from live_change import Stream
from network.expect import expect
from network.gateway import GatewayError
from network.refuser import AND_KILL, Refuser
from network.sample import every
from network.sites import Sites
from network.timeout import slowed
from network.wire import Esp
from privileges_user import own

PACE = 0.005
# What waits in the TUN device's queue is limited; a machine that does nothing else loses none.
MAX_LOSS_SHARE = 0.01
MOMENTS_MS = (0, 5, 10, 20, 30, 50, 70, 100, 150, 200, 300, 500)


def start_as_user(sites, name):
    return own(sites, name).start().ready()


def carried_on(streams, wire, restarts, max_loss_share=MAX_LOSS_SHARE):
    """Nothing passed in clear, by a number that was used before, twice or out of order, and hardly anything was lost."""
    figures = [stream.finish() for stream in streams]
    sent, lost, reordered = (sum(column) for column in zip(*figures))
    repeated = sum(stream.duplicated() for stream in streams)
    frames = wire.settle()
    expect(not in_clear(frames), "inner addresses in clear on the wire")
    packets = [(packet.spi, packet.sequence) for packet in filter(None, map(Esp.find, frames))]
    twice = len(packets) - len(set(packets))
    # Trains are not looked into; what waited leaves in some.
    expect(len(packets) > sent / 5 and twice == 0, f"of {len(packets)} numbers on the wire {twice} came twice")
    told = f"{restarts} restarts, {sent} datagrams, lost {lost}, duplicated {repeated}, reordered {reordered}"
    expect(repeated == reordered == 0 and lost <= sent * max_loss_share, told)
    return told


def by_turns(rounds, start=Sites.start, **shape):
    def test():
        with Sites("rp") as sites:
            wire = sites.listen(sites.wire, "left")
            expect(sites.ping() == 3 and in_clear(wire.settle()),
                   "the control failed: nothing is seen in clear without a gateway")
            left, right = (start(sites, name, **shape) for name in ("left", "right"))
            expect(sites.ping(4) == sites.ping(6) == 3, "no ping through the tunnel")
            wire.clear()
            streams = [Stream(sites, family, back, pace=PACE) for family in (4, 6) for back in (False, True)]
            for _ in range(rounds):
                for gateway in (left, right):
                    gateway.replace()
                    time.sleep(0.3)
            told = carried_on(streams, wire, 2 * rounds)
            for gateway in (left, right):
                expect(gateway.drops("replayed") + gateway.drops("bad-icv") == 0, gateway.ask("drops"))
            return told
    return test


def recorded_is_refused(sites, right, wire, spi):
    """What was recorded before the right gateway is replaced, sent to it again afterwards."""
    expect(sites.ping(count=20) == 20, "no ping through the tunnel")
    recorded = [packet for packet in filter(None, map(Esp.find, wire.settle())) if packet.spi == spi]
    right.replace()
    toward = sites.listen(sites.wire, "right")
    for packet in recorded:
        toward.inject(packet.again())
    toward.settle()
    refused = right.drops("replayed") + right.drops("too-old")
    expect(refused >= len(recorded) > 0, f"{len(recorded)} recorded packets were sent again, {refused} refused")
    expect(sites.ping(count=5) == 5, "the tunnel does not go on")


def recorded_packets_stay_refused():
    with Sites("rp") as sites:
        wire = sites.listen(sites.wire, "left")
        _, right = sites.start_both(inner=(4,))
        recorded_is_refused(sites, right, wire, 0x1001)


def what_cannot_start_stops_nothing():
    with Sites("rp") as sites:
        left, _ = sites.start_both(inner=(4,))
        with open(left.setkey) as file:
            sound = file.read()

        def refused(content, *words, more=(), wrap=()):
            with open(left.setkey, "w") as file:
                file.write(content)
            status = left.launch("restart", more, wrap).wait(20)
            told = left.words()
            expect(status == 1 and all(word in told for word in words), f"exit status {status}: {told}")
            expect(left.process.poll() is None and sites.ping() == 3, "the gateway that ran does not go on")

        refused(sound + "nonsense;\n", "gateway.setkey:")
        refused(sound + sound.splitlines()[0] + "\n", "was not replaced", "there is already")
        refused(sound, "was not replaced", "esp7", more=("--tun", "esp7"))
        refused(sound, "was not replaced", "77 and", more=("--table", "77"))
        refused(sound, "was not replaced", more=("--mark", "0x100"))
        left.options = ("--no-state",)
        refused(sound, "was not replaced", "--no-state")
        left.options = ()
        with open(f"{left.folder}/new.setkey", "w") as file:
            file.write(sound.replace("0x100", "0x300").replace("5a5a", "5b5b"))
        left.ask("rekey", file.name)
        refused(sound, "was not replaced", "rekey --abort")
        left.stop()
        status = left.launch("restart").wait(20)
        expect(status == 1 and "esplanade run" in left.words(), f"no gateway is there: {left.words()}")


def one_without_kept_numbers_does_not_give_way():
    """Its successor would count from 1, behind the window of the peer."""
    with Sites("rp") as sites:
        left = sites.start("left", inner=(4,), options=("--no-state",))
        sites.start("right", inner=(4,))
        left.options = ()
        status = left.launch("restart").wait(20)
        told = left.words()
        expect(status == 1 and all(word in told for word in ("was not replaced", "numbers are not stored")),
               f"exit status {status}: {told}")
        expect(left.process.poll() is None and sites.ping() == 3, "the gateway that ran does not go on")


def a_service_is_left_to_its_manager():
    with Sites("rp") as sites:
        left = sites.start("left", inner=(4,), wrap=("env", "NOTIFY_SOCKET=/dev/null"))
        left.wrap = ()
        status = left.launch("restart").wait(20)
        expect(status == 1 and "systemctl restart" in left.words(), left.words())
        expect(left.process.poll() is None and left.status()["associations"], "it does not go on")


def goes_on(gateway):
    """Whether a gateway goes on after what has asked it to leave was killed: what was asked may still be on its way."""
    for _ in range(2):
        if gateway.process.poll() is not None or gateway.attempt("status")[0] != 0:
            gateway.process.wait(slowed(10))
            return False
        time.sleep(0.1)
    return gateway.process.poll() is None


def killed_at_any_moment():
    """The old one carries, or the new one does, or neither: never does anything pass in clear."""
    with Sites("rp") as sites:
        wire = sites.listen(sites.wire, "left")
        left, _ = sites.start_both()
        streams = [Stream(sites, family, back, pace=PACE) for family in (4, 6) for back in (False, True)]
        outcomes = {"old": 0, "new": 0}
        for moment in MOMENTS_MS:
            new = left.launch("restart")
            time.sleep(moment / 1000)
            new.kill()
            new.wait()
            survives = goes_on(left)
            outcomes["old" if survives else "new"] += 1
            if survives:
                expect(left.status()["pid"] == left.process.pid, "another gateway is running")
            else:
                left.start().ready()
        for stream in streams:
            stream.finish()
        expect(not in_clear(wire.settle()), "inner addresses in clear on the wire")
        expect(sites.ping(4) == sites.ping(6) == 3, "the tunnel does not go on")
        return f"killed {outcomes['old']} times before the old one had given way, {outcomes['new']} times after"


def streams_of(sites):
    return [Stream(sites, family, back, pace=PACE) for family in (4, 6) for back in (False, True)]


def nothing_was_in_clear(sites, wire, streams):
    for stream in streams:
        stream.finish()
    expect(not in_clear(wire.settle()), "inner addresses in clear on the wire")
    expect(sites.ping(4) == sites.ping(6) == 3, "the tunnel does not go on")


def old_one_killed_at_any_moment():
    """The new process carries then, or ends with an error and leaves all closed."""
    with Sites("rp") as sites:
        wire = sites.listen(sites.wire, "left")
        left, _ = sites.start_both()
        streams, outcomes = streams_of(sites), {"carried": 0, "ended": 0}
        for moment in MOMENTS_MS:
            old, new = left.process, left.launch("restart")
            time.sleep(moment / 1000)
            old.kill()
            old.wait()
            left.process = new
            try:
                left.ready()
                outcomes["carried"] += 1
            except GatewayError:
                expect(new.wait(10) == 1, f"exit status {new.returncode}: {left.words()}")
                outcomes["ended"] += 1
                left.start().ready()
        nothing_was_in_clear(sites, wire, streams)
        return f"the new process carried {outcomes['carried']} times and ended {outcomes['ended']} times"


def old_one_killed_once_it_has_passed_its_sockets():
    """At the first byte of its answer, and after all of it: what was passed is closed again by a process that starts nothing."""
    with Sites("rp") as sites:
        wire = sites.listen(sites.wire, "left")
        left, _ = sites.start_both()
        streams, passed = streams_of(sites), 0
        for whole in (False, True, False, True):
            with socket.socket(socket.AF_UNIX) as control:
                control.connect(left.control)
                control.sendall(b'"leave"\n')
                part, files, _, _ = socket.recv_fds(control, 1, 128)
                while whole and (more := control.recv(4096)):
                    part += more
                left.process.kill()
                left.process.wait()
                passed += len(files)
                for file in files:
                    os.close(file)
            left.start().ready()
        expect(passed >= 8, f"{passed} descriptors were passed: {part}")
        nothing_was_in_clear(sites, wire, streams)
        return f"{passed} descriptors were passed"


def new_one_killed_at_writes():
    """Instead of a write to the kernel's configuration: each of them by ESPLANADE_EVERY_CALL=1."""
    refuser = Refuser()
    try:
        with Sites("rp") as sites:
            wire = sites.listen(sites.wire, "left")
            left, _ = sites.start_both()
            streams = streams_of(sites)
            left.wrap = refuser.wrap
            refuser.refuse(0)
            left.replace()
            calls = refuser.counted()
            expect(calls > 0, "the control failed: no write was seen")
            chosen = range(1, calls + 1) if os.environ.get("ESPLANADE_EVERY_CALL") == "1" else every(calls, 6)
            unreached = 0
            for call in chosen:
                refuser.refuse(call, AND_KILL)
                new = left.launch("restart")
                try:
                    new.wait(slowed(10))
                except subprocess.TimeoutExpired:
                    # A restart makes a few writes more or less, and this one made fewer: it carries now.
                    left.process, unreached = new, unreached + 1
                    continue
                expect(refuser.refused() == 1, f"write {call} of {calls} was not reached: {left.words()}")
                if not goes_on(left):
                    refuser.refuse(0)
                    left.start().ready()
            nothing_was_in_clear(sites, wire, streams)
            expect(unreached <= len(chosen) // 4, f"{unreached} of {len(chosen)} writes were not reached")
            return f"killed at {len(chosen) - unreached} of {calls} writes"
    finally:
        refuser.close()


CASES = {
    "both sides by turns, and nothing is lost to speak of": by_turns(10),
    "both sides by turns over IPv6": by_turns(2, outer=6),
    "both sides by turns, native by raw sockets": by_turns(2, options=("--native-io", "raw"), udp=False),
    "both sides by turns, as a user of their own": by_turns(2, start_as_user),
    "recorded packets stay refused": recorded_packets_stay_refused,
    "what cannot start stops nothing": what_cannot_start_stops_nothing,
    "one without kept numbers does not give way": one_without_kept_numbers_does_not_give_way,
    "a service is left to its manager": a_service_is_left_to_its_manager,
    "the new one killed at any moment, nothing passes in clear": killed_at_any_moment,
    "the new one killed at writes, nothing passes in clear": new_one_killed_at_writes,
    "the old one killed at any moment, nothing passes in clear": old_one_killed_at_any_moment,
    "the old one killed once it has passed its sockets": old_one_killed_once_it_has_passed_its_sockets,
}
