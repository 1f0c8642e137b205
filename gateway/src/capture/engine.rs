//! The gateway's own pumps with one packet in them at a time, so that each drop can be laid at a packet's door; where
//! packets share payloads (RFC 9347), a few at a time.

use super::report::Report;
use arc_swap::ArcSwap;
use dataplane::counters::{Counters, Tally};
use dataplane::frames::BatchSize;
use dataplane::inbound::{Inbound, InboundPump};
use dataplane::io::{
    Arrival, Delivery, Intake, LARGEST, Parcel, Paths, PlaintextSink, PlaintextSource,
    ProtectedSink, ProtectedSource, Sent, Wait,
};
use dataplane::iv::{IvSource, SEED_LEN};
use dataplane::outbound::{Outbound, OutboundPump};
use dataplane::path::PathMtus;
use dataplane::pipeline::pump::Gearing;
use dataplane::train::{Offload, Takes};
use ipsec::Dropped;
use ipsec::database::{Decision, Snapshot};
use ipsec::fragment::{Limits, Offered, Reassembler};
use ipsec::packet::Outline;
use ipsec::sa::SaConfig;
use ipsec::tunnel::Outer;
use std::collections::VecDeque;
use std::io;
use std::mem::take;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// The most bytes of an IP packet: a capture has no path.
const LARGEST_PACKET: usize = 65_535;

/// Packets that share payloads where an association aggregates.
const SHARING: usize = 16;

/// Where ESP in UDP is looked for without being told (RFC 3948).
const ESP_PORT: u16 = 4500;

/// What is done to the packets.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Verb {
    /// Authenticate and decrypt.
    Open,
    /// Encrypt and authenticate.
    Seal,
}

/// A capture's packets on their way through the engine.
pub struct Engine {
    pump: Pump,
    desk: Arc<Mutex<Desk>>,
    counters: Arc<Counters>,
    snapshot: Arc<Snapshot>,
    /// The number of the device into which everything was routed that no policy protects; 0 for none.
    device: u32,
    fragments: Reassembler,
    /// The latest time seen: captures merged by hand may go back.
    now: u64,
    held: Vec<u64>,
    /// How many packets are offered in one batch.
    together: usize,
    /// The latest packet that was offered.
    latest: u64,
}

enum Pump {
    Open(Box<InboundPump>),
    Seal(Box<OutboundPump>),
}

/// Where the pump's ends find the packet and leave what became of it.
#[derive(Default)]
struct Desk {
    waiting: VecDeque<Vec<u8>>,
    /// The device that what waits was routed into.
    device: u32,
    carried: Vec<Vec<u8>>,
    identification: u16,
}

/// A packet is either none of ours, or one to carry: from the device of this number, 0 where policies or associations
/// name it.
enum Claim {
    PassBy,
    Carry(u32),
    Drop(Dropped),
}

impl Engine {
    /// An engine over the databases of `snapshot`; what no policy protects was routed into the device of this number,
    /// unless it is 0. With a seed its IVs are always the same.
    pub fn new(
        verb: Verb,
        (snapshot, device): (Arc<Snapshot>, u32),
        seed: Option<u64>,
    ) -> io::Result<Self> {
        let desk = Arc::<Mutex<Desk>>::default();
        let counters = Arc::<Counters>::default();
        let databases = Arc::new(ArcSwap::from(Arc::clone(&snapshot)));
        let ends = Ends(Arc::clone(&desk));
        let paths = || PathMtus::new(Paths::default(), LARGEST_PACKET);
        let together = match verb {
            Verb::Seal if packs(&snapshot) => SHARING,
            Verb::Seal | Verb::Open => 1,
        };
        let gearing = Gearing {
            slots: 1,
            workers: 0,
        };
        let size = BatchSize {
            items: together,
            bytes: LARGEST,
        };
        let pump = match verb {
            Verb::Open => {
                let inbound = Inbound {
                    source: Box::new(ends.clone()),
                    sink: Box::new(ends),
                    databases,
                    paths: paths(),
                    counters: Arc::clone(&counters),
                };
                Pump::Open(Box::new(inbound.pump(size, &gearing, Arc::default())))
            }
            Verb::Seal => {
                let outbound = Outbound {
                    source: Box::new(ends.clone()),
                    sink: Box::new(ends),
                    replies: None,
                    databases,
                    ivs: ivs(seed)?,
                    paths: paths(),
                    hook: Arc::new(|_| ()),
                    counters: Arc::clone(&counters),
                };
                Pump::Seal(Box::new(outbound.pump(size, &gearing, Arc::default())))
            }
        };
        let fragments = Reassembler::new(Limits::default());
        Ok(Self {
            pump,
            desk,
            counters,
            snapshot,
            device,
            fragments,
            now: 0,
            held: Vec::new(),
            together,
            latest: 0,
        })
    }

