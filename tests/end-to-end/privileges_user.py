"""A gateway that root starts becomes a user of its own: what that user can do, what it cannot, and what goes on."""

import os
import re
import signal
import time

from marked import raw_packets
from network.expect import expect, expect_refusal
from network.gateway import Gateway, program
from network.inside import Inside
from network.sites import OUTER, Sites, setkey_text
from privileges import EACCES, HERE, OPENAT, READ, THREE_CAPABILITIES, facts

UID, GID = 4711, 4712
USER = ("--user", f"{UID}:{GID}")
ESP = 50
# Where udev runs, every user may open the device; machines of tests have it for root alone.
OPEN_TUN = ("bash", "-c", """device=$(mktemp -u /run/tun.XXXXXX) && mknod -m 666 "$device" c 10 200 &&
    mount --bind "$device" /dev/net/tun && rm "$device" && exec "$@" """, "sh")

# As systemd starts a unit with User= and AmbientCapabilities=.
KEPT = "+net_admin,+net_raw,+net_bind_service,+dac_read_search"
AS_A_UNIT = ("setpriv", f"--reuid={UID}", f"--regid={GID}", "--clear-groups", f"--inh-caps={KEPT}",
             f"--ambient-caps={KEPT}", f"--bounding-set=-all,{KEPT}")


def own(sites, name="left", options=USER, setkey=None, wrap=OPEN_TUN, **shape):
    """A gateway that has a folder for its socket alone, as packages give it, and is not started yet."""
    gateway = Gateway(getattr(sites, name), setkey or setkey_text(name, **shape), options, wrap, started=False)
    gateway.control = f"{gateway.folder}/run/control.sock"
    sites.gateways[name] = gateway
    return gateway


def every_thread_is_the_user(shape):
    def test():
        with Sites("pu") as sites:
            sites.start("right", **shape)
            left = own(sites, options=[*USER, "--workers", "2"], **shape).start().ready()
            for family in (4, 6):
                expect(sites.ping(family) == 3, f"no ping through the tunnel, IPv{family}")
            tasks = f"/proc/{left.process.pid}/task"
            threads = [facts(f"{tasks}/{task}/status") for task in os.listdir(tasks)]
            for thread in threads:
                name = thread["Name"]
                for wanted, value in (("Uid", [UID] * 4), ("Gid", [GID] * 4), ("Groups", [])):
                    found = [int(word) for word in thread[wanted].split()]
                    expect(found == value, f"{name}: {wanted} is {found}")
                for held in ("CapEff", "CapPrm"):
                    expect(int(thread[held], 16) == THREE_CAPABILITIES, f"{name}: {held} is {thread[held]}")
                for none in ("CapInh", "CapAmb"):
                    expect(int(thread[none], 16) == 0, f"{name}: {none} is {thread[none]}")
                expect(thread["NoNewPrivs"] == "1" and thread["Seccomp"] == "2", f"{name}: {thread}")
            status = left.status()
            expect(status["user"] == str(UID), f"status tells user {status['user']}")
            expect(sorted(status["capabilities"]) == ["CAP_NET_ADMIN", "CAP_NET_BIND_SERVICE", "CAP_NET_RAW"],
                   f"status tells {status['capabilities']}")
            expect(f"user {UID} · CAP_NET_" in left.ask("status"), "the table does not tell the user")
            expect("warning" not in left.words(), f"a start draws a warning:\n{left.words()}")
            expect(not status["warnings"], f"{status['warnings']}")
            expect(len(threads) > 3, f"only {len(threads)} threads")
            return f"{len(threads)} threads"
    return test


def what_root_sends_is_not_taken_for_ours():
    """The drop rules know our sockets by the user; a gateway that stays root is the control."""
    near, far = OUTER[4]
    everything = (f"add {near} {far} esp 0x2001 -m transport -r 64 -E aes-gcm-16 0x{'5a' * 20};"
                  f"spdadd {near} {far} any -P out ipsec esp/transport//require;")
    with Sites("pu") as sites:
        wire = sites.listen(sites.wire, "left")
        as_root = own(sites, options=("--user", "root"), setkey=everything).start().ready()
        expect(raw_packets(sites, wire, (), near, far, ESP),
               "the control failed: root's ESP is held where root is the user")
        as_root.ask("down")
        left = own(sites, setkey=everything).start().ready()
        rules = sites.left.sh("nft list table inet esplanade")
        expect(set(re.findall(r"skuid (\w+)", rules)) == {str(UID)}, rules)
        passed = raw_packets(sites, wire, (), near, far, ESP)
        expect(not passed, f"{passed} packets of root's with our mark were taken for ours")
        own_user = ("setpriv", f"--reuid={UID}", "--clear-groups", "--inh-caps=+net_admin,+net_raw",
                    "--ambient-caps=+net_admin,+net_raw")
        expect(raw_packets(sites, wire, own_user, near, far, ESP), "not even our own user's passes")
        left.ask("down")


