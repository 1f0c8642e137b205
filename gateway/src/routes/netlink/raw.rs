//! Requests whose answers are read attribute by attribute, so that objects of other programs and attributes of newer
//! kernels do not make parsing fail.

use crate::netlink_socket::{NetlinkSocket, attributes};
use std::io;

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

/// One request and all its answers.
pub(super) fn ask(
    socket: &mut NetlinkSocket,
    kind: u16,
    flags: u16,
    body: &[u8],
) -> io::Result<Vec<RawAnswer>> {
    socket.exchange(kind, flags, body, |message| {
        Ok(RawAnswer {
            kind: message.kind,
            body: message.body.to_vec(),
        })
    })
}
