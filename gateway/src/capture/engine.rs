//! The gateway's own pumps with one packet in them at a time, so that each drop can be attributed to its packet; where
//! packets share payloads (RFC 9347), a few at a time.

mod queues;

use super::operation::Operation;
use super::report::Report;
use arc_swap::ArcSwap;
use dataplane::buffers::BatchSize;
use dataplane::counters::{Counters, PacketCounts};
use dataplane::inbound::{Inbound, InboundPump};
use dataplane::io::{MAX_ITEM_BYTES, PmtuCache, Wait};
use dataplane::iv::{IvSource, SEED_LEN};
use dataplane::outbound::{Outbound, OutboundPump};
use dataplane::path_mtu::PathMtus;
use dataplane::pipeline::pump::LaneConfig;
use ipsec::Dropped;
use ipsec::database::{Decision, Snapshot};
use ipsec::fragment::{Offered, Reassembler, ReassemblyLimits};
use ipsec::packet::Outline;
use ipsec::sa::SaConfig;
use ipsec::tunnel::Outer;
use queues::{Ends, PacketQueues, lock};
use std::io;
use std::mem::take;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

/// The largest IP packet, in bytes: a capture has no path MTU.
const MAX_PACKET_BYTES: usize = 65_535;

/// Packets that share payloads where an association aggregates.
const PACKETS_PER_AGGFRAG_BATCH: usize = 16;

/// The UDP port on which ESP is expected by default (RFC 3948).
const ESP_PORT: u16 = 4500;

