//! Every reason why a packet goes no further: the error, the counter's name and its documentation in one place.

/// Why a packet was dropped.
///
/// RFC 4301 4.4.2.1 and RFC 4303 require an audit event for most of these. A gateway counts them by reason and security
/// association and does not log each one.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, PartialOrd, Ord)]
#[repr(u8)]
pub enum Dropped {
    /// Shorter than the length in its headers, or its headers contradict each other.
    Malformed,
    /// IPv6 extension headers that loop, overrun the packet or are too many.
    BadExtensionChain,
    /// An IP version, protocol or link type that cannot be carried here.
    Unsupported,
    /// No security association has this destination, protocol and SPI (RFC 4303 3.4.2).
    NoSa,
    /// The packet came by UDP but the association does not use encapsulation, or the reverse.
    WrongEncapsulation,
    /// Inside the window but seen before (RFC 4303 3.4.3).
    Replayed,
    /// Left of the replay window (RFC 4303 3.4.3).
    TooOld,
    /// A sequence number of zero, which no sender uses (RFC 4303 2.2).
    ZeroSequence,
    /// The integrity check value is wrong (RFC 4303 3.4.4).
    BadIcv,
    /// Authentic, but its padding or next header cannot be right.
    BadPadding,
    /// Authentic, but what is inside is not the IP packet that it claims to be.
    BadInner,
    /// Authentic, but its compressed payload is not what DEFLATE makes (RFC 2394).
    BadCompression,
    /// Authentic, but its compressed payload would become longer than the largest IP packet.
    ExpandsTooFar,
    /// A dummy packet: next header 59 (RFC 4303 2.6). Discarded by design.
    Dummy,
    /// Policy demands protection but the packet came in clear, or through another association (RFC 4301 5.2).
    PolicyMismatch,
    /// Transport mode: authentic, but the packet came from another address than the association's, which no key covers.
    SourceNotOfAssociation,
    /// No policy matches this traffic (RFC 4301 5.1, 5.2).
    NoPolicy,
    /// The matching policy has the action discard.
    PolicyDiscard,
    /// Policy demands protection and no association exists yet (RFC 4301 5.1).
    Acquire,
    /// A hard lifetime of the association is over (RFC 4301 4.4.2.1).
    LifetimeOver,
    /// The sequence number counter is exhausted (RFC 4303 3.3.3).
    SequenceOver,
    /// Sequence numbers could not be saved for a restart, and a nonce must not be used twice.
    StateNotKept,
    /// Too large for the path and must not be fragmented; its sender got an ICMP error (RFC 4301 8.2).
    TooBig,
    /// A fragment that the policy's ports cannot be applied to (RFC 4301 7).
    Fragment,
    /// The hop limit ran out.
    HopLimit,
    /// A packet in fragments or aggregated payloads of which a part was lost, or came too late (RFC 791 3.2, RFC 9347
    /// 2.2.3).
    Incomplete,
    /// The path marked congestion on a packet whose transport does not know ECN: only a loss signals
    /// congestion to it (RFC 6040 4.2).
    Congested,
    /// The device or socket refused the packet.
    SendFailed,
    /// A queue or buffer was full.
    NoBuffer,
    /// While a gateway moves between its own data plane and the kernel's IPsec: the number belongs to the other one.
    /// That has a copy of its own of a packet that arrives; a packet that is to leave is lost.
    OtherPlane,
}

impl Dropped {
    /// All reasons, in the order of their counters.
    pub const ALL: [Self; 30] = [
        Self::Malformed,
        Self::BadExtensionChain,
        Self::Unsupported,
        Self::NoSa,
        Self::WrongEncapsulation,
        Self::Replayed,
        Self::TooOld,
        Self::ZeroSequence,
        Self::BadIcv,
        Self::BadPadding,
        Self::BadInner,
        Self::BadCompression,
        Self::ExpandsTooFar,
        Self::Dummy,
        Self::PolicyMismatch,
        Self::SourceNotOfAssociation,
        Self::NoPolicy,
        Self::PolicyDiscard,
        Self::Acquire,
        Self::LifetimeOver,
        Self::SequenceOver,
        Self::StateNotKept,
        Self::TooBig,
        Self::Fragment,
        Self::HopLimit,
        Self::Incomplete,
        Self::Congested,
        Self::SendFailed,
        Self::NoBuffer,
        Self::OtherPlane,
    ];

    /// Its place in [`Dropped::ALL`] and in every array of counters.
    pub fn index(self) -> usize {
        self as usize
    }

