//! Numbers: what each packet takes from its associations, in order, and where its bytes will lie.

use super::{OutboundBatch, Passage, Planner, RoadNumber};
use crate::outbound::batch::{Parcel, Place, Ticket, Train};
use crate::outbound::layers::{Refusal, Wanted};
use ipsec::Dropped;
use ipsec::database::SaIndex;
use ipsec::esp::sealed_len;
use ipsec::sa::{Protocol, Sa, SequenceNumber};
use multibuffer::Iv;
use std::ops::Range;

impl<'a> Planner<'a> {
    /// Takes sequence numbers for all packets of the item, the shorter last one by itself so that lifetimes count
    /// what is carried.
    pub(super) fn number(&mut self, batch: &mut OutboundBatch, passage: Passage<'a>) {
        let road = &batch.roads[passage.road];
        if road.packs {
            return self.pack(batch, &passage);
        }
        if !road.hops.is_empty() {
            return self.wrap(batch, &passage);
        }
        self.seal(batch, passage);
    }

    /// The short road: one ESP header for each packet.
    pub(super) fn seal(&mut self, batch: &mut OutboundBatch, passage: Passage<'a>) {
        let count = passage.segments.count();
        let last = count - 1;
        let len = |number| passage.segments.packet_len(number);
        let even = if len(last) == len(0) { count } else { last };
        let mut granted = self.grant(batch, &passage, 0..even);
        if granted == even && even < count {
            granted += self.grant(batch, &passage, even..count);
        }
        if granted > 0 {
            batch.trains.push(Train {
                item: passage.item,
                in_fragments: passage.in_fragments,
                segments: passage.segments,
                granted,
                road: passage.road,
            });
        }
    }

    /// Sends every packet of the item through all its hops.
    fn wrap(&mut self, batch: &mut OutboundBatch, passage: &Passage<'a>) {
        // INVARIANT: every hop takes its own association's numbers, and nobody holds two.
        self.held = None;
        let road = &batch.roads[passage.road];
        let (hops, whole) = (road.hops.of(self.hops), road.outer.written > 0);
        let (ivs, now) = (&mut *self.ivs, self.now);
        let mut grant = |sa: &Sa, bytes| {
            let (sequence, _) = sa.state.reserve(&sa.config, 1, bytes, now)?;
            let iv = match sa.config.id.protocol {
                Protocol::Esp => sa.iv_for(sequence, &mut |bytes| ivs.fill(bytes)),
                Protocol::Ah => Iv::default(),
            };
            Ok((sequence, iv))
        };
        for number in 0..passage.segments.count() {
            let wanted = Wanted {
                item: passage.item.clone(),
                in_fragments: passage.in_fragments,
                segments: passage.segments,
                number,
                whole,
            };
            match batch.layers.add(self.snapshot, hops, wanted, &mut grant) {
                Ok(finished) => {
                    let place = Place::Layered(finished.buffer);
                    batch.lay(passage.road, place, finished.range);
                    batch.counts.bytes += passage.segments.packet_len(number) as u64;
                }
                Err(Refusal { sa, reason }) => {
                    self.snapshot.sa(sa).state.count_drop(reason);
                    batch.counts.drop(reason, 1);
                }
            }
        }
    }

    /// Numbers packets of equal length; returns how many were granted a number. The rest is counted as dropped.
    fn grant(
        &mut self,
        batch: &mut OutboundBatch,
        passage: &Passage<'a>,
        numbers: Range<u32>,
    ) -> u32 {
        let (sa, mut next) = (passage.sa, numbers.start);
        let len = passage.segments.packet_len(next);
        while next < numbers.end {
            let wanted = numbers.end - next;
            match self.reserve(batch.roads[passage.road].index, sa, wanted, len) {
                Ok((first, granted)) => {
                    for step in 0..granted {
                        let sequence = SequenceNumber(first.0 + u64::from(step));
                        self.book(batch, passage, sequence, len);
                    }
                    next += granted;
                }
                Err(reason) => {
                    batch.counts.drop(reason, wanted.into());
                    (0..wanted).for_each(|_| sa.state.count_drop(reason));
                    break;
                }
            }
        }
        next - numbers.start
    }

    fn reserve(
        &mut self,
        index: SaIndex,
        sa: &'a Sa,
        wanted: u32,
        len: usize,
    ) -> Result<(SequenceNumber, u32), Dropped> {
        // INVARIANT: whoever takes an association's numbers lets go of another's first.
        self.held.take_if(|(of, _)| *of != index);
        let (_, held) = self.held.get_or_insert_with(|| (index, sa.state.hold()));
        held.reserve(&sa.config, wanted, len as u64, self.now)
    }

    fn book(
        &mut self,
        batch: &mut OutboundBatch,
        passage: &Passage<'a>,
        sequence: SequenceNumber,
        len: usize,
    ) {
        let sa = passage.sa;
        let iv = match sa.draws_ivs() {
            true => sa.fresh_iv(&mut |bytes| self.ivs.fill(bytes)),
            false => Iv::default(),
        };
        let plaintext_len = len - batch.roads[passage.road].outside;
        let range = batch.sealed_len..batch.sealed_len + sealed_len(&sa.config, plaintext_len);
        batch.sealed_len = range.end;
        batch.lay(passage.road, Place::Sealed, range);
        batch.heads_len += passage.segments.head_len();
        batch.counts.bytes += len as u64;
        batch.tickets.push(Ticket {
            sequence,
            iv,
            plaintext_len,
        });
    }
}

impl OutboundBatch {
    /// Adds a protected packet to the parcel before, if it lies behind it, is equal and for the same peer.
    fn lay(&mut self, road: RoadNumber, place: Place, range: Range<usize>) {
        let roads = &self.roads;
        let same =
            |parcel: &Parcel| parcel.road == road || roads[parcel.road].outer == roads[road].outer;
        match self.parcels.last_mut() {
            Some(parcel) if parcel.takes(place, &range) && same(parcel) => {
                parcel.range.end = range.end;
                parcel.packets += 1;
            }
            _ => self.parcels.push(Parcel {
                road,
                place,
                stride: range.len(),
                range,
                packets: 1,
            }),
        }
    }
}

impl Parcel {
    /// Whether a packet lies directly behind full ones, and is no longer than they are.
    fn takes(&self, place: Place, range: &Range<usize>) -> bool {
        let is_even = self.range.len() == self.packets as usize * self.stride;
        let follows = self.place == place && self.range.end == range.start;
        is_even && follows && range.len() <= self.stride
    }
}