def what_root_owns_stays_closed():
    """In the folder of the setkey file, where Landlock lets files be read, file modes hold all the same."""
    with Sites("pu") as sites:
        sites.start("right")
        left = own(sites)
        os.chmod(left.folder, 0o711)
        for name, mode in (("open", 0o644), ("closed", 0o600)):
            with open(f"{left.folder}/{name}", "w") as file:
                os.fchmod(file.fileno(), mode)
        left.start().ready()
        expect(sites.ping() == 3, "no ping through the tunnel")
        with Inside(left.process.pid) as gateway:
            expect(gateway.call(OPENAT, HERE, f"{left.folder}/open", READ, 0) >= 0, "the control failed")
            for closed in (f"{left.folder}/closed", left.setkey):
                found = gateway.call(OPENAT, HERE, closed, READ, 0)
                expect(found == EACCES, f"{closed} of root was opened, or refused otherwise: {found}")
        expect(sites.ping() == 3, "the gateway does not go on")


def it_is_changed_stopped_killed_and_started_again():
    with Sites("pu") as sites:
        sites.start("right")
        left = own(sites).start().ready()
        expect(sites.ping() == 3, "no ping through the tunnel")
        told = left.ask("reload", left.setkey)
        expect("0 associations added" in told, f"reload of a file that root alone may read: {told}")
        reload_by_signal(left)
        sites.left.sh("ip rule del table 4500 && ip -6 rule del table 4500 && ip link del esp0")
        time.sleep(1)
        expect(sites.ping() == 3 and sites.ping(6) == 3, "what was taken away is not back")
        for how in (signal.SIGTERM, signal.SIGKILL):
            left.stop(how)
            left.start().ready()
            expect(sites.ping() == 3 and sites.ping(6) == 3, f"no ping after a start behind {how.name}")
        for place in (f"{left.folder}/run", left.control, f"{left.control}.lock", f"{left.control}.state",
                      f"{left.folder}/kept", f"{left.folder}/kept/numbers.state", f"{left.folder}/kept/numbers.lock"):
            found = os.lstat(place)
            expect((found.st_uid, found.st_mode & 0o077) == (UID, 0), f"{place}: {found}")
        left.stop(signal.SIGKILL)
        environment = ["env", f"ESPLANADE_USER={UID}:{GID}"]
        status, told = left.attempt("down")
        expect_refusal(status, told, f"belongs to user {UID}", "ESPLANADE_USER")
        left.host.sh(" ".join([*environment, program(), "down", "--control", left.control]))
        expect("esplanade" not in sites.left.sh("nft list tables; ip rule"), "`down` by root has left something")
        left.start().ready()
        left.ask("down")


def reload_by_signal(left):
    """A file that only root may read cannot be read again by the gateway, which says what helps; and that helps."""
    def heard(words, since):
        deadline = time.monotonic() + 10
        while words not in left.words()[since:]:
            expect(time.monotonic() < deadline, f"no `{words}` in the log:\n{left.words()[since:]}")
            time.sleep(0.05)

    since = len(left.words())
    left.process.send_signal(signal.SIGHUP)
    heard(f"chgrp {GID} {left.setkey}", since)
    expect("nothing was changed" in left.words()[since:], left.words()[since:])
    os.chown(left.folder, 0, GID)
    os.chmod(left.folder, 0o750)
    os.chown(left.setkey, 0, GID)
    os.chmod(left.setkey, 0o640)
    since = len(left.words())
    left.process.send_signal(signal.SIGHUP)
    heard("0 associations added", since)


def what_root_left_is_taken_over():
    with Sites("pu") as sites:
        sites.start("right")
        left = own(sites, options=()).start().ready()
        note = "esplanade: running as user root (0)"
        expect(left.words().count(note) == 1 and "sysusers.d" in left.words(), left.words())
        expect(sites.ping() == 3, "no ping through the tunnel")
        sent = left.status()["associations"]
        for options, uid in ((USER, UID), (("--user", "root"), 0), (USER, UID)):
            left.stop(signal.SIGKILL)
            left.options = options
            # Who goes back to root says whose the folder was.
            left.wrap = ("env", f"ESPLANADE_USER={UID}:{GID}", *OPEN_TUN) if uid == 0 else OPEN_TUN
            left.start().ready()
            expect(sites.ping() == 3, f"no ping as user {uid}: numbers do not go on from {sent}")
            for place in (f"{left.folder}/run", f"{left.folder}/kept/numbers.state", f"{left.control}.lock"):
                expect(os.stat(place).st_uid == uid, f"{place} belongs to {os.stat(place).st_uid}, not {uid}")


def no_link_is_followed():
    """What stands where our files belong, but is a link to another's, is not handed over."""
    with Sites("pu") as sites:
        left = own(sites)
        victim = f"{left.folder}/victim"
        with open(victim, "w") as file:
            os.fchmod(file.fileno(), 0o600)
        os.mkdir(f"{left.folder}/run", 0o700)
        for make in (os.link, os.symlink):
            make(victim, f"{left.control}.state")
            left.start()
            expect(left.process.wait(20) != 0, "a link was taken for a file of ours")
            expect(f"{left.control}.state" in left.words(), left.words())
            expect(os.stat(victim).st_uid == 0, "another's file was handed over by a link to it")
            os.remove(f"{left.control}.state")


