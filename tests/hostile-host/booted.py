"""In a guest that has just booted: what systemd would do, in the order of our units. Prints what passed in clear, by
place.

    booted.py RATE [arm]
"""

import json
import os
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [HERE, os.path.dirname(HERE)]

import packets  # noqa: E402
from bench import LOCAL_SHARE, Sender, compiled_flood  # noqa: E402
from network.clear import also_from_outer_addresses  # noqa: E402
from network.gateway import Gateway  # noqa: E402
from network.namespace import Network, run  # noqa: E402
from network.sites import MACS, setkey_text  # noqa: E402
from taps import Receivers, Tap, from_the_stranger  # noqa: E402

# Seconds between the network and the gateway, and after it is ready.
LATE, AFTER = 2, 2
NETWORK = f"""sysctl -qw net.ipv4.ip_forward=1 net.ipv6.conf.all.forwarding=1
    for each in wan lan; do sysctl -qw net.ipv4.conf.$each.rp_filter=0 net.ipv6.conf.$each.accept_dad=0; done
    sysctl -qw net.ipv4.conf.all.rp_filter=0
    ip link set lan up; ip link set wan address {MACS['left']}; ip link set wan up
    ip addr add 10.1.0.1/24 dev lan; ip addr add fd00:1::1/64 dev lan nodad
    ip addr add 192.0.2.1/24 dev wan; ip addr add 2001:db8::1/64 dev wan nodad
    for peer in 192.0.2.2 2001:db8::2; do ip neigh replace $peer lladdr {MACS['right']} dev wan nud permanent; done
    ip route add 10.2.0.0/24 via 192.0.2.2; ip -6 route add fd00:2::/64 via 2001:db8::2"""
CLIENT = """sysctl -qw net.ipv6.conf.lan.accept_dad=0; ip link set lan up
    ip addr add 10.1.0.2/24 dev lan; ip addr add fd00:1::2/64 dev lan nodad"""


def main(rate, arm=None):
    folder = tempfile.mkdtemp(prefix="esplanade-test-")
    flood = compiled_flood(folder)
    text = setkey_text("left") + also_from_outer_addresses()[0]
    with Network("boot") as network:
        client, left = network.host("client"), network.host("left")
        network.link(client, "lan", left, "lan")
        run(["ip", "link", "set", "eth0", "netns", left.name, "name", "wan"])
        client.sh(CLIENT)
        places = {"reached the client": Tap(client, "lan", from_the_stranger()),
                  "delivered to sockets": Receivers(left)}
        router = left.sh("cat /sys/class/net/lan/address").strip()
        senders = [Sender(flood, client, packets.leaving_forwarded(router), (1 - LOCAL_SHARE) * float(rate))]
        gateway = Gateway(left, text, folder=folder, started=False)
        if arm:
            gateway.ask("arm", gateway.setkey, "--state", f"{folder}/state")
        left.sh(NETWORK)
        senders.append(Sender(flood, left, packets.leaving_local(), LOCAL_SHARE * float(rate)))
        time.sleep(LATE)
        gateway.start().ready()
        time.sleep(AFTER)
        print(json.dumps({place: tap.take()[0] for place, tap in places.items()}))
        for sender in senders:
            sender.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
