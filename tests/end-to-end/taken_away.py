"""Other programs of the same host take things away: nothing passes in clear meanwhile, and all of it comes back."""

import time

from network.clear import ClearTraffic, also_from_outer_addresses
from network.expect import expect
from network.gateway import GatewayError
from network.timeout import slowed
from network.sites import Sites, setkey_text
from policies import Events

TIMEOUT_SECONDS = slowed(5)
TIMES = 3

EACH_RULE = """for family in 4 6; do
    for rule in $(ip -$family rule | sed -n 's/^\\(10[0-9][0-9][0-9]\\):.*/\\1/p'); do
        ip -$family rule del pref $rule || true; sleep 0.02; done; done"""
TABLE = "ip route flush table 4500; ip -6 route flush table 4500"
DOWN_AND_UP = "ip link set esp0 down; sleep 0.1; ip link set esp0 up"
DOWN = "ip link set esp0 down"
DELETED = "ip link del esp0"
RENAMED = "ip link set esp0 down; ip link set esp0 name other0"
SMALL = "ip link set esp0 mtu 1300"
STRICT = "sysctl -qw net.ipv4.conf.esp0.rp_filter=1"
WITHOUT_IPV6 = "sysctl -qw net.ipv6.conf.esp0.disable_ipv6=1"


class Watched:
    """Two gateways with traffic of every kind around the left one, which is under attack."""

    def __init__(self, sites, more=""):
        self.sites = sites
        self.clear = ClearTraffic(sites)
        self.clear.expect_all_pass()
        left, right = also_from_outer_addresses()
        self.left = sites.start("left", setkey_text("left") + left + more)
        sites.start("right", setkey_text("right") + right)
        self.events = Events(self.left)
        self.goes_again()
        self.clear.passed()

    def goes_again(self):
        """Waits until pings pass; what the kernel knows of a device that is new comes with a delay."""
        deadline = time.monotonic() + TIMEOUT_SECONDS
        while time.monotonic() < deadline:
            if self.sites.ping(4, count=1) == 1 and self.sites.ping(6, count=1) == 1:
                return
        expect(False, f"no ping through the tunnel: {self.left.status()}\n{self.left.words()}")

    def restored(self):
        return self.left.status().get("restorations", {"times": 0, "missing": None})

    def comes_back(self, more_than):
        """Waits until something was put back, and nothing is missing any more."""
        deadline = time.monotonic() + TIMEOUT_SECONDS
        while time.monotonic() < deadline:
            state = self.restored()
            if state["times"] > more_than and not state["missing"]:
                return state
            time.sleep(0.05)
        raise AssertionError(f"not put back: {state}\n{self.left.words()}")

    def holds_against(self, attack, shown):
        """Attacks several times: nothing passes in clear, and what `shown` prints is as before. Returns what events said."""
        state, times = shown(), self.restored()["times"]
        for _ in range(TIMES):
            self.sites.left.sh(attack)
            times = self.comes_back(times)["times"]
            self.goes_again()
        passed = self.clear.passed()
        expect(not any(passed.values()), f"in clear: {passed}")
        text = self.left.ask("status")
        expect("restored" in text, f"the status does not say so:\n{text}")
        after = shown()
        expect(after == state, f"before:\n{state}\nafter:\n{after}")
        said = [event["what"] for event in self.events.all() if event["event"] == "restored"]
        self.clear.stop()
        return said, f"restored {times} times, in clear {sum(passed.values())}"


def comes_back(attack, *words):
    """A test: the attack lets nothing pass, is told, and is undone; several times."""
    def test():
        with Sites("ta") as sites:
            watched = Watched(sites)
            told, summary = watched.holds_against(attack, lambda: sites.left.sh(STATE))
            expect(all(any(word in what for what in told) for word in words), f"events: {told}")
            return summary
    return test


STATE = "ip rule; ip -6 rule; ip route show table 4500; ip -6 route show table 4500"


