//! The middle step inbound: the ciphers, and all that an authentic packet alone can tell.

mod unwrap;

pub(super) use unwrap::Layer;

use super::InboundBatch;
use super::batch::{Header, Incoming, Inner, Outcome, Place};
use super::deeper::{self, Cursor, State, Walk};
use super::exit;
use crate::buffers::{RangeSplitter, recycle};
use crate::io::Arrival;
use crate::pipeline::lane::Transform;
use crate::syn;
use crate::train::TrainKinds;
use crate::train::merge::GroCandidate;
use ipsec::Dropped;
use ipsec::database::{SaIndex, Snapshot};
use ipsec::esp;
use ipsec::nat;
use ipsec::packet::{self, Familiar, Outline};
use ipsec::pmtu::TcpChecksum;
use ipsec::sa::Sa;
use multibuffer::{OpenJob, Verdict};

/// Jobs per call of the ciphers. MEASURED: enough for every multi-buffer kernel, and so many packets stay in a
/// 512 KiB L2 cache until they are looked into.
pub(super) const JOBS_PER_CALL: usize = 64;

impl Transform for InboundBatch {
    fn arrived(&self) -> u64 {
        self.counts.arrived
    }

    fn transform(&mut self) {
        let Some(snapshot) = &self.snapshot else {
            return;
        };
        let mut jobs = recycle(std::mem::take(&mut self.jobs));
        for packets in self.packets.chunks_mut(JOBS_PER_CALL) {
            snapshot.fetch_sas_of(packets.iter().map(|packet| packet.sa));
            jobs = open(snapshot, packets, &mut self.intake.bytes, jobs);
            fetch_policies(snapshot, packets, &self.intake.bytes);
            let mut opener = SocketOpener {
                snapshot,
                train_kinds: self.train_kinds,
                forwards: self.forwards,
                bytes: &mut self.intake.bytes,
                rebuilt: &mut self.rebuilt,
                allowed: None,
            };
            for (number, packet) in packets.iter_mut().enumerate() {
                let (_, arrival) = &self.intake.items[packet.item as usize];
                let next = match packet.received {
                    Header::Esp(_) => opener.look_into(packet, arrival, number, &mut self.walks),
                    Header::Ah(_) => Some(packet.cursor(number)),
                    Header::Inside => None,
                };
                self.rounds.cursors.extend(next);
            }
            jobs = deeper::descend(
                &mut opener,
                packets,
                &mut self.walks,
                &mut self.rounds,
                jobs,
            );
        }
        self.jobs = jobs;
    }
}

/// Asks for the policies that packets out of tunnels will be asked for.
fn fetch_policies(snapshot: &Snapshot, packets: &[Incoming], bytes: &[u8]) {
    let hosts = packets.iter().filter_map(|packet| {
        let text_at = esp::text_at(&snapshot.sa(packet.sa).config);
        packet::hosts(bytes.get(packet.range.start + text_at..packet.range.end)?)
    });
    snapshot.fetch_policies_in(hosts);
}

/// Opens `packets` in place, in one call, and notes which are genuine. Borrows `memory` for the jobs.
fn open(
    snapshot: &Snapshot,
    packets: &mut [Incoming],
    bytes: &mut [u8],
    memory: Vec<OpenJob<'static>>,
) -> Vec<OpenJob<'static>> {
    let mut jobs = recycle(memory);
    let mut splitter = RangeSplitter::new(bytes);
    for packet in packets.iter() {
        if let Header::Esp(received) = &packet.received {
            let text = splitter.take(packet.range.clone());
            jobs.push(received.job(snapshot.sa(packet.sa), text));
        }
    }
    multibuffer::open(&mut jobs);
    let mut verdicts = [Verdict::Pending; JOBS_PER_CALL];
    for (verdict, job) in verdicts.iter_mut().zip(&jobs) {
        *verdict = job.verdict;
    }
    let memory = recycle(jobs);
    let opened = packets
        .iter_mut()
        .filter(|packet| matches!(packet.received, Header::Esp(_)));
    for (packet, verdict) in opened.zip(verdicts) {
        packet.outcome = match verdict {
            Verdict::Genuine => Outcome::Genuine(Err(Dropped::BadInner)),
            Verdict::Pending | Verdict::BadIcv => Outcome::Forged,
        };
    }
    memory
}

