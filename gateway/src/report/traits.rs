//! What options have made of an association, for `status` and `explain`.

use crate::events::direction_name;
use crate::status::{AggfragStatus, OffloadStatus, SaTraits};
use ipsec::policy::Direction;
use ipsec::sa::{OffloadKind, SaConfig, SaId};
use std::collections::HashMap;

/// The directions of associations, where the kernel keeps them.
pub(crate) type Directions = HashMap<SaId, Direction>;

pub(super) fn traits(config: &SaConfig, directions: &Directions) -> SaTraits {
    let direction = directions.get(&config.id);
    SaTraits {
        direction: direction.map(|direction| direction_name(*direction).to_owned()),
        cpu: config.cpu,
        offload: config.offload.as_ref().map(|offload| OffloadStatus {
            kind: match offload.kind {
                OffloadKind::Crypto => "crypto".to_owned(),
                OffloadKind::Packet => "packet".to_owned(),
            },
            device: offload.device.to_string(),
        }),
        aggfrag: config.aggfrag.map(|aggfrag| AggfragStatus {
            size: aggfrag.size,
            rate: aggfrag.rate,
            fragments: aggfrag.fragments,
            window: aggfrag.reorder_window,
            wait_ms: aggfrag.reorder_timeout_ms,
        }),
    }
}
