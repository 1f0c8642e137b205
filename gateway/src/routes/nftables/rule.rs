//! A rule: a list of terms, which are conditions or actions, and a verdict if all conditions hold.
//!
//! Conditions refer to fields of the packet or of the kernel's metadata. A condition on a field that a packet does not
//! have (a port, an ICMP type) does not hold.

use crate::routes::plan::Family;
use crate::routes::range::Range;
use ipsec::policy::Prefix;
use std::collections::BTreeSet;
use std::net::IpAddr;

/// One rule.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Rule {
    /// In order.
    pub terms: Vec<Term>,
    /// What happens if all conditions hold; without a verdict the next rule follows.
    pub verdict: Option<Verdict>,
}

/// What happens to a packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Verdict {
    /// The packet passes this chain.
    Accept,
    /// The packet is dropped.
    Drop,
}

/// A condition or an action.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Term {
    /// The field has one of these values; or none of them.
    Any {
        /// Which field.
        field: Field,
        /// In the byte order in which the kernel compares them.
        values: BTreeSet<Vec<u8>>,
        /// None of them.
        negated: bool,
    },
    /// The field has one of the values of the set of this name.
    In(Field, &'static str),
    /// The field under the mask has this value; or another.
    Bits {
        /// Which field.
        field: Field,
        /// As long as the field.
        mask: Vec<u8>,
        /// As long as the field.
        value: Vec<u8>,
        /// Another.
        negated: bool,
    },
    /// The address lies in the prefix.
    Within(Field, Prefix),
    /// The address lies in one of these ranges, which are sorted and not adjacent; or in none of them.
    Ranges {
        /// Which address.
        field: Field,
        /// At least one.
        ranges: Vec<Range>,
        /// In none of them.
        negated: bool,
    },
    /// Adds the packet to the counter of this name.
    Count(&'static str),
    /// Sets these bits of the packet's mark.
    AddMark(u32),
    /// Lowers the MSS option to what fits the packet's route.
    ClampSegments,
}

/// A field of the packet, or of the kernel's metadata about it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Field {
    /// The device by which the packet arrived.
    InDevice,
    /// The device by which the packet leaves.
    OutDevice,
    /// The packet's mark.
    Mark,
    /// The user who opened the sending socket; packets without a socket have none.
    SocketUser,
    /// 1 if the kernel's own IPsec has opened the packet, otherwise 0.
    Opened,
    /// 1 if the kernel's own IPsec is about to seal the packet, otherwise 0.
    Sealed,
    /// IPv4 or IPv6.
    Family,
    /// The protocol after the IP headers.
    Protocol,
    /// The packet type: whether the frame was addressed to this host.
    FrameKind,
    /// The EtherType of the frame.
    EtherType,
    /// The type of the destination address: local, broadcast, multicast or other.
    DestinationKind,
    /// IP source.
    Source(Family),
    /// IP destination.
    Destination(Family),
    /// IP source and destination, concatenated.
    Ends(Family),
    /// IPv4: flags and offset of a fragment.
    Fragment4,
    /// IPv4: the protocol.
    Protocol4,
    /// IPv4: time to live.
    TimeToLive,
    /// IPv6: the next header field of the fixed header.
    NextHeader,
    /// IPv6: hop limit.
    HopLimit,
    /// IPv6: the next header field of a fragment header.
    FragmentNextHeader,
    /// IPv6: the offset in a fragment header.
    FragmentOffset,
    /// Source port.
    SourcePort,
    /// Destination port.
    DestinationPort,
    /// Source port and destination port, concatenated.
    Ports,
    /// Type of ICMP.
    IcmpType,
    /// Code of ICMP.
    IcmpCode,
    /// The flags of TCP.
    TcpFlags,
    /// Bytes after the IP headers: offset and length.
    Behind(u32, u32),
}

/// RTN_LOCAL, RTN_BROADCAST and RTN_MULTICAST: packets that are delivered to this host.
const TAKEN_HERE: [u32; 3] = [2, 3, 5];

impl Rule {
    /// The field has one of these values.
    pub(crate) fn any<V: AsRef<[u8]>>(
        self,
        field: Field,
        values: impl IntoIterator<Item = V>,
        negated: bool,
    ) -> Self {
        let values = values.into_iter().map(|value| value.as_ref().to_vec());
        self.and(Term::Any {
            field,
            values: values.collect(),
            negated,
        })
    }

