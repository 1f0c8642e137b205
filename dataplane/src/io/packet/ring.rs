//! A ring of frames that the kernel fills (PACKET_MMAP, TPACKET_V2): each packet is copied once, in the kernel, and
//! read without a system call.
//!
//! ```text
//!   frame   │ status │ lengths, where the packet begins │ … │ IP packet … │      one after the other, all of one size
//! ```
//!
//! The status word shows whether the kernel or this process owns the frame. Version 3 would pack packets more tightly,
//! but delivers them in blocks, by a timer of milliseconds.

use super::filter::{Program, RingAddresses};
use crate::io::mapping::Mapping;
use crate::io::socket_option::{get_option_from, set_option_to};
use crate::io::virtio_header;
use rustix::net::{AddressFamily, SocketFlags, SocketType, socket_with};
use std::io;
use std::mem::offset_of;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Bytes of all frames: two TCP windows of two thousand packets of 1500 bytes.
const RING_BYTES: usize = 8 << 20;

/// The unit in which the kernel allocates.
const BLOCK_BYTES: usize = 1 << 16;

/// Bytes of a frame beside the packet: its header, the sender's link address, and alignment.
const FRAME_OVERHEAD_BYTES: usize = 128;

/// A packet socket with its ring.
pub(in crate::io) struct Ring {
    socket: Arc<OwnedFd>,
    frames: Mapping,
    frame_len: usize,
    next: usize,
    lost: u64,
}

/// One frame that the kernel has filled.
pub(in crate::io) struct RingFrame<'a> {
    /// Everything before the packet.
    before: &'a [u8],
    link_len: usize,
    /// The packet from the network header on, as far as it fits into the frame.
    pub packet: &'a [u8],
    pub state: FrameState,
}

/// How much of a packet a frame holds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::io) enum FrameState {
    /// All of it.
    Whole,
    /// Its beginning; the whole packet is the next one in the socket's receive queue.
    Queued,
    /// Its beginning, and the rest is lost.
    Truncated,
}

impl<'a> RingFrame<'a> {
    /// The frame of `frame_len` bytes at `start`, whose status word is `status`. Offsets and lengths in its header are
    /// bounded by the frame: nothing outside it is read.
    pub fn read(frames: &'a Mapping, start: usize, frame_len: usize, status: u32) -> Self {
        let header: libc::tpacket2_hdr = frames.read(start);
        let (link, network) = (usize::from(header.tp_mac), usize::from(header.tp_net));
        let link_len = network.saturating_sub(link);
        let network = network.min(frame_len);
        let len = (header.tp_snaplen as usize).saturating_sub(link_len);
        Self {
            before: frames.bytes(start, network),
            link_len,
            packet: frames.bytes(start + network, len.min(frame_len - network)),
            state: match (
                status & libc::TP_STATUS_COPY,
                header.tp_snaplen < header.tp_len,
            ) {
                (0, false) => FrameState::Whole,
                (0, true) => FrameState::Truncated,
                _ => FrameState::Queued,
            },
        }
    }

    /// The link header.
    pub fn link(&self) -> &[u8] {
        &self.before[self.before.len() - self.link_len.min(self.before.len())..]
    }

    /// The virtio header before it, if the ring was opened for a router.
    pub fn offload(&self) -> Option<&[u8; virtio_header::LEN]> {
        let end = self.before.len().checked_sub(self.link_len)?;
        self.before[..end].last_chunk()
    }
}

/// The largest packet that a ring is made for.
pub(super) const MAX_PACKET_BYTES: u32 = 16_000;

impl Ring {
    /// Opens a ring for ESP to these addresses on this device, whose packets have at most `mtu` bytes.
    pub fn open(device: u32, mtu: u32, addresses: &RingAddresses) -> io::Result<Self> {
        Self::open_as(SocketType::DGRAM, device, mtu, &addresses.for_ring())
    }

    /// Opens a ring for every packet that hosts send to this device's router. Frames then include their Ethernet and
    /// virtio headers; a packet that is larger than a frame, such as a train, waits in the socket's receive queue.
    pub fn open_for_router(device: u32, mtu: u32) -> io::Result<Self> {
        Self::open_as(SocketType::RAW, device, mtu, &super::filter::for_router())
    }

