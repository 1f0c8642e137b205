//! IKE_AUTH (RFC 7296 1.2): identities, their proofs, and the first child SA.
//!
//! ```text
//!   initiator   own proof ─► request ┄┄► response ─► peer's proof checked ─► keys of the child ─► installed
//!   responder   request ─► connection by both identities ─► peer's proof checked ─► own proof ─► keys of the child
//!               ─► installed ─► response
//! ```
//!
//! Nothing that a peer sends has an effect on anything else before its proof was checked.

use super::{Context, Purpose, init::repeated};
use crate::{
    authentication::Signed,
    connection::{LocalProof, RemoteProof},
    identity::Identity,
    ike_sa::{Claimed, IkeSa},
    message::{
        Body, Payload,
        payload::{
            Authentication, CertificateEncoding, CertificatePayload, Identification,
            IdentificationType, Notify, NotifyType,
        },
    },
    prf,
    work::Work,
};

pub(crate) mod first_child;
pub(crate) mod initiator;
pub(crate) mod outcome;
pub(crate) mod responder;

impl Claimed {
    /// Reads an ID payload.
    pub fn read(payload: &Identification<'_>) -> Result<Self, String> {
        let identity = Identity::from_payload(payload.kind.0, payload.data);
        let (head, data) = payload.signed();
        Ok(Self {
            identity: identity.map_err(|error| format!("the peer's identity: {error}"))?,
            body: [&head[..], data].concat(),
        })
    }
}

/// The ID payload of an identity: its type and data.
pub(super) fn identification(number: u8, data: &[u8]) -> Identification<'_> {
    Identification {
        kind: IdentificationType(number),
        reserved: [0; 3],
        data,
    }
}

/// The AUTH payload among `payloads`: method and data.
fn proof(payloads: &[Payload<'_>]) -> Option<(u8, Vec<u8>)> {
    payloads.iter().find_map(|payload| match &payload.body {
        Body::Authentication(auth) => Some((auth.method.0, auth.data.to_vec())),
        _ => None,
    })
}

/// The certificates among `payloads`, in DER: the first is that of the peer's key (RFC 7296 3.6).
fn certificates(payloads: &[Payload<'_>]) -> Vec<Vec<u8>> {
    let certificates = payloads.iter().filter_map(|payload| match &payload.body {
        Body::Certificate(certificate)
            if certificate.encoding == CertificateEncoding::X509_SIGNATURE =>
        {
            Some(certificate.data.to_vec())
        }
        _ => None,
    });
    certificates.collect()
}

/// The own certificates as payloads. They are sent without being asked for: some peers never ask.
fn own_certificates(proof: &LocalProof) -> Vec<Payload<'_>> {
    let chain: &[Vec<u8>] = match proof {
        LocalProof::Certificate { chain, .. } => chain,
        LocalProof::SharedSecret(_) => &[],
    };
    let payload = |der| {
        Body::Certificate(CertificatePayload {
            encoding: CertificateEncoding::X509_SIGNATURE,
            data: der,
        })
    };
    chain.iter().map(|der| payload(der).into()).collect()
}

/// The own AUTH payload.
fn own_authentication((method, data): &(u8, Vec<u8>)) -> Payload<'_> {
    let method = crate::message::payload::AuthMethod(*method);
    Body::Authentication(Authentication { method, data }).into()
}

/// The octets that the own AUTH payload covers (RFC 7296 2.15).
fn own_octets(sa: &IkeSa) -> Option<Vec<u8>> {
    let (auth, connection) = (sa.auth.as_ref()?, sa.connection.as_ref()?);
    let (pi, pr) = sa.keys.as_ref()?.authentication.as_ref()?;
    let (number, data) = connection.local_id.to_payload();
    let signed = Signed {
        message: &auth.handshake.own_message,
        nonce: &auth.handshake.peer_nonce,
        identity: &[&[number, 0, 0, 0], data.as_slice()].concat(),
    };
    let key = if sa.is_initiator { pi } else { pr };
    Some(signed.octets(sa.algorithms.as_ref()?.prf()?, key))
}

