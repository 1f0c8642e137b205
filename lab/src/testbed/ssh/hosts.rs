//! The machines of a testbed, as a spec names them.

use std::net::Ipv4Addr;
use std::path::PathBuf;

use crate::fault::Fault;
use crate::testbed::{Addresses, LAN, Layout, WAN};

/// Programs that are brought along, each under its own name: the lab's first.
pub(crate) type Uploads = Vec<(&'static str, PathBuf)>;

/// The machines of a testbed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hosts {
    /// Where the load starts; `None`: on the left gateway.
    pub client: Option<HostSpec>,
    /// The client's gateway.
    pub left: HostSpec,
    /// The server's gateway.
    pub right: HostSpec,
    /// Where the load ends; `None`: on the right gateway.
    pub server: Option<HostSpec>,
}

/// One machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HostSpec {
    /// `ssh://user@host:port`, or a host of the user's ssh configuration in that form.
    pub at: String,
    /// Its end of the wire between the gateways, where it is one.
    pub wan: Option<LinkSpec>,
    /// Its end of the link between an end host and its gateway, where there is one.
    pub lan: Option<LinkSpec>,
}

/// A device of a machine, and its address there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LinkSpec {
    /// As the machine calls it.
    pub device: String,
    /// Added for the run where the device does not have it.
    pub address: Ipv4Addr,
    /// Of the network on this link.
    pub prefix: u8,
}

impl Hosts {
    /// Every address of the testbed: packets among them are its own.
    pub(super) fn addresses(&self) -> Vec<Ipv4Addr> {
        let places = [
            Some(&self.left),
            Some(&self.right),
            self.client.as_ref(),
            self.server.as_ref(),
        ];
        let links = places
            .into_iter()
            .flatten()
            .flat_map(|place| [&place.wan, &place.lan]);
        links.flatten().map(|link| link.address).collect()
    }

    /// Who has which address.
    pub(super) fn map(&self, layout: Layout) -> Result<Addresses, Fault> {
        let (left, right) = (self.left.link(WAN)?.address, self.right.link(WAN)?.address);
        if layout == Layout::Pair {
            return Ok(Addresses::of_two(left.into(), right.into()));
        }
        let lan =
            |place: &Option<HostSpec>| place.as_ref().ok_or_else(missing_host)?.link(LAN).cloned();
        let (client, server) = (lan(&self.client)?, lan(&self.server)?);
        Ok(Addresses {
            client: client.address.into(),
            server: server.address.into(),
            left_network: client.network(),
            right_network: server.network(),
            left: left.into(),
            right: right.into(),
        })
    }
}

impl HostSpec {
    pub(super) fn link(&self, name: &str) -> Result<&LinkSpec, Fault> {
        let link = if name == WAN { &self.wan } else { &self.lan };
        link.as_ref()
            .ok_or_else(|| Fault::failed(format!("{} has no device `{name}` in the spec", self.at)))
    }
}

impl LinkSpec {
    /// The network on it, as `10.1.0.0/24`.
    fn network(&self) -> String {
        let mask = u32::MAX
            .checked_shl(32 - u32::from(self.prefix))
            .unwrap_or(0);
        format!(
            "{}/{}",
            Ipv4Addr::from(u32::from(self.address) & mask),
            self.prefix
        )
    }
}

pub(super) fn missing_host() -> Fault {
    Fault::failed("four hosts are needed: client, left, right and server")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_network_of_a_link_follows_from_its_address() {
        let link = |prefix| LinkSpec {
            device: "eth1".into(),
            address: Ipv4Addr::new(10, 1, 2, 3),
            prefix,
        };
        let networks = [0, 8, 23, 32].map(|prefix| link(prefix).network());
        assert_eq!(
            networks,
            ["0.0.0.0/0", "10.0.0.0/8", "10.1.2.0/23", "10.1.2.3/32"]
        );
    }
}