impl Incoming {
    /// A packet whose first layer is AH: all of it is still to be opened.
    fn cursor(&self, number: usize) -> Cursor {
        let headers = usize::from(self.headers);
        Cursor {
            packet: number,
            place: Place {
                rebuilt: false,
                start: self.range.start - headers,
                len: self.range.len() + headers,
                in_tunnel: false,
            },
            headers,
            sa: self.sa,
            received: self.received.clone(),
            mtu: self.inner_mtu,
            state: State::Pending,
        }
    }
}

/// Looks into what was opened.
pub(super) struct SocketOpener<'a> {
    pub snapshot: &'a Snapshot,
    train_kinds: TrainKinds,
    forwards: bool,
    bytes: &'a mut [u8],
    rebuilt: &'a mut Vec<u8>,
    /// The packet that policy allowed last: most are followed by another one of their flow.
    allowed: Option<Allowed>,
}

/// A packet that policy allowed through an association, and what its flow is known by.
struct Allowed {
    outline: Outline,
    through: SaIndex,
    exit: u32,
    familiar: Option<Familiar>,
}

impl SocketOpener<'_> {
    /// RFC 4303 3.4.4, RFC 4301 5.2: padding off, tunnel undone, policy asked. If there is one more layer inside, it is
    /// returned.
    fn look_into(
        &mut self,
        packet: &mut Incoming,
        arrival: &Arrival,
        number: usize,
        walks: &mut Vec<Walk>,
    ) -> Option<Cursor> {
        if !matches!(packet.outcome, Outcome::Genuine(_)) {
            return None;
        }
        let layer = Layer {
            rebuilt: false,
            headers: packet.headers.into(),
            body: packet.range.clone(),
            sa: packet.sa,
            received: &packet.received,
            outer: Some(&arrival.outer),
        };
        if self.snapshot.sa(packet.sa).config.aggfrag.is_some() {
            packet.outcome = self.payload(&layer);
            return None;
        }
        let opened = self.unwrap(&layer).and_then(|place| {
            if let Some((outline, exit)) = self.recognize(place, packet.sa) {
                return Ok((place, outline, Some(exit)));
            }
            let outline = Outline::read(self.at(place)).map_err(|_| Dropped::BadInner)?;
            check_source(self.snapshot.sa(packet.sa), place, &outline)?;
            Ok((place, outline, None))
        });
        let outcome = match opened {
            Ok((place, outline, Some(exit))) => {
                let through = (packet.sa, exit);
                Ok(self.deliverable(place, &outline, through, packet.inner_mtu))
            }
            Ok((place, outline, None)) if is_ipsec(outline.protocol) => {
                let walk = packet.begin_walk(walks, place.len);
                match deeper::enter(self, walk, number, place, &outline, packet.inner_mtu) {
                    Ok(Some(next)) => return Some(next),
                    Ok(None) => self.finish(place, &outline, packet.sa, packet.inner_mtu),
                    Err(reason) => Err(reason),
                }
            }
            Ok((place, outline, None)) => self.finish(place, &outline, packet.sa, packet.inner_mtu),
            Err(reason) => Err(reason),
        };
        packet.outcome = Outcome::Genuine(outcome);
        None
    }

    fn finish(
        &mut self,
        place: Place,
        outline: &Outline,
        index: SaIndex,
        inner_mtu: usize,
    ) -> Result<Inner, Dropped> {
        let exit = self.ask_policy(place, outline, index)?;
        Ok(self.deliverable(place, outline, (index, exit), inner_mtu))
    }

    /// A packet that policy allows to go by the device `exit`, ready to be delivered.
    pub fn deliverable(
        &mut self,
        place: Place,
        outline: &Outline,
        (index, exit): (SaIndex, u32),
        inner_mtu: usize,
    ) -> Inner {
        let train_kinds = self.train_kinds;
        let sa = self.snapshot.sa(index);
        let is_mended = place.rebuilt && !place.in_tunnel && is_behind_nat(sa);
        let packet = self.at(place);
        if is_mended {
            nat::renew_checksum(packet, outline);
        }
        if syn::is_syn(packet, outline) {
            syn::clamp(packet, inner_mtu, TcpChecksum::Finished);
        }
        Inner {
            candidate: GroCandidate::read(packet, outline, train_kinds).by(exit),
            len: outline.total_len,
            rebuilt: place.rebuilt,
            start: place.start,
            exit,
        }
    }

    /// The outline of a packet that is of the same flow, by the same way, as the one that policy allowed last, and by which
    /// device that one went.
    fn recognize(&self, place: Place, index: SaIndex) -> Option<(Outline, u32)> {
        let allowed = self.allowed.as_ref().filter(|last| last.through == index)?;
        let familiar = allowed.familiar.as_ref()?;
        let total_len = familiar.total_len_of(self.bytes_at(place))?;
        let outline = Outline {
            total_len,
            ..allowed.outline
        };
        Some((outline, allowed.exit))
    }

    /// RFC 4301 5.2: by which device it may go. Not asked again about what differs in nothing but its length.
    fn ask_policy(
        &mut self,
        place: Place,
        outline: &Outline,
        index: SaIndex,
    ) -> Result<u32, Dropped> {
        if let Some(last) = &mut self.allowed {
            last.outline.total_len = outline.total_len;
            if last.through == index && last.outline == *outline {
                return Ok(last.exit);
            }
        }
        let exit = self.judge(outline, &[index])?;
        self.allowed = Some(Allowed {
            outline: *outline,
            through: index,
            exit,
            familiar: Familiar::new(self.bytes_at(place), outline),
        });
        Ok(exit)
    }

    /// RFC 4301 5.2, for a packet that came through `path`.
    pub fn judge(&self, outline: &Outline, path: &[SaIndex]) -> Result<u32, Dropped> {
        exit::judge(self.snapshot, self.forwards, outline, path)
    }

    /// One of the two buffers in which packets lie.
    pub fn buffer(&mut self, rebuilt: bool) -> &mut [u8] {
        match rebuilt {
            true => &mut self.rebuilt[..],
            false => &mut *self.bytes,
        }
    }

    fn at(&mut self, place: Place) -> &mut [u8] {
        &mut self.buffer(place.rebuilt)[place.start..place.start + place.len]
    }

    /// The bytes of a packet.
    pub fn bytes_at(&self, place: Place) -> &[u8] {
        let buffer = match place.rebuilt {
            true => &self.rebuilt[..],
            false => &*self.bytes,
        };
        &buffer[place.start..place.start + place.len]
    }
}

/// In transport mode the address that a packet came from is its own source, and no key covers it: it is the association's,
/// or the packet is another host's word for this one's. An association from anybody (0.0.0.0, ::) speaks for anybody.
pub(super) fn check_source(sa: &Sa, place: Place, outline: &Outline) -> Result<(), Dropped> {
    let speaker = sa.config.source;
    match place.in_tunnel || speaker.is_unspecified() || outline.source == speaker {
        true => Ok(()),
        false => Err(Dropped::SourceNotOfAssociation),
    }
}

/// Whether another layer follows.
fn is_ipsec(protocol: u8) -> bool {
    matches!(protocol, 50 | 51)
}

/// Whether a NAT may have changed the addresses that a checksum inside covers. RFC 3948 3.1.2: mended only where the
/// packet is authenticated.
fn is_behind_nat(sa: &Sa) -> bool {
    sa.config.encapsulation.is_some() && sa.config.suite.is_authenticated()
}