    /// What becomes of one packet; its fate is entered into `report`.
    pub fn process(
        &mut self,
        packet: &[u8],
        time: Duration,
        number: u64,
        report: &mut Report,
    ) -> io::Result<Vec<Vec<u8>>> {
        self.now = self.now.max(time.as_secs());
        match self.pump {
            Pump::Seal(_) => self.offer(packet, number, report),
            // RFC 4303 3.4.1: fragments are joined before ESP is looked at.
            Pump::Open(_) => match self.fragments.offer(packet, self.now) {
                Ok(Offered::NotFragment) | Err(_) => self.offer(packet, number, report),
                Ok(Offered::Held) => {
                    self.held.push(number);
                    Ok(Vec::new())
                }
                Ok(Offered::Joined(whole)) => self.offer(&whole, number, report),
            },
        }
    }

    /// What is left over at the end: packets that waited for others, and those of which a fragment never came.
    pub fn finish(&mut self, report: &mut Report) -> io::Result<Vec<Vec<u8>>> {
        if let Pump::Open(_) = self.pump {
            std::thread::sleep(self.patience());
        }
        let carried = self.work(report)?;
        let incomplete = self.fragments.held_bytes() > 0 || self.fragments.given_up() > 0;
        for number in self.held.iter().filter(|_| incomplete) {
            report.note_fragment(*number);
        }
        Ok(carried)
    }

    /// How long a receiver waits for a payload that is missing.
    fn patience(&self) -> Duration {
        let aggfrags = self.snapshot.sas().filter_map(|sa| sa.config.aggfrag);
        let longest = aggfrags.map(|aggfrag| aggfrag.patience).max();
        // The clock that is waited for moves in steps of a few milliseconds.
        longest.map_or(Duration::ZERO, |patience| {
            Duration::from_millis(u64::from(patience) + 20)
        })
    }

    fn offer(
        &mut self,
        packet: &[u8],
        number: u64,
        report: &mut Report,
    ) -> io::Result<Vec<Vec<u8>>> {
        match self.claim(packet) {
            Claim::PassBy => {
                report.pass_by(number);
                Ok(Vec::new())
            }
            Claim::Drop(reason) => {
                report.drop(number, reason, 1);
                Ok(Vec::new())
            }
            Claim::Carry(device) => self.carry(packet, device, number, report),
        }
    }

    /// What waits together was routed into the same device.
    fn carry(
        &mut self,
        packet: &[u8],
        device: u32,
        number: u64,
        report: &mut Report,
    ) -> io::Result<Vec<Vec<u8>>> {
        let is_another = self.desk().device != device;
        let mut carried = match is_another {
            true => self.work(report)?,
            false => Vec::new(),
        };
        self.latest = number;
        let waiting = {
            let mut desk = self.desk();
            desk.device = device;
            desk.waiting.push_back(packet.to_vec());
            desk.waiting.len()
        };
        if waiting >= self.together {
            carried.extend(self.work(report)?);
        }
        Ok(carried)
    }

    /// Everything that waits goes through the pump.
    fn work(&mut self, report: &mut Report) -> io::Result<Vec<Vec<u8>>> {
        let before = self.counters.read();
        while self.step()? > 0 || !self.desk().waiting.is_empty() {}
        report.enter(self.latest, &before, &self.counters.read());
        Ok(take(&mut self.desk().carried))
    }

    /// Whether a packet is named by an association (to open) or by a policy that protects (to seal).
    fn claim(&self, packet: &[u8]) -> Claim {
        match self.pump {
            Pump::Seal(_) => match Outline::read(packet) {
                Err(reason) => Claim::Drop(reason),
                Ok(outline) => match self.snapshot.outbound(&outline) {
                    // The gateway's rules ask policies before routes.
                    Decision::Bypass | Decision::Drop(Dropped::NoPolicy) if self.device != 0 => {
                        Claim::Carry(self.device)
                    }
                    Decision::Bypass
                    | Decision::Drop(Dropped::NoPolicy | Dropped::PolicyDiscard) => Claim::PassBy,
                    Decision::Protect(_) | Decision::Drop(_) | Decision::Acquire { .. } => {
                        Claim::Carry(0)
                    }
                },
            },
            Pump::Open(_) => match Outer::payload(packet) {
                Err(Dropped::Unsupported) => Claim::PassBy,
                Err(reason) => Claim::Drop(reason),
                Ok((outer, _)) if self.is_for_us(&outer) => Claim::Carry(0),
                Ok(_) => Claim::PassBy,
            },
        }
    }

    /// Whether any association ends at the packet's destination: then an unknown SPI is a drop, not somebody else's. A
    /// datagram to a port where no socket of ours would be is somebody else's too.
    fn is_for_us(&self, outer: &Outer) -> bool {
        let is_ours = |config: &SaConfig| match (outer.ports, config.encapsulation) {
            (Some((_, ESP_PORT)) | None, _) => true,
            (Some((_, port)), Some(udp)) => udp.destination_port == port,
            (Some(_), None) => false,
        };
        let ending = |config: &SaConfig| config.id.destination == outer.destination;
        let mut configs = self.snapshot.sas().map(|sa| &*sa.config);
        configs.any(|config| ending(config) && is_ours(config))
    }

