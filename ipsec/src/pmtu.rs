//! Path MTU: what fits through an association, what happens to a packet that does not, and which ICMP messages count.
//!
//! ```text
//!   inner packet ──► judge ──► Fits                        by the MTU inside the tunnel: inner_mtu
//!                         ├──► FragmentInner    IPv4 without DF
//!                         ├──► Report(mtu)  ──► report ──► ICMP to the sender (RFC 4301 8.2.1)
//!                         └──► FragmentOuter   IPv6 up to 1280, which every link must carry
//!   outer ICMP   ──► TooBigMessage::read ──► accepted_mtu ──► a smaller path MTU (RFC 4301 8.2.2)
//!   TCP SYN      ──► clamp_mss, so that TCP segments fit
//! ```

mod clamp;
mod icmp_error;
mod too_big;

pub use clamp::{TcpChecksum, clamp_mss};
pub use icmp_error::{packet_too_big, time_exceeded};
pub use too_big::TooBigMessage;

use crate::packet::Outline;
use crate::sa::{Protocol, SaConfig};
use crate::wire::ip::{v4, v6};
use crate::{aggfrag, ah, esp};
use std::net::IpAddr;

/// The smallest MTU of an IPv6 link (RFC 8200 5).
pub const MIN_MTU_V6: usize = 1280;
/// The smallest MTU of an IPv4 link (RFC 791 3.2).
pub const MIN_MTU_V4: usize = 68;

/// The largest inner packet that `sa` carries in tunnel mode over a path of `path_mtu`; 0 if none fits. RFC 9347 2.2.8:
/// where packets go on in the next payload the tunnel has no MTU of its own, and the path's is used.
pub fn inner_mtu(sa: &SaConfig, path_mtu: usize) -> usize {
    match sa.aggfrag {
        Some(aggfrag) if aggfrag.fragments => return path_mtu,
        Some(_) => return aggfrag::payload_capacity(sa, path_mtu),
        None => {}
    }
    let ip_len = match sa.id.destination {
        IpAddr::V4(_) => v4::MIN_HEADER_LEN,
        IpAddr::V6(_) => v6::HEADER_LEN,
    };
    payload_mtu(sa, path_mtu.saturating_sub(ip_len))
}

/// The most bytes that `sa` carries in `room` bytes behind an IP header: ESP's plaintext, or what stands behind AH.
pub fn payload_mtu(sa: &SaConfig, room: usize) -> usize {
    match sa.id.protocol {
        Protocol::Esp => esp::max_plaintext_len(sa, room.saturating_sub(sa.encapsulation_len())),
        Protocol::Ah => room.saturating_sub(ah::header_len(sa)),
        // RFC 3173 2.2: what does not become shorter has no header.
        Protocol::IpComp => room,
    }
}

/// The largest packet that a bundle carries over a path of `path_mtu`. `layers` go from the outermost inwards; each
/// has the number of header bytes that stay outside, `None` in tunnel mode.
pub fn bundle_mtu<'a>(
    layers: impl Iterator<Item = (&'a SaConfig, Option<usize>)>,
    path_mtu: usize,
) -> usize {
    layers.fold(path_mtu, |room, (sa, outside)| match outside {
        None => inner_mtu(sa, room),
        Some(outside) => outside + payload_mtu(sa, room.saturating_sub(outside)),
    })
}

/// What to do with a packet on its way into a tunnel.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fit {
    /// It fits.
    Fits,
    /// Cut it to the inner MTU with a [`Cutter`](crate::fragment::Cutter), then protect each fragment.
    FragmentInner,
    /// Drop it and send its sender this MTU by [`packet_too_big`].
    TooBig(usize),
    /// Protect it and let the outer packet be fragmented: it is not larger than what its sender may expect to pass.
    FragmentOuter,
}

/// How a packet fits the MTU inside the tunnel (RFC 4301 8.2.1, RFC 2473 7).
pub fn fit(packet: &Outline, inner_mtu: usize) -> Fit {
    let granted = match packet.source {
        IpAddr::V4(_) => MIN_MTU_V4,
        IpAddr::V6(_) => MIN_MTU_V6,
    };
    if packet.total_len <= inner_mtu {
        Fit::Fits
    } else if packet.total_len <= granted {
        Fit::FragmentOuter
    } else if packet.dont_fragment {
        Fit::TooBig(inner_mtu.max(granted))
    } else if inner_mtu >= granted {
        Fit::FragmentInner
    } else {
        Fit::FragmentOuter
    }
}

#[cfg(test)]
mod tests;
