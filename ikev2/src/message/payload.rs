//! The chain of payloads (RFC 7296 3.2): each begins with the type of the next one and its own length.

use super::{
    HEADER_LEN, Location, Malformed, PayloadType, Refusal, TooLong,
    reader::Reader,
    writer::{Overflow, with_length},
};

mod configuration;
mod delete;
mod identity;
mod notify;
mod security_association;
mod small;
mod traffic_selector;

pub use configuration::{Configuration, ConfigurationAttribute, ConfigurationKind};
pub use delete::Delete;
pub use identity::{Identification, IdentificationType};
pub use notify::{Notify, NotifyType};
pub use security_association::{
    Attribute, AttributeValue, Attributes, Proposal, Protocol, SecurityAssociation, Transform,
    TransformType,
};
pub use small::{
    AuthMethod, Authentication, CertificateEncoding, CertificatePayload, EncryptedFragment,
    KeyExchange,
};
pub use traffic_selector::{AddressRange, Ports, TrafficSelector};

/// Bytes of the generic payload header.
pub(crate) const GENERIC_HEADER_LEN: usize = 4;
/// How many payloads a message may have. Certificates, vendor IDs and notifications of real peers stay below a third.
pub const MAX_PAYLOADS: usize = 128;

const CRITICAL: u8 = 0x80;

/// One payload.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Payload<'a> {
    /// Whether a receiver that does not know the type must refuse the message. Has no meaning for types that are known,
    /// and is not set for those of RFC 7296.
    pub critical: bool,
    /// Its contents.
    pub body: Body<'a>,
}

