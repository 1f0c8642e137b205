//! The messages of a netlink datagram: their headers, and the outcome that ends an answer.

use super::attributes;
use netlink_packet_core::{
    NLM_F_ACK_TLVS, NLM_F_REQUEST, NLMSG_DONE, NLMSG_ERROR, NetlinkDeserializable, NetlinkHeader,
};
use std::io;
use zeroize::Zeroizing;

/// Bytes of a message's header.
const HEADER_BYTES: usize = 16;

/// NLMSGERR_ATTR_MSG: the kernel's explanation of an error.
const ERROR_TEXT: u16 = 1;

/// One message from the kernel.
#[derive(Clone, Copy)]
pub(crate) struct KernelMessage<'a> {
    /// RTM_…, XFRM_MSG_…, or netlink's own.
    pub kind: u16,
    /// The number of the request that it answers.
    pub number: u32,
    /// The port of the socket whose request it answers, or whose change it tells of; 0 for a change of the kernel's.
    pub port: u32,
    /// What follows the header.
    pub body: &'a [u8],
    /// NLM_F_…
    pub flags: u16,
}

/// The messages of a datagram, up to the first incomplete one.
pub(crate) struct KernelMessages<'a>(&'a [u8]);

/// Why a request failed.
#[derive(Debug, thiserror::Error)]
#[error("{error}")]
pub(crate) struct ExchangeError {
    /// The kernel's error, or the socket's.
    pub error: io::Error,
    /// The kernel's explanation, if it gave one.
    pub text: Option<String>,
}

/// The messages of a datagram.
pub(crate) fn messages(datagram: &[u8]) -> KernelMessages<'_> {
    KernelMessages(datagram)
}

/// A request with its header. It is zeroed after use, because requests to XFRM contain keys.
pub(super) fn request(kind: u16, flags: u16, number: u32, body: &[u8]) -> Zeroizing<Vec<u8>> {
    let mut bytes = Zeroizing::new(Vec::with_capacity(HEADER_BYTES + body.len()));
    bytes.extend(header(kind, NLM_F_REQUEST | flags, number, body.len()));
    bytes.extend(body);
    bytes
}

/// The header of a message.
pub(crate) fn header(kind: u16, flags: u16, number: u32, body_len: usize) -> [u8; HEADER_BYTES] {
    let [l0, l1, l2, l3] = ((HEADER_BYTES + body_len) as u32).to_ne_bytes();
    let ([k0, k1], [f0, f1]) = (kind.to_ne_bytes(), flags.to_ne_bytes());
    let [n0, n1, n2, n3] = number.to_ne_bytes();
    // At the end the port of the sender, which the kernel sets.
    [l0, l1, l2, l3, k0, k1, f0, f1, n0, n1, n2, n3, 0, 0, 0, 0]
}

impl KernelMessages<'_> {
    /// Whether every message has been read; otherwise the next one is truncated.
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl<'a> Iterator for KernelMessages<'a> {
    type Item = KernelMessage<'a>;

    fn next(&mut self) -> Option<KernelMessage<'a>> {
        let header = self.0.first_chunk::<HEADER_BYTES>()?;
        let half = |at: usize| u16::from_ne_bytes([header[at], header[at + 1]]);
        let word = |at: usize| {
            u32::from_ne_bytes([header[at], header[at + 1], header[at + 2], header[at + 3]])
        };
        let len = word(0) as usize;
        let message = KernelMessage {
            kind: half(4),
            flags: half(6),
            number: word(8),
            port: word(12),
            body: self.0.get(HEADER_BYTES..len)?,
        };
        self.0 = self.0.get(len.next_multiple_of(4)..).unwrap_or_default();
        Some(message)
    }
}

impl KernelMessage<'_> {
    /// Parses the body as a message of a library's type.
    pub(crate) fn parse<M: NetlinkDeserializable>(&self) -> Result<M, M::Error> {
        let mut header = NetlinkHeader::default();
        header.length = (HEADER_BYTES + self.body.len()) as u32;
        header.message_type = self.kind;
        header.flags = self.flags;
        header.sequence_number = self.number;
        M::deserialize(&header, self.body)
    }

    /// The outcome of a request, if this message has it: 0 or a negated error number, in an acknowledgement also the
    /// header of the request, and then attributes that explain the error.
    pub(crate) fn outcome(&self) -> Result<(), ExchangeError> {
        let attributes_at = match self.kind {
            NLMSG_ERROR => 4 + HEADER_BYTES,
            NLMSG_DONE => 4,
            _ => return Ok(()),
        };
        let code = self
            .body
            .first_chunk()
            .map(|code| i32::from_ne_bytes(*code));
        match code {
            None if self.kind == NLMSG_ERROR => Err(truncated().into()),
            None | Some(0..) => Ok(()),
            Some(code) => Err(ExchangeError {
                error: io::Error::from_raw_os_error(code.wrapping_neg()),
                text: self.error_text(attributes_at),
            }),
        }
    }

    fn error_text(&self, attributes_at: usize) -> Option<String> {
        if self.flags & NLM_F_ACK_TLVS == 0 {
            return None;
        }
        attributes::find_text(self.body.get(attributes_at..)?, ERROR_TEXT).map(str::to_owned)
    }
}

impl From<io::Error> for ExchangeError {
    fn from(error: io::Error) -> Self {
        Self { error, text: None }
    }
}

impl From<ExchangeError> for io::Error {
    fn from(error: ExchangeError) -> Self {
        error.error
    }
}

pub(super) fn truncated() -> io::Error {
    io::Error::new(
        io::ErrorKind::InvalidData,
        "a message of the kernel is truncated",
    )
}
