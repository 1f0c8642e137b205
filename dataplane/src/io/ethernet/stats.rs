//! What became of packets.

use crate::io::packet::NativeIo;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};

/// What became of packets, for `status`.
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

    /// Packets that were seen and left to the kernel.
    pub fn left(&self) -> u64 {
        self.left.load(Ordering::Relaxed)
    }

    /// Packets for which there was no room, in the ring or behind it.
    pub fn lost(&self) -> u64 {
        self.lost.load(Ordering::Relaxed)
    }

    /// Opened packets that went straight to a neighbour.
    pub fn direct(&self) -> u64 {
        self.direct.load(Ordering::Relaxed)
    }

    /// Opened packets that went through a raw socket.
    pub fn by_raw_socket(&self) -> u64 {
        self.by_raw_socket.load(Ordering::Relaxed)
    }

    /// Opened packets that have no place behind the device: for this host, for another device, or for no single host.
    pub fn undeliverable(&self) -> u64 {
        self.undeliverable.load(Ordering::Relaxed)
    }

    /// Packets whose hop limit ended here.
    pub fn expired(&self) -> u64 {
        self.expired.load(Ordering::Relaxed)
    }

    /// By which way packets left last; raw before the first.
    pub fn native_io(&self) -> NativeIo {
        match self.native_io.load(Ordering::Relaxed) {
            1 => NativeIo::Packet,
            2 => NativeIo::Xdp,
            _ => NativeIo::Raw,
        }
    }
}
