//! What is configured about one peer: who it is, how both sides prove it, and which traffic is protected.
//!
//! A connection holds no secret: pre-shared keys and private keys have numbers here, and the [`Secrets`] of the same
//! numbers may lie in another process.
//!
//! [`Secrets`]: crate::work::Secrets

use crate::{
    identity::{Identity, Pattern},
    message::payload::{AddressRange, Ports, TrafficSelector},
    negotiation::{Offer, default_offers},
    signatures::choice::RsaPadding,
    window::Schedule,
};
use serde::{Deserialize, Serialize};
use std::{net::IpAddr, time::Duration};

/// One peer as it is configured.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Connection {
    /// Its name, by which commands and reports refer to it: unique.
    pub name: String,
    /// Local addresses, the one to send from first. Empty: any, and the kernel chooses what to send from; a NAT is then
    /// assumed in between, because the address is unknown when it is hashed.
    pub local: Vec<IpAddr>,
    /// The peer's addresses, tried in turn. Empty: the peer begins, from any address.
    pub remote: Vec<IpAddr>,
    /// The port to begin with: 500, or 4500 where the peer listens there alone.
    pub remote_port: u16,
    /// The own identity.
    pub local_id: Identity,
    /// The identity that the peer has to prove.
    pub remote_id: Pattern,
    /// How this side proves its identity.
    pub local_proof: LocalProof,
    /// How the peer has to prove its identity.
    pub remote_proof: RemoteProof,
    /// What is proposed and accepted for the IKE SA, the preferred first.
    pub ike: Vec<Offer>,
    /// The child SAs. All are brought up where the connection is, but those that wait for traffic.
    pub children: Vec<Child>,
    /// When this side begins.
    pub start: Start,
    /// The peer is checked after so long without a packet from it; `None`: never.
    pub dpd: Option<Duration>,
    /// When requests are sent again.
    pub schedule: Schedule,
    /// Pauses between attempts to reach the peer: the first one, doubled each time up to the second.
    pub retry: (Duration, Duration),
    /// The IKE SA is rekeyed after so long, less the jitter.
    pub ike_lifetime: Duration,
    /// By up to how many hundredths soft lifetimes are shortened at random, so that not all peers rekey at once.
    pub jitter_percent: u8,
    /// ESP in UDP.
    pub encapsulation: Encapsulation,
    /// The longest IKE datagram that is sent, IP and UDP headers not counted, where the peer takes fragments.
    pub fragment_bytes: usize,
    /// The IKE SA is brought up without a child SA (RFC 6023), if the peer supports it; the children follow each in an
    /// exchange of its own.
    pub childless: bool,
    /// How many requests of the peer may be in progress at a time (SET_WINDOW_SIZE).
    pub window: u32,
    /// Whether INITIAL_CONTACT is sent, which has the peer drop what it holds of an earlier life of this side.
    pub initial_contact: bool,
}

/// How this side proves its identity.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum LocalProof {
    /// By the pre-shared key of this number.
    SharedSecret(u32),
    /// By a signature.
    Certificate {
        /// The number of the private key.
        key: u32,
        /// Certificates in DER, that of the key first, others up to a root's below it.
        chain: Vec<Vec<u8>>,
        /// How an RSA key signs.
        padding: RsaPadding,
    },
}

/// How the peer has to prove its identity.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum RemoteProof {
    /// By the pre-shared key of this number.
    SharedSecret(u32),
    /// By a signature and certificates.
    Certificate {
        /// The number of the trusted roots.
        trust: u32,
        /// The hashes of their keys, as CERTREQ has them: [`Trust::key_hashes`].
        ///
        /// [`Trust::key_hashes`]: crate::certificate::Trust::key_hashes
        authorities: Vec<[u8; 20]>,
    },
}

/// When this side begins an IKE SA.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub enum Start {
    /// At once, and again for ever.
    #[default]
    AtStart,
    /// When a packet needs it, or by command.
    OnDemand,
    /// By command alone; else the peer begins.
    Wait,
}

/// Whether ESP travels in UDP (RFC 3948).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub enum Encapsulation {
    /// Where a NAT is in between.
    #[default]
    AsFound,
    /// Always: this side sends a NAT detection hash that does not match.
    Forced,
}

