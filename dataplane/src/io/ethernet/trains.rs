//! A way out for trains: a packet socket with virtio headers. The device cuts them, or the kernel before it; over a cable
//! to another namespace they stay whole.

use super::sink::head;
use crate::buffers::recycle;
use crate::io::packet::ETHERNET;
use crate::io::packet::exit::{CHANGED, Ends, has_room, open_socket};
use crate::io::socket::set_option_to;
use crate::io::tun::header;
use crate::io::{Delivery, Sent};
use rustix::io::Errno;
use std::io::{self, IoSlice};
use std::os::fd::{AsFd, OwnedFd};

/// The socket, and room for the pieces of one train.
pub(super) struct TrainExit {
    socket: OwnedFd,
    pieces: Vec<IoSlice<'static>>,
}

/// More pieces do not fit into one call.
const MOST_PIECES: usize = 1000;

impl TrainExit {
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

    /// Sends a train one hop on. False, and nothing sent, if it has to be cut before.
    pub fn send(&mut self, ends: &Ends, train: &Delivery<'_>, sent: &mut Sent) -> io::Result<bool> {
        let Some((first, others)) = train.pieces.split_first() else {
            return Ok(false);
        };
        let told = header::write(&train.offload, first).map(behind_ethernet);
        let (Some(told), Some(head)) = (told.flatten(), head(ends, first)) else {
            return Ok(false);
        };
        if others.len() >= MOST_PIECES {
            return Ok(false);
        }
        let mut pieces = recycle(std::mem::take(&mut self.pieces));
        pieces.extend([&told[..], &head, &first[CHANGED..]].map(IoSlice::new));
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
                Err(Errno::AGAIN) if has_room(&self.socket).unwrap_or(false) => {}
                Err(error) => return Err(error),
            }
        }
    }
}

/// A TUN device's header counts from the IP header; here the link's comes first.
fn behind_ethernet(mut told: [u8; header::LEN]) -> Option<[u8; header::LEN]> {
    for at in [header::HEADER_LEN, header::CHECKSUM_START] {
        let count = u16::from_ne_bytes([told[at], told[at + 1]]);
        let count = count.checked_add(ETHERNET as u16)?;
        told[at..at + 2].copy_from_slice(&count.to_ne_bytes());
    }
    Some(told)
}
