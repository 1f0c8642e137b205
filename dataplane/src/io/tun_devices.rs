//! Many TUN devices as one: the one that policies use, and those of SAs with a device of their own, which are added and
//! removed while packets flow.
//!
//! ```text
//!   esp0 ─┐                                    ┌─► esp0                     number 0
//!   vpn0 ─┼─► TunDevicesSource ──► outbound        inbound ──► TunDevicesSink ─► vpn0     chosen by the SA
//!   vpn1 ─┘   one device a batch                              └─► vpn1
//! ```
//!
//! A batch is read from one device, so that its number need not be stored with each packet.
//!
//! Two more devices are only written to: packets that only `in` policies accept leave by one, packets that only `fwd`
//! policies accept by the other, and drop rules enforce it in the kernel. They exist once policies can differ so; until
//! then nothing is written to them.
//!
//! The first device can be deleted by another program. Until it is replaced nothing is read from it and packets for it
//! are lost; the other devices and the reading thread continue.

use super::tun::{Tun, TunSink, TunSource};
use super::waker::poll_for;
use super::{Delivery, PlaintextSink, PlaintextSource, ReceiveBuffer, Sent, Wait, Waker};
use crate::train::{Offload, TrainKinds};
use rustix::event::{PollFd, PollFlags};
use std::io;
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

/// The number of the device for packets that may be delivered here, but not forwarded.
pub const IN_ONLY_DEVICE: u32 = u32::MAX - 1;

/// The number of the device for packets that may be forwarded, but not delivered here.
pub const FWD_ONLY_DEVICE: u32 = u32::MAX;

/// Whether nothing is read from the device of this number.
fn is_written_only(number: u32) -> bool {
    number >= IN_ONLY_DEVICE
}

/// The number of the first device.
pub const FIRST_DEVICE: u32 = 0;

/// The devices beside the first; they can be added and removed at any time. Clones share them.
#[derive(Clone, Default)]
pub struct TunDevices(Arc<Shared>);

#[derive(Default)]
struct Shared {
    devices: Mutex<Vec<(u32, Arc<Tun>)>>,
    changes: AtomicU64,
    /// The reading thread's.
    waker: OnceLock<Waker>,
}

impl TunDevices {
    /// From the next call of a source or sink on, `device` has this number, or no device has. A device with the number
    /// [`FIRST_DEVICE`] replaces the one that source and sinks were made with.
    pub fn set(&self, number: u32, device: Option<Arc<Tun>>) {
        let mut devices = self.lock();
        devices.retain(|(known, _)| *known != number);
        devices.extend(device.map(|device| (number, device)));
        self.0.changes.fetch_add(1, Ordering::Release);
        drop(devices);
        if let Some(waker) = self.0.waker.get() {
            waker.wake();
        }
    }

    /// Removes the device of a number after a failure, unless it was replaced since `seen`.
    fn lose(&self, number: u32, seen: u64) {
        if self.0.changes.load(Ordering::Acquire) == seen {
            self.set(number, None);
        }
    }

    /// The device of a number.
    pub fn get(&self, number: u32) -> Option<Arc<Tun>> {
        let devices = self.lock();
        let found = devices.iter().find(|(known, _)| *known == number);
        found.map(|(_, device)| Arc::clone(device))
    }

    /// The plaintext source of all of them and `first`; `waker` ends its sleep.
    pub fn source(&self, first: TunSource, waker: Waker) -> TunDevicesSource {
        // A gateway has one reading thread for all devices, and starts it once.
        let _ = self.0.waker.set(waker.clone());
        TunDevicesSource {
            first: Some(first.woken_by(waker.clone())),
            others: Vec::new(),
            tunnels: self.clone(),
            changes: 0,
            waker,
            turn: 0,
            last: 0,
        }
    }

    /// The plaintext sink of all of them and `first`.
    pub fn sink(&self, first: TunSink) -> TunDevicesSink {
        TunDevicesSink {
            first,
            others: Vec::new(),
            tunnels: self.clone(),
            changes: 0,
        }
    }

