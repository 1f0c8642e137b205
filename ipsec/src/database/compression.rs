//! IPComp in the databases (RFC 3173): where policies may name it, its numbers, and its associations by their ends.

use super::SaIndex;
use super::change_error::ChangeError;
use crate::policy::{Action, Direction, Policy, Template};
use crate::sa::{Protocol, Sa, SaConfig};
use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;

/// RFC 3173 2: a payload is compressed before it is encrypted or authenticated, once. What arrives may be accepted in
/// either mode.
pub(super) fn check_compression(policy: &Policy) -> Result<(), ChangeError> {
    let Action::Protect(templates) = &policy.action else {
        return Ok(());
    };
    let is_compression = |template: &&Template| template.protocol == Protocol::IpComp;
    let all = templates.iter().filter(is_compression).count();
    let first = templates.iter().take_while(is_compression).count();
    let most = if policy.direction == Direction::Out {
        1
    } else {
        2
    };
    if all > 0 && (first < all || first == templates.len() || first > most) {
        return Err(ChangeError::CompressionPlace);
    }
    Ok(())
}

/// The numbers of which the gateway may choose one for an association to come.
pub(super) fn any_spi(protocol: Protocol) -> (u32, u32) {
    match protocol {
        // RFC 3173 3.3: negotiated CPIs.
        Protocol::IpComp => (256, 61_439),
        Protocol::Esp | Protocol::Ah => (0x100, 0x0fff_ffff),
    }
}

/// IPComp associations by their ends, the youngest last.
#[derive(Default)]
pub(super) struct Compressing(pub(super) HashMap<(IpAddr, IpAddr), Vec<SaIndex>>);

impl Compressing {
    pub(super) fn among(sas: &[Arc<Sa>]) -> Self {
        let mut between: HashMap<_, Vec<_>> = HashMap::new();
        for (place, sa) in (0..).zip(sas) {
            let SaConfig { id, source, .. } = &sa.config;
            if id.protocol == Protocol::IpComp {
                let alike = between.entry((*source, id.destination));
                alike.or_default().push(SaIndex(place));
            }
        }
        Self(between)
    }
}
