//! The connections of the peers, or of the responder that takes the gateway's place: alike but for their names,
//! identities, certificates and networks.

use ikev2::{
    certificate::Trust,
    connection::{Child, Connection, Encapsulation, LocalProof, RemoteProof, Start, Traffic},
    identity::{Identity, Pattern},
    message::payload::{AddressRange, Protocol},
    negotiation::Offer,
    signatures::{PrivateKey, choice::RsaPadding},
    work::{Secrets, Verifier},
};
use ipsec::suite::Secret;
use rustls_pki_types::{CertificateDer, pem::PemObject};
use serde_json::Value;
use std::{
    fs,
    net::{IpAddr, Ipv4Addr},
    sync::Arc,
    time::Duration,
};

/// The first address behind an initiator; the others follow.
const FIRST_INNER: u32 = u32::from_be_bytes([10, 64, 0, 0]);

/// The network behind the responder.
const RESPONDER_NETWORK: ([u8; 4], [u8; 4]) = ([10, 255, 0, 0], [10, 255, 0, 255]);

/// Longer than any measurement: the responder alone rekeys and asks for signs of life.
const DAY: Duration = Duration::from_secs(86_400);

/// All of them, and their secrets.
pub fn connections(
    settings: &Value,
    (local, remote): (IpAddr, IpAddr),
    secrets: &mut Secrets,
    verifier: &mut Verifier,
) -> Vec<Arc<Connection>> {
    let remote_proof = load_secrets(settings, secrets, verifier);
    let (first, last) = RESPONDER_NETWORK;
    let each = (0..number(settings, "count")).map(|index| {
        let name = format!("p{index}");
        let peer_address = Ipv4Addr::from(FIRST_INNER + index as u32);
        let peer = (name.as_str(), vec![traffic(peer_address, peer_address)]);
        let gateway = ("gateway", vec![traffic(first.into(), last.into())]);
        let (here, there) = if is_responder(settings) {
            (gateway, peer)
        } else {
            (peer, gateway)
        };
        let identity = |name: &str| Identity::Fqdn(format!("{name}.example.org"));
        let own = (identity(here.0), own_proof(settings, here.0));
        let other = (Pattern::Exactly(identity(there.0)), remote_proof.clone());
        let mut made = Connection::new(&name, own, other, true);
        (made.local, made.remote) = (vec![local], vec![remote]);
        (made.start, made.dpd) = (Start::Wait, None);
        (made.ike_lifetime, made.initial_contact) = (DAY, false);
        made.ike = offers(settings, "ike", Protocol::IKE);
        made.encapsulation = Encapsulation::Forced;
        let mut child = Child::new(&name, here.1, there.1, true);
        child.offers = offers(settings, "esp", Protocol::ESP);
        (child.lifetime.soft, child.lifetime.hard) = (DAY, DAY + DAY / 8);
        made.children = vec![child];
        Arc::new(made)
    });
    each.collect()
}

/// The pre-shared key, or the private key and the authority; each has the number 0.
fn load_secrets(settings: &Value, secrets: &mut Secrets, verifier: &mut Verifier) -> RemoteProof {
    if let Some(secret) = settings["psk"].as_str() {
        secrets.add_shared_secret(0, Secret::new(secret.as_bytes().to_vec()));
        return RemoteProof::SharedSecret(0);
    }
    let folder = text(settings, "folder");
    let read = |name: &str| fs::read(format!("{folder}/{name}")).expect("a file of certificates");
    let key = if is_responder(settings) {
        "gateway.key"
    } else {
        "peer.key"
    };
    let key = PrivateKey::from_pem(&read(key)).expect("a private key");
    secrets.add_private_key(0, key);
    let mut trust = Trust::default();
    trust
        .add_roots(&read("authority.pem"))
        .expect("certificates");
    let authorities = trust.key_hashes();
    verifier.add_trust(0, trust);
    RemoteProof::Certificate {
        trust: 0,
        authorities,
    }
}

fn own_proof(settings: &Value, name: &str) -> LocalProof {
    let Some(folder) = settings["folder"].as_str() else {
        return LocalProof::SharedSecret(0);
    };
    let pem = fs::read(format!("{folder}/{name}.pem")).expect("a certificate");
    let chain = CertificateDer::pem_slice_iter(&pem);
    let chain = chain.map(|der| der.expect("a certificate").to_vec());
    LocalProof::Certificate {
        key: 0,
        chain: chain.collect(),
        padding: RsaPadding::Pss,
    }
}

fn traffic(first: Ipv4Addr, last: Ipv4Addr) -> Traffic {
    Traffic::of(AddressRange::new(first.into(), last.into()).expect("a range"))
}

fn offers(settings: &Value, name: &str, protocol: Protocol) -> Vec<Offer> {
    vec![Offer::parse(text(settings, name), protocol).expect("a suite")]
}

/// Whether this is the other end of all peers.
pub fn is_responder(settings: &Value) -> bool {
    settings["role"] == "responder"
}

/// A text of the settings.
pub fn text<'a>(settings: &'a Value, name: &str) -> &'a str {
    settings[name]
        .as_str()
        .unwrap_or_else(|| panic!("no text {name}"))
}

/// A number of the settings.
pub fn number(settings: &Value, name: &str) -> u64 {
    settings[name]
        .as_u64()
        .unwrap_or_else(|| panic!("no number {name}"))
}
