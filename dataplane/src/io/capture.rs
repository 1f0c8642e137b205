//! Packet capture: what passes a source or sink is also written to a pcap file, up to a number of packets.
//!
//! ```text
//!   fill ──► source ──► buffer ──► its new items ─┐
//!                                                 ├──► pcap, raw IP, one record per packet
//!   deliver ──► deliveries or bursts ────────────┘
//! ```
//!
//! Trains are written as their segments, with finished checksums; protected packets with the outer header that their
//! source or sink describes, so that every pcap reader understands them. A capture never stops traffic: if the file
//! cannot be written, the capture ends.

use super::{
    Arrival, Burst, Delivery, PlaintextSink, PlaintextSource, ProtectedSink, ProtectedSource,
    ReceiveBuffer, Sent, Wait,
};
use crate::train::segments::Segments;
use crate::train::{Offload, TrainKinds};
use ipsec::packet::Outline;
use ipsec::tunnel::Outer;
use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

#[cfg(test)]
mod tests;

/// A capture file; clones write to the same one.
#[derive(Clone)]
pub struct Capture(Arc<Shared>);

struct Shared {
    /// Read first, so that a finished capture costs nothing.
    open: AtomicBool,
    recorder: Mutex<Recorder>,
}

/// A source or sink whose packets are captured.
pub struct CapturedEnd<End> {
    end: End,
    capture: Capture,
}

impl Capture {
    /// Starts a capture of at most `max_packets` packets in a new file.
    pub fn create(path: &Path, max_packets: usize) -> io::Result<Self> {
        Self::into_writer(
            Box::new(BufWriter::new(File::create_new(path)?)),
            max_packets,
        )
    }

    /// Starts a capture of at most `max_packets` packets.
    pub fn into_writer(mut writer: Box<dyn Write + Send>, max_packets: usize) -> io::Result<Self> {
        writer.write_all(&file_header())?;
        writer.flush()?;
        let recorder = Recorder {
            writer,
            max_packets,
            count: 0,
            packet: Vec::new(),
            failure: None,
        };
        Ok(Self(Arc::new(Shared {
            open: AtomicBool::new(max_packets > 0),
            recorder: Mutex::new(recorder),
        })))
    }

    /// Captures what passes a source or sink.
    pub fn on<End>(&self, end: End) -> CapturedEnd<End> {
        CapturedEnd {
            end,
            capture: self.clone(),
        }
    }

    /// How many packets were written.
    pub fn count(&self) -> usize {
        self.lock().count
    }

    /// Why the capture ended early, once.
    pub fn take_failure(&self) -> Option<io::Error> {
        self.lock().failure.take()
    }

    fn lock(&self) -> MutexGuard<'_, Recorder> {
        // A capture that ends within a record keeps its earlier records.
        self.0
            .recorder
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// Calls `write` unless the capture is full.
    fn record(&self, write: impl FnOnce(&mut Recorder) -> io::Result<()>) {
        if !self.0.open.load(Ordering::Relaxed) {
            return;
        }
        let mut recorder = self.lock();
        let result = write(&mut recorder).and_then(|()| recorder.writer.flush());
        let failed = result.is_err();
        recorder.failure = result.err().or(recorder.failure.take());
        if failed || recorder.is_full() {
            self.0.open.store(false, Ordering::Relaxed);
        }
    }
}

struct Recorder {
    writer: Box<dyn Write + Send>,
    max_packets: usize,
    count: usize,
    /// The packet being assembled; kept to reuse its memory.
    packet: Vec<u8>,
    failure: Option<io::Error>,
}

impl Recorder {
    fn is_full(&self) -> bool {
        self.count >= self.max_packets
    }

    /// Writes the packets of an item of the plaintext side. Bytes that are no IP packet are written as they are.
    fn plaintext(&mut self, item: &[u8], offload: Offload) -> io::Result<()> {
        let cut = Outline::read(item).and_then(|outline| Segments::plan(item, &outline, offload));
        let Ok(cut) = cut else {
            return self.write(|packet| packet.extend_from_slice(item));
        };
        for number in 0..cut.count() {
            self.write(|packet| {
                packet.resize(cut.head_len(), 0);
                cut.write_head(item, number, packet);
                packet.extend_from_slice(&item[cut.payload(number)]);
            })?;
        }
        Ok(())
    }

