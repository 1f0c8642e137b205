//! A ring of frames that the kernel fills (PACKET_MMAP, TPACKET_V2): each packet is copied once, in the kernel, and found
//! without a system call.
//!
//! ```text
//!   frame   │ status │ lengths, where the packet begins │ … │ IP packet … │      one after the other, all of one size
//! ```
//!
//! The status word passes each frame to and fro. Version 3 would pack packets more tightly, but hands them over by blocks
//! and a timer of milliseconds.

use super::filter::Claim;
use crate::io::mapping::Mapping;
use crate::io::socket::{get_option_from, set_option_to};
use rustix::net::{AddressFamily, SocketFlags, SocketType, socket_with};
use std::io;
use std::mem::offset_of;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Bytes of all frames: two thousand packets of 1500 bytes twice over, a window of TCP.
const BYTES: usize = 8 << 20;

/// What the kernel allocates at a time.
const BLOCK: usize = 1 << 16;

/// What a frame needs beside the packet: its header, the sender's link address, and alignment.
const OVERHEAD: usize = 128;

/// A packet socket with its ring.
pub(super) struct Ring {
    socket: Arc<OwnedFd>,
    frames: Mapping,
    frame_len: usize,
    next: usize,
    lost: u64,
}

/// The largest packet that a ring is made for.
pub(super) const LARGEST_PACKET: u32 = 16_000;

impl Ring {
    /// Opens a ring for what the claim covers on this device, whose packets have at most `mtu` bytes.
    pub fn open(device: u32, mtu: u32, claim: &Claim) -> io::Result<Self> {
        if mtu > LARGEST_PACKET {
            return Err(io::Error::other(format!(
                "packets of {mtu} bytes are too large for a ring"
            )));
        }
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        // Without a protocol nothing comes in before the filter is there.
        let socket = socket_with(AddressFamily::PACKET, SocketType::DGRAM, flags, None)?;
        let frame_len = (mtu as usize + OVERHEAD).next_power_of_two();
        set_option_to(
            socket.as_fd(),
            libc::SOL_PACKET,
            libc::PACKET_VERSION,
            &VERSION_2,
        )?;
        set_option_to(
            socket.as_fd(),
            libc::SOL_PACKET,
            libc::PACKET_RX_RING,
            &request(frame_len),
        )?;
        set_option_to(
            socket.as_fd(),
            libc::SOL_PACKET,
            libc::PACKET_IGNORE_OUTGOING,
            &1i32,
        )?;
        claim.for_ring().attach(socket.as_fd())?;
        let frames = Mapping::of_socket(socket.as_fd(), BYTES, 0)?;
        bind(socket.as_fd(), device, libc::ETH_P_ALL as u16)?;
        Ok(Self {
            socket: Arc::new(socket),
            frames,
            frame_len,
            next: 0,
            lost: 0,
        })
    }

    /// The socket, to change its filter.
    pub fn socket(&self) -> Arc<OwnedFd> {
        self.socket.clone()
    }

    /// Shows the next packet to `see`, if there is one, and passes its frame back if that returns true. Says whether it
    /// did.
    pub fn take(&mut self, see: impl FnOnce(&[u8]) -> bool) -> bool {
        let start = self.next * self.frame_len;
        let status = self
            .frames
            .number(start + offset_of!(libc::tpacket2_hdr, tp_status));
        let told = status.load(Ordering::Acquire);
        if told & libc::TP_STATUS_USER == 0 {
            return false;
        }
        let header: libc::tpacket2_hdr = self.frames.read(start);
        let room = self.frame_len.saturating_sub(header.tp_net.into());
        let len = (header.tp_snaplen as usize).min(room);
        if !see(self.frames.bytes(start + usize::from(header.tp_net), len)) {
            return false;
        }
        status.store(libc::TP_STATUS_KERNEL, Ordering::Release);
        self.next = (self.next + 1) % (BYTES / self.frame_len);
        if told & libc::TP_STATUS_LOSING != 0 {
            self.count_lost();
        }
        true
    }

    /// Packets for which no frame was free, as far as it is known.
    pub fn lost(&self) -> u64 {
        self.lost
    }

    /// Reading the statistics also clears them, and the sign that there is something to read.
    fn count_lost(&mut self) {
        let found: io::Result<libc::tpacket_stats> = get_option_from(
            self.socket.as_fd(),
            libc::SOL_PACKET,
            libc::PACKET_STATISTICS,
        );
        self.lost += found.map_or(0, |stats| stats.tp_drops.into());
    }

    /// Takes the socket's error, such as that its device went down, which would else end every sleep at once.
    pub fn clear_error(&self) {
        // Which one it was makes no difference: a device that comes up again fills the ring again.
        let _: io::Result<i32> =
            get_option_from(self.socket.as_fd(), libc::SOL_SOCKET, libc::SO_ERROR);
    }
}

impl AsFd for Ring {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

const VERSION_2: i32 = 1;

fn request(frame_len: usize) -> libc::tpacket_req {
    let block = BLOCK.max(frame_len);
    libc::tpacket_req {
        tp_block_size: block as u32,
        tp_block_nr: (BYTES / block) as u32,
        tp_frame_size: frame_len as u32,
        tp_frame_nr: (BYTES / frame_len) as u32,
    }
}

/// Binds a packet socket to a device; protocol 0 receives nothing.
pub(super) fn bind(socket: BorrowedFd<'_>, device: u32, protocol: u16) -> io::Result<()> {
    // SAFETY: a sockaddr_ll is plain data for which all zeroes is a value.
    let mut address: libc::sockaddr_ll = unsafe { std::mem::zeroed() };
    address.sll_family = libc::AF_PACKET as u16;
    address.sll_protocol = protocol.to_be();
    address.sll_ifindex = device as i32;
    let (address, len) = ((&raw const address).cast(), size_of_val(&address) as u32);
    // SAFETY: the kernel reads `len` bytes of the address.
    match unsafe { libc::bind(socket.as_raw_fd(), address, len) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}
