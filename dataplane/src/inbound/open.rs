//! The middle step inbound: the ciphers, and all that an authentic packet alone can tell.

use super::InboundBatch;
use super::batch::{Incoming, Inner, Outcome};
use crate::frames::emptied;
use crate::io::Arrival;
use crate::pipeline::lane::Transform;
use crate::syn;
use crate::train::Takes;
use crate::train::merge::Passenger;
use ipsec::Dropped;
use ipsec::database::{SaIndex, Snapshot};
use ipsec::esp::Received;
use ipsec::packet::Outline;
use ipsec::pmtu::TcpChecksum;
use ipsec::sa::{Mode, Sa};
use ipsec::tunnel::{Outer, decapsulate_ecn};
use multibuffer::{OpenJob, Verdict};
use std::ops::Range;

/// Jobs per call of the ciphers. MEASURED: enough for every multi-buffer kernel, and so many packets stay in a
/// 512 KiB L2 cache until they are looked into.
const AT_ONCE: usize = 64;

/// Next headers.
const IPV4_INSIDE: u8 = 4;
const IPV6_INSIDE: u8 = 41;
const NOTHING_INSIDE: u8 = 59;

impl Transform for InboundBatch {
    fn transform(&mut self) {
        let Some(snapshot) = &self.snapshot else {
            return;
        };
        let mut jobs = emptied(std::mem::take(&mut self.jobs));
        for packets in self.packets.chunks_mut(AT_ONCE) {
            jobs = open(snapshot, packets, &mut self.intake.bytes, jobs);
            let mut opener = Opener {
                snapshot,
                takes: self.takes,
                bytes: &mut self.intake.bytes,
                rebuilt: &mut self.rebuilt,
                allowed: None,
            };
            for packet in packets {
                let (_, arrival) = &self.intake.items[packet.item as usize];
                if let Outcome::Genuine(inner) = &mut packet.outcome {
                    *inner = opener.look_into(
                        &packet.received,
                        packet.range.clone(),
                        packet.sa,
                        arrival,
                        packet.inner_mtu,
                    );
                }
            }
        }
        self.jobs = jobs;
    }
}

/// Opens `packets` in place, in one call, and notes which are genuine. Borrows `memory` for the jobs.
fn open(
    snapshot: &Snapshot,
    packets: &mut [Incoming],
    bytes: &mut [u8],
    memory: Vec<OpenJob<'static>>,
) -> Vec<OpenJob<'static>> {
    let mut jobs = emptied(memory);
    let mut rest = bytes;
    let mut passed = 0;
    for packet in packets.iter() {
        let text;
        // INVARIANT: ranges ascend and never overlap.
        (text, rest) = rest[packet.range.start - passed..].split_at_mut(packet.range.len());
        passed = packet.range.end;
        jobs.push(packet.received.job(snapshot.sa(packet.sa), text));
    }
    multibuffer::open(&mut jobs);
    let mut verdicts = [Verdict::Pending; AT_ONCE];
    for (verdict, job) in verdicts.iter_mut().zip(&jobs) {
        *verdict = job.verdict;
    }
    let memory = emptied(jobs);
    for (packet, verdict) in packets.iter_mut().zip(verdicts) {
        packet.outcome = match verdict {
            Verdict::Genuine => Outcome::Genuine(Err(Dropped::BadInner)),
            Verdict::Pending | Verdict::BadIcv => Outcome::Forged,
        };
    }
    memory
}

struct Opener<'a> {
    snapshot: &'a Snapshot,
    takes: Takes,
    bytes: &'a mut [u8],
    rebuilt: &'a mut Vec<u8>,
    /// The packet that policy allowed last: most are followed by another one of their flow.
    allowed: Option<(Outline, SaIndex)>,
}

/// Where a packet from inside lies.
#[derive(Clone, Copy)]
struct Place {
    rebuilt: bool,
    start: usize,
    len: usize,
}

