"""Keeps requests of key exchange of one kind from leaving a host."""

import contextlib

# RFC 7296 3.1: the exchange types.
IKE_SA_INIT, IKE_AUTH, CREATE_CHILD_SA = 34, 35, 36
# A request has the flag of the initiator (0x08) and not that of a response (0x20); behind the non-ESP marker on port
# 4500 both stand four bytes later.
TABLE = """nft -f - <<'END'
table inet {table} {{
  chain out {{
    type filter hook output priority 0;
    {which} udp dport 500 @th,208,8 {exchange} @th,216,8 & 0x28 == 0x08 drop
    {which} udp dport 4500 @th,64,32 0 @th,240,8 {exchange} @th,248,8 & 0x28 == 0x08 drop
  }}
}}
END"""


@contextlib.contextmanager
def held_back(host, exchange, which="", table="held_back"):
    host.sh(TABLE.format(exchange=exchange, which=which, table=table))
    try:
        yield
    finally:
        host.sh(f"nft delete table inet {table}")
