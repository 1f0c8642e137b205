//! Packet rings for native ESP, and the rules by which what they receive bypasses the kernel's IP layer.

use super::super::native;
use super::Host;
use ipsec::database::Snapshot;
use std::io;

impl Host {
    /// Opens packet rings for native ESP. Where possible, rules keep the kernel's IP layer from processing the packets
    /// that they receive; not while the gateway moves, when the kernel's IPsec opens some of them.
    pub(super) fn put_rings(&mut self, snapshot: &Snapshot) -> io::Result<()> {
        let mark = self.installed.site().outside_mark();
        let netlink = &mut self.outside.netlink;
        let wanted = native::wanted_rings(snapshot, &self.local, netlink, mark);
        let Some(rings) = self.sockets.put_rings(wanted)? else {
            return Ok(());
        };
        if self.crossing.is_some() {
            return Ok(());
        }
        if let Err(why) = self.installed.install_ring_bypass(&rings) {
            (self.warn)(&format!(
                "native ESP is also processed by the kernel's IP layer, which is slower: {why}"
            ));
        }
        Ok(())
    }
}