    fn step(&mut self) -> io::Result<usize> {
        match &mut self.pump {
            Pump::Open(pump) => pump.step(Wait::Poll),
            Pump::Seal(pump) => pump.step(Wait::Poll),
        }
    }

    fn desk(&self) -> MutexGuard<'_, Desk> {
        lock(&self.desk)
    }
}

/// Whether any association aggregates (RFC 9347).
fn packs(snapshot: &Snapshot) -> bool {
    snapshot.sas().any(|sa| sa.config.aggfrag.is_some())
}

fn ivs(seed: Option<u64>) -> io::Result<IvSource> {
    let Some(seed) = seed else {
        return IvSource::from_system();
    };
    let mut bytes = [0; SEED_LEN];
    bytes[..8].copy_from_slice(&seed.to_be_bytes());
    Ok(IvSource::seeded(&bytes))
}

/// Both ends of both directions, at the desk.
#[derive(Clone)]
struct Ends(Arc<Mutex<Desk>>);

fn lock(desk: &Mutex<Desk>) -> MutexGuard<'_, Desk> {
    // Vectors of packets are whole whatever their last user did.
    desk.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Ends {
    fn enter<Note>(
        &self,
        intake: &mut Intake<Note>,
        note: impl Fn(&[u8]) -> Option<(usize, usize, Note)>,
    ) -> usize {
        let mut count = 0;
        while let Some(packet) = lock(&self.0).waiting.pop_front() {
            let Some((start, end, note)) = note(&packet) else {
                continue;
            };
            let bytes = &packet[start..end];
            if intake.places() == 0 || bytes.len() > intake.free().len() {
                // What does not fit even alone never will.
                if count > 0 {
                    lock(&self.0).waiting.push_front(packet);
                }
                break;
            }
            intake.free()[..bytes.len()].copy_from_slice(bytes);
            intake.push(bytes.len(), note);
            count += 1;
        }
        count
    }
}

impl PlaintextSource for Ends {
    fn fill(&mut self, intake: &mut Intake<Offload>, _: Wait) -> io::Result<usize> {
        Ok(self.enter(intake, |packet| Some((0, packet.len(), Offload::default()))))
    }

    fn interface(&self) -> u32 {
        lock(&self.0).device
    }
}

impl ProtectedSource for Ends {
    fn fill(&mut self, intake: &mut Intake<Arrival>, _: Wait) -> io::Result<usize> {
        Ok(self.enter(intake, |packet| {
            let (outer, range) = Outer::payload(packet).ok()?;
            // As the gateway's sockets do: those of UDP keep the headers, the others hand them over.
            let start = if outer.ports.is_some() {
                range.start
            } else {
                0
            };
            let outer = Outer {
                written: (range.start - start) as u16,
                ..outer
            };
            let stride = range.end - start;
            Some((start, range.end, Arrival { outer, stride }))
        }))
    }
}

impl PlaintextSink for Ends {
    fn deliver(&mut self, deliveries: &[Delivery<'_>]) -> io::Result<Sent> {
        let mut desk = lock(&self.0);
        for delivery in deliveries {
            desk.carried.push(
                delivery
                    .pieces
                    .iter()
                    .flat_map(|piece| piece.iter().copied())
                    .collect(),
            );
        }
        Ok(Sent {
            packets: deliveries.len() as u64,
            ..Sent::default()
        })
    }

    fn takes_trains(&self) -> Takes {
        Takes::default()
    }
}

impl ProtectedSink for Ends {
    fn deliver(&mut self, parcels: &[Parcel<'_>]) -> io::Result<Sent> {
        let mut desk = lock(&self.0);
        let before = desk.carried.len();
        for parcel in parcels {
            for sealed in parcel.bytes.chunks(parcel.stride) {
                // RFC 6864: never 0, for eyes that take it for "not set".
                desk.identification = desk.identification.wrapping_add(1).max(1);
                let mut packet = Vec::new();
                if parcel.outer.written == 0 {
                    packet.resize(parcel.outer.len(), 0);
                    let identification = desk.identification;
                    parcel.outer.emit(sealed.len(), identification, &mut packet);
                }
                packet.extend_from_slice(sealed);
                desk.carried.push(packet);
            }
        }
        Ok(Sent {
            packets: (desk.carried.len() - before) as u64,
            ..Sent::default()
        })
    }
}

impl Report {
    /// What the counters say became of one packet.
    fn enter(&mut self, number: u64, before: &Tally, after: &Tally) {
        self.carry(after.packets - before.packets);
        for reason in Dropped::ALL {
            let count = after.drops[reason.index()] - before.drops[reason.index()];
            if count > 0 {
                self.drop(number, reason, count);
            }
        }
    }
}
