//! Upper-layer protocols by name. The usual names of `/etc/protocols` and those that the language adds to them; a
//! table of its own, so that a text means the same on every machine.

/// Names and numbers. The first name of a number is the one that is printed.
const PROTOCOLS: [(&str, u8); 34] = [
    ("icmp", 1),
    ("igmp", 2),
    ("ggp", 3),
    ("ipencap", 4),
    ("ip4", 4),
    ("ipv4", 4),
    ("tcp", 6),
    ("egp", 8),
    ("igp", 9),
    ("udp", 17),
    ("dccp", 33),
    ("ipv6", 41),
    ("ip6", 41),
    ("ipv6-route", 43),
    ("ipv6-frag", 44),
    ("rsvp", 46),
    ("gre", 47),
    ("esp", 50),
    ("ah", 51),
    ("ipv6-icmp", 58),
    ("icmp6", 58),
    ("icmpv6", 58),
    ("ipv6-nonxt", 59),
    ("ipv6-opts", 60),
    ("eigrp", 88),
    ("ospf", 89),
    ("ipip", 94),
    ("pim", 103),
    ("ipcomp", 108),
    ("vrrp", 112),
    ("l2tp", 115),
    ("sctp", 132),
    ("mobility-header", 135),
    ("udplite", 136),
];

/// ICMP for IPv4.
pub(super) const ICMP: u8 = 1;
/// Generic routing encapsulation.
pub(super) const GRE: u8 = 47;
/// ICMP for IPv6.
pub(super) const ICMP6: u8 = 58;
/// The mobility header.
pub(super) const MOBILITY: u8 = 135;

/// The number of the protocol `name`.
pub(super) fn number(name: &str) -> Option<u8> {
    let entry = PROTOCOLS.iter().find(|&&(known, _)| known == name);
    entry.map(|&(_, number)| number)
}

/// The usual name of `number`.
pub(super) fn name(number: u8) -> Option<&'static str> {
    let entry = PROTOCOLS.iter().find(|&&(_, known)| known == number);
    entry.map(|&(name, _)| name)
}

/// Every name, to compare a misspelt one with.
pub(super) fn names() -> impl Iterator<Item = &'static str> {
    PROTOCOLS.iter().map(|&(name, _)| name)
}
