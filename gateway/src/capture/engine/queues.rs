//! The ends of a pump for a capture: all four use the same queues of waiting packets and results.

use dataplane::io::{
    Arrival, Burst, Delivery, PlaintextSink, PlaintextSource, ProtectedSink, ProtectedSource,
    ReceiveBuffer, Sent, Wait,
};
use dataplane::train::{Offload, TrainKinds};
use ipsec::tunnel::Outer;
use std::collections::VecDeque;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The packets that wait, and the results.
#[derive(Default)]
pub(super) struct PacketQueues {
    pub waiting: VecDeque<Vec<u8>>,
    /// The device that the waiting packets were routed into.
    pub device: u32,
    pub carried: Vec<Vec<u8>>,
    identification: u16,
}

/// Both ends of both directions, at the queues.
#[derive(Clone)]
pub(super) struct Ends(pub Arc<Mutex<PacketQueues>>);

pub(super) fn lock(queues: &Mutex<PacketQueues>) -> MutexGuard<'_, PacketQueues> {
    // Vectors of packets are valid even if a thread panicked while it held the lock.
    queues.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Ends {
    fn enter<Note>(
        &self,
        intake: &mut ReceiveBuffer<Note>,
        note: impl Fn(&[u8]) -> Option<(usize, usize, Note)>,
    ) -> usize {
        let mut count = 0;
        while let Some(packet) = lock(&self.0).waiting.pop_front() {
            let Some((start, end, note)) = note(&packet) else {
                continue;
            };
            let bytes = &packet[start..end];
            if intake.free_items() == 0 || bytes.len() > intake.free_bytes().len() {
                // A packet that does not fit even alone is dropped.
                if count > 0 {
                    lock(&self.0).waiting.push_front(packet);
                }
                break;
            }
            intake.free_bytes()[..bytes.len()].copy_from_slice(bytes);
            intake.push(bytes.len(), note);
            count += 1;
        }
        count
    }
}

impl PlaintextSource for Ends {
    fn fill(&mut self, intake: &mut ReceiveBuffer<Offload>, _: Wait) -> io::Result<usize> {
        Ok(self.enter(intake, |packet| Some((0, packet.len(), Offload::default()))))
    }

    fn interface(&self) -> u32 {
        lock(&self.0).device
    }
}

impl ProtectedSource for Ends {
    fn fill(&mut self, intake: &mut ReceiveBuffer<Arrival>, _: Wait) -> io::Result<usize> {
        Ok(self.enter(intake, |packet| {
            let (outer, range) = Outer::payload(packet).ok()?;
            // As with the gateway's sockets: UDP sockets deliver without headers, the others with them.
            let start = if outer.ports.is_some() {
                range.start
            } else {
                0
            };
            let outer = Outer {
                emitted_len: (range.start - start) as u16,
                ..outer
            };
            let stride = range.end - start;
            Some((start, range.end, Arrival { outer, stride }))
        }))
    }
}

impl PlaintextSink for Ends {
    fn deliver(&mut self, deliveries: &[Delivery<'_>]) -> io::Result<Sent> {
        let mut queues = lock(&self.0);
        for delivery in deliveries {
            queues.carried.push(
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

    fn train_kinds(&self) -> TrainKinds {
        TrainKinds::default()
    }
}

impl ProtectedSink for Ends {
    fn deliver(&mut self, bursts: &[Burst<'_>]) -> io::Result<Sent> {
        let mut queues = lock(&self.0);
        let before = queues.carried.len();
        for burst in bursts {
            for sealed in burst.bytes.chunks(burst.stride) {
                // RFC 6864: never 0, which some tools take for "not set".
                queues.identification = queues.identification.wrapping_add(1).max(1);
                let mut packet = Vec::new();
                if burst.outer.emitted_len == 0 {
                    packet.resize(burst.outer.len(), 0);
                    let identification = queues.identification;
                    burst.outer.emit(sealed.len(), identification, &mut packet);
                }
                packet.extend_from_slice(sealed);
                queues.carried.push(packet);
            }
        }
        Ok(Sent {
            packets: (queues.carried.len() - before) as u64,
            ..Sent::default()
        })
    }
}
