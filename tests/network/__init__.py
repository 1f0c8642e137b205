"""Hosts in network namespaces, the wire between them, and the gateway on one of them."""
