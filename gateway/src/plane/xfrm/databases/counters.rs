//! Sequence numbers, replay windows and lifetimes of an association: written for the kernel to go on from, and read as
//! it reports them.

use super::super::association;
use ipsec::dropped::Dropped;
use ipsec::sa::{SaConfig, SavedCounters};
use netlink_packet_xfrm::state::ModifyMessage;
use netlink_packet_xfrm::{LifetimeConfig, Replay, XFRM_INF, XfrmAttrs};

/// The message that adds an association which goes on from `start`, with the attributes that name its owner.
pub(super) fn emit_from(
    config: &SaConfig,
    start: &SavedCounters,
    owner: [XfrmAttrs; 2],
) -> ModifyMessage {
    let mut message = association::emit(config);
    message.nlas.extend(owner);
    reduce(&mut message.user_sa_info.lifetime_cfg, start);
    if start.sent == 0 && start.edge == 0 {
        return message;
    }
    let halves = |number: u64| (number as u32, (number >> 32) as u32);
    let extended = message
        .nlas
        .iter_mut()
        .find_map(|attribute| match attribute {
            XfrmAttrs::ReplayStateEsn(state) => Some(state),
            _ => None,
        });
    if let Some(state) = extended {
        (state.oseq, state.oseq_hi) = halves(start.sent);
        (state.seq, state.seq_hi) = halves(start.edge);
        if start.edge > 0 {
            state.bmp.fill(u32::MAX);
        }
    } else {
        message.nlas.push(XfrmAttrs::ReplayState(Replay {
            oseq: start.sent as u32,
            seq: start.edge as u32,
            // Everything before the highest number counts as seen.
            bitmap: if start.edge > 0 { u32::MAX } else { 0 },
        }));
    }
    message
}

/// What an association has carried elsewhere counts towards its limits: the kernel begins at 0. Limits in time are kept
/// by the gateway, which knows when the association was added.
fn reduce(limits: &mut LifetimeConfig, start: &SavedCounters) {
    let reduced = |limit: u64, used: u64| match limit {
        XFRM_INF => limit,
        _ => limit.saturating_sub(used).max(1),
    };
    limits.soft_byte_limit = reduced(limits.soft_byte_limit, start.bytes);
    limits.hard_byte_limit = reduced(limits.hard_byte_limit, start.bytes);
    limits.soft_packet_limit = reduced(limits.soft_packet_limit, start.packets);
    limits.hard_packet_limit = reduced(limits.hard_packet_limit, start.packets);
}

/// What the kernel has counted since it has the association; `created` stays 0.
pub(super) fn read(message: &ModifyMessage) -> SavedCounters {
    let info = &message.user_sa_info;
    let mut counters = SavedCounters {
        bytes: info.lifetime_cur.bytes,
        packets: info.lifetime_cur.packets,
        first_used: info.lifetime_cur.use_time,
        last_used: info.lifetime_cur.use_time,
        ..SavedCounters::default()
    };
    let whole = |low: u32, high: u32| u64::from(high) << 32 | u64::from(low);
    for attribute in &message.nlas {
        match attribute {
            XfrmAttrs::ReplayState(state) => {
                (counters.sent, counters.edge) = (state.oseq.into(), state.seq.into());
            }
            XfrmAttrs::ReplayStateEsn(state) => {
                counters.sent = whole(state.oseq, state.oseq_hi);
                counters.edge = whole(state.seq, state.seq_hi);
            }
            XfrmAttrs::LastUsed(moment) => counters.last_used = *moment,
            _ => {}
        }
    }
    counters
}

/// Drops of the reasons that the kernel reports, in the order of [`REASONS`].
#[derive(Clone, Copy, Default)]
pub(super) struct DropsBefore {
    /// Those of the gateway's own data plane.
    pub(super) by_user_plane: [u64; REASONS.len()],
    /// What the kernel had counted when it became the only one to open packets.
    pub(super) by_kernel: [u64; REASONS.len()],
}

/// The reasons for drops that the kernel reports of an association.
pub(super) const REASONS: [Dropped; 3] = [Dropped::TooOld, Dropped::Replayed, Dropped::BadIcv];

/// Drops in the order of [`REASONS`].
pub(super) fn drops_of(message: &ModifyMessage) -> [u64; REASONS.len()] {
    let stats = &message.user_sa_info.stats;
    [stats.replay_window, stats.replay, stats.integrity_failed].map(u64::from)
}
