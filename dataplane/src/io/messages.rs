//! Many packets by one system call: `recvmmsg` into an intake, `sendmmsg` from parcels. All headers are reused.
//!
//! Receiving has to say how much room each packet gets before it is known how large it is. A coalesced receive needs
//! 64 KB; with so much for each, an intake would hold only few small packets. So the room is guessed: *narrow* slots
//! while packets are small, *wide* ones while there are trains. In narrow slots the end of a larger packet goes to a
//! spill of its own: a wrong guess costs a copy, never a packet.
//!
//! ```text
//!   narrow   intake: [packet 0 ....][packet 1 ....][packet 2, be│   spill 2: │ginning is here, end is there ......]
//!   wide     intake: [packet 0 .......................................][packet 1 ..................................]
//! ```

use super::ancillary::{Address, Control};
use super::{Intake, LARGEST};
use std::io;
use std::ops::Range;
use std::os::fd::{AsRawFd, BorrowedFd};

/// The most packets of one call.
pub(super) const MOST: usize = 64;

/// The least that a call is prepared for.
const LEAST: usize = 8;

/// Room for a packet when none was large of late.
const NARROW: usize = 2048;

/// Room for any packet; not a power of two, lest all packets begin in the same cache set.
const WIDE: usize = LARGEST + 192;

/// After so many calls without a large packet the slots become narrow again.
const CALM: u32 = 16;

/// Message headers, with the room that they point to.
struct Headers {
    // INVARIANT: pointers in `headers` and `pieces` are set before each system call and mean nothing after it.
    headers: Vec<libc::mmsghdr>,
    pieces: Vec<[libc::iovec; 2]>,
    addresses: Vec<Address>,
    controls: Vec<Control>,
}

// SAFETY: the raw pointers are only followed by the kernel during a call, for which they have just been set.
unsafe impl Send for Headers {}

impl Headers {
    fn new() -> Self {
        Self {
            headers: Vec::with_capacity(MOST),
            pieces: Vec::with_capacity(MOST),
            addresses: Vec::with_capacity(MOST),
            controls: Vec::with_capacity(MOST),
        }
    }

    /// Sees that there are so many: memory is touched for as many as a call ever had, and never moved.
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
        self.addresses.resize(count, Address::default());
        self.controls.resize(count, Control::default());
    }

    /// Points header `i` at its address, pieces and control messages.
    fn connect(&mut self, i: usize, address_len: u32, pieces: usize, control_len: usize) {
        let header = &mut self.headers[i].msg_hdr;
        header.msg_name = self.addresses[i].room().cast();
        header.msg_namelen = address_len;
        header.msg_iov = self.pieces[i].as_mut_ptr();
        header.msg_iovlen = pieces as _;
        header.msg_control = self.controls[i].room().cast();
        header.msg_controllen = control_len as _;
        header.msg_flags = 0;
    }
}

/// Receives packets into intakes.
pub(super) struct Receiver {
    headers: Headers,
    lens: [usize; MOST],
    /// [`LARGEST`] bytes for each message of a call; pages that were never needed are never touched.
    spill: Vec<u8>,
    /// Messages that did not fit into the last intake: they lie whole in their spill.
    parked: Range<usize>,
    wide: bool,
    calm: u32,
    /// Bytes that stay free in front of each packet.
    headroom: usize,
    /// How many packets the next call is prepared for: preparing for many that do not come is not free.
    hope: usize,
}

/// One packet, as the kernel handed it over.
pub(super) struct Received<'a> {
    /// Who sent it.
    pub peer: &'a Address,
    /// What the kernel says about it.
    pub control: &'a Control,
}

impl Receiver {
    pub fn new(headroom: usize) -> Self {
        Self {
            headers: Headers::new(),
            lens: [0; MOST],
            spill: vec![0; MOST * LARGEST],
            parked: 0..0,
            wide: false,
            calm: 0,
            headroom,
            hope: LEAST,
        }
    }

