//! The last state of associations that are deleted, as the kernel's notifications tell it: numbers, window and counters
//! at that moment. From then on the kernel seals and opens nothing by them, but for packets that it is decrypting just
//! then.

use super::association;
use super::zeroizing::ZeroizingMessage;
use crate::netlink_socket::listen;
use crate::netlink_socket::message::messages;
use ipsec::sa::SaId;
use netlink_packet_xfrm::state::ModifyMessage;
use netlink_packet_xfrm::{XfrmAttrs, XfrmMessage};
use netlink_sys::Socket;
use netlink_sys::protocols::NETLINK_XFRM;
use std::io;
use zeroize::Zeroizing;

/// XFRMNLGRP_SA of `linux/xfrm.h`.
const GROUP: u32 = 3;

const MAX_MESSAGE_BYTES: usize = 32 << 10;

/// The socket that receives them.
pub(crate) struct LastStates {
    socket: Socket,
    /// They contain keys.
    room: Zeroizing<Vec<u8>>,
}

impl LastStates {
    /// Deletions from now on are noticed.
    pub(crate) fn listen() -> io::Result<Self> {
        Ok(Self {
            socket: listen(NETLINK_XFRM, &[GROUP])?,
            room: Zeroizing::new(vec![0; MAX_MESSAGE_BYTES]),
        })
    }

    /// What was deleted until now is not asked for.
    pub(crate) fn forget(&mut self) {
        self.take();
    }

    /// The associations that were deleted since, each as a message that would add it.
    pub(super) fn take(&mut self) -> Vec<(SaId, ZeroizingMessage)> {
        let mut ended = Vec::new();
        loop {
            let room = &mut &mut self.room[..];
            match self.socket.recv_from(room, libc::MSG_TRUNC) {
                Ok((len, sender)) if sender.port_number() == 0 => {
                    let datagram = self.room.get(..len).unwrap_or_default();
                    for message in messages(datagram) {
                        ended.extend(message.parse().ok().and_then(of_deleted));
                    }
                }
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                // Some were lost for want of room; the rest is still there.
                Err(error) if error.raw_os_error() == Some(libc::ENOBUFS) => {}
                Err(_) => return ended,
            }
        }
    }
}

fn of_deleted(message: XfrmMessage) -> Option<(SaId, ZeroizingMessage)> {
    let XfrmMessage::DeleteSa(mut message) = message else {
        return None;
    };
    let nlas = std::mem::take(&mut message.nlas);
    let info = nlas.iter().find_map(|attribute| match attribute {
        XfrmAttrs::SaInfo(info) => Some(*info),
        _ => None,
    });
    let whole = ModifyMessage {
        user_sa_info: info.unwrap_or_default(),
        nlas,
    };
    let whole = ZeroizingMessage::new(XfrmMessage::AddSa(whole));
    info?;
    Some((association::identity_of(&message.user_sa_id)?, whole))
}

/// The window among the attributes of an association.
pub(super) fn replay_of(attributes: &[XfrmAttrs]) -> Option<&XfrmAttrs> {
    let is_large = |attribute: &&XfrmAttrs| matches!(attribute, XfrmAttrs::ReplayStateEsn(_));
    let is_small = |attribute: &&XfrmAttrs| matches!(attribute, XfrmAttrs::ReplayState(_));
    let large = attributes.iter().find(is_large);
    large.or_else(|| attributes.iter().find(is_small))
}
