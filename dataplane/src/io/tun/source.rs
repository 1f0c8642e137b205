//! Reads one queue of the device.

use crate::io::waker::wait_readable;
use crate::io::{MAX_ITEM_BYTES, PlaintextSource, ReceiveBuffer, Wait, Waker, virtio_header};
use crate::train::Offload;
use rustix::io::Errno;
use std::io::{self, IoSliceMut};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

/// Reads packets and trains that the kernel routed into the device.
#[derive(Debug)]
pub struct TunSource {
    pub(super) device: Arc<OwnedFd>,
    pub(super) waker: Option<Waker>,
    pub(super) link_local: bool,
}

impl TunSource {
    /// Lets `waker` end this source's sleep.
    pub fn woken_by(self, waker: Waker) -> Self {
        Self {
            waker: Some(waker),
            ..self
        }
    }

    /// Reads until nothing is left or the buffer is full.
    fn read_all(&mut self, buffer: &mut ReceiveBuffer<Offload>) -> io::Result<usize> {
        let before = buffer.items.len();
        while buffer.free_items() > 0 && buffer.free_bytes().len() >= MAX_ITEM_BYTES {
            match self.read_one(buffer.free_bytes()) {
                Ok((len, Some(_)))
                    if !self.link_local && is_mld_report(&buffer.free_bytes()[..len]) => {}
                Ok((len, Some(offload))) => buffer.push(len, offload),
                Ok((_, None)) | Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => break,
                // What was read is delivered first; the error is still there the next time.
                Err(_) if buffer.items.len() > before => break,
                Err(error) => return Err(error.into()),
            }
        }
        Ok(buffer.items.len() - before)
    }

    fn read_one(&mut self, room: &mut [u8]) -> Result<(usize, Option<Offload>), Errno> {
        let mut head = [0; virtio_header::LEN];
        let read = rustix::io::readv(
            &self.device,
            &mut [IoSliceMut::new(&mut head), IoSliceMut::new(room)],
        )?;
        let offload = if read > virtio_header::LEN {
            virtio_header::read(&head)
        } else {
            None
        };
        Ok((read.saturating_sub(virtio_header::LEN), offload))
    }
}

impl PlaintextSource for TunSource {
    fn fill(&mut self, buffer: &mut ReceiveBuffer<Offload>, wait: Wait) -> io::Result<usize> {
        if buffer.bytes.len() < MAX_ITEM_BYTES {
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                "the buffer has no room for one train",
            ));
        }
        let added = self.read_all(buffer)?;
        if added == 0
            && buffer.items.is_empty()
            && wait_readable(self.device.as_fd(), self.waker.as_ref(), wait)?
        {
            return self.read_all(buffer);
        }
        Ok(added)
    }
}

/// Whether this is the kernel's own report of its multicast groups on the device, which no setting prevents: an MLD
/// message behind a hop-by-hop header (RFC 2710, RFC 3810), which must not pass a router. It is not counted as dropped
/// traffic.
pub(super) fn is_mld_report(packet: &[u8]) -> bool {
    const HOP_BY_HOP: u8 = 0;
    const ICMPV6: u8 = 58;
    let Some((header, [next, _, _, _, _, _, _, _, kind, ..])) = packet.split_at_checked(40) else {
        return false;
    };
    let speaks_for_itself = header[8..24] == [0; 16] || header[8..10] == [0xfe, 0x80];
    header[0] >> 4 == 6
        && (header[6], *next) == (HOP_BY_HOP, ICMPV6)
        && header[7] == 1
        && speaks_for_itself
        && matches!(kind, 131 | 132 | 143)
}

impl AsFd for TunSource {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.device.as_fd()
    }
}
