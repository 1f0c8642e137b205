//! Host and service names as this machine resolves them.

use ipsec::setkey::{LookupError, Names};
use std::net::{IpAddr, ToSocketAddrs};

/// Uses the system's resolver for hosts and `/etc/services` for services.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct SystemNames;

impl Names for SystemNames {
    fn host(&mut self, name: &str) -> Result<Vec<IpAddr>, LookupError> {
        let found = (name, 0).to_socket_addrs()?;
        Ok(found.map(|address| address.ip()).collect())
    }

    fn service(&mut self, name: &str) -> Option<u16> {
        let services = std::fs::read_to_string("/etc/services").ok()?;
        service_in(&services, name)
    }
}

/// The port of the first service with this name or alias.
fn service_in(services: &str, name: &str) -> Option<u16> {
    let lines = services
        .lines()
        .map(|line| line.split('#').next().unwrap_or_default());
    let port = |line: &str| {
        let mut words = line.split_whitespace();
        let (first, port) = (words.next()?, words.next()?);
        let is_named = first == name || words.any(|alias| alias == name);
        is_named
            .then(|| port.split('/').next()?.parse().ok())
            .flatten()
    };
    lines.filter_map(port).next()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_service_is_found_by_name_and_alias_but_not_in_a_comment() {
        let services = "# domain 1/tcp\ndomain\t\t53/tcp\ndomain\t53/udp # dns\nhttp 80/tcp www # WorldWideWeb\nbad\n";
        assert_eq!(service_in(services, "domain"), Some(53));
        assert_eq!(service_in(services, "www"), Some(80));
        assert_eq!(service_in(services, "dns"), None);
        assert_eq!(service_in(services, "bad"), None);
    }

    #[test]
    fn this_host_has_an_address() {
        let found = SystemNames.host("localhost").unwrap();
        assert!(found.iter().all(IpAddr::is_loopback) && !found.is_empty());
    }
}
