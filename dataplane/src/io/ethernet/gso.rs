//! Sends trains through a packet socket with virtio headers: the device segments them, or the kernel before it; over
//! veth they stay whole.

use super::frame::head;
use crate::buffers::recycle;
use crate::io::packet::egress::{REWRITTEN_BYTES, open_socket, wait_for_room};
use crate::io::packet::{ETHERNET_HEADER_BYTES, LinkAddresses};
use crate::io::socket_option::set_option_to;
use crate::io::virtio_header;
use crate::io::{Delivery, Sent};
use rustix::io::Errno;
use std::io::{self, IoSlice};
use std::os::fd::{AsFd, OwnedFd};

/// The socket, and memory for the pieces of one train.
pub(super) struct GsoSocket {
    socket: OwnedFd,
    pieces: Vec<IoSlice<'static>>,
}

/// The most pieces of one `writev`.
const MAX_PIECES: usize = 1000;

impl GsoSocket {
    pub fn open(device: u32) -> io::Result<Self> {
        let socket = open_socket(device)?;
        set_option_to(
            socket.as_fd(),
            libc::SOL_PACKET,
            libc::PACKET_VNET_HDR,
            &1i32,
        )?;
        Ok(Self {
            socket,
            pieces: Vec::new(),
        })
    }

    /// Forwards a train. False, and nothing sent, if it has to be segmented first.
    pub fn send(
        &mut self,
        addresses: &LinkAddresses,
        train: &Delivery<'_>,
        sent: &mut Sent,
    ) -> io::Result<bool> {
        let Some((first, others)) = train.pieces.split_first() else {
            return Ok(false);
        };
        let virtio = virtio_header::write(&train.offload, first).map(behind_ethernet);
        let (Some(virtio), Some(head)) = (virtio.flatten(), head(addresses, first)) else {
            return Ok(false);
        };
        if others.len() >= MAX_PIECES {
            return Ok(false);
        }
        let mut pieces = recycle(std::mem::take(&mut self.pieces));
        pieces.extend([&virtio[..], &head, &first[REWRITTEN_BYTES..]].map(IoSlice::new));
        pieces.extend_from_slice(others);
        let outcome = self.write(&pieces, sent);
        self.pieces = recycle(pieces);
        match outcome {
            Ok(()) => sent.packets += train.packets(),
            Err(Errno::AGAIN | Errno::NOBUFS | Errno::NOMEM) => sent.no_buffer += train.packets(),
            Err(error) => return Err(error.into()),
        }
        Ok(true)
    }

    /// One system call; a second one for a device that was full.
    fn write(&self, pieces: &[IoSlice<'_>], sent: &mut Sent) -> Result<(), Errno> {
        loop {
            sent.calls += 1;
            match rustix::io::writev(&self.socket, pieces) {
                Ok(_) => return Ok(()),
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) if wait_for_room(&self.socket).unwrap_or(false) => {}
                Err(error) => return Err(error),
            }
        }
    }
}

/// Offsets in a TUN device's header count from the IP header; here the link header comes first.
fn behind_ethernet(mut virtio: [u8; virtio_header::LEN]) -> Option<[u8; virtio_header::LEN]> {
    for at in [virtio_header::HEADER_LEN, virtio_header::CHECKSUM_START] {
        let count = u16::from_ne_bytes([virtio[at], virtio[at + 1]]);
        let count = count.checked_add(ETHERNET_HEADER_BYTES as u16)?;
        virtio[at..at + 2].copy_from_slice(&count.to_ne_bytes());
    }
    Some(virtio)
}