/// The octets that the peer's AUTH payload covers.
fn peer_octets(sa: &IkeSa) -> Option<Vec<u8>> {
    let auth = sa.auth.as_ref()?;
    let (pi, pr) = sa.keys.as_ref()?.authentication.as_ref()?;
    let signed = Signed {
        message: &auth.handshake.peer_message,
        nonce: &auth.handshake.own_nonce,
        identity: &auth.claimed.as_ref()?.body,
    };
    let key = if sa.is_initiator { pr } else { pi };
    Some(signed.octets(sa.algorithms.as_ref()?.prf()?, key))
}

/// The transform ID of the pseudorandom function.
fn prf_id(sa: &IkeSa) -> Option<u16> {
    let function = sa.algorithms.as_ref()?.prf()?;
    let row = prf::TRANSFORMS.iter().find(|row| row.1 == function)?;
    Some(row.0)
}

/// Starts the work for the own AUTH payload.
fn prove(sa: &mut IkeSa, cx: &mut Context<'_>) {
    let parts = (sa.connection.clone(), own_octets(sa), prf_id(sa));
    let (Some(connection), Some(octets), Some(prf)) = parts else {
        return sa.fail(cx, "nothing to sign");
    };
    let announced = sa
        .auth
        .as_ref()
        .and_then(|auth| auth.handshake.announced.clone());
    let work = match &connection.local_proof {
        LocalProof::SharedSecret(secret) => Work::SharedSecret {
            secret: *secret,
            prf,
            check: None,
            prove: Some(octets),
        },
        LocalProof::Certificate { key, padding, .. } => Work::Sign {
            key: *key,
            announced,
            padding: *padding,
            octets,
        },
    };
    cx.work(sa.own_spi(), Purpose::Prove, work);
}

/// Starts the check of the peer's AUTH payload. A responder that proves itself by a shared secret too has both done at
/// once.
fn check(sa: &mut IkeSa, cx: &mut Context<'_>, auth: (u8, Vec<u8>), chain: Vec<Vec<u8>>) {
    let parts = (sa.connection.clone(), peer_octets(sa), prf_id(sa));
    let (Some(connection), Some(octets), Some(prf)) = parts else {
        return sa.fail(cx, "nothing to check");
    };
    let claimed = sa.auth.as_ref().and_then(|auth| auth.claimed.clone());
    let own_secret = match connection.local_proof {
        LocalProof::SharedSecret(number) if !sa.is_initiator => Some(number),
        _ => None,
    };
    let work = match (&connection.remote_proof, claimed) {
        (RemoteProof::SharedSecret(secret), _) => Work::SharedSecret {
            secret: *secret,
            prf,
            check: Some((auth.0, auth.1, octets)),
            prove: own_octets(sa).filter(|_| own_secret == Some(*secret)),
        },
        (RemoteProof::Certificate { trust, .. }, Some(claimed)) => Work::Verify {
            trust: *trust,
            chain,
            claimed: claimed.identity,
            auth,
            octets,
        },
        (RemoteProof::Certificate { .. }, None) => return sa.fail(cx, "the peer has no identity"),
    };
    cx.work(sa.own_spi(), Purpose::Check, work);
}

/// The identity, certificates and notifications that both sides send in front of the child's payloads.
fn own_notifications(window: u32, is_initial_contact: bool, size: &[u8; 4]) -> Vec<Payload<'_>> {
    let mut payloads = Vec::new();
    // RFC 7296 2.4: only in the first request of a new IKE SA, where none of this peer is up.
    if is_initial_contact {
        payloads.push(Body::Notify(Notify::new(NotifyType::InitialContact, &[])).into());
    }
    if window > 1 {
        payloads.push(Body::Notify(Notify::new(NotifyType::SetWindowSize, size)).into());
    }
    payloads
}

/// The peer's SET_WINDOW_SIZE, and the own one.
fn set_windows(sa: &mut IkeSa, payloads: &[Payload<'_>]) {
    let theirs = super::init::notification(payloads, NotifyType::SetWindowSize);
    if let Some(size) = theirs.and_then(|notify| notify.data.first_chunk::<4>()) {
        sa.requests.widen(u32::from_be_bytes(*size));
    }
    let window = sa
        .connection
        .as_ref()
        .map_or(1, |connection| connection.window);
    sa.responses.widen(window);
}