    /// The devices, if they have changed since `seen`.
    fn news(&self, seen: &mut u64) -> Option<Vec<(u32, Arc<Tun>)>> {
        let changes = self.0.changes.load(Ordering::Acquire);
        (std::mem::replace(seen, changes) != changes).then(|| self.lock().clone())
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Vec<(u32, Arc<Tun>)>> {
        // A list of plain entries is whole after any panic.
        self.0
            .devices
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

/// Reads from all devices in turn, one for each batch.
pub struct TunDevicesSource {
    /// None while it is deleted.
    first: Option<TunSource>,
    others: Vec<(u32, TunSource)>,
    tunnels: TunDevices,
    changes: u64,
    waker: Waker,
    /// Which device is read first: another one in every turn.
    turn: usize,
    last: u32,
}

impl TunDevicesSource {
    fn follow(&mut self) {
        let Some(devices) = self.tunnels.news(&mut self.changes) else {
            return;
        };
        self.others.clear();
        for (number, device) in devices {
            let Some((source, _)) = device.ends().next() else {
                continue;
            };
            match number {
                FIRST_DEVICE => self.first = Some(source.woken_by(self.waker.clone())),
                _ if is_written_only(number) => {}
                _ => self.others.push((number, source)),
            }
        }
    }

    /// Which devices are ready, 0 for the first one, after at most this time.
    fn ready(&self, limit: Duration) -> io::Result<Vec<usize>> {
        let first = self.first.iter().map(|source| (0, source.as_fd()));
        let others = self.others.iter().enumerate();
        let others = others.map(|(other, (_, source))| (other + 1, source.as_fd()));
        let places: Vec<_> = first.chain(others).collect();
        let mut watched: Vec<_> = std::iter::once(self.waker.as_fd())
            .chain(places.iter().map(|(_, fd)| *fd))
            .map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN))
            .collect();
        poll_for(&mut watched, limit)?;
        if !watched[0].revents().is_empty() {
            self.waker.take();
        }
        let ready = places.iter().zip(&watched[1..]);
        Ok(ready
            .filter(|(_, fd)| !fd.revents().is_empty())
            .map(|((place, _), _)| *place)
            .collect())
    }

    fn fill_at(&mut self, place: usize, buffer: &mut ReceiveBuffer<Offload>) -> io::Result<usize> {
        let Some(other) = place.checked_sub(1) else {
            return self.fill_first(buffer, Wait::Poll);
        };
        let (number, source) = &mut self.others[other];
        self.last = *number;
        let filled = source.fill(buffer, Wait::Poll);
        if filled.is_err() {
            // Another program deleted the device; the gateway makes a new one.
            let number = *number;
            self.others.remove(other);
            self.tunnels.lose(number, self.changes);
        }
        Ok(filled.unwrap_or(0))
    }

    fn fill_first(&mut self, buffer: &mut ReceiveBuffer<Offload>, wait: Wait) -> io::Result<usize> {
        self.last = FIRST_DEVICE;
        let Some(first) = &mut self.first else {
            return Ok(0);
        };
        match first.fill(buffer, wait) {
            Err(error) if is_gone(&error) => {
                self.first = None;
                Ok(0)
            }
            filled => filled,
        }
    }
}

/// Whether the error means that the device was deleted.
fn is_gone(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EBADFD | libc::ENODEV))
}

impl PlaintextSource for TunDevicesSource {
    fn fill(&mut self, buffer: &mut ReceiveBuffer<Offload>, wait: Wait) -> io::Result<usize> {
        self.follow();
        if self.others.is_empty() && self.first.is_some() {
            return self.fill_first(buffer, wait);
        }
        let limit = match wait {
            Wait::AtMost(limit) => limit,
            Wait::Poll => Duration::ZERO,
        };
        let ready = self.ready(limit)?;
        let next = ready.iter().find(|&&place| place >= self.turn);
        let Some(&place) = next.or(ready.first()) else {
            return Ok(0);
        };
        self.turn = place + 1;
        self.fill_at(place, buffer)
    }

    fn interface(&self) -> u32 {
        self.last
    }
}

/// Writes to all devices.
pub struct TunDevicesSink {
    first: TunSink,
    others: Vec<(u32, TunSink)>,
    tunnels: TunDevices,
    changes: u64,
}

impl TunDevicesSink {
    fn follow(&mut self) {
        let Some(devices) = self.tunnels.news(&mut self.changes) else {
            return;
        };
        self.others.clear();
        for (number, device) in devices {
            let Some((_, sink)) = device.ends().next() else {
                continue;
            };
            match number {
                FIRST_DEVICE => self.first = sink,
                _ => self.others.push((number, sink)),
            }
        }
    }
}

impl PlaintextSink for TunDevicesSink {
    fn deliver(&mut self, deliveries: &[Delivery<'_>]) -> io::Result<Sent> {
        self.follow();
        self.first.deliver(deliveries)
    }

    fn deliver_by(&mut self, interface: u32, deliveries: &[Delivery<'_>]) -> io::Result<Sent> {
        if interface == FIRST_DEVICE {
            return self.deliver(deliveries);
        }
        self.follow();
        let mut others = self.others.iter_mut();
        match others.find(|(number, _)| *number == interface) {
            Some((_, sink)) => sink.deliver(deliveries),
            None => Err(io::ErrorKind::NotFound.into()),
        }
    }

    fn train_kinds(&self) -> TrainKinds {
        self.first.train_kinds()
    }
}

#[cfg(test)]
mod tests;
