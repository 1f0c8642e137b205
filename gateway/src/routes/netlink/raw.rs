//! Requests whose answers are read attribute by attribute, so that objects of other programs and attributes of newer
//! kernels do not make parsing fail.

use super::Netlink;
use crate::netlink_socket::attributes;
use std::io;

const NLMSG_ERROR: u16 = libc::NLMSG_ERROR as u16;
const NLMSG_DONE: u16 = libc::NLMSG_DONE as u16;

/// Flags of a request: acknowledge success too; list all objects of a kind.
pub(super) const ACK: u16 = libc::NLM_F_ACK as u16;
pub(super) const DUMP: u16 = libc::NLM_F_DUMP as u16;

/// Bytes of netlink's header.
const HEADER_LEN: usize = 16;

/// Size of the receive buffer. The kernel sends at most 32 KiB at once, and only after reads with a buffer of that
/// size.
const ANSWER_ROOM_BYTES: usize = 64 << 10;

/// A message without netlink's header.
pub(super) struct RawAnswer {
    /// RTM_…
    pub kind: u16,
    body: Vec<u8>,
}

impl RawAnswer {
    /// The fixed part of `LEN` bytes; zeros if the message is shorter.
    pub(super) fn fixed<const LEN: usize>(&self) -> [u8; LEN] {
        self.body.first_chunk().copied().unwrap_or([0; LEN])
    }

    /// An attribute after the fixed part of `fixed` bytes.
    pub(super) fn find(&self, fixed: usize, kind: u16) -> Option<&[u8]> {
        attributes::find(self.body.get(fixed..)?, kind)
    }
}

impl Netlink {
    /// One request and all its answers.
    pub(super) fn ask_raw(
        &mut self,
        kind: u16,
        flags: u16,
        body: &[u8],
    ) -> io::Result<Vec<RawAnswer>> {
        self.sequence = self.sequence.wrapping_add(1);
        self.socket
            .send(&request(kind, flags, self.sequence, body), 0)?;
        let mut answers = Vec::new();
        let mut room = vec![0; ANSWER_ROOM_BYTES];
        loop {
            let len = self.socket.recv(&mut &mut room[..], libc::MSG_TRUNC)?;
            let datagram = room.get(..len).ok_or(io::ErrorKind::InvalidData)?;
            if self.take(datagram, &mut answers)? {
                return Ok(answers);
            }
        }
    }

    /// Appends the messages of a datagram; returns whether they are the last.
    fn take(&self, mut rest: &[u8], answers: &mut Vec<RawAnswer>) -> io::Result<bool> {
        while let Some(header) = rest.first_chunk::<HEADER_LEN>() {
            let word = |at: usize| {
                u32::from_ne_bytes([header[at], header[at + 1], header[at + 2], header[at + 3]])
            };
            let (len, kind) = (word(0) as usize, u16::from_ne_bytes([header[4], header[5]]));
            let body = rest
                .get(HEADER_LEN..len)
                .ok_or(io::ErrorKind::InvalidData)?;
            if word(8) == self.sequence {
                match kind {
                    NLMSG_DONE => return Ok(true),
                    NLMSG_ERROR => return outcome(body).map(|()| true),
                    _ => answers.push(RawAnswer {
                        kind,
                        body: body.to_vec(),
                    }),
                }
            }
            rest = rest.get(len.next_multiple_of(4)..).unwrap_or_default();
        }
        Ok(false)
    }
}

fn request(kind: u16, flags: u16, sequence: u32, body: &[u8]) -> Vec<u8> {
    let mut bytes = ((HEADER_LEN + body.len()) as u32).to_ne_bytes().to_vec();
    bytes.extend(kind.to_ne_bytes());
    bytes.extend((libc::NLM_F_REQUEST as u16 | flags).to_ne_bytes());
    bytes.extend(sequence.to_ne_bytes());
    // Port id of the sender: set by the kernel.
    bytes.extend([0; 4]);
    bytes.extend(body);
    bytes
}

/// The result in an acknowledgement: 0, or a negated error number.
fn outcome(body: &[u8]) -> io::Result<()> {
    match body.first_chunk().map(|code| i32::from_ne_bytes(*code)) {
        Some(0) => Ok(()),
        Some(code) => Err(io::Error::from_raw_os_error(code.wrapping_neg())),
        None => Err(io::ErrorKind::InvalidData.into()),
    }
}
