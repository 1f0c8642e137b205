//! What becomes of a datagram on its way.

use crate::random::SeededRandom;
use std::{net::SocketAddr, time::Duration};

/// A datagram.
#[derive(Clone, Debug)]
pub struct Packet {
    pub from: SocketAddr,
    pub to: SocketAddr,
    pub bytes: Vec<u8>,
}

/// How good a path is.
#[derive(Clone, Copy, Debug)]
pub struct Path {
    pub loss_per_mille: u32,
    pub duplicates_per_mille: u32,
    /// Each datagram takes between these two, so later ones may arrive first.
    pub delay: (Duration, Duration),
}

impl Path {
    /// Nothing is lost, and the order is kept.
    pub const GOOD: Self = Self {
        loss_per_mille: 0,
        duplicates_per_mille: 0,
        delay: (Duration::from_millis(10), Duration::from_millis(10)),
    };

    /// When copies of a datagram that is sent at `now` arrive.
    pub fn arrivals(&self, now: Duration, random: &mut SeededRandom) -> Vec<Duration> {
        let copies = 1 + usize::from(random.chance(self.duplicates_per_mille));
        let mut arrivals = Vec::new();
        for _ in 0..copies {
            let spread = self.delay.1.saturating_sub(self.delay.0).as_micros() as u64;
            let delay = self.delay.0 + Duration::from_micros(random.below(spread + 1));
            if !random.chance(self.loss_per_mille) {
                arrivals.push(now + delay);
            }
        }
        arrivals
    }
}

/// A NAT in front of the first host, which has other ports from time to time.
#[derive(Clone, Copy, Debug)]
pub struct Nat {
    pub inside: std::net::IpAddr,
    pub outside: std::net::IpAddr,
    /// Added to the ports inside.
    pub shift: u16,
}

impl Nat {
    pub fn outward(&self, packet: &mut Packet) {
        if packet.from.ip() == self.inside {
            let port = packet.from.port().wrapping_add(self.shift);
            packet.from = SocketAddr::new(self.outside, port);
        }
    }

    pub fn inward(&self, packet: &mut Packet) {
        if packet.to.ip() == self.outside {
            let port = packet.to.port().wrapping_sub(self.shift);
            packet.to = SocketAddr::new(self.inside, port);
        }
    }
}
