//! Statements about policies.

use super::{At, Endpoint, Host, Label, Lookup, ModeWord, NamedOption, Port};

/// A policy, or the name of one.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PolicyEntry {
    /// How names are looked up.
    pub lookup: Lookup,
    /// Which packets.
    pub selector: SelectorClause,
    /// `-ctx`.
    pub label: Option<At<Label>>,
    /// `-o`.
    pub options: Vec<At<NamedOption>>,
    /// `-P`.
    pub policy: PolicyClause,
}

/// Which packets a policy is about.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum SelectorClause {
    /// Packets by address, protocol and port.
    Ranges(Box<Ranges>),
    /// Packets that a packet filter tagged.
    Tagged(At<String>),
}

/// Packets by address, protocol and port.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Ranges {
    /// The senders.
    pub source: Range,
    /// The receivers.
    pub destination: Range,
    /// The protocol above IP.
    pub upper: At<UpperClause>,
}

/// `address/prefix[port]`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Range {
    /// The address.
    pub host: At<Host>,
    /// How many of its bits count; all if absent.
    pub prefix: Option<At<u8>>,
    /// The port, where one is written.
    pub port: Option<At<Port>>,
}

/// A protocol above IP.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum UpperClause {
    /// Every one.
    Any,
    /// One by number.
    Protocol(u8),
    /// ICMP for either family or the mobility header (by `protocol`), by type and code.
    Message {
        /// The protocol.
        protocol: u8,
        /// The type.
        kind: u8,
        /// The code, where one is written.
        code: Option<u8>,
    },
    /// GRE with one key.
    Gre(u32),
}

/// What follows `-P`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PolicyClause {
    /// For packets in which direction.
    pub direction: At<DirectionWord>,
    /// The place among other policies.
    pub priority: Option<At<Priority>>,
    /// What is done; only where a policy is merely named is nothing written.
    pub action: Option<At<ActionWord>>,
    /// How packets are protected, the first template first.
    pub templates: Vec<At<TemplateClause>>,
}

/// A direction.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum DirectionWord {
    /// To this host, and by default through it.
    In,
    /// From or through this host outwards.
    Out,
    /// Through this host, coming in.
    Forward,
}

/// Where a policy stands: the higher, the earlier it is consulted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Priority {
    /// `low`, `def` or `high`; none means `def`.
    pub base: Option<PriorityBase>,
    /// Added to the base.
    pub offset: i64,
}

/// A named place.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PriorityBase {
    /// −2³⁰.
    Low,
    /// 0.
    Default,
    /// 2³⁰.
    High,
}

/// What is done with packets.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ActionWord {
    /// Drop them.
    Discard,
    /// Leave them alone.
    None,
    /// Protect them.
    Ipsec,
    /// Apply the policy database; only for the policies of sockets.
    Entrust,
    /// Leave them alone, overriding the policy database; only for the policies of sockets.
    Bypass,
}

/// `protocol/mode/source-destination/level`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TemplateClause {
    /// `esp`, `ah` or `ipcomp`.
    pub protocol: At<TemplateProtocol>,
    /// `transport` or `tunnel`.
    pub mode: At<ModeWord>,
    /// The ends of the security association, where written.
    pub ends: Option<At<Ends>>,
    /// Its level.
    pub level: At<LevelWord>,
}

/// The protocol of a template.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TemplateProtocol {
    /// ESP.
    Esp,
    /// AH.
    Ah,
    /// IP payload compression.
    IpComp,
}

/// The ends of a template's security association.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Ends {
    /// Two addresses, near and far, with ports for ESP in UDP.
    Between(Box<[Endpoint; 2]>),
    /// `me-any`.
    MeAny,
    /// `any-me`.
    AnyMe,
}

/// The level of a template: how strictly its protection is required.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LevelWord {
    /// As the system has it.
    Default,
    /// If there is an association, else in clear.
    Use,
    /// Nothing passes without.
    Require,
    /// As `Require`, with an association of this policy's own, named by its identifier where one is given.
    Unique(Option<u32>),
}
