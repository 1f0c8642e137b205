//! Events of associations and policies, sent to every client that listens (`esplanade events`).

mod peers;
mod selector;

pub(crate) use selector::selector_text;

use ipsec::policy::{Direction, Policy};
use ipsec::sa::{Protocol, SaConfig, SaId};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::net::{IpAddr, SocketAddr};

/// One thing that happened.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct Event {
    /// When, in seconds since the Unix epoch.
    pub time: u64,
    /// What.
    #[serde(flatten)]
    pub what: What,
}

/// What can happen.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "kebab-case")]
pub(crate) enum What {
    /// An association was added.
    SaAdded(SaName),
    /// An association got a new configuration.
    SaUpdated(SaName),
    /// An association was deleted or flushed.
    SaDeleted(SaName),
    /// An association passed a soft limit: a successor is due.
    SaDying(SaName),
    /// An association reached a hard limit and is not used any more.
    SaExpired(SaName),
    /// An association has used its last sequence number and is not used any more.
    SaExhausted(SaName),
    /// A policy was added or changed.
    PolicyAdded(PolicyName),
    /// A policy was deleted or flushed.
    PolicyDeleted(PolicyName),
    /// The packets of an association come from an address or port other than the configured one: a NAT on the path, or
    /// a peer that moved.
    Mapping {
        /// Its name.
        #[serde(flatten)]
        association: SaName,
        /// Where they come from now.
        from: SocketAddr,
    },
    /// A packet needs protection and no association exists.
    Acquire {
        /// The number of the policy; 0 where the packet was routed into a device that requires protection.
        policy: u32,
        /// The device that the packet was routed into, if that device has its own associations.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        interface: Option<String>,
        /// The packet's source address.
        source: Option<IpAddr>,
        /// The packet's destination address.
        destination: Option<IpAddr>,
    },
    /// The path MTU to a peer has changed.
    PathMtu {
        /// The peer.
        peer: IpAddr,
        /// Bytes of the largest packet.
        mtu: u32,
    },
    /// Something that keeps traffic protected was removed or changed, and has been restored.
    Restored {
        /// What it was.
        what: String,
        /// How often that has happened since the start.
        times: u64,
    },
    /// Something that keeps traffic protected is missing and could not be restored.
    Missing {
        /// What it is, and why.
        what: String,
    },
    /// The packets are carried by the other plane from now on.
    PlaneMoved {
        /// `user` or `kernel`.
        from: String,
        /// `user` or `kernel`.
        to: String,
        /// How many associations went over.
        associations: u64,
        /// The longest time that packets have waited in the TUN device, in microseconds: on the way to the user plane.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        longest_wait_us: Option<u64>,
    },
    /// A rekey has made a step with a peer, or cannot make it.
    Rekey {
        /// The peer.
        peer: IpAddr,
        /// Which step, as text.
        step: String,
    },
    /// An IKE SA with a peer is up.
    PeerUp {
        /// The peer's name.
        name: String,
        /// The identity that it has proven.
        identity: String,
        /// Its address and port.
        remote: SocketAddr,
        /// The algorithms of the IKE SA.
        suite: String,
        /// How it has proven its identity.
        proof: String,
    },
    /// An IKE SA with a peer has gone.
    PeerDown {
        /// The peer's name.
        name: String,
        /// Why.
        reason: String,
    },
    /// An attempt to reach a peer has failed.
    PeerFailed {
        /// The peer's name.
        name: String,
        /// The address.
        remote: SocketAddr,
        /// Why.
        reason: String,
        /// Seconds until the next attempt, if there is one.
        next_attempt_seconds: Option<u64>,
    },
    /// The request of a stranger was refused.
    PeerRefused {
        /// From where.
        from: SocketAddr,
        /// The peer's name, if it could be found.
        name: Option<String>,
        /// Why.
        reason: String,
    },
    /// A pair of child SAs is up.
    ChildUp {
        /// The peer's name.
        name: String,
        /// The child's name.
        child: String,
        /// The algorithms.
        suite: String,
    },
    /// A pair of child SAs has gone.
    ChildDown {
        /// The peer's name.
        name: String,
        /// The child's name.
        child: String,
        /// Why.
        reason: String,
    },
    /// A pair of child SAs has replaced another, or with no child named, an IKE SA another.
    Rekeyed {
        /// The peer's name.
        name: String,
        /// The child's name.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        child: Option<String>,
    },
    /// A peer sends from another address.
    PeerMoved {
        /// The peer's name.
        name: String,
        /// Where it was.
        from: SocketAddr,
        /// Where it is.
        to: SocketAddr,
    },
    /// The processes of IKE have ended.
    IkeLost {
        /// Why, and what happens next.
        reason: String,
    },
    /// A hook of a peer has ended, or could not run.
    HookEnded {
        /// The peer's name.
        name: String,
        /// `on_up` or `on_down`.
        hook: String,
        /// The program with its arguments.
        program: String,
        /// How it ended, with the last that it wrote to its standard error.
        result: String,
        /// Whether it did not do what it should.
        failed: bool,
    },
    /// The process that runs hooks has ended.
    HooksLost {
        /// Why, and what to do.
        reason: String,
    },
    /// The gateway is stopping.
    Stopping,
}