/// The engine for one capture.
pub(super) struct Engine {
    pump: Pump,
    queues: Arc<Mutex<PacketQueues>>,
    counters: Arc<Counters>,
    snapshot: Arc<Snapshot>,
    /// The number of the device that unmatched packets were routed into; 0 for none.
    device: u32,
    fragments: Reassembler,
    /// The latest time seen: in captures merged by hand times may go backwards.
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

/// What happens to a packet: it passes unchanged, is processed or is dropped. The number is that of the device that it
/// is routed into, 0 where policies or associations select it.
enum Classification {
    PassBy,
    Carry(u32),
    Drop(Dropped),
}

impl Engine {
    /// An engine with the databases of `snapshot`; packets that no policy matches were routed into the device of this
    /// number, unless it is 0. With a seed its IVs are always the same.
    pub(super) fn new(
        operation: Operation,
        (snapshot, device): (Arc<Snapshot>, u32),
        seed: Option<u64>,
    ) -> io::Result<Self> {
        let queues = Arc::<Mutex<PacketQueues>>::default();
        let counters = Arc::<Counters>::default();
        let databases = Arc::new(ArcSwap::from(Arc::clone(&snapshot)));
        let ends = Ends(Arc::clone(&queues));
        let paths = || PathMtus::new(PmtuCache::default(), MAX_PACKET_BYTES);
        let together = match operation {
            Operation::Seal if packs(&snapshot) => PACKETS_PER_AGGFRAG_BATCH,
            Operation::Seal | Operation::Open => 1,
        };
        let lane_config = LaneConfig {
            slots: 1,
            workers: 0,
            left_to_workers: 0,
            waker: None,
        };
        let size = BatchSize {
            items: together,
            bytes: MAX_ITEM_BYTES,
        };
        let pump = match operation {
            Operation::Open => {
                let inbound = Inbound {
                    source: Box::new(ends.clone()),
                    sink: Box::new(ends),
                    databases,
                    paths: paths(),
                    counters: Arc::clone(&counters),
                };
                Pump::Open(Box::new(inbound.pump(size, &lane_config, Arc::default())))
            }
            Operation::Seal => {
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
                Pump::Seal(Box::new(outbound.pump(size, &lane_config, Arc::default())))
            }
        };
        let fragments = Reassembler::new(ReassemblyLimits::default());
        Ok(Self {
            pump,
            queues,
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

    /// Processes one packet, and records the outcome in `report`.
    pub(super) fn process(
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

    /// Finishes: packets that waited for others, and packets of which a fragment is missing.
    pub(super) fn finish(&mut self, report: &mut Report) -> io::Result<Vec<Vec<u8>>> {
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
        let longest = aggfrags.map(|aggfrag| aggfrag.reorder_timeout_ms).max();
        // The clock in use advances in steps of a few milliseconds.
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
        match self.classify(packet) {
            Classification::PassBy => {
                report.pass_by(number);
                Ok(Vec::new())
            }
            Classification::Drop(reason) => {
                report.drop(number, reason, 1);
                Ok(Vec::new())
            }
            Classification::Carry(device) => self.carry(packet, device, number, report),
        }
    }

    /// Packets of one batch were routed into the same device.
    fn carry(
        &mut self,
        packet: &[u8],
        device: u32,
        number: u64,
        report: &mut Report,
    ) -> io::Result<Vec<Vec<u8>>> {
        let is_another = self.queues().device != device;
        let mut carried = if is_another {
            self.work(report)?
        } else {
            Vec::new()
        };
        self.latest = number;
        let waiting = {
            let mut queues = self.queues();
            queues.device = device;
            queues.waiting.push_back(packet.to_vec());
            queues.waiting.len()
        };
        if waiting >= self.together {
            carried.extend(self.work(report)?);
        }
        Ok(carried)
    }

    /// Runs all waiting packets through the pump.
    fn work(&mut self, report: &mut Report) -> io::Result<Vec<Vec<u8>>> {
        let before = self.counters.read();
        while self.step()? > 0 || !self.queues().waiting.is_empty() {}
        report.enter(self.latest, &before, &self.counters.read());
        Ok(take(&mut self.queues().carried))
    }

    /// Whether an association (to open) or a policy that protects (to seal) selects the packet.
    fn classify(&self, packet: &[u8]) -> Classification {
        match self.pump {
            Pump::Seal(_) => match Outline::read(packet) {
                Err(reason) => Classification::Drop(reason),
                Ok(outline) => match self.snapshot.outbound(&outline) {
                    // The gateway's rules match policies before routes.
                    Decision::Bypass | Decision::Drop(Dropped::NoPolicy) if self.device != 0 => {
                        Classification::Carry(self.device)
                    }
                    Decision::Bypass
                    | Decision::Drop(Dropped::NoPolicy | Dropped::PolicyDiscard) => {
                        Classification::PassBy
                    }
                    Decision::Protect(_) | Decision::Drop(_) | Decision::Acquire { .. } => {
                        Classification::Carry(0)
                    }
                },
            },
            Pump::Open(_) => match Outer::payload(packet) {
                Err(Dropped::Unsupported) => Classification::PassBy,
                Err(reason) => Classification::Drop(reason),
                Ok((outer, _)) if self.is_for_us(&outer) => Classification::Carry(0),
                Ok(_) => Classification::PassBy,
            },
        }
    }

    /// Whether any association ends at the packet's destination: then an unknown SPI is a drop, not another host's
    /// packet. A datagram to a port where the gateway would have no socket is another program's too.
    fn is_for_us(&self, outer: &Outer) -> bool {
        let is_ours = |config: &SaConfig| match (outer.ports, config.encapsulation) {
            (Some((_, ESP_PORT)) | None, _) => true,
            (Some((_, port)), Some(udp)) => udp.destination_port == port,
            (Some(_), None) => false,
        };
        let ending = |config: &SaConfig| config.id.destination == outer.destination;
        let mut configs = self.snapshot.sas().map(|sa| &sa.config);
        configs.any(|config| ending(config) && is_ours(config))
    }

    fn step(&mut self) -> io::Result<usize> {
        match &mut self.pump {
            Pump::Open(pump) => pump.step(Wait::Poll),
            Pump::Seal(pump) => pump.step(Wait::Poll),
        }
    }

    fn queues(&self) -> MutexGuard<'_, PacketQueues> {
        lock(&self.queues)
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

impl Report {
    /// Records what happened to one packet, from the counters before and after it.
    fn enter(&mut self, number: u64, before: &PacketCounts, after: &PacketCounts) {
        self.carry(after.packets - before.packets);
        for reason in Dropped::ALL {
            let count = after.drops[reason.index()] - before.drops[reason.index()];
            if count > 0 {
                self.drop(number, reason, count);
            }
        }
    }
}
