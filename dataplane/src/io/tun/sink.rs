//! Writes to one queue of the device.

use crate::io::waker::poll_for;
use crate::io::{Delivery, PlaintextSink, Sent, virtio_header};
use crate::train::TrainKinds;
use rustix::event::{PollFd, PollFlags};
use rustix::io::Errno;
use std::io::{self, IoSlice};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

/// Writes packets and trains to the device, from which the kernel receives them.
#[derive(Debug)]
pub struct TunSink {
    pub(super) device: Arc<OwnedFd>,
    pub(super) takes: TrainKinds,
}

/// How long to wait for room in a full device before a packet is dropped.
const SEND_ROOM_TIMEOUT: Duration = Duration::from_millis(100);

impl TunSink {
    pub(super) fn write(&self, delivery: &Delivery<'_>) -> Result<(), Errno> {
        let mut copy = [0; 128];
        let head = delivery.head(&mut copy);
        let header = virtio_header::write(&delivery.offload, head).ok_or(Errno::INVAL)?;
        match delivery.pieces.len() {
            0..=7 => self.gather::<8>(&header, delivery.pieces),
            8..=127 => self.gather::<128>(&header, delivery.pieces),
            128..=1023 => self.gather::<1024>(&header, delivery.pieces),
            _ => Err(Errno::INVAL),
        }
    }

    /// One `writev` of header and fewer than `N` pieces; repeated once for a device that was full.
    fn gather<const N: usize>(&self, header: &[u8], pieces: &[IoSlice<'_>]) -> Result<(), Errno> {
        let mut all = [IoSlice::new(header); N];
        all[1..=pieces.len()].copy_from_slice(pieces);
        let all = &all[..=pieces.len()];
        loop {
            match rustix::io::writev(&self.device, all) {
                Ok(_) => return Ok(()),
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => self.wait_for_room()?,
                Err(error) => return Err(error),
            }
        }
    }

    fn wait_for_room(&self) -> Result<(), Errno> {
        let mut watched = [PollFd::new(&self.device, PollFlags::OUT)];
        poll_for(&mut watched, SEND_ROOM_TIMEOUT).map_err(|_| Errno::NOBUFS)?;
        if watched[0].revents().is_empty() {
            Err(Errno::NOBUFS)
        } else {
            Ok(())
        }
    }
}

impl PlaintextSink for TunSink {
    fn deliver(&mut self, deliveries: &[Delivery<'_>]) -> io::Result<Sent> {
        let mut sent = Sent::default();
        for delivery in deliveries {
            let packets = delivery.packets();
            sent.calls += 1;
            match self.write(delivery) {
                Ok(()) => sent.packets += packets,
                Err(Errno::BADFD | Errno::NODEV) => {
                    return Err(io::Error::new(
                        io::ErrorKind::NotFound,
                        "the TUN device was removed",
                    ));
                }
                Err(Errno::NOBUFS | Errno::NOMEM) => sent.no_buffer += packets,
                Err(_) => sent.failed += packets,
            }
        }
        Ok(sent)
    }

    fn train_kinds(&self) -> TrainKinds {
        self.takes
    }
}