/// An association by name; never with its keys.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct SaName {
    /// Outer source, where it is known.
    pub source: Option<IpAddr>,
    /// Outer destination.
    pub destination: IpAddr,
    /// `esp` or `ah`.
    pub protocol: String,
    /// The SPI in hexadecimal.
    pub spi: String,
}

/// A policy by name.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct PolicyName {
    /// `in`, `out` or `fwd`.
    pub direction: String,
    /// Source, destination and upper layer as setkey writes them.
    pub selector: String,
}

impl SaName {
    /// The name of a configured association.
    pub(crate) fn of(config: &SaConfig) -> Self {
        Self {
            source: Some(config.source),
            ..Self::from(config.id)
        }
    }
}

impl From<SaId> for SaName {
    fn from(id: SaId) -> Self {
        Self {
            source: None,
            destination: id.destination,
            protocol: protocol_name(id.protocol).to_owned(),
            spi: id.spi.to_string(),
        }
    }
}

impl PolicyName {
    /// The name of a policy.
    pub(crate) fn of(policy: &Policy) -> Self {
        Self {
            direction: direction_name(policy.direction).to_owned(),
            selector: selector_text(&policy.selector),
        }
    }
}

/// setkey's name of a protocol.
pub(crate) fn protocol_name(protocol: Protocol) -> &'static str {
    match protocol {
        Protocol::Esp => "esp",
        Protocol::Ah => "ah",
        Protocol::IpComp => "ipcomp",
    }
}

/// setkey's name of a direction.
pub(crate) fn direction_name(direction: Direction) -> &'static str {
    match direction {
        Direction::Out => "out",
        Direction::In => "in",
        Direction::Fwd => "fwd",
    }
}

impl fmt::Display for SaName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(source) = self.source {
            write!(f, "{source} ")?;
        }
        write!(f, "{} {} {}", self.destination, self.protocol, self.spi)
    }
}

impl fmt::Display for PolicyName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.selector, self.direction)
    }
}

impl fmt::Display for What {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::SaAdded(sa) => write!(f, "association added: {sa}"),
            Self::SaUpdated(sa) => write!(f, "association updated: {sa}"),
            Self::SaDeleted(sa) => write!(f, "association deleted: {sa}"),
            Self::SaDying(sa) => write!(f, "association passed its soft limit, rekey is due: {sa}"),
            Self::SaExpired(sa) => {
                write!(
                    f,
                    "association reached its hard limit and was deleted: {sa}"
                )
            }
            Self::SaExhausted(sa) => {
                write!(
                    f,
                    "association has used its last sequence number and was deleted: {sa}"
                )
            }
            Self::PolicyAdded(policy) => write!(f, "policy added: {policy}"),
            Self::PolicyDeleted(policy) => write!(f, "policy deleted: {policy}"),
            Self::Mapping { association, from } => {
                write!(f, "peer address changed to {from}: {association}")
            }
            Self::Acquire {
                policy,
                interface,
                source,
                destination,
            } => {
                match interface {
                    Some(name) => write!(f, "device {name} has no outbound association")?,
                    None => write!(
                        f,
                        "policy {policy} requires protection and no association matches"
                    )?,
                }
                match (source, destination) {
                    (Some(source), Some(destination)) => write!(f, ": {source} to {destination}"),
                    _ => Ok(()),
                }
            }
            Self::PathMtu { peer, mtu } => {
                write!(f, "path MTU to {peer}: {mtu} bytes")
            }
            Self::Restored { what, times } => {
                write!(
                    f,
                    "removed by another program and restored: {what} (restored {times} times)"
                )
            }
            Self::Missing { what } => write!(f, "missing and not restored: {what}"),
            Self::PlaneMoved {
                from,
                to,
                associations,
                ..
            } => write!(
                f,
                "moved from the {from} plane to the {to} plane, with {associations} associations"
            ),
            Self::Rekey { peer, step } => write!(f, "rekey with {peer}: {step}"),
            Self::PeerUp { .. }
            | Self::PeerDown { .. }
            | Self::PeerFailed { .. }
            | Self::PeerRefused { .. }
            | Self::ChildUp { .. }
            | Self::ChildDown { .. }
            | Self::Rekeyed { .. }
            | Self::PeerMoved { .. }
            | Self::IkeLost { .. }
            | Self::HookEnded { .. }
            | Self::HooksLost { .. } => self.of_peers(f),
            Self::Stopping => f.write_str("the gateway stops"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_is_one_flat_object() {
        let event = Event {
            time: 7,
            what: What::Acquire {
                policy: 3,
                interface: None,
                source: None,
                destination: None,
            },
        };
        let json = serde_json::to_string(&event).unwrap();
        assert_eq!(
            json,
            r#"{"time":7,"event":"acquire","policy":3,"source":null,"destination":null}"#
        );
        assert_eq!(serde_json::from_str::<Event>(&json).unwrap(), event);
    }
}
