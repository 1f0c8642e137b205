//! A gateway in memory with a separate peer for every association: its databases, and packets that go to one peer after
//! the other.
//!
//! ```text
//!   10.1.0.1 ── hub 192.0.2.1 ══ association n ══ 172.16.0.0 + n ── 10.64.0.0 + n      n from 0
//! ```
//!
//! Each association has a policy of its own too, so that finding both is part of what is measured.

use super::machine;
use super::suite::NamedSuite;
use super::turn::SA_STRIDE;
use crate::failure::Failure;
use dataplane::train::Offload;
use ipsec::command::Command;
use ipsec::database::{Database, Snapshot};
use ipsec::policy::{Action, Direction, Level, Policy, Prefix, Selector, Template, Upper};
use ipsec::sa::{Mode, Protocol, SaConfig, SaId, Spi, UdpEncapsulation};
use ipsec::suite::{Secret, Suite};
use ipsec::wire::checksum::Sum;
use ipsec::wire::ip::number;
use ipsec::wire::ip::v4::Ipv4Fields;
use ipsec::wire::udp::UdpFields;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

/// Bytes of headers in every packet: IPv4 and UDP.
pub(super) const HEADER_BYTES: usize = 28;

const HUB: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 1);
const HOST: Ipv4Addr = Ipv4Addr::new(10, 1, 0, 1);
const FIRST_PEER: Ipv4Addr = Ipv4Addr::new(172, 16, 0, 0);
const FIRST_HOST: Ipv4Addr = Ipv4Addr::new(10, 64, 0, 0);

/// Which way packets go.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Flow {
    FromHub,
    ToHub,
}

/// So many peers.
#[derive(Clone)]
pub(super) struct Hub {
    pub(super) suite: NamedSuite,
    pub(super) flow: Flow,
    pub(super) sas: usize,
}

/// Bytes of memory for one of many.
#[derive(Clone, Copy)]
pub(super) struct Footprint {
    /// An association: keys, state, configuration, and its places in the database and its snapshot.
    pub(super) sa: usize,
    /// A policy, and its link to its association.
    pub(super) policy: usize,
}

impl Hub {
    /// The databases of the sender (`Out`) or receiver (`In`), and their memory.
    pub(super) fn databases(
        &self,
        direction: Direction,
    ) -> Result<(Arc<Snapshot>, Option<Footprint>), Failure> {
        let mut database = Database::default();
        let mut apply = |commands: Vec<Command>| {
            // IV counters may start anywhere here: nothing leaves this process.
            let answers = database.apply(&commands, 0, &mut || 0x1234_5678_9abc_def0);
            answers
                .map(drop)
                .map_err(|refused| Failure::new(refused.reason))
        };
        let empty = machine::allocated();
        apply((0..self.sas).map(|n| self.association(n)).collect())?;
        let keyed = machine::allocated();
        apply((0..self.sas).map(|n| self.policy(n, direction)).collect())?;
        let whole = machine::allocated();
        let each = |(after, before): (usize, usize)| after.saturating_sub(before) / self.sas;
        let footprint = keyed.zip(empty).zip(whole.zip(keyed));
        let footprint = footprint.map(|(sa, policy)| Footprint {
            sa: each(sa),
            policy: each(policy),
        });
        Ok((database.snapshot(), footprint))
    }

    fn association(&self, n: usize) -> Command {
        let (source, destination) = self.ends(n);
        let id = SaId {
            destination,
            protocol: protocol_of(&self.suite),
            // INVARIANT: never 0, for there are fewer than 2^32 associations.
            spi: Spi::new(0x1000 + n as u32).expect("no association has SPI 0"),
        };
        Command::AddSa(Arc::new(SaConfig {
            mode: Mode::Tunnel,
            encapsulation: (id.protocol == Protocol::Esp).then_some(UdpEncapsulation {
                source_port: 4500,
                destination_port: 4500,
            }),
            ..SaConfig::new(id, source, suite_of(&self.suite, n))
        }))
    }

    fn policy(&self, n: usize, direction: Direction) -> Command {
        let (source, destination) = self.hosts(n);
        let host = |address: Ipv4Addr| Prefix {
            address: address.into(),
            len: 32,
        };
        Command::AddPolicy(Arc::new(Policy {
            selector: Selector {
                source: host(source),
                destination: host(destination),
                upper: Upper::Any,
            },
            direction,
            action: Action::Protect(vec![Template {
                protocol: protocol_of(&self.suite),
                mode: Mode::Tunnel,
                endpoints: Some(self.ends(n)),
                level: Level::Require,
            }]),
            spread: 1,
            priority: 0,
            is_negotiated: false,
            device: None,
        }))
    }

