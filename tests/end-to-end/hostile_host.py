"""What another program on the same host takes away does not let protected traffic pass in clear."""

import signal
import subprocess
import threading
import time

from fail_closed import MARKER, datagram, in_clear
from network.expect import expect
from network.sites import SERVER, Sites

FLUSHES = 20
TABLE = "inet esplanade"
LISTED = f"nft --stateless --handle list table {TABLE}"


def a_flush_of_nftables_opens_nothing():
    with Sites("hh") as sites:
        streams = Streams(sites)
        streams.expect_in_clear("before")
        left = sites.start("left")
        table = sites.left.sh(LISTED)
        with streams.flowing():
            for _ in range(FLUSHES):
                sites.left.sh("nft add table inet control; nft flush ruleset")
                time.sleep(0.05)
        expect("control" not in sites.left.sh("nft list tables"), "the control failed: the flush removed nothing")
        streams.expect_none_in_clear(f"in {FLUSHES} flushes")
        expect(sites.left.sh(LISTED) == table, "the table is not the one that stood there before")
        left.stop()
        left.ask("down")
        streams.expect_in_clear("after")
        return f"{FLUSHES} flushes, {streams.sent} datagrams sent in and as many pings out, none in clear"


def no_other_program_deletes_the_table_of_a_gateway_that_runs():
    with Sites("hh") as sites:
        left = sites.start("left")
        table = sites.left.sh(LISTED)
        for what in ("delete table inet esplanade", "flush table inet esplanade",
                     "flush chain inet esplanade leaving", "insert rule inet esplanade leaving accept"):
            status, output = sites.left.attempt(f"nft '{what}'")
            expect(status != 0 and "not permitted" in output, f"nft {what}: exit status {status}: {output}")
        expect(sites.left.sh(LISTED) == table, "the table changed")
        left.ask("down")
        expect("esplanade" not in sites.left.sh("nft list tables"), "`down` left the table there")


def a_restart_takes_the_table_over_without_a_gap():
    with Sites("hh") as sites:
        streams = Streams(sites)
        streams.expect_in_clear("before")
        left = sites.start("left")
        with streams.flowing():
            for _ in range(5):
                left.stop(signal.SIGKILL)
                expect("chain leaving" in sites.left.sh(LISTED), "the table went with the gateway that was killed")
                left.start().ready()
                sites.left.sh("nft flush ruleset")
        streams.expect_none_in_clear("in five restarts after kill -9")
        expect("chain leaving" in sites.left.sh(LISTED), "the table of an earlier gateway was not taken over")
        left.stop(signal.SIGKILL)
        left.ask("down")
        expect("esplanade" not in sites.left.sh("nft list tables"), "`down` left the table of a dead gateway there")
        streams.expect_in_clear("after")


class Streams:
    """Datagrams in clear from outside to the client, and pings in clear from the client outwards, as one would see them."""

    def __init__(self, sites):
        self.sites, self.sent = sites, 0
        self.outside = sites.listen(sites.wire, "left")
        self.inside = sites.listen(sites.client, "lan")

    def flowing(self):
        return Flow(self)

    def send(self):
        for family in (4, 6):
            self.outside.inject(datagram(family))
            self.sent += 1

    def expect_in_clear(self, when):
        """The control: without a gateway both directions pass."""
        self.clear()
        with self.flowing():
            time.sleep(0.5)
        into, out = self.seen()
        expect(into and out, f"the control {when} failed: {into} datagrams came in and {out} packets left")

    def expect_none_in_clear(self, when):
        into, out = self.seen()
        expect((into, out) == (0, 0), f"{when} {into} datagrams in clear came in and {out} packets in clear left")

    def clear(self):
        self.outside.clear()
        self.inside.clear()
        self.sent = 0

    def seen(self):
        """How many came in, and how many left."""
        into = sum(MARKER in frame for frame in self.inside.settle())
        # What was put on the wire toward the gateway does not count.
        out = [frame for frame in self.outside.settle() if MARKER not in frame]
        return into, len(in_clear(out))


class Flow:
    """Both directions, for as long as the block lasts."""

    def __init__(self, streams):
        self.streams, self.over = streams, threading.Event()

    def __enter__(self):
        self.streams.clear()
        host = self.streams.sites.client
        self.pings = [host.start(["ping", "-q", "-n", "-i", "0.01", SERVER[family]], stdout=subprocess.DEVNULL)
                      for family in (4, 6)]
        self.thread = threading.Thread(target=self.run)
        self.thread.start()

    def run(self):
        while not self.over.wait(0.005):
            self.streams.send()

    def __exit__(self, *_):
        self.over.set()
        self.thread.join()
        for ping in self.pings:
            ping.kill()
            ping.wait()


CASES = {
    "flushing nftables lets nothing pass in clear": a_flush_of_nftables_opens_nothing,
    "the table of a gateway that runs cannot be deleted": no_other_program_deletes_the_table_of_a_gateway_that_runs,
    "a gateway takes the table of its dead predecessor over": a_restart_takes_the_table_over_without_a_gap,
}
