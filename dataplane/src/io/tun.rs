//! A TUN device with virtio headers: the kernel hands over super-packets as they are and takes them back as they are.
//!
//! ```text
//!   kernel ──► readv: header + packet ──► Offload, bytes in the intake          TunSource
//!   kernel ◄── writev: header + pieces ◄── Offload, pieces of a Delivery        TunSink
//! ```
//!
//! Each offload is tried with a real packet at start ([`Abilities`]); what fails is done without, and said aloud. With
//! several queues the kernel spreads flows over them by itself; each queue is a source and a sink of its own.

mod device;
pub(super) mod header;
mod probe;
#[cfg(test)]
mod tests;

use super::waker::{poll_patiently, sleep_on};
use super::{
    Delivery, Intake, LARGEST, PlaintextSink, PlaintextSource, Refusal, Sent, Wait, Waker, Warn,
};
use crate::train::{Offload, TrainKinds};
use rustix::event::{PollFd, PollFlags};
use rustix::io::Errno;
use std::io::{self, IoSlice, IoSliceMut};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

/// What kind of TUN device is wanted.
#[derive(Clone, Debug)]
pub struct TunOptions {
    /// Its name; a `%d` in it lets the kernel choose a number.
    pub name: String,
    /// How many queues, at least one.
    pub queues: usize,
    /// Its MTU: routes lower it for each policy, the device itself never should.
    pub mtu: u16,
    /// Whether to use trains at all.
    pub trains: bool,
    /// Whether it stays, with the routes that lead there, when nobody has it open: what is routed there is then lost.
    pub lasting: bool,
    /// Whether the kernel may speak on it by itself: link-local addresses, which routing daemons need.
    pub chatty: bool,
    /// What a device of this process, made in the same way, was able to do: then nothing is tried again. A trial ends with
    /// sockets that are closed, and for each the kernel waits until no processor looks at it any more, some 15 ms.
    pub known: Option<Abilities>,
}

impl TunOptions {
    /// One queue, trains, the largest MTU, nothing known.
    pub fn named(name: &str) -> Self {
        Self {
            name: name.to_owned(),
            queues: 1,
            mtu: u16::MAX,
            trains: true,
            lasting: false,
            chatty: false,
            known: None,
        }
    }
}

/// What the device turned out to be able to do.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Abilities {
    /// It hands over and takes packets with an unfinished checksum.
    pub checksum: bool,
    /// Trains that it hands over.
    pub read: TrainKinds,
    /// Trains that it takes.
    pub write: TrainKinds,
}

/// An open TUN device, up; it goes away with its last queue unless it was persistent.
#[derive(Debug)]
pub struct Tun {
    /// The name it has.
    pub name: String,
    /// Its interface index.
    pub index: u32,
    /// What it can do.
    pub abilities: Abilities,
    chatty: bool,
    queues: Vec<Arc<OwnedFd>>,
}

impl Tun {
    /// Creates the device, or attaches to a persistent one that nobody uses, and sets it up.
    /// Every offload that does not work here is told to `warn`.
    pub fn open(options: &TunOptions, warn: &Warn) -> Result<Self, Refusal> {
        let (queues, name) = device::attach(options)?;
        if options.lasting {
            device::make_lasting(&queues[0])
                .map_err(Refusal::during("make the TUN device last"))?;
        }
        if !options.chatty {
            device::keep_silent(&name);
        }
        let index = device::bring_up(&name, options.mtu)?;
        let abilities = match (options.trains, options.known) {
            (true, Some(known)) => probe::switch_on(&queues[0], known)?,
            (true, None) => probe::try_offloads(&queues, (&name, index), warn)?,
            (false, _) => probe::without_offloads(&queues[0])?,
        };
        Ok(Self {
            name,
            index,
            abilities,
            chatty: options.chatty,
            queues: queues.into_iter().map(Arc::new).collect(),
        })
    }

    /// A device that another process has opened and tried: `queue` is its only one.
    pub fn adopt(queue: OwnedFd, abilities: Abilities) -> Result<Self, Refusal> {
        let name = device::attached_to(&queue).ok_or(Refusal::NoTunDevice)?;
        let index = device::bring_up(&name, u16::MAX)?;
        Ok(Self {
            name,
            index,
            abilities,
            chatty: false,
            queues: vec![Arc::new(queue)],
        })
    }

    /// Another descriptor of its first queue.
    pub fn share(&self) -> io::Result<OwnedFd> {
        let queue = self.queues.first().ok_or(io::ErrorKind::NotFound)?;
        queue.try_clone()
    }

