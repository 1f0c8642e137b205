//! The ways of native ESP that depend on which sockets there are.

use super::Sockets;
use crate::handover::Need;
use crate::routes::firewall::ring_bypass::Rings;
use crate::routes::netlink::SimpleLink;
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::net::IpAddr;

impl Sockets {
    /// Peers of IKE are expected, whose child SAs may be native ESP.
    pub(in crate::run) fn expect_peers(&mut self) {
        if !self.kernel_opens {
            self.native.probe_early();
        }
    }

    /// Opens and closes packet rings to match the associations, and returns those that are open; `None` without native
    /// ESP.
    pub(in crate::run) fn put_rings(
        &mut self,
        wanted: (BTreeMap<u32, SimpleLink>, BTreeSet<IpAddr>),
    ) -> io::Result<Option<Rings>> {
        let is_native = self
            .bound
            .keys()
            .any(|need| matches!(need, Need::Esp { .. }));
        if !is_native {
            return Ok(None);
        }
        self.native.put_rings(wanted, &self.sources).map(Some)
    }
}
