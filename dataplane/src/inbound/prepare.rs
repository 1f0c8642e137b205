//! The first step inbound, in order: reads a batch, finds the SA of each packet, parses its header and pre-checks it
//! against the replay window, which sheds cheap floods. No ICV is verified yet.

use super::InboundBatch;
use super::deadline::Deadline;
use super::packet::{InboundPacket, LayerHeader, Outcome};
use super::sa_id::read_sa_id;
use crate::clock;
use crate::io::{Arrival, ProtectedSource, ReceiveBuffer, Wait};
use crate::path_mtu::PathMtus;
use crate::pipeline::pump::Prepare;
use arc_swap::ArcSwap;
use ipsec::Dropped;
use ipsec::database::{MAX_PREFETCH_PACKETS, SaIndex, Snapshot};
use ipsec::pmtu;
use ipsec::sa::{LockedState, Protocol, SaId};
use ipsec::wire::ip::number::UDP;
use std::io;
use std::net::IpAddr;
use std::sync::Arc;

/// The first step.
pub struct InboundPrepare {
    source: Box<dyn ProtectedSource>,
    databases: Arc<ArcSwap<Snapshot>>,
    paths: PathMtus,
    /// When packets that wait for a lost one are released; a batch without packets does it.
    deadline: Deadline,
}

impl InboundPrepare {
    pub(super) fn new(
        source: Box<dyn ProtectedSource>,
        databases: Arc<ArcSwap<Snapshot>>,
        paths: PathMtus,
        deadline: Deadline,
    ) -> Self {
        Self {
            source,
            databases,
            paths,
            deadline,
        }
    }
}

impl Prepare for InboundPrepare {
    type Batch = InboundBatch;

    fn fill(&mut self, batch: &mut InboundBatch, wait: Wait) -> io::Result<usize> {
        let wait = self.deadline.shorten(wait);
        let count = self.source.fill(&mut batch.intake, wait)?;
        let any = self.deadline.is_over() || !batch.intake.drops.is_empty();
        Ok(count.max(usize::from(any)))
    }

    fn prepare(&mut self, batch: &mut InboundBatch) {
        let snapshot = self.databases.load_full();
        batch.now = clock::now();
        batch.counts.missed(&mut batch.intake.drops);
        let parser = Parser {
            snapshot: &snapshot,
            paths: &mut self.paths,
            last: None,
            locked: None,
        };
        parser.parse(batch);
        batch.snapshot = Some(snapshot);
    }
}

/// Parses and pre-checks one batch under one snapshot.
struct Parser<'a> {
    snapshot: &'a Snapshot,
    paths: &'a mut PathMtus,
    /// The SA found last: most packets of a batch belong to it.
    last: Option<LastSa>,
    /// Its state, locked as long as it is the last.
    locked: Option<LockedState<'a>>,
}

struct LastSa {
    id: SaId,
    peer: IpAddr,
    sa: SaIndex,
    inner_mtu: usize,
}

impl Parser<'_> {
    /// Parses every datagram of every item.
    fn parse(mut self, batch: &mut InboundBatch) {
        for item in 0..batch.intake.items.len() {
            if item % MAX_PREFETCH_PACKETS == 0 {
                self.prefetch(&batch.intake, item);
            }
            let (range, arrival) = batch.intake.items[item].clone();
            let stride = arrival.stride.max(1);
            for start in range.clone().step_by(stride) {
                let headers = arrival.outer.emitted_len;
                let end = range.end.min(start + stride);
                let range = end.min(start + usize::from(headers))..end;
                batch.counts.arrived += 1;
                match self.pre_check(&batch.intake.bytes[range.clone()], &arrival) {
                    Ok((sa, inner_mtu, header)) => batch.packets.push(InboundPacket {
                        range,
                        item: item as u32,
                        sa,
                        headers,
                        chain: 0,
                        inner_mtu,
                        header,
                        outcome: Outcome::Pending,
                    }),
                    Err(reason) => batch.counts.drop(reason, 1),
                }
            }
        }
    }

    /// Prefetches what the items from `item` on will need, so that they wait for memory together.
    fn prefetch(&self, intake: &ReceiveBuffer<Arrival>, item: usize) {
        let items = intake.items[item..].iter();
        let ids = items.filter_map(|(range, arrival)| {
            let headers = usize::from(arrival.outer.emitted_len);
            sa_id(intake.bytes.get(range.start + headers..range.end)?, arrival).ok()
        });
        self.snapshot.prefetch_inbound(ids);
    }

    /// The packet's SA, the largest packet that fits the path back, and its header.
    fn pre_check(
        &mut self,
        packet: &[u8],
        arrival: &Arrival,
    ) -> Result<(SaIndex, usize, LayerHeader), Dropped> {
        let (index, inner_mtu) = self.find(packet, arrival)?;
        let sa = self.snapshot.sa(index);
        let in_udp = arrival.outer.protocol == UDP;
        let locked = self.locked.get_or_insert_with(|| sa.state.lock());
        let checked = if sa.config.encapsulation.is_some() == in_udp {
            LayerHeader::parse_locked(locked, sa, packet)
        } else {
            Err(Dropped::WrongEncapsulation)
        };
        match checked {
            Ok(header) => Ok((index, inner_mtu, header)),
            Err(reason) => {
                sa.state.count_drop(reason);
                Err(reason)
            }
        }
    }

    /// RFC 4303 3.4.2, RFC 4302 3.4.2.
    fn find(&mut self, packet: &[u8], arrival: &Arrival) -> Result<(SaIndex, usize), Dropped> {
        let id = sa_id(packet, arrival)?;
        let peer = arrival.outer.source;
        match &self.last {
            Some(last) if last.id == id && last.peer == peer => Ok((last.sa, last.inner_mtu)),
            _ => self.look_up(id, peer),
        }
    }

    fn look_up(&mut self, id: SaId, peer: IpAddr) -> Result<(SaIndex, usize), Dropped> {
        // INVARIANT: the locked state belongs to `last`, and no thread locks two.
        (self.locked, self.last) = (None, None);
        let sa = self.snapshot.find(&id).ok_or(Dropped::NoSa)?;
        let path_mtu = self.paths.mtu(peer);
        let inner_mtu = pmtu::inner_mtu(&self.snapshot.sa(sa).config, path_mtu);
        self.last = Some(LastSa {
            id,
            peer,
            sa,
            inner_mtu,
        });
        Ok((sa, inner_mtu))
    }
}

/// Which SA a packet names.
fn sa_id(packet: &[u8], arrival: &Arrival) -> Result<SaId, Dropped> {
    let protocol = match arrival.outer.protocol {
        UDP => Protocol::Esp,
        number if number == Protocol::Esp.number() => Protocol::Esp,
        // RFC 4302 3.4.4: the ICV covers the headers before AH, so a source must hand them over.
        number if number == Protocol::Ah.number() && arrival.outer.emitted_len > 0 => Protocol::Ah,
        _ => return Err(Dropped::Unsupported),
    };
    read_sa_id(
        arrival.outer.destination,
        protocol,
        packet,
        Dropped::Malformed,
    )
}
