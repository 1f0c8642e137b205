//! Whether all that leaves has to pass over in one pause.

use ipsec::database::Snapshot;
use ipsec::policy::{Action, Direction, Policy, Template};
use ipsec::sa::Mode;

/// With policies in transport mode alone all groups pass over in one pause: a packet that the kernel seals by one stays
/// on its route, which must not lead into the TUN device. So do policies between many hosts, of which it is not known
/// by which associations all of their packets leave.
pub(super) fn is_one_pause(snapshot: &Snapshot) -> bool {
    let is_it = |policy: &Policy| match &policy.action {
        Action::Protect(templates) => {
            let is_tunnel = |one: &Template| one.mode == Mode::Tunnel && one.endpoints.is_some();
            !templates.first().is_some_and(is_tunnel)
        }
        _ => false,
    };
    let mut policies = snapshot.policies(Direction::Out);
    policies.any(|(_, policy)| is_it(policy))
}