    fn ends(&self, n: usize) -> (IpAddr, IpAddr) {
        let (hub, peer) = (HUB.into(), nth(FIRST_PEER, n).into());
        match self.flow {
            Flow::FromHub => (hub, peer),
            Flow::ToHub => (peer, hub),
        }
    }

    fn hosts(&self, n: usize) -> (Ipv4Addr, Ipv4Addr) {
        match self.flow {
            Flow::FromHub => (HOST, nth(FIRST_HOST, n)),
            Flow::ToHub => (nth(FIRST_HOST, n), HOST),
        }
    }

    /// So many datagrams of `size` bytes with their headers, at least [`HEADER_BYTES`].
    pub(super) fn packets(&self, count: usize, size: usize) -> Vec<(Vec<u8>, Offload)> {
        let packet = |number| self.packet(number * SA_STRIDE % self.sas, size);
        (0..count)
            .map(|number| (packet(number), Offload::default()))
            .collect()
    }

    fn packet(&self, n: usize, size: usize) -> Vec<u8> {
        let (source, destination) = self.hosts(n);
        let payload = vec![0x5a; size.saturating_sub(HEADER_BYTES)];
        let ip = Ipv4Fields {
            traffic_class: 0,
            identification: 0,
            dont_fragment: true,
            hop_limit: 64,
            protocol: number::UDP,
            source,
            destination,
        };
        let unsummed = UdpFields {
            source_port: 1000,
            destination_port: 2000,
            checksum: 0,
        };
        let sum = Sum::new()
            .pseudo_header(
                source.into(),
                destination.into(),
                number::UDP,
                payload.len() + 8,
            )
            .bytes(&unsummed.emit(payload.len()))
            .bytes(&payload);
        let udp = UdpFields {
            checksum: sum.finish_udp(),
            ..unsummed
        };
        let (ip, udp) = (ip.emit(payload.len() + 8), udp.emit(payload.len()));
        [&ip[..], &udp, &payload].concat()
    }
}

fn nth(first: Ipv4Addr, n: usize) -> Ipv4Addr {
    Ipv4Addr::from_bits(first.to_bits() + n as u32)
}

/// What carries the suite: ESP in UDP, or AH for what is defined for it alone.
fn protocol_of(suite: &NamedSuite) -> Protocol {
    match suite.integrity {
        Some(row) if row.iv_len > 0 => Protocol::Ah,
        _ => Protocol::Esp,
    }
}

/// The suite with keys that differ from association to association.
fn suite_of(suite: &NamedSuite, n: usize) -> Suite {
    let encryption = match suite.encryption {
        Some(row) => Some((row, Secret::new(suite.cipher_key(n)))),
        None if protocol_of(suite) == Protocol::Ah => None,
        None => ipsec::algorithm::Encryption::named("null").map(|row| (row, Secret::new(vec![]))),
    };
    let integrity = suite.integrity;
    let integrity = integrity.map(|row| (row, Secret::new(suite.mac_key(n))));
    Suite::new(encryption, integrity, None).expect("the table's lengths fit")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::speed::suite;
    use ipsec::database::Decision;
    use ipsec::packet::Outline;
    use std::collections::HashSet;

    fn hub(flow: Flow) -> Hub {
        let suites = suite::chosen(&["aes-128-gcm".to_owned()]).expect("it is in the table");
        Hub {
            suite: suites[0].clone(),
            flow,
            sas: 300,
        }
    }

    #[test]
    fn every_association_has_its_turn_before_any_has_a_second() {
        for flow in [Flow::FromHub, Flow::ToHub] {
            let hub = hub(flow);
            let (snapshot, _) = hub.databases(Direction::Out).expect("they are accepted");
            let mut met = HashSet::new();
            for (packet, _) in hub.packets(300, 64) {
                let outline = Outline::read(&packet).expect("a datagram");
                match snapshot.outbound(&outline) {
                    Decision::Protect(&[sa]) => assert!(met.insert(sa.0), "{sa:?} twice"),
                    other => panic!("{other:?}"),
                }
            }
            assert_eq!(met.len(), 300);
        }
    }

    #[test]
    fn packets_are_datagrams_of_the_size_asked_for() {
        for size in [HEADER_BYTES, 64, 1408, 65_000] {
            let packets = hub(Flow::FromHub).packets(1, size);
            let packet = &packets[0].0;
            let headers = etherparse::PacketHeaders::from_ip_slice(packet).expect("well made");
            assert_eq!(packet.len(), size);
            assert_eq!(headers.payload.slice().len(), size - HEADER_BYTES);
        }
    }
}
