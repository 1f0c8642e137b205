//! The kernel's notifications about its IPsec: a policy without an association, a lifetime that is over, a peer behind
//! a NAT that has moved, and changes by other programs.

use super::association;
use crate::netlink_socket::listen;
use crate::netlink_socket::message::messages;
use ipsec::sa::SaId;
use netlink_packet_xfrm::state::ModifyMessage;
use netlink_packet_xfrm::{UserAcquire, UserMapping, XfrmMessage};
use netlink_sys::Socket;
use netlink_sys::protocols::NETLINK_XFRM;
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsRawFd, BorrowedFd};
use zeroize::Zeroizing;

/// XFRMNLGRP_ACQUIRE, EXPIRE, SA, POLICY, MIGRATE and MAPPING of `linux/xfrm.h`.
const GROUPS: [u32; 6] = [1, 2, 3, 4, 7, 8];

/// Longer ones are truncated, and count as a change.
const MAX_MESSAGE_BYTES: usize = 32 << 10;

/// Notifications that are read at one go, so that a flood of them delays nothing else.
const MAX_AT_ONCE: usize = 256;

/// One notification.
pub(crate) enum KernelNotice {
    /// A packet met a policy without an association.
    Acquire(Box<UserAcquire>),
    /// An association has reached a soft or hard limit; what it had carried then.
    Expired {
        /// Its name.
        id: SaId,
        /// Whether the kernel has removed it.
        is_hard: bool,
        /// Its counters.
        last: Box<ModifyMessage>,
    },
    /// Packets of an association come from another address or port.
    Moved {
        /// Its name.
        id: SaId,
        /// The new address.
        from: SocketAddr,
    },
    /// Associations or policies were changed or moved to other addresses by another program, or notifications were
    /// lost.
    Changed,
}

/// The socket that receives them.
pub(crate) struct KernelNotices {
    socket: Socket,
    /// Notifications about new associations contain keys.
    room: Zeroizing<Vec<u8>>,
}

impl KernelNotices {
    /// Changes from now on are noticed.
    pub(crate) fn open() -> io::Result<Self> {
        Ok(Self {
            socket: listen(NETLINK_XFRM, &GROUPS)?,
            room: Zeroizing::new(vec![0; MAX_MESSAGE_BYTES]),
        })
    }

    /// Readable when there are notifications.
    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        // SAFETY: the socket lives as long as the borrow, and is not closed before.
        unsafe { BorrowedFd::borrow_raw(self.socket.as_raw_fd()) }
    }

    /// Reads those that are pending, except about changes by the connection of the port `own`.
    pub(crate) fn take(&mut self, own: u32) -> Vec<KernelNotice> {
        let mut notices = Vec::new();
        for _ in 0..MAX_AT_ONCE {
            match self
                .socket
                .recv_from(&mut &mut self.room[..], libc::MSG_TRUNC)
            {
                Ok((_, sender)) if sender.port_number() != 0 => {}
                Ok((len, _)) => match self.room.get(..len) {
                    Some(datagram) => read(datagram, own, &mut notices),
                    None => notices.push(KernelNotice::Changed),
                },
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                // ENOBUFS: some were lost.
                Err(_) => {
                    notices.push(KernelNotice::Changed);
                    break;
                }
            }
        }
        notices
    }
}

fn read(datagram: &[u8], own: u32, notices: &mut Vec<KernelNotice>) {
    for message in messages(datagram) {
        let notice = match message.parse::<XfrmMessage>() {
            Ok(XfrmMessage::Acquire(message)) => {
                Some(KernelNotice::Acquire(Box::new(message.acquire)))
            }
            Ok(XfrmMessage::Expire(message)) => {
                let (state, is_hard) = (message.expire.state, message.expire.hard != 0);
                let last = ModifyMessage {
                    user_sa_info: state,
                    ..ModifyMessage::default()
                };
                let last = Box::new(last);
                association::identity(&state).map(|id| KernelNotice::Expired { id, is_hard, last })
            }
            Ok(XfrmMessage::Mapping(message)) => moved(&message.map),
            _ if message.port == own => None,
            _ => Some(KernelNotice::Changed),
        };
        notices.extend(notice);
    }
}

fn moved(mapping: &UserMapping) -> Option<KernelNotice> {
    let id = association::identity_of(&mapping.id)?;
    let address = association::read_address(&mapping.new_saddr, mapping.id.family);
    let from = SocketAddr::new(address, mapping.new_sport);
    Some(KernelNotice::Moved { id, from })
}
