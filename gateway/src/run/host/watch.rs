//! What of ours the host has lost, and how it comes back: barriers first, then devices, then what leads to them.

use super::Host;
use crate::routes::plan::Family;
use crate::run::interface;
use std::io;

impl Host {
    /// What is gone or changed by now, in plain words.
    pub(crate) fn missing(&mut self) -> io::Result<Vec<String>> {
        let mut words = self.installed.missing()?;
        let netlink = self.installed.netlink();
        words.extend(self.plaintext.missing(netlink)?);
        words.extend(self.devices.missing(netlink)?);
        if self.lacks_ipv6() {
            words.push(format!("IPv6 of {} switched off", self.tun()));
        }
        Ok(words)
    }

    /// Puts it back. What is refused keeps nothing else from coming back; the first refusal is the answer.
    pub(crate) fn restore(&mut self) -> io::Result<()> {
        let barriers = self.installed.restore_barriers();
        let (tunnels, netlink) = (self.devices.tunnels(), self.installed.netlink());
        let device = self.plaintext.restore(tunnels, netlink, &self.warn);
        let devices = self.devices.restore(self.installed.netlink());
        let ipv6 = if self.lacks_ipv6() {
            interface::allow_ipv6(self.tun())
        } else {
            Ok(())
        };
        let steering = self.installed.restore();
        barriers.and(device).and(devices).and(ipv6).and(steering)
    }

    fn lacks_ipv6(&self) -> bool {
        self.installed.steers(Family::V6) && interface::lacks_ipv6(self.tun())
    }
}
