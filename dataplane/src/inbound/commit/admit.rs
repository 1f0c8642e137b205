//! Replay window and lifetimes, in order: which packets are admitted.

use crate::inbound::InboundBatch;
use crate::inbound::chain::SaChain;
use crate::inbound::packet::{InboundPacket, Outcome};
use ipsec::Dropped;
use ipsec::database::{SaIndex, Snapshot};
use ipsec::sa::LockedState;

/// Admits all packets of the batch, in order. A packet that is not admitted is counted and loses its inner packet. The
/// state of an SA is locked for a run of its packets.
pub(super) fn admit_all(snapshot: &Snapshot, batch: &mut InboundBatch) {
    let mut run: Option<(SaIndex, LockedState<'_>)> = None;
    for packet in &mut batch.packets {
        let sa = packet.sa;
        let inner = match (&packet.outcome, (packet.chain as usize).checked_sub(1)) {
            (Outcome::Genuine(inner), Some(chain)) => {
                run = None;
                let inner = inner.as_ref().map(drop).map_err(|reason| *reason);
                admit_nested(snapshot, &batch.chains[chain], inner, batch.now)
            }
            (Outcome::Genuine(_) | Outcome::Aggfrag(_), None) => {
                run.take_if(|(of, _)| *of != sa);
                let (_, locked) = run.get_or_insert_with(|| (sa, snapshot.sa(sa).state.lock()));
                admit(snapshot, locked, packet, batch.now)
            }
            // INVARIANT: a nested packet is never an AGGFRAG payload.
            (Outcome::Pending | Outcome::Forged | Outcome::Aggfrag(_), _) => {
                Err((packet.sa, Dropped::BadIcv))
            }
        };
        if let Err((sa, reason)) = inner {
            snapshot.sa(sa).state.count_drop(reason);
            batch.counts.drop(reason, 1);
            packet.outcome = Outcome::Genuine(Err(reason));
        }
    }
}

/// RFC 4303 3.4.3: the window is checked again and moved only for an authentic packet, and before any other reason to
/// drop it counts.
fn admit(
    snapshot: &Snapshot,
    locked: &mut LockedState<'_>,
    packet: &InboundPacket,
    now: u64,
) -> Result<(), (SaIndex, Dropped)> {
    let charged = |reason| (packet.sa, reason);
    let config = &snapshot.sa(packet.sa).config;
    let (inner, len) = match &packet.outcome {
        Outcome::Genuine(Ok(inner)) => (Ok(()), inner.len),
        Outcome::Aggfrag(payload) => (Ok(()), payload.len),
        Outcome::Genuine(Err(reason)) => (Err(*reason), packet.range.len()),
        Outcome::Pending | Outcome::Forged => (Err(Dropped::BadIcv), packet.range.len()),
    };
    let sequence = packet.header.sequence();
    locked
        .admit(config, sequence, len as u64, now)
        .map_err(charged)?;
    inner.map_err(charged)
}

/// The same for every SA of the packet's chain, outermost first.
fn admit_nested(
    snapshot: &Snapshot,
    chain: &SaChain,
    inner: Result<(), Dropped>,
    now: u64,
) -> Result<(), (SaIndex, Dropped)> {
    for layer in chain.layers() {
        let sa = snapshot.sa(layer.sa);
        sa.state
            .admit(&sa.config, layer.sequence, layer.bytes, now)
            .map_err(|reason| (layer.sa, reason))?;
    }
    inner.map_err(|reason| (chain.charged, reason))
}