/// The contents of a payload.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Body<'a> {
    /// SA: what is proposed, or the one proposal that was chosen (3.3).
    SecurityAssociation(SecurityAssociation<'a>),
    /// KE: a public value (3.4).
    KeyExchange(KeyExchange<'a>),
    /// IDi: the identity that the initiator claims (3.5).
    IdentificationInitiator(Identification<'a>),
    /// IDr: the identity that the responder claims, or that the initiator expects (3.5).
    IdentificationResponder(Identification<'a>),
    /// CERT (3.6).
    Certificate(CertificatePayload<'a>),
    /// CERTREQ: an encoding, and hashes of the keys of trusted authorities (3.7).
    CertificateRequest(CertificatePayload<'a>),
    /// AUTH (3.8).
    Authentication(Authentication<'a>),
    /// Ni or Nr: 16 to 256 bytes (3.9).
    Nonce(&'a [u8]),
    /// N (3.10).
    Notify(Notify<'a>),
    /// D (3.11).
    Delete(Delete<'a>),
    /// V: bytes that only their vendor defines (3.12).
    VendorId(&'a [u8]),
    /// TSi (3.13).
    TrafficSelectorsInitiator(Vec<TrafficSelector<'a>>),
    /// TSr (3.13).
    TrafficSelectorsResponder(Vec<TrafficSelector<'a>>),
    /// SK: IV, ciphertext and ICV; the last payload (3.14).
    Encrypted {
        /// The type of the first payload inside.
        first: PayloadType,
        /// IV, ciphertext and ICV.
        sealed: &'a [u8],
    },
    /// SKF: a part of what would be inside SK; the last payload (RFC 7383 2.5).
    EncryptedFragment(EncryptedFragment<'a>),
    /// CP (3.15).
    Configuration(Configuration<'a>),
    /// EAP, not read any further here (3.16).
    Eap(&'a [u8]),
    /// A type that is not known and may be passed over.
    Unknown {
        /// The type.
        kind: PayloadType,
        /// What is behind the generic header.
        bytes: &'a [u8],
    },
}

impl<'a> From<Body<'a>> for Payload<'a> {
    fn from(body: Body<'a>) -> Self {
        Self {
            critical: false,
            body,
        }
    }
}

/// Reads the payloads of a message behind its header.
pub(super) fn parse_message(first: PayloadType, bytes: &[u8]) -> Result<Vec<Payload<'_>>, Refusal> {
    chain(first, bytes, Where::Message)
}

/// Reads what an encrypted payload held: `bytes` without padding, beginning with a payload of type `first`.
pub fn parse_decrypted(first: PayloadType, bytes: &[u8]) -> Result<Vec<Payload<'_>>, Refusal> {
    chain(first, bytes, Where::Decrypted)
}

/// The type of the first of `payloads`, as it stands in front of them.
pub fn first(payloads: &[Payload<'_>]) -> PayloadType {
    payloads
        .first()
        .map_or(PayloadType::NONE, |payload| payload.body.kind())
}

/// Writes `payloads` behind what is in `out`.
pub fn print(payloads: &[Payload<'_>], out: &mut Vec<u8>) -> Result<(), TooLong> {
    for (index, payload) in payloads.iter().enumerate() {
        let behind = payloads
            .get(index + 1)
            .map_or(PayloadType::NONE, |next| next.body.kind());
        let next = payload.body.first_inside().unwrap_or(behind);
        let critical = if payload.critical { CRITICAL } else { 0 };
        with_length(out, |out| {
            out.extend([next.0, critical, 0, 0]);
            payload.body.emit(out)
        })
        .map_err(|Overflow| TooLong(payload.body.kind()))?;
    }
    Ok(())
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Where {
    Message,
    Decrypted,
}

impl Where {
    fn first_offset(self) -> usize {
        match self {
            Self::Message => HEADER_LEN,
            Self::Decrypted => 0,
        }
    }
}

fn chain(first: PayloadType, bytes: &[u8], place: Where) -> Result<Vec<Payload<'_>>, Refusal> {
    let mut reader = Reader::new(bytes, place.first_offset(), Location::Header);
    let (mut kind, mut payloads) = (first, Vec::new());
    while kind != PayloadType::NONE {
        reader = reader.named(Location::Payload(kind));
        if payloads.len() == MAX_PAYLOADS {
            return Err(reader.malformed("at most 128 payloads").into());
        }
        let [next, flags] = reader.array("a generic payload header")?;
        let len = reader.u16("the payload's length")?;
        let len = usize::from(len).checked_sub(GENERIC_HEADER_LEN);
        let len = len.ok_or(reader.malformed("a length of at least 4"))?;
        let body = reader.part(len, "as many bytes as the payload's length says")?;
        let critical = flags & CRITICAL != 0;
        let next = PayloadType(next);
        let body = Body::parse(kind, next, critical, body, place)?;
        // RFC 7296 3.14: an encrypted payload is the last, and its Next Payload field is the type of the first payload
        // inside.
        kind = if body.first_inside().is_some() {
            PayloadType::NONE
        } else {
            next
        };
        payloads.push(Payload { critical, body });
    }
    if reader.is_empty() {
        Ok(payloads)
    } else {
        Err(reader.malformed("the end behind the last payload").into())
    }
}

impl<'a> Body<'a> {
    /// The type in front of this payload.
    pub fn kind(&self) -> PayloadType {
        match self {
            Self::SecurityAssociation(_) => PayloadType::SECURITY_ASSOCIATION,
            Self::KeyExchange(_) => PayloadType::KEY_EXCHANGE,
            Self::IdentificationInitiator(_) => PayloadType::IDENTIFICATION_INITIATOR,
            Self::IdentificationResponder(_) => PayloadType::IDENTIFICATION_RESPONDER,
            Self::Certificate(_) => PayloadType::CERTIFICATE,
            Self::CertificateRequest(_) => PayloadType::CERTIFICATE_REQUEST,
            Self::Authentication(_) => PayloadType::AUTHENTICATION,
            Self::Nonce(_) => PayloadType::NONCE,
            Self::Notify(_) => PayloadType::NOTIFY,
            Self::Delete(_) => PayloadType::DELETE,
            Self::VendorId(_) => PayloadType::VENDOR_ID,
            Self::TrafficSelectorsInitiator(_) => PayloadType::TRAFFIC_SELECTORS_INITIATOR,
            Self::TrafficSelectorsResponder(_) => PayloadType::TRAFFIC_SELECTORS_RESPONDER,
            Self::Encrypted { .. } => PayloadType::ENCRYPTED,
            Self::EncryptedFragment(_) => PayloadType::ENCRYPTED_FRAGMENT,
            Self::Configuration(_) => PayloadType::CONFIGURATION,
            Self::Eap(_) => PayloadType::EAP,
            Self::Unknown { kind, .. } => *kind,
        }
    }

    /// The type of the first payload inside an encrypted one.
    fn first_inside(&self) -> Option<PayloadType> {
        match self {
            Self::Encrypted { first, .. } => Some(*first),
            Self::EncryptedFragment(fragment) => Some(fragment.first),
            _ => None,
        }
    }

    fn parse(
        kind: PayloadType,
        next: PayloadType,
        critical: bool,
        reader: Reader<'a>,
        place: Where,
    ) -> Result<Self, Refusal> {
        let body = match kind {
            PayloadType::ENCRYPTED | PayloadType::ENCRYPTED_FRAGMENT
                if place == Where::Decrypted =>
            {
                return Err(reader
                    .malformed("no encrypted payload inside another")
                    .into());
            }
            PayloadType::ENCRYPTED => Self::Encrypted {
                first: next,
                sealed: reader.rest(),
            },
            PayloadType::ENCRYPTED_FRAGMENT => {
                Self::EncryptedFragment(EncryptedFragment::parse(next, reader)?)
            }
            kind => match Self::parse_clear(kind, reader)? {
                Some(body) => body,
                // RFC 7296 2.5: unknown payloads are passed over, but for critical ones.
                None if critical => return Err(Refusal::UnsupportedCritical(kind)),
                None => Self::Unknown {
                    kind,
                    bytes: reader.rest(),
                },
            },
        };
        Ok(body)
    }

    /// `None` for a type that is not known.
    fn parse_clear(kind: PayloadType, reader: Reader<'a>) -> Result<Option<Self>, Malformed> {
        Ok(Some(match kind {
            PayloadType::SECURITY_ASSOCIATION => {
                Self::SecurityAssociation(SecurityAssociation::parse(reader)?)
            }
            PayloadType::KEY_EXCHANGE => Self::KeyExchange(KeyExchange::parse(reader)?),
            PayloadType::IDENTIFICATION_INITIATOR => {
                Self::IdentificationInitiator(Identification::parse(reader)?)
            }
            PayloadType::IDENTIFICATION_RESPONDER => {
                Self::IdentificationResponder(Identification::parse(reader)?)
            }
            PayloadType::CERTIFICATE => Self::Certificate(CertificatePayload::parse(reader)?),
            PayloadType::CERTIFICATE_REQUEST => {
                Self::CertificateRequest(CertificatePayload::parse(reader)?)
            }
            PayloadType::AUTHENTICATION => Self::Authentication(Authentication::parse(reader)?),
            PayloadType::NONCE => Self::Nonce(small::nonce(reader)?),
            PayloadType::NOTIFY => Self::Notify(Notify::parse(reader)?),
            PayloadType::DELETE => Self::Delete(Delete::parse(reader)?),
            PayloadType::VENDOR_ID => Self::VendorId(reader.rest()),
            PayloadType::TRAFFIC_SELECTORS_INITIATOR => {
                Self::TrafficSelectorsInitiator(traffic_selector::parse(reader)?)
            }
            PayloadType::TRAFFIC_SELECTORS_RESPONDER => {
                Self::TrafficSelectorsResponder(traffic_selector::parse(reader)?)
            }
            PayloadType::CONFIGURATION => Self::Configuration(Configuration::parse(reader)?),
            PayloadType::EAP => Self::Eap(reader.rest()),
            _ => return Ok(None),
        }))
    }

    /// Writes what is behind the generic header.
    fn emit(&self, out: &mut Vec<u8>) -> Result<(), Overflow> {
        match self {
            Self::SecurityAssociation(association) => return association.emit(out),
            Self::KeyExchange(exchange) => exchange.emit(out),
            Self::IdentificationInitiator(identity) | Self::IdentificationResponder(identity) => {
                identity.emit(out);
            }
            Self::Certificate(certificate) | Self::CertificateRequest(certificate) => {
                certificate.emit(out);
            }
            Self::Authentication(authentication) => authentication.emit(out),
            Self::Notify(notify) => return notify.emit(out),
            Self::Delete(delete) => return delete.emit(out),
            Self::TrafficSelectorsInitiator(selectors)
            | Self::TrafficSelectorsResponder(selectors) => {
                return traffic_selector::emit(selectors, out);
            }
            Self::EncryptedFragment(fragment) => fragment.emit(out),
            Self::Configuration(configuration) => return configuration.emit(out),
            Self::Nonce(bytes)
            | Self::VendorId(bytes)
            | Self::Eap(bytes)
            | Self::Encrypted { sealed: bytes, .. }
            | Self::Unknown { bytes, .. } => out.extend_from_slice(bytes),
        }
        Ok(())
    }
}
