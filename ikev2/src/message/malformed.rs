//! Why bytes are not a message: where, and what was expected there.

use super::PayloadType;
use std::fmt;

/// Bytes that break a rule of RFC 7296 section 3. A request like this is answered by INVALID_SYNTAX, if it was
/// authentic.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Malformed {
    /// What was being read.
    pub location: Location,
    /// At which byte of the message, or of the decrypted payloads where these were read.
    pub offset: usize,
    /// What should have been there.
    pub expected: &'static str,
}

/// What was being read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Location {
    /// The IKE header.
    Header,
    /// A payload of this type, its generic header included.
    Payload(PayloadType),
}

/// Why a message is not taken.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Refusal {
    /// Another major version (RFC 7296 2.5): a request is answered by INVALID_MAJOR_VERSION.
    MajorVersion(u8),
    /// A payload that is not known and must not be passed over: a request is answered by UNSUPPORTED_CRITICAL_PAYLOAD
    /// with the payload's type (RFC 7296 2.5 and 3.10.1).
    UnsupportedCritical(PayloadType),
    /// A rule of section 3 is broken: an authentic request is answered by INVALID_SYNTAX.
    Malformed(Malformed),
}

impl From<Malformed> for Refusal {
    fn from(malformed: Malformed) -> Self {
        Self::Malformed(malformed)
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::MajorVersion(version) => write!(f, "major version {version}, expected 2"),
            Self::UnsupportedCritical(kind) => {
                write!(f, "a critical payload of type {} is not supported", kind.0)
            }
            Self::Malformed(malformed) => malformed.fmt(f),
        }
    }
}

impl std::error::Error for Refusal {}

impl fmt::Display for Malformed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.location {
            Location::Header => f.write_str("IKE header")?,
            Location::Payload(payload) => write!(f, "payload {payload}")?,
        }
        write!(f, ", byte {}: expected {}", self.offset, self.expected)
    }
}

impl std::error::Error for Malformed {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_names_payload_byte_and_expectation() {
        let malformed = Malformed {
            location: Location::Payload(PayloadType::NONCE),
            offset: 120,
            expected: "16 to 256 bytes of nonce",
        };
        assert_eq!(
            malformed.to_string(),
            "payload Nonce, byte 120: expected 16 to 256 bytes of nonce"
        );
    }
}