def refused(words, options=USER, wrap=OPEN_TUN, control=None, before=None):
    def test():
        with Sites("pu") as sites:
            left = own(sites, options=options, wrap=wrap)
            left.control = f"{left.folder}/{control}" if control else left.control
            if before:
                before(left)
            left.start()
            status = left.process.wait(20)
            expect_refusal(status, left.words(), *words)
            expect("esp0" not in sites.left.sh("ip -br link; ip rule"), "something is left")
    return test


def as_the_user_of_a_package():
    """A host that has the user `esplanade`: nothing need be said."""
    with Sites("pu") as sites:
        sites.start("right")
        left = own(sites, options=())
        users = f"{left.folder}/users"
        with open("/etc/passwd") as known, open(users, "w") as file:
            file.write(known.read() + f"esplanade:x:{UID}:{GID}::/:/usr/sbin/nologin\n")
        with_users = ("bash", "-c", f'mount --bind {users} /etc/passwd && exec "$@"', "sh")
        left.wrap = (*OPEN_TUN, *with_users)
        left.start().ready()
        expect(sites.ping() == 3, "no ping through the tunnel")
        expect(left.status()["user"] == f"esplanade ({UID})", left.status()["user"])
        left.stop(signal.SIGKILL)
        left.host.sh(" ".join([f"mount --bind {users} /etc/passwd &&", program(), "down", "--control", left.control]))
        expect("esplanade" not in sites.left.sh("nft list tables; ip rule"), "`down` has left something")


def a_unit_that_is_the_user_from_the_start():
    """As systemd starts one with User= and AmbientCapabilities=: the file is read, then that capability is given up,
    too.

    Root has armed before, as the unit for that does, and systemd has given the folders to the user of the unit that
    starts.
    """
    with Sites("pu") as sites:
        sites.start("right")
        left = own(sites, options=())
        left.wrap = (*OPEN_TUN, *AS_A_UNIT)
        for place in ("run", "kept"):
            os.mkdir(f"{left.folder}/{place}", 0o700)
        left.host.sh(f"{program()} arm {left.setkey} --control {left.control} --state {left.folder}/kept")
        expect(sites.ping() == 0, "armed, and a ping in clear was answered")
        left.host.sh(f"chown -R {UID}:{GID} {left.folder}/run {left.folder}/kept")
        os.chmod(left.folder, 0o711)
        left.start()
        deadline = time.monotonic() + 20
        while "ready:" not in left.words() and time.monotonic() < deadline:
            time.sleep(0.05)
        expect(sites.ping() == 3, f"no ping through the tunnel:\n{left.words()}")
        held = facts(f"/proc/{left.process.pid}/status")
        expect(int(held["CapPrm"], 16) == THREE_CAPABILITIES, held["CapPrm"])
        expect(held["Uid"].split() == [str(UID)] * 4, held["Uid"])
        command = " ".join([program(), "status", "--json", "--control", left.control])
        expect_refusal(*left.attempt("status"), f"ESPLANADE_USER={UID}")
        expect(f'"user":"{UID}"' in left.host.sh(f"ESPLANADE_USER={UID}:{GID} {command}").replace(" ", ""),
               "root is not told")


def put_something_there(left):
    os.mkdir(f"{left.folder}/run", 0o700)
    with open(f"{left.folder}/run/important", "w"):
        pass


CASES = {
    "every thread is the user, with three capabilities, UDP": every_thread_is_the_user({}),
    "every thread is the user, with three capabilities, native over IPv6":
        every_thread_is_the_user({"udp": False, "outer": 6}),
    "what root sends with our mark is not taken for ours": what_root_sends_is_not_taken_for_ours,
    "what root owns stays closed": what_root_owns_stays_closed,
    "it is changed, stopped, killed and started again": it_is_changed_stopped_killed_and_started_again,
    "what root left is taken over, and back": what_root_left_is_taken_over,
    "no link is followed": no_link_is_followed,
    "as the user of a package": as_the_user_of_a_package,
    "a unit that is the user from the start": a_unit_that_is_the_user_from_the_start,
    "an unknown name is refused": refused(("no user `nobody-here`", "systemd-sysusers"),
                                                  ("--user", "nobody-here")),
    "a number without a group is refused": refused((f"use {UID}:GROUP",), ("--user", str(UID))),
    "a TUN device that is closed to it is refused": refused(("chmod 666 /dev/net/tun",), wrap=(
        "bash", "-c", 'device=$(mktemp -u /run/tun.XXXXXX) && mknod -m 600 "$device" c 10 200 && '
        'mount --bind "$device" /dev/net/tun && rm "$device" && exec "$@"', "sh")),
    "a folder with other things is not handed over": refused(("important", "--user root"), before=put_something_there),
    "who is not root cannot become another user": refused(
        ("only root may change",), wrap=(*OPEN_TUN, "setpriv", "--bounding-set=-setuid", "--inh-caps=-setuid")),
}