    /// The counter's name, for machines and people: `bad-icv`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Malformed => "malformed",
            Self::BadExtensionChain => "bad-extension-chain",
            Self::Unsupported => "unsupported",
            Self::NoSa => "no-sa",
            Self::WrongEncapsulation => "wrong-encapsulation",
            Self::Replayed => "replayed",
            Self::TooOld => "too-old",
            Self::ZeroSequence => "zero-sequence",
            Self::BadIcv => "bad-icv",
            Self::BadPadding => "bad-padding",
            Self::BadInner => "bad-inner",
            Self::BadCompression => "bad-compression",
            Self::ExpandsTooFar => "expands-too-far",
            Self::Dummy => "dummy",
            Self::PolicyMismatch => "policy-mismatch",
            Self::SourceNotOfAssociation => "source-not-of-association",
            Self::NoPolicy => "no-policy",
            Self::PolicyDiscard => "policy-discard",
            Self::Acquire => "acquire",
            Self::LifetimeOver => "lifetime-over",
            Self::SequenceOver => "sequence-over",
            Self::StateNotKept => "state-not-kept",
            Self::TooBig => "too-big",
            Self::Fragment => "fragment",
            Self::HopLimit => "hop-limit",
            Self::Incomplete => "incomplete",
            Self::Congested => "congested",
            Self::SendFailed => "send-failed",
            Self::NoBuffer => "no-buffer",
            Self::OtherPlane => "other-plane",
        }
    }

    /// What it means and what to look at, in one sentence.
    pub fn advice(self) -> &'static str {
        match self {
            Self::Malformed => {
                "the packet is shorter than its headers say; look at the sender or the path"
            }
            Self::BadExtensionChain => {
                "the IPv6 extension headers loop or overrun; look at the sender"
            }
            Self::Unsupported => "not an IP packet that can be carried here",
            Self::NoSa => {
                "the peer uses an SPI that is not configured here; compare `setkey -D` on both sides"
            }
            Self::WrongEncapsulation => {
                "one side uses UDP encapsulation and the other does not; compare `esp` and `esp-udp`"
            }
            Self::Replayed => {
                "seen before: most likely the peer was restarted without its numbers (`run --state`) and counts from 1 again; \
                 else a duplicate on the path, or an attacker replays packets"
            }
            Self::TooOld => {
                "older than the replay window: most likely the peer was restarted without its numbers (`run --state`) and counts \
                 from 1 again; else the path reorders by more than the window, or an attacker replays packets"
            }
            Self::ZeroSequence => "sequence number zero: the sender is broken, or has wrapped",
            Self::BadIcv => {
                "the keys or algorithms differ between the sides, or the packets were modified"
            }
            Self::BadPadding => {
                "authentic but wrongly padded: encryption keys or algorithms differ between the sides"
            }
            Self::BadInner => "authentic, but no IP packet is inside",
            Self::BadCompression => {
                "authentic, but the compressed payload is not DEFLATE; compare `-C` on both sides"
            }
            Self::ExpandsTooFar => {
                "authentic, but the compressed payload is longer than an IP packet can be; look at the sender"
            }
            Self::Dummy => "a dummy packet of traffic-flow confidentiality; not an error",
            Self::PolicyMismatch => {
                "policy requires this traffic through another association; compare `setkey -DP` on both sides"
            }
            Self::SourceNotOfAssociation => {
                "in transport mode the outer source is the packet's own: a NAT has changed the peer's address (`update` the \
                 association), or it was forged on the path"
            }
            Self::NoPolicy => "no policy matches this traffic; see `setkey -DP`",
            Self::PolicyDiscard => "a policy says discard",
            Self::Acquire => "policy requires protection and no association fits; add one",
            Self::LifetimeOver => "the association's hard lifetime is over; add a new one",
            Self::SequenceOver => {
                "the sequence numbers of the association are used up; add a new one"
            }
            Self::StateNotKept => {
                "the file that keeps sequence numbers cannot be written (disk full?), and these keys must not use a number twice; \
                 `esplanade status` has the reason"
            }
            Self::TooBig => {
                "larger than the path and not to be fragmented; the sender got an ICMP error"
            }
            Self::Fragment => "a later fragment carries no ports and the policy needs them",
            Self::HopLimit => "the hop limit ran out: a routing loop?",
            Self::Incomplete => {
                "a fragment or an aggregated part was lost on the path, or came too late"
            }
            Self::Congested => {
                "the path is congested and this transport does not support ECN; the drop signals it"
            }
            Self::SendFailed => "the system refused the packet; look at routes and devices",
            Self::NoBuffer => "a queue was full: the machine is slower than the traffic",
            Self::OtherPlane => {
                "during `plane move`: copies of arriving packets that the other plane opens (not lost), or packets to \
                 send after the last sequence number of this plane (lost)"
            }
        }
    }
}

impl std::fmt::Display for Dropped {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}

impl std::error::Error for Dropped {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_reason_stands_at_its_index_and_has_a_name_of_its_own() {
        let mut names: Vec<_> = Dropped::ALL.iter().map(|reason| reason.name()).collect();
        for (index, reason) in Dropped::ALL.iter().enumerate() {
            assert_eq!(reason.index(), index);
            assert!(!reason.advice().is_empty());
        }
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), Dropped::ALL.len());
    }
}
