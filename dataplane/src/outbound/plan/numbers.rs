//! Numbers: what each packet takes from its associations, in order, and where its bytes will lie.

use super::{OutboundBatch, Passage, Planner};
use crate::outbound::batch::{Parcel, Place, Train};
use crate::outbound::layers::{Refusal, Wanted};
use ipsec::Dropped;
use ipsec::database::SaIndex;
use ipsec::esp::Stamp;
use ipsec::sa::{Protocol, Sa, SequenceNumber};
use ipsec::tunnel::Outer;
use multibuffer::Iv;
use std::ops::Range;

impl<'a> Planner<'a> {
    /// Takes sequence numbers for all packets of the item, the shorter last one by itself so that lifetimes count
    /// what is carried.
    pub(super) fn number(&mut self, batch: &mut OutboundBatch, passage: Passage<'a>) {
        if passage.road.packs {
            return self.pack(batch, &passage);
        }
        if !passage.road.hops.is_empty() {
            return self.wrap(batch, &passage);
        }
        self.seal(batch, passage);
    }

    /// The short road: one ESP header for each packet.
    pub(super) fn seal(&mut self, batch: &mut OutboundBatch, passage: Passage<'a>) {
        let count = passage.cut.count();
        let last = count - 1;
        let len = |number| passage.cut.packet_len(number);
        let even = if len(last) == len(0) { count } else { last };
        let mut granted = self.grant(batch, &passage, 0..even);
        if granted == even {
            granted += self.grant(batch, &passage, even..count);
        }
        if granted > 0 {
            batch.trains.push(Train {
                item: passage.item,
                in_fragments: passage.in_fragments,
                cut: passage.cut,
                granted,
                outside: passage.road.outside,
                sa: passage.road.index,
            });
        }
    }

    /// Sends every packet of the item through all its hops.
    fn wrap(&mut self, batch: &mut OutboundBatch, passage: &Passage<'a>) {
        // INVARIANT: every hop takes its own association's numbers, and nobody holds two.
        self.held = None;
        let road = &passage.road;
        let hops = road.hops.of(self.hops);
        let (ivs, now) = (&mut *self.ivs, self.now);
        let mut grant = |sa: &Sa, bytes| {
            let (sequence, _) = sa.state.reserve(&sa.config, 1, bytes, now)?;
            let iv = match sa.config.id.protocol {
                Protocol::Esp => sa.iv_for(sequence, &mut |bytes| ivs.fill(bytes)),
                Protocol::Ah => Iv::default(),
            };
            Ok((sequence, iv))
        };
        for number in 0..passage.cut.count() {
            let wanted = Wanted {
                item: passage.item.clone(),
                in_fragments: passage.in_fragments,
                cut: passage.cut,
                number,
                whole: road.outer.written > 0,
            };
            match batch.layers.add(self.snapshot, hops, wanted, &mut grant) {
                Ok(finished) => {
                    let place = Place::Layered(finished.buffer);
                    batch.lay(road.outer, place, finished.range);
                    batch.tally.bytes += passage.cut.packet_len(number) as u64;
                }
                Err(Refusal { sa, reason }) => {
                    self.snapshot.sa(sa).state.count_drop(reason);
                    batch.tally.drop(reason, 1);
                }
            }
        }
    }

    /// Stamps packets of equal length; returns how many were granted a number. The rest is counted as dropped.
    fn grant(
        &mut self,
        batch: &mut OutboundBatch,
        passage: &Passage<'a>,
        numbers: Range<u32>,
    ) -> u32 {
        let (sa, mut next) = (passage.sa, numbers.start);
        let len = passage.cut.packet_len(next);
        while next < numbers.end {
            let wanted = numbers.end - next;
            match self.reserve(passage.road.index, sa, wanted, len) {
                Ok((first, granted)) => {
                    for step in 0..granted {
                        let sequence = SequenceNumber(first.0 + u64::from(step));
                        self.stamp(batch, passage, sequence, len);
                    }
                    next += granted;
                }
                Err(reason) => {
                    batch.tally.drop(reason, wanted.into());
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
        let held = match self.held.take() {
            Some((of, held)) if of == index => held,
            other => {
                drop(other);
                sa.state.hold()
            }
        };
        let (_, held) = self.held.insert((index, held));
        held.reserve(&sa.config, wanted, len as u64, self.now)
    }

    fn stamp(
        &mut self,
        batch: &mut OutboundBatch,
        passage: &Passage<'a>,
        sequence: SequenceNumber,
        len: usize,
    ) {
        let iv = passage
            .sa
            .iv_for(sequence, &mut |bytes| self.ivs.fill(bytes));
        let road = &passage.road;
        let plaintext_len = len - road.outside;
        let stamp = Stamp::new(passage.sa, sequence, iv, road.next_header, plaintext_len);
        let range = batch.sealed_len..batch.sealed_len + stamp.packet_len();
        batch.sealed_len = range.end;
        batch.lay(road.outer, Place::Sealed, range);
        batch.heads_len += passage.cut.head_len();
        batch.tally.bytes += len as u64;
        batch.stamps.push(stamp);
    }
}

impl OutboundBatch {
    /// Adds a protected packet to the parcel before, if it lies behind it, is equal and for the same peer.
    fn lay(&mut self, outer: Outer, place: Place, range: Range<usize>) {
        match self.parcels.last_mut() {
            Some(parcel) if parcel.takes(&outer, place, &range) => {
                parcel.range.end = range.end;
                parcel.packets += 1;
            }
            _ => self.parcels.push(Parcel {
                outer,
                place,
                stride: range.len(),
                range,
                packets: 1,
            }),
        }
    }
}

impl Parcel {
    fn takes(&self, outer: &Outer, place: Place, range: &Range<usize>) -> bool {
        let is_even = (self.range.end - self.range.start).is_multiple_of(self.stride);
        let follows = self.place == place && self.range.end == range.start;
        is_even && follows && range.len() <= self.stride && self.outer == *outer
    }
}