def too_often():
    """A program that removes them all the time gets one restoration a second, and no packet."""
    with Sites("ta") as sites:
        watched = Watched(sites)
        end = time.monotonic() + 6
        while time.monotonic() < end:
            sites.left.sh(TABLE)
            time.sleep(0.03)
        state = watched.restored()
        # Ten at once, then one a second; each with another where what came back is lost again at once.
        expect(10 <= state["times"] <= 34, f"{state}")
        expect(state["held_back"] and "too often" in watched.left.ask("status"), f"not told: {state}")
        passed = watched.clear.passed()
        expect(not any(passed.values()), f"in clear: {passed}")
        watched.comes_back(0)
        watched.goes_again()
        watched.clear.stop()
        return f"restored {state['times']} times in 6 s"


def our_own_changes():
    """What we change ourselves is news too, and nothing was taken away."""
    with Sites("ta") as sites:
        watched = Watched(sites)
        for number in range(20):
            watched.left.setkey_text(f"spdadd 10.1.0.0/24 10.{number + 50}.0.0/24 any -P out discard;")
        watched.left.setkey_text("spdadd 10.1.0.0/24 10.99.0.0/24 any -P out none;")
        time.sleep(1.5)
        state = watched.restored()
        expect(state["times"] == 0 and not state["missing"], f"{state}")
        # The control: the watch is awake.
        sites.left.sh(TABLE)
        watched.comes_back(0)
        watched.clear.stop()


def others_rules_are_left_alone():
    with Sites("ta") as sites:
        watched = Watched(sites)
        sites.left.sh("""ip rule add pref 9 from 203.0.113.0/24 lookup 77; ip rule add pref 10500 lookup 78
            ip route add 198.51.100.0/24 dev lan table 4500; nft add table inet another""")
        sites.left.sh(TABLE.replace("flush", "flush proto 229"))
        watched.comes_back(0)
        state = sites.left.sh("ip rule; ip route show table 4500; nft list tables")
        for ours in ("203.0.113.0/24", "10500:", "198.51.100.0/24", "another"):
            expect(ours in state, f"{ours} of another program is gone:\n{state}")
        watched.clear.stop()


def a_change_refused_half_way():
    """IPv6 is off on the device, which the host says at the last step of the change."""
    with Sites("ta") as sites:
        watched = Watched(sites)
        left = watched.left
        only = {family: "spdflush;\n" + policies_of(setkey_text("left", inner=(family,))
                                                   + also_from_outer_addresses((family,))[0]) for family in (4, 6)}
        left.setkey_text(only[4])
        sites.left.sh(WITHOUT_IPV6)
        watched.clear.passed()
        refused = 0
        for _ in range(10):
            try:
                left.setkey_text(only[6])
            except GatewayError:
                refused += 1
        expect(refused == 10, f"the control failed: {10 - refused} of 10 texts were taken")
        passed = watched.clear.passed()
        expect(all(count for kind, count in passed.items() if "IPv6" in kind),
               f"the control failed: no policy names IPv6, and it did not pass: {passed}")
        expect(not any(count for kind, count in passed.items() if "IPv4" in kind), f"in clear: {passed}")
        expect(sites.ping() == 3, "the tunnel carries nothing afterwards")
        watched.clear.stop()
        return f"{refused} texts refused, in clear 0"


def policies_of(text):
    return "".join(line + "\n" for line in text.splitlines() if line.startswith("spdadd"))


CASES = {
    "routing rules deleted one by one come back": comes_back(EACH_RULE, "routing rules deleted"),
    "a routing table that was flushed comes back": comes_back(TABLE, "routes of table 4500 deleted"),
    "a device taken down and up leads into the tunnel again": comes_back(DOWN_AND_UP, "device esp0 set down"),
    "a device taken down comes up again": comes_back(DOWN, "device esp0 set down"),
    "a device that was deleted is made again": comes_back(DELETED, "device esp0 deleted"),
    "a device that was renamed gets its name again": comes_back(RENAMED, "device esp0"),
    "a device with another MTU gets its own again": comes_back(SMALL, "device esp0 MTU changed"),
    "a reverse path check made strict is loosened again": comes_back(STRICT, "rp_filter of esp0"),
    "IPv6 switched off on the device comes back": comes_back(WITHOUT_IPV6, "IPv6 of esp0"),
    "what is taken away too often comes back once a second": too_often,
    "our own changes are not taken for another's": our_own_changes,
    "another's rules, routes and tables are left alone": others_rules_are_left_alone,
    "a change refused half-way lets nothing pass": a_change_refused_half_way,
}
