//! What the kernel has refused, and of what.

use super::super::policy::PolicyName;
use super::super::socket::Refusal;
use ipsec::policy::Direction;
use ipsec::sa::SaId;
use std::io;

/// Whether the kernel has no such object.
pub(super) fn is_absent(refusal: &Refusal) -> bool {
    [libc::ESRCH, libc::ENOENT].contains(&refusal.errno)
}

/// An error that names the association.
pub(super) fn about_sa(id: &SaId, refusal: &Refusal) -> io::Error {
    io::Error::other(format!(
        "the kernel's IPsec, association to {} with SPI {}: {refusal}",
        id.destination, id.spi
    ))
}

/// An error that names the policy.
pub(super) fn about_policy(name: &PolicyName, refusal: &Refusal) -> io::Error {
    let direction = match name.direction {
        Direction::In => "in",
        Direction::Out => "out",
        Direction::Fwd => "fwd",
    };
    let (source, destination) = (name.selector.source, name.selector.destination);
    io::Error::other(format!(
        "the kernel's IPsec, `{direction}` policy from {}/{} to {}/{}: {refusal}",
        source.address, source.len, destination.address, destination.len
    ))
}

/// The kernel's databases cannot be read.
pub(super) fn unreadable(refusal: Refusal) -> io::Error {
    io::Error::other(format!("the kernel's IPsec cannot be read: {refusal}"))
}
