"""What both charons of these tests are asked by: that on a host, and that in a guest. Each opens its own session."""

CHARON = "/usr/lib/ipsec/charon"
# Of a charon whose packets its kernel carries; and with it, what a guest has to be given.
KERNEL_PLUGINS = ("random nonce openssl kdf hmac sha1 sha2 aes gcm curve25519 kernel-netlink socket-default vici pem "
                  "pubkey")
PROGRAMS = [CHARON, *(f"/usr/lib/ipsec/plugins/libstrongswan-{name}.so" for name in KERNEL_PLUGINS.split())]


class CharonCommands:
    def rekey(self, what):
        with self.session() as session:
            session.ask("rekey", **{what: "net"})

    def terminate(self):
        with self.session() as session:
            session.ask("terminate", ike="net", timeout=5000)

    def associations(self):
        """Its IKE SAs that are established, each with its child SAs that are installed."""
        with self.session() as session:
            events = session.stream("list-sas", "list-sa", ike="net")
        ikes = [event[name] for event in events for name in event if isinstance(event[name], dict)]
        return [{**ike, "children": [child for child in ike.get("child-sas", {}).values()
                                     if child["state"] == "INSTALLED"]}
                for ike in ikes if ike["state"] == "ESTABLISHED"]

    def children(self):
        return [child for ike in self.associations() for child in ike["children"]]