    /// The name that the device has by now; none once somebody has deleted it.
    pub fn name_now(&self) -> Option<String> {
        self.queues
            .first()
            .and_then(|queue| device::attached_to(queue))
    }

    /// Sets the device's MTU, and the device up.
    pub fn set_mtu(&self, mtu: u16) -> Result<(), Refusal> {
        device::bring_up(&self.name, mtu).map(drop)
    }

    /// A source and a sink for each queue.
    pub fn ends(&self) -> impl Iterator<Item = (TunSource, TunSink)> + '_ {
        self.queues.iter().map(|queue| {
            let source = TunSource {
                device: queue.clone(),
                waker: None,
                chatty: self.chatty,
            };
            (
                source,
                TunSink {
                    device: queue.clone(),
                    takes: self.abilities.write,
                },
            )
        })
    }
}

/// Reads packets and trains that the kernel routed into the device.
#[derive(Debug)]
pub struct TunSource {
    device: Arc<OwnedFd>,
    waker: Option<Waker>,
    chatty: bool,
}

impl TunSource {
    /// Lets `waker` end this source's sleep.
    pub fn woken_by(self, waker: Waker) -> Self {
        Self {
            waker: Some(waker),
            ..self
        }
    }

    /// Reads until nothing is left or the intake is full.
    fn read_all(&mut self, intake: &mut Intake<Offload>) -> io::Result<usize> {
        let before = intake.items.len();
        while intake.places() > 0 && intake.free().len() >= LARGEST {
            match self.read_one(intake.free()) {
                Ok((len, Some(_))) if !self.chatty && is_chatter(&intake.free()[..len]) => {}
                Ok((len, Some(offload))) => intake.push(len, offload),
                Ok((_, None)) | Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => break,
                // What was read is delivered first; the error is still there the next time.
                Err(_) if intake.items.len() > before => break,
                Err(error) => return Err(error.into()),
            }
        }
        Ok(intake.items.len() - before)
    }

    fn read_one(&mut self, room: &mut [u8]) -> Result<(usize, Option<Offload>), Errno> {
        let mut head = [0; header::LEN];
        let read = rustix::io::readv(
            &self.device,
            &mut [IoSliceMut::new(&mut head), IoSliceMut::new(room)],
        )?;
        let offload = if read > header::LEN {
            header::read(&head)
        } else {
            None
        };
        Ok((read.saturating_sub(header::LEN), offload))
    }
}

impl PlaintextSource for TunSource {
    fn fill(&mut self, intake: &mut Intake<Offload>, wait: Wait) -> io::Result<usize> {
        if intake.bytes.len() < LARGEST {
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                "the intake has no room for one train",
            ));
        }
        let added = self.read_all(intake)?;
        if added == 0
            && intake.items.is_empty()
            && sleep_on(self.device.as_fd(), self.waker.as_ref(), wait)?
        {
            return self.read_all(intake);
        }
        Ok(added)
    }
}

/// Whether this is the kernel's report of the multicast groups that it has joined on the device by itself, of which no
/// setting keeps it: behind a hop-by-hop header, RFC 2710 and RFC 3810 messages that must not pass a router. Nobody has sent
/// it and nobody misses it, so it is no dropped traffic either.
fn is_chatter(packet: &[u8]) -> bool {
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

/// Writes packets and trains into the device: to the kernel they have just arrived from it.
#[derive(Debug)]
pub struct TunSink {
    device: Arc<OwnedFd>,
    takes: TrainKinds,
}

/// How long a full device is waited for before a packet is given up.
const PATIENCE: Duration = Duration::from_millis(100);

impl TunSink {
    fn write(&self, delivery: &Delivery<'_>) -> Result<(), Errno> {
        let mut copy = [0; 128];
        let head = delivery.head(&mut copy);
        let header = header::write(&delivery.offload, head).ok_or(Errno::INVAL)?;
        match delivery.pieces.len() {
            0..=7 => self.gather::<8>(&header, delivery.pieces),
            8..=127 => self.gather::<128>(&header, delivery.pieces),
            128..=1023 => self.gather::<1024>(&header, delivery.pieces),
            _ => Err(Errno::INVAL),
        }
    }

    /// One `writev` of header and pieces, fewer than `N`. A second attempt is for a device that was full.
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
        poll_patiently(&mut watched, PATIENCE).map_err(|_| Errno::NOBUFS)?;
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