/// One child SA as it is configured.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Child {
    /// Its name, unique in the connection.
    pub name: String,
    /// Tunnel or transport mode.
    pub mode: ChildMode,
    /// What is proposed and accepted, the preferred first: all for ESP or all for AH. Groups in it are for rekeys and
    /// for children behind the first one (perfect forward secrecy).
    pub offers: Vec<Offer>,
    /// The traffic on this side: at least one.
    pub local: Vec<Traffic>,
    /// The traffic on the peer's side: at least one.
    pub remote: Vec<Traffic>,
    /// Packets of the replay window.
    pub replay_window: u32,
    /// Limits.
    pub lifetime: ChildLifetime,
    /// Whether it waits for a packet ([`Start::OnDemand`] of this child alone).
    pub on_demand: bool,
}

/// When a child SA is rekeyed, and when it carries nothing any more.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ChildLifetime {
    /// It is rekeyed after so long, less the jitter.
    pub soft: Duration,
    /// After so long it carries nothing.
    pub hard: Duration,
    /// It is rekeyed after so many bytes.
    pub soft_bytes: Option<u64>,
    /// It is rekeyed after so many packets.
    pub soft_packets: Option<u64>,
}

/// What the packets of a child SA are.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub enum ChildMode {
    /// Whole IP packets behind a new header.
    #[default]
    Tunnel,
    /// The contents of IP packets between the two peers.
    Transport,
}

/// Packets of one range of addresses, one protocol and one range of ports.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub struct Traffic {
    /// The IP protocol, 0 for any.
    pub protocol: u8,
    /// The ports.
    pub ports: Ports,
    /// The addresses.
    pub addresses: AddressRange,
}

/// The port of IKE.
pub const IKE_PORT: u16 = 500;
/// The port of IKE and of ESP behind a NAT.
pub const NAT_PORT: u16 = 4500;

impl Connection {
    /// A connection with defaults everywhere but in what has none. `aes_is_fast`: the processor has instructions for
    /// AES.
    pub fn new(
        name: &str,
        (local_id, local_proof): (Identity, LocalProof),
        (remote_id, remote_proof): (Pattern, RemoteProof),
        aes_is_fast: bool,
    ) -> Self {
        Self {
            name: name.to_owned(),
            local: Vec::new(),
            remote: Vec::new(),
            remote_port: IKE_PORT,
            local_id,
            remote_id,
            local_proof,
            remote_proof,
            ike: default_offers(crate::message::payload::Protocol::IKE, aes_is_fast),
            children: Vec::new(),
            start: Start::default(),
            dpd: Some(Duration::from_secs(30)),
            schedule: Schedule::default(),
            retry: (Duration::from_secs(1), Duration::from_secs(60)),
            ike_lifetime: Duration::from_secs(4 * 3600),
            jitter_percent: 10,
            encapsulation: Encapsulation::default(),
            fragment_bytes: 1232,
            childless: false,
            window: 1,
            initial_contact: true,
        }
    }

    /// The child of this name.
    pub fn child(&self, name: &str) -> Option<&Child> {
        self.children.iter().find(|child| child.name == name)
    }
}

impl Child {
    /// A tunnel for this traffic with defaults.
    pub fn new(name: &str, local: Vec<Traffic>, remote: Vec<Traffic>, aes_is_fast: bool) -> Self {
        Self {
            name: name.to_owned(),
            mode: ChildMode::default(),
            offers: default_offers(crate::message::payload::Protocol::ESP, aes_is_fast),
            local,
            remote,
            replay_window: 1024,
            lifetime: ChildLifetime::default(),
            on_demand: false,
        }
    }
}

impl Default for ChildLifetime {
    /// An hour, and ten minutes more for a rekey that the path delays.
    fn default() -> Self {
        Self {
            soft: Duration::from_secs(3600),
            hard: Duration::from_secs(4200),
            soft_bytes: None,
            soft_packets: None,
        }
    }
}

impl Traffic {
    /// Every packet from or to these addresses.
    pub fn of(addresses: AddressRange) -> Self {
        Self {
            protocol: 0,
            ports: Ports::ANY,
            addresses,
        }
    }

    /// As it travels.
    pub fn selector(self) -> TrafficSelector<'static> {
        TrafficSelector::Range {
            protocol: self.protocol,
            ports: self.ports,
            addresses: self.addresses,
        }
    }

    /// `None` for a selector of another kind than a range.
    pub fn from_selector(selector: &TrafficSelector<'_>) -> Option<Self> {
        match *selector {
            TrafficSelector::Range {
                protocol,
                ports,
                addresses,
            } => Some(Self {
                protocol,
                ports,
                addresses,
            }),
            TrafficSelector::Other { .. } => None,
        }
    }
}

#[cfg(test)]
mod tests;