impl Opener<'_> {
    /// RFC 4303 3.4.4, RFC 4301 5.2: padding off, tunnel undone, policy asked.
    fn look_into(
        &mut self,
        received: &Received,
        range: Range<usize>,
        index: SaIndex,
        arrival: &Arrival,
        inner_mtu: usize,
    ) -> Result<Inner, Dropped> {
        let sa = self.snapshot.sa(index);
        let (plaintext, next_header) = received.strip(sa, &self.bytes[range.clone()])?;
        let plaintext = range.start + plaintext.start..range.start + plaintext.end;
        let sequence = received.sequence().low();
        let place = self.unwrap(sa, plaintext, next_header, &arrival.outer, sequence)?;
        let takes = self.takes;
        let interface = self.snapshot.interface_of(index);
        let outline = Outline::read(self.at(place)).map_err(|_| Dropped::BadInner)?;
        self.ask_policy(&outline, index)?;
        let packet = self.at(place);
        if syn::is_syn(packet, &outline) {
            syn::clamp(packet, inner_mtu, TcpChecksum::Finished);
        }
        Ok(Inner {
            passenger: Passenger::read(packet, &outline, takes).by(interface),
            len: outline.total_len,
            rebuilt: place.rebuilt,
            start: place.start,
        })
    }

    /// RFC 4301 5.2; not asked again about what differs in nothing but its length.
    fn ask_policy(&mut self, outline: &Outline, index: SaIndex) -> Result<(), Dropped> {
        if let Some((before, through)) = &mut self.allowed {
            before.total_len = outline.total_len;
            if *through == index && before == outline {
                return Ok(());
            }
        }
        self.snapshot.inbound(outline, &[index])?;
        self.allowed = Some((*outline, index));
        Ok(())
    }

    fn at(&mut self, place: Place) -> &mut [u8] {
        let buffer = match place.rebuilt {
            true => &mut self.rebuilt[..],
            false => &mut *self.bytes,
        };
        &mut buffer[place.start..place.start + place.len]
    }

    /// The packet inside: as it lies there, or with the outer header given back to it.
    fn unwrap(
        &mut self,
        sa: &Sa,
        plaintext: Range<usize>,
        next_header: u8,
        outer: &Outer,
        sequence: u32,
    ) -> Result<Place, Dropped> {
        let version = match (next_header, sa.config.mode) {
            // RFC 4303 2.6: sent to be thrown away.
            (NOTHING_INSIDE, _) => return Err(Dropped::Dummy),
            (IPV4_INSIDE, Mode::Tunnel | Mode::Any) => 4,
            (IPV6_INSIDE, Mode::Tunnel | Mode::Any) => 6,
            (_, Mode::Transport | Mode::Any) => {
                return Ok(self.rebuild(plaintext, next_header, outer, sequence));
            }
            (_, Mode::Tunnel) => return Err(Dropped::BadInner),
        };
        let inner = &mut self.bytes[plaintext.clone()];
        if inner.first().is_none_or(|byte| byte >> 4 != version) {
            return Err(Dropped::BadInner);
        }
        decapsulate_ecn(outer.traffic_class, inner)?;
        Ok(Place {
            rebuilt: false,
            start: plaintext.start,
            len: plaintext.len(),
        })
    }

    /// Transport mode: the header that ESP stood behind, with ESP taken out of it. IPv4's identification has done its
    /// work; where DF is clear another fragmentation needs a new one.
    fn rebuild(
        &mut self,
        plaintext: Range<usize>,
        next_header: u8,
        outer: &Outer,
        sequence: u32,
    ) -> Place {
        let header = Outer {
            protocol: next_header,
            ports: None,
            ..*outer
        };
        let identification = if outer.dont_fragment {
            0
        } else {
            sequence as u16
        };
        let start = self.rebuilt.len();
        self.rebuilt.resize(start + header.len(), 0);
        header.emit(plaintext.len(), identification, &mut self.rebuilt[start..]);
        self.rebuilt.extend_from_slice(&self.bytes[plaintext]);
        Place {
            rebuilt: true,
            start,
            len: self.rebuilt.len() - start,
        }
    }
}