    /// Receives what is there, as far as it fits. `enter` decides what becomes of each packet: it is given the intake
    /// and where in it the packet lies.
    pub fn receive<Note>(
        &mut self,
        socket: BorrowedFd<'_>,
        intake: &mut Intake<Note>,
        mut enter: impl FnMut(&mut Intake<Note>, Range<usize>, Received<'_>),
    ) -> io::Result<()> {
        self.unpark(intake, &mut enter);
        while self.parked.is_empty() {
            let base = intake.used();
            let (slot, slots) = self.plan(intake);
            if slots == 0 {
                break;
            }
            let count = self.call(socket, &mut intake.bytes[base..], slot, slots)?;
            self.settle(base, slot, count, intake, &mut enter);
            self.unpark(intake, &mut enter);
            if count < slots {
                break;
            }
        }
        Ok(())
    }

    /// Whether packets wait here for room.
    pub fn has_parked(&self) -> bool {
        !self.parked.is_empty()
    }

    /// How much room each packet gets, and how many of them there are room for.
    fn plan<Note>(&self, intake: &mut Intake<Note>) -> (usize, usize) {
        let most = intake.places().min(self.hope);
        let free = intake.free().len();
        // The last packet needs no distance to a next one.
        let slot = WIDE + self.headroom;
        let wide = (free + WIDE - LARGEST) / slot;
        match self.wide && (wide > 0 || !intake.items.is_empty()) {
            true => (slot, most.min(wide)),
            false => (NARROW, most.min(free / NARROW)),
        }
    }

    /// One `recvmmsg`; says how many packets came.
    fn call(
        &mut self,
        socket: BorrowedFd<'_>,
        room: &mut [u8],
        slot: usize,
        slots: usize,
    ) -> io::Result<usize> {
        self.headers.prepare(slots);
        for i in 0..slots {
            let own = &mut room[i * slot + self.headroom..];
            let own = libc::iovec {
                iov_base: own.as_mut_ptr().cast(),
                iov_len: own.len().min(slot - self.headroom),
            };
            let spilt_at = i * LARGEST + NARROW - self.headroom;
            let spill = &mut self.spill[spilt_at..(i + 1) * LARGEST];
            let spill = libc::iovec {
                iov_base: spill.as_mut_ptr().cast(),
                iov_len: spill.len(),
            };
            self.headers.pieces[i] = [own, spill];
            let pieces = if slot == NARROW { 2 } else { 1 };
            self.headers
                .connect(i, Address::ROOM as u32, pieces, Control::ROOM);
        }
        let headers = self.headers.headers.as_mut_ptr();
        // SAFETY: every pointer in the first `slots` headers was just set to room that is borrowed until this function
        // returns: the slots and spills do not overlap, and the lengths are theirs.
        let count = unsafe {
            libc::recvmmsg(
                socket.as_raw_fd(),
                headers,
                slots as u32,
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

    /// Enters the packets of a call, up to the first that outgrew its slot; that one and all behind it are parked.
    fn settle<Note>(
        &mut self,
        base: usize,
        slot: usize,
        count: usize,
        intake: &mut Intake<Note>,
        enter: &mut impl FnMut(&mut Intake<Note>, Range<usize>, Received<'_>),
    ) {
        for i in 0..count {
            self.lens[i] = self.headers.headers[i].msg_len as usize;
            let control_len = self.headers.headers[i].msg_hdr.msg_controllen;
            self.headers.controls[i].set_len(control_len);
        }
        let room = slot - self.headroom;
        let outgrown = self.lens[..count]
            .iter()
            .position(|&len| len > room)
            .unwrap_or(count);
        for i in 0..outgrown {
            let start = base + i * slot + self.headroom;
            enter(intake, start..start + self.lens[i], self.received(i));
        }
        for i in outgrown..count {
            let start = base + i * slot + self.headroom;
            let head = self.lens[i].min(room);
            self.spill[i * LARGEST..i * LARGEST + head]
                .copy_from_slice(&intake.bytes[start..start + head]);
        }
        self.parked = outgrown..count;
        self.guess(count);
    }

    /// Learns from the sizes of a call which slots the next one should have, and how many.
    fn guess(&mut self, count: usize) {
        self.hope = (count * 2).clamp(LEAST, MOST);
        if self.lens[..count].iter().any(|&len| len > NARROW) {
            (self.wide, self.calm) = (true, 0);
        } else if count > 0 {
            self.calm = self.calm.saturating_add(1);
            self.wide &= self.calm < CALM;
        }
    }

    /// Enters parked packets, in order, while there is room.
    fn unpark<Note>(
        &mut self,
        intake: &mut Intake<Note>,
        enter: &mut impl FnMut(&mut Intake<Note>, Range<usize>, Received<'_>),
    ) {
        while let Some(i) = self.parked.clone().next() {
            let len = self.lens[i];
            let start = intake.used() + self.headroom;
            if intake.places() == 0 || intake.bytes.len() < start + len {
                return;
            }
            intake.bytes[start..start + len]
                .copy_from_slice(&self.spill[i * LARGEST..i * LARGEST + len]);
            enter(intake, start..start + len, self.received(i));
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

/// Messages waiting to be sent by one call.
pub(super) struct Outbox {
    headers: Headers,
    letters: Vec<Letter>,
}

/// One message: which bytes of which parcel.
#[derive(Clone, Debug)]
pub(super) struct Letter {
    /// The parcel's place in what was to be delivered.
    pub parcel: usize,
    /// The bytes of it.
    pub range: Range<usize>,
    /// How many packets they are.
    pub packets: u64,
    /// Whether the kernel is asked to cut them.
    pub segmented: bool,
    address_len: u32,
}

impl Outbox {
    pub fn new() -> Self {
        Self {
            headers: Headers::new(),
            letters: Vec::with_capacity(MOST),
        }
    }

    /// The messages, in order.
    pub fn letters(&self) -> &[Letter] {
        &self.letters
    }

    pub fn is_full(&self) -> bool {
        self.letters.len() == MOST
    }

    /// Forgets all messages.
    pub fn clear(&mut self) {
        self.letters.clear();
    }

    /// Adds a message to `address`; `stamp` writes its control messages. There must be room.
    pub fn add(
        &mut self,
        letter: (usize, Range<usize>, u64, bool),
        address: std::net::SocketAddr,
    ) -> &mut Control {
        let i = self.letters.len();
        self.headers.prepare(i + 1);
        let address_len = self.headers.addresses[i].write(address.ip(), address.port());
        let (parcel, range, packets, segmented) = letter;
        self.letters.push(Letter {
            parcel,
            range,
            packets,
            segmented,
            address_len,
        });
        let control = &mut self.headers.controls[i];
        control.clear();
        control
    }

    /// Adds a message for a socket that knows where to. There must be room.
    pub fn add_unaddressed(&mut self, letter: (usize, Range<usize>, u64, bool)) {
        let (parcel, range, packets, segmented) = letter;
        let i = self.letters.len();
        self.headers.prepare(i + 1);
        self.headers.controls[i].clear();
        self.letters.push(Letter {
            parcel,
            range,
            packets,
            segmented,
            address_len: 0,
        });
    }

    /// One `sendmmsg` of the messages from `first` on; says how many went. `bytes_of` finds the
    /// bytes of a message, given its place among them.
    pub fn send<'a>(
        &mut self,
        socket: BorrowedFd<'_>,
        first: usize,
        bytes_of: impl Fn(usize, &Letter) -> [&'a [u8]; 2],
    ) -> io::Result<usize> {
        let count = self.letters.len();
        for i in first..count {
            let letter = &self.letters[i];
            self.headers.pieces[i] = bytes_of(i, letter).map(|piece| libc::iovec {
                iov_base: piece.as_ptr().cast_mut().cast(),
                iov_len: piece.len(),
            });
            let (address_len, control_len) = (letter.address_len, self.headers.controls[i].len());
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
