//! What names an association and its packets: SPI, protocol, reqid, sequence number.

use std::fmt;
use std::net::IpAddr;

/// Security parameters index (RFC 4301 4.1). 0 never travels and 1–255 are reserved (RFC 4303 2.1).
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct Spi(u32);

impl Spi {
    /// SPI 0, which must not be sent but is in one of the packets printed in a draft.
    #[cfg(test)]
    pub(crate) const NONE: Self = Self(0);

    /// The SPI of this value, unless it is 0. setkey accepts 1–255 with a warning, as its users know it.
    pub fn new(value: u32) -> Option<Self> {
        (value != 0).then_some(Self(value))
    }

    /// The value.
    pub fn get(self) -> u32 {
        self.0
    }

    /// Whether IANA reserves it (RFC 4303 2.1).
    pub fn is_reserved(self) -> bool {
        self.0 < 256
    }
}

impl fmt::Display for Spi {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#010x}", self.0)
    }
}

/// Ties policies to associations: setkey's `-u` and `unique:N`. 0 is "none".
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Reqid(pub u32);

/// A sequence number in full, 64 bits when extended (RFC 4303 2.2.1).
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug, Default)]
pub struct SequenceNumber(pub u64);

impl SequenceNumber {
    /// The half that travels.
    pub fn low(self) -> u32 {
        self.0 as u32
    }

    /// The half that does not travel but is authenticated.
    pub fn high(self) -> u32 {
        (self.0 >> 32) as u32
    }
}

/// The IPsec protocol of an association.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Protocol {
    /// Encapsulating Security Payload (RFC 4303).
    Esp,
    /// Authentication Header (RFC 4302).
    Ah,
    /// IP payload compression (RFC 3173), whose associations are found by the CPI in place of an SPI.
    IpComp,
}

impl Protocol {
    /// The IP protocol number.
    pub fn number(self) -> u8 {
        match self {
            Self::Esp => 50,
            Self::Ah => 51,
            Self::IpComp => 108,
        }
    }
}

/// What an association is found by (RFC 4301 4.4.2.1; Linux and setkey always take the destination too).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct SaId {
    /// Outer destination address.
    pub destination: IpAddr,
    /// ESP, AH or IPComp.
    pub protocol: Protocol,
    /// The SPI the receiver chose.
    pub spi: Spi,
}
