"""A gateway that reads its file again: what has changed changes, everything else goes on."""

import os
import signal
import time

from live_change import Stream
from network.expect import expect, expect_refusal
from network.timeout import slowed
from network.sites import AES_GCM, Sites, setkey_text

ANOTHER = f"add 192.0.2.1 192.0.2.9 esp-udp 0x2001 -m tunnel -r 1024 {AES_GCM.format(3)};\n" \
          "spdadd 10.1.0.0/24 10.9.0.0/24 any -P out ipsec esp/tunnel/192.0.2.1-192.0.2.9/require;\n"
TIMEOUT_SECONDS = slowed(10)


def write(gateway, text):
    """As an editor does: a new file in the place of the old one."""
    with open(gateway.setkey + ".new", "w") as file:
        os.fchmod(file.fileno(), 0o600)
        file.write(text)
    os.rename(gateway.setkey + ".new", gateway.setkey)


def by_command(gateway, text):
    write(gateway, text)
    return gateway.ask("reload")


def by_another_file(gateway, text):
    path = f"{gateway.folder}/other.setkey"
    with open(path, "w") as file:
        file.write(text)
    return gateway.ask("reload", path)


def by_signal(gateway, text, until="\n"):
    """What the gateway says of it, once that has these words: it may come in pieces."""
    write(gateway, text)
    told = len(gateway.words().split("SIGHUP"))
    gateway.process.send_signal(signal.SIGHUP)
    deadline = time.monotonic() + TIMEOUT_SECONDS
    while True:
        parts = gateway.words().split("SIGHUP")
        if len(parts) > told and until in parts[-1]:
            return parts[-1]
        expect(time.monotonic() < deadline, f"SIGHUP brought no {until!r}: {gateway.words()}")
        expect(gateway.process.poll() is None, f"SIGHUP has ended the gateway: {gateway.words()}")
        time.sleep(0.02)


def difference_alone(how):
    def test():
        with Sites("rl") as sites:
            left, _ = sites.start_both(inner=(4,))
            stream = Stream(sites)
            own = "flush; spdflush;\n" + setkey_text("left", inner=(4,))
            for text, told in ((own, "0 associations added, 0 changed, 0 deleted; 0 policies changed"),
                               (own + ANOTHER, "1 associations added, 0 changed, 0 deleted; 1 policies changed"),
                               (own.replace("-r 1024", "-r 2048") + ANOTHER, "0 associations added, 2 changed, 0 deleted"),
                               (own, "0 associations added, 2 changed, 1 deleted; 1 policies changed")):
                output = how(left, text)
                expect(told in output, f"not told `{told}`: {output}")
                time.sleep(0.2)
            associations = {sa["spi"] for sa in left.status()["associations"]}
            expect(associations == {"0x00001001", "0x00001002"}, f"associations: {associations}")
            _, lost, reordered = stream.finish()
            expect((lost, reordered) == (0, 0), f"lost {lost} reordered {reordered} of {stream.sent}")
            (out,) = [sa for sa in left.status()["associations"] if sa["spi"] == "0x00001001"]
            expect(out["sequence"] == out["packets"] >= stream.sent, f"numbers or counters began again: {out}")
    return test


def mistakes_change_nothing():
    with Sites("rl") as sites:
        left, _ = sites.start_both(inner=(4,))
        before = left.setkey_text("dump; spddump;").count("spi=")
        for text in (setkey_text("left", inner=(4,)) + "nonsense;\n", ANOTHER + ANOTHER):
            write(left, text)
            status, output = left.attempt("reload")
            expect_refusal(status, output, left.setkey + ":")
            output = by_signal(left, text, until=left.setkey + ":")
            expect("nothing was changed" in output and left.setkey + ":" in output, output)
        os.unlink(left.setkey)
        left.process.send_signal(signal.SIGHUP)
        status, output = left.attempt("reload")
        expect_refusal(status, output, "cannot read", left.setkey)
        expect(left.setkey_text("dump; spddump;").count("spi=") == before, "something has changed")
        expect(sites.ping() == 3, "the tunnel does not go on")


def rekeyed_by_hand():
    """Receive by the new keys, send by them, forget the old ones: three files, and none of them loses a packet."""
    with Sites("rl") as sites:
        gateways = dict(zip(("left", "right"), sites.start_both(inner=(4,))))
        stream = Stream(sites)
        old = {name: setkey_text(name, inner=(4,)).splitlines() for name in gateways}
        for turn in range(3):
            pair = [f"add {ends} esp-udp {0x3000 + 16 * turn + way:#x} -m tunnel -r 1024 {AES_GCM.format(16 * turn + way + 9)};"
                    for way, ends in enumerate(("192.0.2.1 192.0.2.2", "192.0.2.2 192.0.2.1"))]
            for step in range(3):
                for name, gateway in gateways.items():
                    inbound = pair[1] if name == "left" else pair[0]
                    lines = [old[name][:2] + [inbound], old[name][:2] + pair, pair][step] + old[name][2:]
                    by_command(gateway, "\n".join(lines) + "\n")
            for name in gateways:
                old[name] = pair + old[name][2:]
        _, lost, reordered = stream.finish()
        expect((lost, reordered) == (0, 0), f"lost {lost} reordered {reordered} of {stream.sent}")
        spis = {sa["spi"] for sa in gateways["left"].status()["associations"]}
        expect(spis == {"0x00003020", "0x00003021"}, f"associations: {spis}")
        return f"three times, {stream.sent} datagrams"


CASES = {
    "only the difference changes, by command": difference_alone(by_command),
    "only the difference changes, by another file": difference_alone(by_another_file),
    "only the difference changes, by SIGHUP": difference_alone(by_signal),
    "a mistake changes nothing": mistakes_change_nothing,
    "keys are renewed by hand without loss": rekeyed_by_hand,
}
