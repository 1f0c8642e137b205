//! What the source and the sinks of one device share.

use super::forwarding::LocalAddresses;
use super::icmp_reports::IcmpReports;
use super::stats::EthernetStats;
use arc_swap::ArcSwap;

/// What source and sinks of one device have in common.
#[derive(Default)]
pub(super) struct Shared {
    pub local_addresses: ArcSwap<LocalAddresses>,
    pub stats: EthernetStats,
    pub icmp_reports: IcmpReports,
}
