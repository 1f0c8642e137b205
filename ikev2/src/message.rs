//! IKE messages (RFC 7296 section 3): from bytes, and back.
//!
//! What was parsed borrows the bytes it was read from. Printing it gives the same bytes again, but for reserved bits:
//! these are ignored when read and zero when sent, as the RFC requires.
//!
//! ```text
//!   header      28 bytes in front of every message       payload     the chain of payloads, and what each holds
//!   reader      bounded reading with a place for errors  writer      structures that begin with their length
//! ```

mod header;
mod malformed;
pub(crate) mod number;
pub mod payload;
mod payload_type;
mod reader;
mod writer;

pub use header::{ExchangeType, Flags, HEADER_LEN, Header, IkeSpi};
pub use malformed::{Location, Malformed, Refusal};
pub use payload::{Body, Payload};
pub use payload_type::PayloadType;
pub use writer::TooLong;

/// A whole message. Its payloads are those in clear; what an encrypted payload holds is read when it was opened.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Message<'a> {
    /// The header.
    pub header: Header,
    /// The payloads, in their order.
    pub payloads: Vec<Payload<'a>>,
}

impl<'a> Message<'a> {
    /// Reads one whole datagram, without the non-ESP marker.
    pub fn parse(bytes: &'a [u8]) -> Result<Self, Refusal> {
        let (header, first) = Header::parse(bytes)?;
        let behind = bytes.get(HEADER_LEN..).unwrap_or_default();
        let payloads = payload::parse_message(first, behind)?;
        Ok(Self { header, payloads })
    }

    /// The bytes of the message.
    pub fn print(&self) -> Result<Vec<u8>, TooLong> {
        let mut out = vec![0; HEADER_LEN];
        payload::print(&self.payloads, &mut out)?;
        let header = self
            .header
            .emit(payload::first(&self.payloads), out.len() as u32);
        out[..HEADER_LEN].copy_from_slice(&header);
        Ok(out)
    }
}

#[cfg(test)]
mod tests;
