//! What other programs have removed from the host, and how it is restored: barriers first, then devices, then the rules
//! and routes to them.

use super::Host;
use crate::routes::plan::Family;
use crate::run::interface;
use std::io;

impl Host {
    /// What is missing or changed, as text.
    pub(crate) fn missing(&mut self) -> io::Result<Vec<String>> {
        let mut words = self.installed.missing()?;
        let netlink = self.installed.netlink();
        words.extend(self.plaintext.missing(netlink)?);
        words.extend(self.devices.missing(netlink)?);
        if let Some(plane) = &mut self.kernel_plane {
            words.extend(plane.databases.missing()?);
        }
        if self.lacks_ipv6() {
            words.push(format!("IPv6 of {} switched off", self.tun()));
        }
        Ok(words)
    }

    /// Restores it. An error does not stop the other steps; the first error is returned.
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
        let kernel = match (&mut self.kernel_plane, self.databases.get()) {
            (Some(plane), Some(databases)) => plane.databases.restore(&databases.load()),
            _ => Ok(()),
        };
        let barriers = barriers.and(kernel);
        barriers.and(device).and(devices).and(ipv6).and(steering)
    }

    fn lacks_ipv6(&self) -> bool {
        !self.is_by_kernel()
            && self.installed.steers(Family::V6)
            && interface::lacks_ipv6(self.tun())
    }
}