    /// Writes the packets of a burst, each behind its outer header.
    fn protected(&mut self, outer: &Outer, stride: usize, bytes: &[u8]) -> io::Result<()> {
        for inside in bytes.chunks(stride.max(1)) {
            let identification = self.count as u16;
            self.write(|packet| {
                if outer.emitted_len == 0 {
                    packet.resize(outer.len(), 0);
                    outer.emit(inside.len(), identification, packet);
                }
                packet.extend_from_slice(inside);
            })?;
        }
        Ok(())
    }

    /// Writes one record; `build` appends the packet to an empty vector.
    fn write(&mut self, build: impl FnOnce(&mut Vec<u8>)) -> io::Result<()> {
        if self.is_full() {
            return Ok(());
        }
        self.packet.clear();
        build(&mut self.packet);
        let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
        self.writer
            .write_all(&record_header(since.unwrap_or_default(), self.packet.len()))?;
        self.writer.write_all(&self.packet)?;
        self.count += 1;
        Ok(())
    }
}

/// The start of a pcap file: microseconds, little-endian, packets that begin with their IP header.
fn file_header() -> [u8; 24] {
    const MAGIC: u32 = 0xa1b2_c3d4;
    const VERSION: u32 = 2 | 4 << 16;
    const LONGEST: u32 = 0x4_0000;
    const RAW_IP: u32 = 101;
    words([MAGIC, VERSION, 0, 0, LONGEST, RAW_IP])
}

fn record_header(time: Duration, len: usize) -> [u8; 16] {
    words([
        time.as_secs() as u32,
        time.subsec_micros(),
        len as u32,
        len as u32,
    ])
}

fn words<const WORDS: usize, const BYTES: usize>(words: [u32; WORDS]) -> [u8; BYTES] {
    let mut bytes = [0; BYTES];
    for (to, word) in bytes.chunks_exact_mut(4).zip(words) {
        to.copy_from_slice(&word.to_le_bytes());
    }
    bytes
}

impl<S: PlaintextSource> PlaintextSource for CapturedEnd<S> {
    fn fill(&mut self, buffer: &mut ReceiveBuffer<Offload>, wait: Wait) -> io::Result<usize> {
        let added = self.end.fill(buffer, wait)?;
        let ReceiveBuffer { bytes, items, .. } = buffer;
        self.capture.record(|recorder| {
            let new = &items[items.len() - added..];
            new.iter().try_for_each(|(range, offload)| {
                recorder.plaintext(&bytes[range.clone()], *offload)
            })
        });
        Ok(added)
    }
}

impl<S: ProtectedSource> ProtectedSource for CapturedEnd<S> {
    fn fill(&mut self, buffer: &mut ReceiveBuffer<Arrival>, wait: Wait) -> io::Result<usize> {
        let added = self.end.fill(buffer, wait)?;
        let ReceiveBuffer { bytes, items, .. } = buffer;
        self.capture.record(|recorder| {
            let new = &items[items.len() - added..];
            new.iter().try_for_each(|(range, arrival)| {
                recorder.protected(&arrival.outer, arrival.stride, &bytes[range.clone()])
            })
        });
        Ok(added)
    }
}

impl<S: PlaintextSink> PlaintextSink for CapturedEnd<S> {
    fn deliver(&mut self, deliveries: &[Delivery<'_>]) -> io::Result<Sent> {
        self.capture.record(|recorder| {
            deliveries.iter().try_for_each(|delivery| {
                let item: Vec<u8> = delivery
                    .pieces
                    .iter()
                    .flat_map(|piece| piece.iter().copied())
                    .collect();
                recorder.plaintext(&item, delivery.offload)
            })
        });
        self.end.deliver(deliveries)
    }

    fn train_kinds(&self) -> TrainKinds {
        self.end.train_kinds()
    }
}

impl<S: ProtectedSink> ProtectedSink for CapturedEnd<S> {
    fn deliver(&mut self, bursts: &[Burst<'_>]) -> io::Result<Sent> {
        self.capture.record(|recorder| {
            bursts
                .iter()
                .try_for_each(|burst| recorder.protected(&burst.outer, burst.stride, burst.bytes))
        });
        self.end.deliver(bursts)
    }
}
