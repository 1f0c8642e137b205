//! Many packets in one system call: `recvmmsg` into a receive buffer, `sendmmsg` from bursts. Headers are reused.
//!
//! The caller of `recvmmsg` has to give each packet its room before the sizes are known. A receive coalesced
//! by GRO needs 64 KB; with so much for each, a buffer would hold few small packets. So the room is adapted: *narrow*
//! places while packets are small, *wide* ones while there are trains. In narrow places the end of a larger packet goes
//! to an overflow area: a wrong guess costs a copy, never a packet.
//!
//! ```text
//!   narrow   buffer: [packet 0 ....][packet 1 ....][packet 2, st│   overflow 2: │art is here, end there ......]
//!   wide     buffer: [packet 0 .......................................][packet 1 ..................................]
//! ```

use super::ancillary::{ControlBuffer, SocketAddress};
use super::{MAX_ITEM_BYTES, ReceiveBuffer};
use std::io;
use std::ops::Range;
use std::os::fd::{AsRawFd, BorrowedFd};

/// The most packets of one system call.
pub(super) const MAX_MESSAGES: usize = 64;

/// The fewest packets that a call is prepared for.
const MIN_MESSAGES: usize = 8;

/// Room for each packet while packets are small.
const NARROW_BYTES: usize = 2048;

/// Room for each packet while there are trains; not a power of two, so that packets do not all start in the same cache
/// set.
const WIDE_BYTES: usize = MAX_ITEM_BYTES + 192;

/// After so many calls without a large packet the places become narrow again.
const NARROW_AFTER_CALLS: u32 = 16;

/// Message headers and what they point to.
struct Headers {
    // INVARIANT: pointers in `headers` and `pieces` are set before each system call and mean nothing after it.
    headers: Vec<libc::mmsghdr>,
    pieces: Vec<[libc::iovec; 2]>,
    addresses: Vec<SocketAddress>,
    controls: Vec<ControlBuffer>,
}

// SAFETY: the raw pointers are only followed by the kernel during a call, for which they have just been set.
unsafe impl Send for Headers {}

impl Headers {
    fn new() -> Self {
        Self {
            headers: Vec::with_capacity(MAX_MESSAGES),
            pieces: Vec::with_capacity(MAX_MESSAGES),
            addresses: Vec::with_capacity(MAX_MESSAGES),
            controls: Vec::with_capacity(MAX_MESSAGES),
        }
    }

    /// Makes headers for `count` messages: memory is touched for as many as a call ever had, and never moved.
    fn prepare(&mut self, count: usize) {
        if count <= self.headers.len() {
            return;
        }
        let nowhere = libc::iovec {
            iov_base: std::ptr::null_mut(),
            iov_len: 0,
        };
        // SAFETY: an mmsghdr is plain data for which all zeroes is a value.
        self.headers.resize(count, unsafe { std::mem::zeroed() });
        self.pieces.resize(count, [nowhere; 2]);
        self.addresses.resize(count, SocketAddress::default());
        self.controls.resize(count, ControlBuffer::default());
    }

    /// Points header `i` at its address, pieces and control messages.
    fn connect(&mut self, i: usize, address_len: u32, pieces: usize, control_len: usize) {
        let header = &mut self.headers[i].msg_hdr;
        header.msg_name = self.addresses[i].as_mut_ptr().cast();
        header.msg_namelen = address_len;
        header.msg_iov = self.pieces[i].as_mut_ptr();
        header.msg_iovlen = pieces as _;
        header.msg_control = self.controls[i].as_mut_ptr().cast();
        header.msg_controllen = control_len as _;
        header.msg_flags = 0;
    }
}

/// Receives packets into buffers.
pub(super) struct MessageReceiver {
    headers: Headers,
    lens: [usize; MAX_MESSAGES],
    /// [`MAX_ITEM_BYTES`] for each message of a call; pages that were never needed are never touched.
    overflow: Vec<u8>,
    /// Messages that did not fit into the last buffer: each lies whole in its overflow area.
    parked: Range<usize>,
    wide: bool,
    calls_without_large: u32,
    /// Bytes that stay free in front of each packet.
    headroom: usize,
    /// How many packets the next call is prepared for; preparing for packets that do not come costs time.
    expected: usize,
}

/// One packet, as the kernel handed it over.
pub(super) struct Received<'a> {
    /// Who sent it.
    pub peer: &'a SocketAddress,
    /// Its control messages.
    pub control: &'a ControlBuffer,
}

impl MessageReceiver {
    pub fn new(headroom: usize) -> Self {
        Self {
            headers: Headers::new(),
            lens: [0; MAX_MESSAGES],
            overflow: vec![0; MAX_MESSAGES * MAX_ITEM_BYTES],
            parked: 0..0,
            wide: false,
            calls_without_large: 0,
            headroom,
            expected: MIN_MESSAGES,
        }
    }

