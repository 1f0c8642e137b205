//! A capture on an interface: a packet socket whose queue stores the frames. No process runs while it captures, so it
//! costs only the kernel's copy; a full queue keeps the first frames.

use std::io;
use std::mem::{size_of, zeroed};
use std::os::fd::{AsRawFd, OwnedFd};
use std::time::Duration;

use crate::capture::Frame;
use crate::fault::Fault;
use crate::host::Tap;
use crate::socket;

/// A packet socket with the kernel's offload header, which distinguishes a GSO frame from an ordinary one.
pub(crate) struct PacketSocket {
    socket: OwnedFd,
    buffer: Vec<u8>,
}

/// The largest super-frame and its headers fit twice.
const BUFFER_BYTES: usize = 256 * 1024;
/// `struct virtio_net_hdr`, before every frame.
const OFFLOAD_HEADER_BYTES: usize = 10;
const QUEUE_BYTES: libc::c_int = 8 * 1024 * 1024;

impl PacketSocket {
    /// Opens the capture in the calling thread's network namespace.
    pub(crate) fn open(interface: &str) -> io::Result<PacketSocket> {
        let socket = socket::packet(interface, |socket| {
            socket::set(socket, libc::SOL_PACKET, libc::PACKET_VNET_HDR, 1)?;
            socket::set(socket, libc::SOL_SOCKET, libc::SO_TIMESTAMPNS, 1)?;
            socket::receive_room(socket, QUEUE_BYTES)
        })?;
        Ok(PacketSocket {
            socket,
            buffer: vec![0; BUFFER_BYTES],
        })
    }

    fn next(&mut self) -> io::Result<Option<Frame>> {
        let mut control = [0u64; 16];
        let mut part = libc::iovec {
            iov_base: self.buffer.as_mut_ptr().cast(),
            iov_len: self.buffer.len(),
        };
        // SAFETY: an all-zero msghdr is valid; buffer and control outlive the call and their sizes are correct.
        let (length, at) = unsafe {
            let mut message: libc::msghdr = zeroed();
            message.msg_iov = &mut part;
            message.msg_iovlen = 1;
            message.msg_control = control.as_mut_ptr().cast();
            message.msg_controllen = size_of::<[u64; 16]>();
            let length = libc::recvmsg(self.socket.as_raw_fd(), &mut message, libc::MSG_DONTWAIT);
            (length, stamp(&message))
        };
        match usize::try_from(length) {
            Ok(length) => Ok(frame(&self.buffer[..length], at)),
            Err(_) => nothing_yet(io::Error::last_os_error()),
        }
    }
}

impl Tap for PacketSocket {
    fn frames(&mut self) -> Result<Vec<Frame>, Fault> {
        let mut frames = Vec::new();
        loop {
            match self.next() {
                Ok(Some(frame)) => frames.push(frame),
                Ok(None) => return Ok(frames),
                Err(error) => return Err(Fault::failed(format!("cannot capture: {error}"))),
            }
        }
    }
}

fn nothing_yet(error: io::Error) -> io::Result<Option<Frame>> {
    match error.kind() {
        io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted => Ok(None),
        _ => Err(error),
    }
}

/// Splits the offload header from the frame.
fn frame(bytes: &[u8], at: Duration) -> Option<Frame> {
    const NEEDS_CHECKSUM: u8 = 1;
    const UDP_SEGMENTS: u8 = 5;
    let (header, frame) = bytes.split_at_checked(OFFLOAD_HEADER_BYTES)?;
    let word = |at: usize| u16::from_ne_bytes([header[at], header[at + 1]]);
    Some(Frame {
        at,
        bytes: frame.to_vec(),
        udp_segment: (header[1] & 0x7f == UDP_SEGMENTS).then(|| word(4)),
        checksum: (header[0] & NEEDS_CHECKSUM != 0).then(|| (word(6), word(8))),
    })
}

/// The kernel's time stamp of a received message.
///
/// # Safety
/// `message` was filled by `recvmsg` and its control buffer is alive.
unsafe fn stamp(message: &libc::msghdr) -> Duration {
    // SAFETY: the macros walk the control buffer within the length that the kernel wrote; the payload of
    // SCM_TIMESTAMPNS is a timespec, read without assuming alignment.
    unsafe {
        let mut header = libc::CMSG_FIRSTHDR(message);
        while !header.is_null() {
            if (*header).cmsg_level == libc::SOL_SOCKET
                && (*header).cmsg_type == libc::SCM_TIMESTAMPNS
            {
                let time: libc::timespec = std::ptr::read_unaligned(libc::CMSG_DATA(header).cast());
                return Duration::new(time.tv_sec as u64, time.tv_nsec as u32);
            }
            header = libc::CMSG_NXTHDR(message, header);
        }
    }
    Duration::ZERO
}