    fn open_as(kind: SocketType, device: u32, mtu: u32, program: &Program) -> io::Result<Self> {
        if mtu > MAX_PACKET_BYTES {
            return Err(io::Error::other(format!(
                "packets of {mtu} bytes are too large for a ring"
            )));
        }
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        // Without a protocol nothing is received before the filter is attached.
        let socket = socket_with(AddressFamily::PACKET, kind, flags, None)?;
        let frame_len = (mtu as usize + FRAME_OVERHEAD_BYTES).next_power_of_two();
        set_option_to(
            socket.as_fd(),
            libc::SOL_PACKET,
            libc::PACKET_VERSION,
            &VERSION_2,
        )?;
        if kind == SocketType::RAW {
            enable_virtio_headers(&socket)?;
        }
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
        program.attach(socket.as_fd())?;
        let frames = Mapping::of_socket(socket.as_fd(), RING_BYTES, 0)?;
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

    /// Gives the next packet to `see`, if there is one, and returns its frame to the kernel if that returns true.
    /// Returns whether it did.
    pub fn take(&mut self, see: impl FnOnce(&[u8]) -> bool) -> bool {
        self.take_frame(|frame| see(frame.packet))
    }

    /// The same with the whole frame.
    pub fn take_frame(&mut self, see: impl FnOnce(&RingFrame<'_>) -> bool) -> bool {
        let start = self.next * self.frame_len;
        let word = self
            .frames
            .number(start + offset_of!(libc::tpacket2_hdr, tp_status));
        let status = word.load(Ordering::Acquire);
        if status & libc::TP_STATUS_USER == 0 {
            return false;
        }
        let frame = RingFrame::read(&self.frames, start, self.frame_len, status);
        if !see(&frame) {
            return false;
        }
        word.store(libc::TP_STATUS_KERNEL, Ordering::Release);
        self.next = (self.next + 1) % (RING_BYTES / self.frame_len);
        if status & libc::TP_STATUS_LOSING != 0 {
            self.count_lost();
        }
        true
    }

    /// Packets for which no frame was free, as counted so far.
    pub fn lost(&self) -> u64 {
        self.lost
    }

    /// Reading the statistics also clears them, and the flag that there are any.
    fn count_lost(&mut self) {
        let found: io::Result<libc::tpacket_stats> = get_option_from(
            self.socket.as_fd(),
            libc::SOL_PACKET,
            libc::PACKET_STATISTICS,
        );
        self.lost += found.map_or(0, |stats| stats.tp_drops.into());
    }

    /// Clears the socket's error, such as that its device went down, which would end every sleep at once.
    pub fn clear_error(&self) {
        // Which error it was makes no difference: a device that comes up again fills the ring again.
        let _: io::Result<i32> =
            get_option_from(self.socket.as_fd(), libc::SOL_SOCKET, libc::SO_ERROR);
    }
}

impl AsFd for Ring {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// Bytes of the receive queue for packets too large for a frame.
const SOCKET_QUEUE_BYTES: i32 = 8 << 20;

/// Puts a virtio header into each frame, and packets too large for one into the receive queue.
fn enable_virtio_headers(socket: &OwnedFd) -> io::Result<()> {
    for name in [libc::PACKET_VNET_HDR, libc::PACKET_COPY_THRESH] {
        set_option_to(socket.as_fd(), libc::SOL_PACKET, name, &1i32)?;
    }
    // A smaller queue works too.
    let _ = set_option_to(
        socket.as_fd(),
        libc::SOL_SOCKET,
        libc::SO_RCVBUFFORCE,
        &SOCKET_QUEUE_BYTES,
    );
    Ok(())
}

const VERSION_2: i32 = 1;

fn request(frame_len: usize) -> libc::tpacket_req {
    let block = BLOCK_BYTES.max(frame_len);
    libc::tpacket_req {
        tp_block_size: block as u32,
        tp_block_nr: (RING_BYTES / block) as u32,
        tp_frame_size: frame_len as u32,
        tp_frame_nr: (RING_BYTES / frame_len) as u32,
    }
}

/// Binds a packet socket to a device; protocol 0 receives nothing.
pub(in crate::io) fn bind(socket: BorrowedFd<'_>, device: u32, protocol: u16) -> io::Result<()> {
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