    /// Receives what is there, as far as it fits. `enter` is given the buffer and where in it each packet lies.
    pub fn receive<Meta>(
        &mut self,
        socket: BorrowedFd<'_>,
        buffer: &mut ReceiveBuffer<Meta>,
        mut enter: impl FnMut(&mut ReceiveBuffer<Meta>, Range<usize>, Received<'_>),
    ) -> io::Result<()> {
        self.unpark(buffer, &mut enter);
        while self.parked.is_empty() {
            let base = buffer.used_bytes();
            let (place, places) = self.room_for_each(buffer);
            if places == 0 {
                break;
            }
            let count = self.call(socket, &mut buffer.bytes[base..], place, places)?;
            self.enter_received(base, place, count, buffer, &mut enter);
            self.unpark(buffer, &mut enter);
            if count < places {
                break;
            }
        }
        Ok(())
    }

    /// Whether packets wait for room in the next buffer.
    pub fn has_parked(&self) -> bool {
        !self.parked.is_empty()
    }

    /// How much room each packet gets, and for how many of them there is room.
    fn room_for_each<Meta>(&self, buffer: &mut ReceiveBuffer<Meta>) -> (usize, usize) {
        let most = buffer.free_items().min(self.expected);
        let free = buffer.free_bytes().len();
        // The last packet needs no distance to a next one.
        let place = WIDE_BYTES + self.headroom;
        let wide = (free + WIDE_BYTES - MAX_ITEM_BYTES) / place;
        if self.wide && (wide > 0 || !buffer.items.is_empty()) {
            (place, most.min(wide))
        } else {
            (NARROW_BYTES, most.min(free / NARROW_BYTES))
        }
    }

    /// One `recvmmsg`; returns how many packets came.
    fn call(
        &mut self,
        socket: BorrowedFd<'_>,
        room: &mut [u8],
        place: usize,
        places: usize,
    ) -> io::Result<usize> {
        self.headers.prepare(places);
        for i in 0..places {
            let own = &mut room[i * place + self.headroom..];
            let own = libc::iovec {
                iov_base: own.as_mut_ptr().cast(),
                iov_len: own.len().min(place - self.headroom),
            };
            let overflow_at = i * MAX_ITEM_BYTES + NARROW_BYTES - self.headroom;
            let overflow = &mut self.overflow[overflow_at..(i + 1) * MAX_ITEM_BYTES];
            let overflow = libc::iovec {
                iov_base: overflow.as_mut_ptr().cast(),
                iov_len: overflow.len(),
            };
            self.headers.pieces[i] = [own, overflow];
            let pieces = if place == NARROW_BYTES { 2 } else { 1 };
            self.headers
                .connect(i, SocketAddress::BYTES as u32, pieces, ControlBuffer::BYTES);
        }
        let headers = self.headers.headers.as_mut_ptr();
        // SAFETY: every pointer in the first `places` headers was just set to room that is borrowed until this function
        // returns: the places and spills do not overlap, and the lengths are theirs.
        let count = unsafe {
            libc::recvmmsg(
                socket.as_raw_fd(),
                headers,
                places as u32,
                libc::MSG_DONTWAIT as _,
                std::ptr::null_mut(),
            )
        };
        if count < 0 {
            return match io::Error::last_os_error() {
                error if error.kind() == io::ErrorKind::WouldBlock => Ok(0),
                error => Err(error),
            };
        }
        Ok(count as usize)
    }

    /// Enters the packets of a call, up to the first that was larger than its place; that one and all after it are
    /// parked.
    fn enter_received<Meta>(
        &mut self,
        base: usize,
        place: usize,
        count: usize,
        buffer: &mut ReceiveBuffer<Meta>,
        enter: &mut impl FnMut(&mut ReceiveBuffer<Meta>, Range<usize>, Received<'_>),
    ) {
        for i in 0..count {
            self.lens[i] = self.headers.headers[i].msg_len as usize;
            let control_len = self.headers.headers[i].msg_hdr.msg_controllen;
            self.headers.controls[i].set_len(control_len);
        }
        let room = place - self.headroom;
        let too_large = self.lens[..count]
            .iter()
            .position(|&len| len > room)
            .unwrap_or(count);
        for i in 0..too_large {
            let start = base + i * place + self.headroom;
            enter(buffer, start..start + self.lens[i], self.received(i));
        }
        for i in too_large..count {
            let start = base + i * place + self.headroom;
            let head = self.lens[i].min(room);
            self.overflow[i * MAX_ITEM_BYTES..i * MAX_ITEM_BYTES + head]
                .copy_from_slice(&buffer.bytes[start..start + head]);
        }
        self.parked = too_large..count;
        self.adapt(count);
    }

    /// Decides from the sizes of a call how wide and how many the places of the next one are.
    fn adapt(&mut self, count: usize) {
        self.expected = (count * 2).clamp(MIN_MESSAGES, MAX_MESSAGES);
        if self.lens[..count].iter().any(|&len| len > NARROW_BYTES) {
            (self.wide, self.calls_without_large) = (true, 0);
        } else if count > 0 {
            self.calls_without_large = self.calls_without_large.saturating_add(1);
            self.wide &= self.calls_without_large < NARROW_AFTER_CALLS;
        }
    }

    /// Enters parked packets, in order, while there is room.
    fn unpark<Meta>(
        &mut self,
        buffer: &mut ReceiveBuffer<Meta>,
        enter: &mut impl FnMut(&mut ReceiveBuffer<Meta>, Range<usize>, Received<'_>),
    ) {
        while let Some(i) = self.parked.clone().next() {
            let len = self.lens[i];
            let start = buffer.used_bytes() + self.headroom;
            if buffer.free_items() == 0 || buffer.bytes.len() < start + len {
                return;
            }
            buffer.bytes[start..start + len]
                .copy_from_slice(&self.overflow[i * MAX_ITEM_BYTES..i * MAX_ITEM_BYTES + len]);
            enter(buffer, start..start + len, self.received(i));
            self.parked.start += 1;
        }
    }

    fn received(&self, i: usize) -> Received<'_> {
        Received {
            peer: &self.headers.addresses[i],
            control: &self.headers.controls[i],
        }
    }
}

/// Messages to be sent by one call.
pub(super) struct SendBatch {
    headers: Headers,
    messages: Vec<Message>,
}

/// One message: which bytes of which burst.
#[derive(Clone, Debug)]
pub(super) struct Message {
    /// The index of its burst in what is being delivered.
    pub burst: usize,
    /// Its bytes within the burst.
    pub range: Range<usize>,
    /// How many packets they are.
    pub packets: u64,
    /// Whether the kernel shall segment them (`UDP_SEGMENT`).
    pub segmented: bool,
    address_len: u32,
}

impl SendBatch {
    pub fn new() -> Self {
        Self {
            headers: Headers::new(),
            messages: Vec::with_capacity(MAX_MESSAGES),
        }
    }

    /// The messages, in order.
    pub fn messages(&self) -> &[Message] {
        &self.messages
    }

    pub fn is_full(&self) -> bool {
        self.messages.len() == MAX_MESSAGES
    }

    /// Removes all messages.
    pub fn clear(&mut self) {
        self.messages.clear();
    }

    /// Adds a message to `address`; the caller writes its control messages. There must be room.
    pub fn add(
        &mut self,
        message: (usize, Range<usize>, u64, bool),
        address: std::net::SocketAddr,
    ) -> &mut ControlBuffer {
        let i = self.messages.len();
        self.headers.prepare(i + 1);
        let address_len = self.headers.addresses[i].write(address.ip(), address.port());
        let (burst, range, packets, segmented) = message;
        self.messages.push(Message {
            burst,
            range,
            packets,
            segmented,
            address_len,
        });
        let control = &mut self.headers.controls[i];
        control.clear();
        control
    }

    /// Adds a message for a socket that is bound to its destination. There must be room.
    pub fn add_unaddressed(&mut self, message: (usize, Range<usize>, u64, bool)) {
        let (burst, range, packets, segmented) = message;
        let i = self.messages.len();
        self.headers.prepare(i + 1);
        self.headers.controls[i].clear();
        self.messages.push(Message {
            burst,
            range,
            packets,
            segmented,
            address_len: 0,
        });
    }

    /// One `sendmmsg` of the messages from `first` on; returns how many were sent. `bytes_of` is given a message and
    /// its index, and returns its bytes.
    pub fn send<'a>(
        &mut self,
        socket: BorrowedFd<'_>,
        first: usize,
        bytes_of: impl Fn(usize, &Message) -> [&'a [u8]; 2],
    ) -> io::Result<usize> {
        let count = self.messages.len();
        for i in first..count {
            let message = &self.messages[i];
            self.headers.pieces[i] = bytes_of(i, message).map(|piece| libc::iovec {
                iov_base: piece.as_ptr().cast_mut().cast(),
                iov_len: piece.len(),
            });
            let (address_len, control_len) = (message.address_len, self.headers.controls[i].len());
            self.headers.connect(i, address_len, 2, control_len);
        }
        let headers = self.headers.headers[first..count].as_mut_ptr();
        // SAFETY: every pointer in these headers was just set to bytes that live as long as 'a or self, and the kernel
        // only reads them.
        let sent = unsafe {
            libc::sendmmsg(
                socket.as_raw_fd(),
                headers,
                (count - first) as u32,
                libc::MSG_DONTWAIT as _,
            )
        };
        if sent < 0 {
            Err(io::Error::last_os_error())
        } else {
            Ok(sent as usize)
        }
    }
}
