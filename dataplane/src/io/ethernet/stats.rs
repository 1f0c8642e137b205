//! Counters of the device.

use crate::io::packet::NativeIo;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};

/// Counters of packets, for `status`.
#[derive(Debug, Default)]
pub struct EthernetStats {
    pub(super) taken: AtomicU64,
    pub(super) left: AtomicU64,
    pub(super) lost: AtomicU64,
    pub(super) direct: AtomicU64,
    pub(super) by_raw_socket: AtomicU64,
    pub(super) undeliverable: AtomicU64,
    pub(super) expired: AtomicU64,
    pub(super) native_io: AtomicU8,
}

impl EthernetStats {
    /// Packets and trains taken from the ring.
    pub fn taken(&self) -> u64 {
        self.taken.load(Ordering::Relaxed)
    }

    /// Packets left to the kernel.
    pub fn left(&self) -> u64 {
        self.left.load(Ordering::Relaxed)
    }

    /// Packets lost because the ring or the receive queue was full.
    pub fn lost(&self) -> u64 {
        self.lost.load(Ordering::Relaxed)
    }

    /// Decrypted packets sent directly to a neighbour.
    pub fn direct(&self) -> u64 {
        self.direct.load(Ordering::Relaxed)
    }

    /// Decrypted packets sent through a raw socket.
    pub fn by_raw_socket(&self) -> u64 {
        self.by_raw_socket.load(Ordering::Relaxed)
    }

    /// Decrypted packets that cannot be forwarded by this device: for this host, for another device, or multicast.
    pub fn undeliverable(&self) -> u64 {
        self.undeliverable.load(Ordering::Relaxed)
    }

    /// Packets whose hop limit ended here.
    pub fn expired(&self) -> u64 {
        self.expired.load(Ordering::Relaxed)
    }

    /// How packets were sent last; raw before the first.
    pub fn native_io(&self) -> NativeIo {
        match self.native_io.load(Ordering::Relaxed) {
            1 => NativeIo::Packet,
            2 => NativeIo::Xdp,
            _ => NativeIo::Raw,
        }
    }
}
