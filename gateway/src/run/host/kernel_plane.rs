//! The kernel's SAD and SPD, and its counters, for a gateway whose packets the kernel's own IPsec seals and opens.

use crate::failure::Failure;
use crate::plane::{Carried, KernelDatabases, Statistics};
use crate::routes::Site;
use dataplane::Totals;
use dataplane::counters::PacketCounts;
use std::time::Instant;

/// The kernel's SAD and SPD, and its counters.
pub(super) struct KernelPlane {
    /// What the kernel has of this gateway's.
    pub(super) databases: KernelDatabases,
    /// Absent where the kernel does not count drops.
    statistics: Option<Statistics>,
    /// When its counters were read last.
    pub(super) read_at: Option<Instant>,
}

impl KernelPlane {
    /// Connects to the kernel; changes nothing yet.
    pub(super) fn open(site: &Site) -> Result<Self, Failure> {
        Ok(Self {
            databases: KernelDatabases::open(site)?,
            statistics: Statistics::open().ok(),
            read_at: None,
        })
    }

    /// Drops of packets without an association count from now on.
    pub(super) fn count_drops_from_now(&mut self) {
        self.statistics = Statistics::open().ok();
    }

    /// Packets that the kernel has carried since the count was `before`. Drops are left out: while both planes run, a
    /// packet of the other plane is not a drop.
    pub(super) fn carried_since(&self, before: Carried) -> Totals {
        let Carried { ways } = self.databases.carried();
        let [outbound, inbound] = [0, 1].map(|way: usize| {
            let packets = ways[way].0.saturating_sub(before.ways[way].0);
            PacketCounts {
                arrived: packets,
                packets,
                bytes: ways[way].1.saturating_sub(before.ways[way].1),
                ..PacketCounts::default()
            }
        });
        Totals { outbound, inbound }
    }

    pub(super) fn totals(&self) -> Totals {
        let Carried { ways } = self.databases.carried();
        let drops = self.statistics.as_ref().map(Statistics::drops);
        let drops = drops.unwrap_or([PacketCounts::default().drops; 2]);
        let [outbound, inbound] = [0, 1].map(|way: usize| PacketCounts {
            arrived: ways[way].0 + drops[way].iter().sum::<u64>(),
            packets: ways[way].0,
            bytes: ways[way].1,
            drops: drops[way],
            ..PacketCounts::default()
        });
        Totals { outbound, inbound }
    }
}
