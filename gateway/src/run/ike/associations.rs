//! From a pair of child SAs, as IKE negotiated it, to the two associations of the data plane.

use super::selectors::Pair;
use crate::failure::Failure;
use ikev2::connection::ChildMode;
use ikev2::endpoint::{ChildSa, Outbound};
use ikev2::message::payload::Protocol as IkeProtocol;
use ipsec::policy::{Direction, Selector};
use ipsec::sa::{
    LifetimeLimits, Lifetimes, Mode, Protocol, Reqid, SaConfig, SaId, Spi, UdpEncapsulation,
};
use std::net::SocketAddr;
use std::sync::Arc;

/// RFC 3948 4: seconds without a packet after which a keepalive holds the mapping of a NAT open.
const KEEPALIVE_SECONDS: u16 = 20;

/// Without extended sequence numbers an association ends with its last number: it asks for a successor at seven
/// eighths of them.
const SOFT_PACKETS_WITHOUT_ESN: u64 = (1 << 32) / 8 * 7;

/// The two associations of one pair of child SAs.
#[derive(Clone)]
pub(crate) struct Associations {
    /// What the peer sends by.
    pub inbound: Arc<SaConfig>,
    /// What this side sends by.
    pub outbound: Arc<SaConfig>,
}

impl Associations {
    /// As negotiated; `reqid` ties them to the policies of their child.
    pub(crate) fn of(child: &ChildSa, reqid: Reqid) -> Result<Self, Failure> {
        let protocol = protocol(child.protocol)?;
        let spi =
            |spi| Spi::new(spi).ok_or_else(|| Failure::new("the SPI 0 belongs to no association"));
        let id = |destination, spi| SaId {
            destination,
            protocol,
            spi,
        };
        let ends = child.encapsulation;
        let (inbound_udp, outbound_udp) = (
            ends.map(|(local, remote)| udp(remote, local)),
            ends.map(|(local, remote)| udp(local, remote)),
        );
        let inbound = SaConfig {
            encapsulation: inbound_udp,
            ..shared(
                SaConfig::new(
                    id(child.local, spi(child.inbound_spi)?),
                    child.remote,
                    child.inbound.clone(),
                ),
                child,
                reqid,
            )
        };
        let outbound = SaConfig {
            encapsulation: outbound_udp,
            is_standby: child.outbound_state == Outbound::Standby,
            keepalive: if child.sends_keepalives {
                KEEPALIVE_SECONDS
            } else {
                0
            },
            ..shared(
                SaConfig::new(
                    id(child.remote, spi(child.outbound_spi)?),
                    child.local,
                    child.outbound.clone(),
                ),
                child,
                reqid,
            )
        };
        Ok(Self {
            inbound: Arc::new(inbound),
            outbound: Arc::new(outbound),
        })
    }

    /// Both.
    pub(crate) fn both(&self) -> [&SaConfig; 2] {
        [&self.inbound, &self.outbound]
    }

    /// The same for the packets of `pairs` in a device, or for policies alone.
    pub(crate) fn through(&self, device: Option<&Arc<str>>, pairs: &[Pair], reqid: Reqid) -> Self {
        let selectors = |direction| -> Arc<[Selector]> {
            let pairs = pairs.iter().filter(|_| device.is_some());
            pairs.map(|pair| pair.selector(direction)).collect()
        };
        let with = |config: &SaConfig, direction| {
            Arc::new(SaConfig {
                interface: device.cloned(),
                selectors: selectors(direction),
                reqid,
                ..config.clone()
            })
        };
        Self {
            inbound: with(&self.inbound, Direction::In),
            outbound: with(&self.outbound, Direction::Out),
        }
    }

    /// Both, inbound first.
    pub(crate) fn each(&self) -> [Arc<SaConfig>; 2] {
        [Arc::clone(&self.inbound), Arc::clone(&self.outbound)]
    }

    /// The same between this side and the peer's new address. Sequence numbers go on from those used so far.
    pub(crate) fn moved_to(
        &self,
        remote: SocketAddr,
        numbers: impl Fn(&SaId) -> Option<u64>,
    ) -> Self {
        let (mut inbound, mut outbound) = ((*self.inbound).clone(), (*self.outbound).clone());
        for config in [&mut inbound, &mut outbound] {
            config.sequence = numbers(&config.id).unwrap_or(config.sequence);
        }
        inbound.source = remote.ip();
        outbound.id.destination = remote.ip();
        if let Some(udp) = &mut inbound.encapsulation {
            udp.source_port = remote.port();
        }
        if let Some(udp) = &mut outbound.encapsulation {
            udp.destination_port = remote.port();
        }
        Self {
            inbound: Arc::new(inbound),
            outbound: Arc::new(outbound),
        }
    }

    /// The same with the outbound one on standby, or in use.
    pub(crate) fn with_standby(&self, is_standby: bool) -> Self {
        Self {
            inbound: Arc::clone(&self.inbound),
            outbound: Arc::new(SaConfig {
                is_standby,
                ..(*self.outbound).clone()
            }),
        }
    }
}

/// What both directions have in common.
fn shared(config: SaConfig, child: &ChildSa, reqid: Reqid) -> SaConfig {
    SaConfig {
        mode: match child.mode {
            ChildMode::Tunnel => Mode::Tunnel,
            ChildMode::Transport => Mode::Transport,
        },
        esn: child.extended_sequence_numbers,
        replay_window: child.replay_window,
        reqid,
        lifetimes: lifetimes(child),
        key_is_fresh: true,
        is_negotiated: true,
        ..config
    }
}

/// The soft limit in time is IKE's; the hard one is kept here too, so that nothing is carried past it without IKE.
fn lifetimes(child: &ChildSa) -> Lifetimes {
    let limits = &child.lifetime;
    let numbers = (!child.extended_sequence_numbers).then_some(SOFT_PACKETS_WITHOUT_ESN);
    let packets = limits.soft_packets.into_iter().chain(numbers).min();
    Lifetimes {
        soft: LifetimeLimits {
            bytes: limits.soft_bytes.unwrap_or(0),
            packets: packets.unwrap_or(0),
            ..LifetimeLimits::default()
        },
        hard: LifetimeLimits {
            age: limits.hard.as_secs().max(1),
            ..LifetimeLimits::default()
        },
    }
}

fn udp(source_port: u16, destination_port: u16) -> UdpEncapsulation {
    UdpEncapsulation {
        source_port,
        destination_port,
    }
}

/// The protocol of a child SA.
pub(crate) fn protocol(protocol: IkeProtocol) -> Result<Protocol, Failure> {
    match protocol {
        IkeProtocol::ESP => Ok(Protocol::Esp),
        IkeProtocol::AH => Ok(Protocol::Ah),
        other => Err(Failure::new(format!(
            "a child SA is of ESP or AH, not of {other}"
        ))),
    }
}
