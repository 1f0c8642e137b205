//! The middle step inbound: the ciphers, and all that an authentic packet alone can tell.

use super::InboundBatch;
use super::batch::{Header, Incoming, Inner, Outcome, Place};
use super::deeper::{self, Cursor, State, Walk};
use crate::frames::{Carver, emptied};
use crate::io::Arrival;
use crate::pipeline::lane::Transform;
use crate::syn;
use crate::train::Takes;
use crate::train::merge::Passenger;
use ipsec::Dropped;
use ipsec::aggfrag;
use ipsec::database::{SaIndex, Snapshot};
use ipsec::nat;
use ipsec::packet::{Familiar, Outline};
use ipsec::pmtu::TcpChecksum;
use ipsec::sa::{Mode, Sa};
use ipsec::transport::Outside;
use ipsec::tunnel::{Outer, decapsulate_ecn};
use multibuffer::{OpenJob, Verdict};
use std::ops::Range;

/// Jobs per call of the ciphers. MEASURED: enough for every multi-buffer kernel, and so many packets stay in a
/// 512 KiB L2 cache until they are looked into.
pub(super) const AT_ONCE: usize = 64;

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

/// Opens `packets` in place, in one call, and notes which are genuine. Borrows `memory` for the jobs.
fn open(
    snapshot: &Snapshot,
    packets: &mut [Incoming],
    bytes: &mut [u8],
    memory: Vec<OpenJob<'static>>,
) -> Vec<OpenJob<'static>> {
    let mut jobs = emptied(memory);
    let mut carver = Carver::new(bytes);
    for packet in packets.iter() {
        if let Header::Esp(received) = &packet.received {
            let text = carver.carve(packet.range.clone());
            jobs.push(received.job(snapshot.sa(packet.sa), text));
        }
    }
    multibuffer::open(&mut jobs);
    let mut verdicts = [Verdict::Pending; AT_ONCE];
    for (verdict, job) in verdicts.iter_mut().zip(&jobs) {
        *verdict = job.verdict;
    }
    let memory = emptied(jobs);
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
pub(super) struct Opener<'a> {
    pub snapshot: &'a Snapshot,
    takes: Takes,
    bytes: &'a mut [u8],
    rebuilt: &'a mut Vec<u8>,
    /// The packet that policy allowed last: most are followed by another one of their flow.
    allowed: Option<Allowed>,
}

/// A packet that policy allowed through an association, and what its flow is known by.
struct Allowed {
    outline: Outline,
    through: SaIndex,
    familiar: Option<Familiar>,
}

/// One layer that was found genuine, and the headers before it.
pub(super) struct Layer<'a> {
    pub rebuilt: bool,
    /// Bytes of headers directly before the body; 0 if they are not there, and then `outer` says what they were.
    pub headers: usize,
    /// From ESP or AH to the end.
    pub body: Range<usize>,
    pub sa: SaIndex,
    pub received: &'a Header,
    pub outer: Option<&'a Outer>,
}

