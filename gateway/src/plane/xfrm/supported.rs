//! What the kernel can carry for a gateway that does the rest.

use super::{association, features, policy};
use crate::plane::Unsupported;
use ipsec::policy::Policy;
use ipsec::sa::SaConfig;

/// Why the kernel cannot carry an association for a gateway, if it cannot.
pub(crate) fn carries(config: &SaConfig) -> Result<(), Unsupported> {
    association::check_carried(config)?;
    features::check(config)
}

/// Why the kernel cannot enforce a policy, if it cannot.
pub(crate) fn enforces(policy: &Policy) -> Result<(), Unsupported> {
    policy::check_supported(policy)
}