    /// The field has this value.
    pub(crate) fn is(self, field: Field, value: impl AsRef<[u8]>) -> Self {
        self.any(field, [value], false)
    }

    /// The device is one of these, or none of them.
    pub(crate) fn device<'a>(
        self,
        field: Field,
        names: impl IntoIterator<Item = &'a str>,
        negated: bool,
    ) -> Self {
        self.any(field, names.into_iter().map(device), negated)
    }

    /// Bits of the field under a mask.
    pub(crate) fn bits(self, field: Field, mask: &[u8], value: &[u8], negated: bool) -> Self {
        self.and(Term::Bits {
            field,
            mask: mask.to_vec(),
            value: value.to_vec(),
            negated,
        })
    }

    /// The packet's mark has all these bits.
    pub(crate) fn marked(self, mark: u32) -> Self {
        let mark = mark.to_ne_bytes();
        self.bits(Field::Mark, &mark, &mark, false)
    }

    /// The kernel's own IPsec has opened the packet ([`Field::Opened`]), or is about to seal it ([`Field::Sealed`]); or
    /// it has not.
    pub(crate) fn ipsec(self, field: Field, exists: bool) -> Self {
        self.is(field, [exists.into()])
    }

    /// The packet is of this family.
    pub(crate) fn family(self, family: Family) -> Self {
        self.is(Field::Family, [family_number(family)])
    }

    /// The packet carries one of these protocols.
    pub(crate) fn protocols(self, numbers: &[u8]) -> Self {
        self.any(Field::Protocol, numbers.iter().map(|n| [*n]), false)
    }

    /// The address lies in the prefix.
    pub(crate) fn within(self, field: Field, prefix: Prefix) -> Self {
        match prefix.len {
            0 => self,
            _ => self.and(Term::Within(field, prefix)),
        }
    }

    /// The address lies in one of these ranges, which are not all addresses.
    pub(crate) fn inside(self, field: Field, ranges: Vec<Range>) -> Self {
        self.and(Term::Ranges {
            field,
            ranges,
            negated: false,
        })
    }

    /// The address lies in none of these ranges.
    pub(crate) fn outside(self, field: Field, ranges: Vec<Range>) -> Self {
        self.and(Term::Ranges {
            field,
            ranges,
            negated: true,
        })
    }

    /// The packet is a fragment other than the first, so it carries no ports.
    pub(crate) fn later_fragment(self, family: Family) -> Self {
        let (field, mask) = match family {
            Family::V4 => (Field::Fragment4, 0x1fff_u16),
            Family::V6 => (Field::FragmentOffset, 0xfff8),
        };
        self.bits(field, &mask.to_be_bytes(), &[0, 0], true)
    }

    /// The packet's destination is this host, a broadcast or a multicast address; or it is not.
    pub(crate) fn taken_here(self, negated: bool) -> Self {
        let kinds = TAKEN_HERE.map(u32::to_ne_bytes);
        self.any(Field::DestinationKind, kinds, negated)
    }

    /// Appends a term.
    pub(crate) fn and(mut self, term: Term) -> Self {
        self.terms.push(term);
        self
    }

    /// Ends the rule with [`Verdict::Accept`].
    pub(crate) fn accept(self) -> Self {
        self.end(Verdict::Accept)
    }

    /// Ends the rule with [`Verdict::Drop`].
    pub(crate) fn drop(self) -> Self {
        self.end(Verdict::Drop)
    }

    fn end(mut self, verdict: Verdict) -> Self {
        self.verdict = Some(verdict);
        self
    }
}

/// The name of a device as the kernel compares it.
fn device(name: &str) -> [u8; 16] {
    let mut bytes = [0; 16];
    for (place, byte) in bytes.iter_mut().zip(name.bytes()) {
        *place = byte;
    }
    bytes
}

/// NFPROTO_IPV4 and NFPROTO_IPV6.
fn family_number(family: Family) -> u8 {
    match family {
        Family::V4 => 2,
        Family::V6 => 10,
    }
}

/// The value of [`Field::Ends`].
pub(crate) fn joined((source, destination): (IpAddr, IpAddr)) -> Vec<u8> {
    [octets(source), octets(destination)].concat()
}

/// The bytes of an address.
pub(super) fn octets(address: IpAddr) -> Vec<u8> {
    match address {
        IpAddr::V4(address) => address.octets().to_vec(),
        IpAddr::V6(address) => address.octets().to_vec(),
    }
}
