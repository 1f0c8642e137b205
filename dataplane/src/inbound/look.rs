//! The first step inbound: what each packet claims to be.

use super::InboundBatch;
use super::batch::{Header, Incoming, Outcome};
use crate::io::{Arrival, ReceiveBuffer};
use crate::path_mtu::PathMtus;
use ipsec::Dropped;
use ipsec::database::{SaIndex, Snapshot, TOGETHER};
use ipsec::pmtu;
use ipsec::sa::{Held, Protocol, SaId, Spi};
use ipsec::wire::ah::Ah;
use ipsec::wire::esp::Esp;

/// The protocol number of UDP: ESP inside it.
const UDP: u8 = 17;

/// Looks at one batch under one snapshot.
pub(super) struct Looker<'a> {
    snapshot: &'a Snapshot,
    paths: &'a mut PathMtus,
    /// The association found last: most packets of a batch belong to it.
    last: Option<Found>,
    /// Its numbers, held as long as it is the last.
    held: Option<Held<'a>>,
}

struct Found {
    id: SaId,
    peer: std::net::IpAddr,
    sa: SaIndex,
    inner_mtu: usize,
}

impl<'a> Looker<'a> {
    pub fn new(snapshot: &'a Snapshot, paths: &'a mut PathMtus) -> Self {
        Self {
            snapshot,
            paths,
            last: None,
            held: None,
        }
    }

    /// Looks at every datagram of every item.
    pub fn look(&mut self, batch: &mut InboundBatch) {
        for item in 0..batch.intake.items.len() {
            if item % TOGETHER == 0 {
                self.fetch(&batch.intake, item);
            }
            let (range, arrival) = batch.intake.items[item].clone();
            let stride = arrival.stride.max(1);
            for start in range.clone().step_by(stride) {
                let headers = arrival.outer.written;
                let end = range.end.min(start + stride);
                let range = end.min(start + usize::from(headers))..end;
                batch.counts.arrived += 1;
                match self.look_at(&batch.intake.bytes[range.clone()], &arrival) {
                    Ok((sa, inner_mtu, received)) => batch.packets.push(Incoming {
                        range,
                        item: item as u32,
                        sa,
                        headers,
                        walk: 0,
                        inner_mtu,
                        received,
                        outcome: Outcome::Pending,
                    }),
                    Err(reason) => batch.counts.drop(reason, 1),
                }
            }
        }
    }

    /// Asks for all that the items from `item` on will need, so that they wait for memory together.
    fn fetch(&self, intake: &ReceiveBuffer<Arrival>, item: usize) {
        let items = intake.items[item..].iter();
        let ids = items.filter_map(|(range, arrival)| {
            let headers = usize::from(arrival.outer.written);
            claimed(intake.bytes.get(range.start + headers..range.end)?, arrival).ok()
        });
        self.snapshot.fetch_arrivals(ids);
    }

    /// Whose packet it is, how large one may be on the way back, and what its header says.
    fn look_at(
        &mut self,
        packet: &[u8],
        arrival: &Arrival,
    ) -> Result<(SaIndex, usize, Header), Dropped> {
        let (index, inner_mtu) = self.find(packet, arrival)?;
        let sa = self.snapshot.sa(index);
        let in_udp = arrival.outer.protocol == UDP;
        let held = self.held.get_or_insert_with(|| sa.state.hold());
        let checked = match sa.config.encapsulation.is_some() == in_udp {
            true => Header::look_by(held, sa, packet),
            false => Err(Dropped::WrongEncapsulation),
        };
        match checked {
            Ok(received) => Ok((index, inner_mtu, received)),
            Err(reason) => {
                sa.state.count_drop(reason);
                Err(reason)
            }
        }
    }

    /// RFC 4303 3.4.2, RFC 4302 3.4.2.
    fn find(&mut self, packet: &[u8], arrival: &Arrival) -> Result<(SaIndex, usize), Dropped> {
        let id = claimed(packet, arrival)?;
        let peer = arrival.outer.source;
        match &self.last {
            Some(last) if last.id == id && last.peer == peer => Ok((last.sa, last.inner_mtu)),
            _ => self.look_up(id, peer),
        }
    }

    fn look_up(&mut self, id: SaId, peer: std::net::IpAddr) -> Result<(SaIndex, usize), Dropped> {
        // INVARIANT: what is held belongs to `last`, and nobody holds two.
        (self.held, self.last) = (None, None);
        let sa = self.snapshot.find(&id).ok_or(Dropped::NoSa)?;
        let path_mtu = self.paths.mtu(peer);
        let inner_mtu = pmtu::inner_mtu(&self.snapshot.sa(sa).config, path_mtu);
        self.last = Some(Found {
            id,
            peer,
            sa,
            inner_mtu,
        });
        Ok((sa, inner_mtu))
    }
}

/// Which association a packet says that it came through.
fn claimed(packet: &[u8], arrival: &Arrival) -> Result<SaId, Dropped> {
    let protocol = match arrival.outer.protocol {
        UDP => Protocol::Esp,
        number if number == Protocol::Esp.number() => Protocol::Esp,
        // RFC 4302 3.4.4: the ICV covers the headers before AH, so a source must bring them along.
        number if number == Protocol::Ah.number() && arrival.outer.written > 0 => Protocol::Ah,
        _ => return Err(Dropped::Unsupported),
    };
    let spi = match protocol {
        Protocol::Esp => Esp::new_checked(packet)?.spi(),
        Protocol::Ah => Ah::new_checked(packet)?.spi(),
    };
    Ok(SaId {
        destination: arrival.outer.destination,
        protocol,
        spi: Spi::new(spi).ok_or(Dropped::NoSa)?,
    })
}