impl Opener<'_> {
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
            if let Some(outline) = self.recognize(place, packet.sa) {
                return Ok((place, outline, true));
            }
            let outline = Outline::read(self.at(place)).map_err(|_| Dropped::BadInner)?;
            Ok((place, outline, false))
        });
        let outcome = match opened {
            Ok((place, outline, true)) => {
                Ok(self.deliverable(place, &outline, packet.sa, packet.inner_mtu))
            }
            Ok((place, outline, false)) if is_ipsec(outline.protocol) => {
                let walk = packet.begin_walk(walks, place.len);
                match deeper::enter(self, walk, number, place, &outline, packet.inner_mtu) {
                    Ok(Some(next)) => return Some(next),
                    Ok(None) => self.finish(place, &outline, packet.sa, packet.inner_mtu),
                    Err(reason) => Err(reason),
                }
            }
            Ok((place, outline, false)) => {
                self.finish(place, &outline, packet.sa, packet.inner_mtu)
            }
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
        self.ask_policy(place, outline, index)?;
        Ok(self.deliverable(place, outline, index, inner_mtu))
    }

    /// A packet that policy allows, ready to be delivered.
    pub fn deliverable(
        &mut self,
        place: Place,
        outline: &Outline,
        index: SaIndex,
        inner_mtu: usize,
    ) -> Inner {
        let takes = self.takes;
        let interface = self.snapshot.interface_of(index);
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
            passenger: Passenger::read(packet, outline, takes).by(interface),
            len: outline.total_len,
            rebuilt: place.rebuilt,
            start: place.start,
        }
    }

    /// The outline of a packet that is of the same flow, by the same way, as the one that policy allowed last.
    fn recognize(&self, place: Place, index: SaIndex) -> Option<Outline> {
        let allowed = self.allowed.as_ref().filter(|last| last.through == index)?;
        let familiar = allowed.familiar.as_ref()?;
        let total_len = familiar.total_len_of(self.bytes_at(place))?;
        Some(Outline {
            total_len,
            ..allowed.outline
        })
    }

    /// RFC 4301 5.2; not asked again about what differs in nothing but its length.
    fn ask_policy(
        &mut self,
        place: Place,
        outline: &Outline,
        index: SaIndex,
    ) -> Result<(), Dropped> {
        if let Some(last) = &mut self.allowed {
            last.outline.total_len = outline.total_len;
            if last.through == index && last.outline == *outline {
                return Ok(());
            }
        }
        self.snapshot.inbound(outline, &[index])?;
        self.allowed = Some(Allowed {
            outline: *outline,
            through: index,
            familiar: Familiar::new(self.bytes_at(place), outline),
        });
        Ok(())
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

    /// Takes one layer off: the packet inside as it lies there, or with the headers given back to it that stood outside.
    pub fn unwrap(&mut self, layer: &Layer<'_>) -> Result<Place, Dropped> {
        let sa = self.snapshot.sa(layer.sa);
        let (inside, next_header) = self.inside(layer)?;
        let version = match (next_header, sa.config.mode) {
            // RFC 4303 2.6: sent to be thrown away.
            (NOTHING_INSIDE, _) => return Err(Dropped::Dummy),
            (IPV4_INSIDE, Mode::Tunnel | Mode::Any) => 4,
            (IPV6_INSIDE, Mode::Tunnel | Mode::Any) => 6,
            (_, Mode::Transport | Mode::Any) => return self.join(layer, inside, next_header),
            (_, Mode::Tunnel) => return Err(Dropped::BadInner),
        };
        let outer_class = self.outer_class(layer);
        let inner = &mut self.buffer(layer.rebuilt)[inside.clone()];
        if inner.first().is_none_or(|byte| byte >> 4 != version) {
            return Err(Dropped::BadInner);
        }
        decapsulate_ecn(outer_class, inner)?;
        Ok(Place {
            rebuilt: layer.rebuilt,
            start: inside.start,
            len: inside.len(),
            in_tunnel: true,
        })
    }

    /// RFC 9347 2.3: an association in AGGFRAG mode carries nothing else.
    fn payload(&mut self, layer: &Layer<'_>) -> Outcome {
        match self.inside(layer) {
            Ok((inside, aggfrag::PROTOCOL)) => Outcome::Packed(Place {
                rebuilt: layer.rebuilt,
                start: inside.start,
                len: inside.len(),
                in_tunnel: true,
            }),
            Ok((_, NOTHING_INSIDE)) => Outcome::Genuine(Err(Dropped::Dummy)),
            Ok(_) => Outcome::Genuine(Err(Dropped::BadInner)),
            Err(reason) => Outcome::Genuine(Err(reason)),
        }
    }

    /// What the layer carries, and what that is.
    fn inside(&mut self, layer: &Layer<'_>) -> Result<(Range<usize>, u8), Dropped> {
        let sa = self.snapshot.sa(layer.sa);
        let start = layer.body.start;
        match layer.received {
            Header::Esp(received) => {
                let body = &self.buffer(layer.rebuilt)[layer.body.clone()];
                let (text, next_header) = received.strip(sa, body)?;
                Ok((start + text.start..start + text.end, next_header))
            }
            Header::Ah(received) => {
                let inside = start + received.header_len()..layer.body.end;
                Ok((inside, received.next_header()))
            }
            Header::Inside => Err(Dropped::BadInner),
        }
    }

    /// The traffic class of the header that the layer stood behind.
    fn outer_class(&mut self, layer: &Layer<'_>) -> u8 {
        if let Some(outer) = layer.outer {
            return outer.traffic_class;
        }
        let headers_at = layer.body.start - layer.headers;
        let headers = &self.buffer(layer.rebuilt)[headers_at..layer.body.end];
        Outline::read(headers).map_or(0, |outline| outline.traffic_class)
    }

    /// Transport mode: the headers that the layer stood behind move up to what was inside.
    fn join(
        &mut self,
        layer: &Layer<'_>,
        inside: Range<usize>,
        next_header: u8,
    ) -> Result<Place, Dropped> {
        let (0, Some(outer)) = (layer.headers, layer.outer) else {
            return self.move_headers(layer, inside, next_header);
        };
        let sequence = layer.received.sequence().low();
        Ok(self.rebuild(inside, next_header, outer, sequence))
    }

    fn move_headers(
        &mut self,
        layer: &Layer<'_>,
        inside: Range<usize>,
        next_header: u8,
    ) -> Result<Place, Dropped> {
        let headers_at = layer.body.start - layer.headers;
        let buffer = self.buffer(layer.rebuilt);
        let outside = Outside::before(&buffer[headers_at..layer.body.end])?;
        let start = inside.start - outside.len;
        buffer.copy_within(headers_at..headers_at + outside.len, start);
        let len = inside.end - start;
        outside.rename(&mut buffer[start..start + outside.len], next_header, len, 0);
        Ok(Place {
            rebuilt: layer.rebuilt,
            start,
            len,
            in_tunnel: false,
        })
    }

    /// Transport mode in UDP, whose socket kept the headers: they are made anew from what it told of them. IPv4's
    /// identification has done its work; where DF is clear another fragmentation needs a new one.
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
            in_tunnel: false,
        }
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
