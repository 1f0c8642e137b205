//! Which payloads there are (RFC 7296 3.2 and IANA's registry).

use std::fmt;

/// The number of a payload type, as it travels in the Next Payload field in front of the payload.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct PayloadType(pub u8);

macro_rules! payload_types {
    ($($constant:ident = $number:literal, $notation:literal, $about:literal;)*) => {
        impl PayloadType {
            $(#[doc = $about] pub const $constant: Self = Self($number);)*

            /// The short notation of RFC 7296, where the type has one.
            pub fn notation(self) -> Option<&'static str> {
                match self {
                    $(Self::$constant => Some($notation),)*
                    _ => None,
                }
            }
        }
    };
}

payload_types! {
    NONE = 0, "none", "No payload follows.";
    SECURITY_ASSOCIATION = 33, "SA", "Security Association: what is proposed or chosen.";
    KEY_EXCHANGE = 34, "KE", "Key Exchange: a public value.";
    IDENTIFICATION_INITIATOR = 35, "IDi", "Identification of the initiator.";
    IDENTIFICATION_RESPONDER = 36, "IDr", "Identification of the responder.";
    CERTIFICATE = 37, "CERT", "Certificate.";
    CERTIFICATE_REQUEST = 38, "CERTREQ", "Certificate Request: which authorities are trusted.";
    AUTHENTICATION = 39, "AUTH", "Authentication: proof of the identity.";
    NONCE = 40, "Nonce", "Nonce.";
    NOTIFY = 41, "N", "Notify: an error or a status.";
    DELETE = 42, "D", "Delete: associations that end.";
    VENDOR_ID = 43, "V", "Vendor ID.";
    TRAFFIC_SELECTORS_INITIATOR = 44, "TSi", "Traffic selectors on the initiator's side.";
    TRAFFIC_SELECTORS_RESPONDER = 45, "TSr", "Traffic selectors on the responder's side.";
    ENCRYPTED = 46, "SK", "Encrypted and authenticated payloads.";
    CONFIGURATION = 47, "CP", "Configuration.";
    EAP = 48, "EAP", "Extensible Authentication.";
    ENCRYPTED_FRAGMENT = 53, "SKF", "A part of encrypted and authenticated payloads (RFC 7383).";
}

impl fmt::Display for PayloadType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.notation() {
            Some(notation) => f.write_str(notation),
            None => write!(f, "of type {}", self.0),
        }
    }
}
