//! Which sockets the associations need, and the protected ends of the data plane made of them.

use super::Options;
use crate::routes::Site;
use dataplane::io::{
    Family, Paths, ProtectedSink, ProtectedSource, SocketOptions, Waker, Warn, udp,
};
use ipsec::database::Snapshot;
use ipsec::sa::{Protocol, SaConfig};
use std::collections::BTreeSet;
use std::io;
use std::net::IpAddr;
use std::sync::Arc;

/// One socket.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum Need {
    /// ESP in UDP, at a local port.
    Udp {
        /// Over IPv6.
        v6: bool,
        /// The local port.
        port: u16,
    },
    /// ESP by itself.
    Esp {
        /// Over IPv6.
        v6: bool,
    },
}

/// The sockets that the associations of `snapshot` need on a host with these addresses.
pub(super) fn needs(snapshot: &Snapshot, addresses: &[IpAddr]) -> BTreeSet<Need> {
    snapshot
        .sas()
        .filter(|sa| sa.config.id.protocol == Protocol::Esp)
        .flat_map(|sa| of_association(&sa.config, addresses))
        .collect()
}

/// The local UDP ports among them.
pub(super) fn udp_ports(needs: &BTreeSet<Need>) -> BTreeSet<u16> {
    needs
        .iter()
        .filter_map(|need| match need {
            Need::Udp { port, .. } => Some(*port),
            Need::Esp { .. } => None,
        })
        .collect()
}

fn of_association(config: &SaConfig, addresses: &[IpAddr]) -> Vec<Need> {
    let v6 = config.id.destination.is_ipv6();
    let Some(encapsulation) = config.encapsulation else {
        return vec![Need::Esp { v6 }];
    };
    let arrives = addresses.contains(&config.id.destination);
    let leaves = addresses.contains(&config.source);
    // Where neither end is ours yet, an address may still come: either port may then be the local one.
    let ours = [
        (arrives || !leaves, encapsulation.destination_port),
        (leaves || !arrives, encapsulation.source_port),
    ];
    ours.into_iter()
        .filter(|(ours, _)| *ours)
        .map(|(_, port)| Need::Udp { v6, port })
        .collect()
}

/// The sockets of a gateway.
pub(super) struct Sockets {
    options: SocketOptions,
    zero_checksum: bool,
    trains: bool,
    fresh: Option<(udp::UdpSource, udp::UdpSink)>,
    bound: BTreeSet<Need>,
}

impl Sockets {
    /// None yet.
    pub fn new(site: &Site, options: &Options, paths: &Paths, warn: &Warn) -> Self {
        let mut socket = SocketOptions::new(paths.clone(), Arc::clone(warn));
        socket.mark = Some(site.outside_mark());
        Self {
            options: socket,
            zero_checksum: options.zero_checksum,
            trains: !options.no_offloads,
            fresh: None,
            bound: BTreeSet::new(),
        }
    }

    /// Opens what is needed and not there yet.
    pub fn bind(&mut self, needs: &BTreeSet<Need>) -> io::Result<()> {
        for need in needs.difference(&self.bound.clone()) {
            if let Need::Udp { v6, port } = *need {
                let options = udp::UdpOptions {
                    port,
                    zero_checksum: self.zero_checksum,
                    trains: self.trains,
                    socket: self.options.clone(),
                };
                let family = if v6 { Family::V6 } else { Family::V4 };
                self.fresh = Some(udp::open(family, &options).map_err(io::Error::other)?);
                self.bound.insert(*need);
            }
        }
        Ok(())
    }

    /// The two ends for the data plane, and what wakes them.
    pub fn ends(
        &mut self,
    ) -> io::Result<(Box<dyn ProtectedSource>, Box<dyn ProtectedSink>, Vec<Waker>)> {
        let (source, sink) = self.fresh.take().ok_or(io::ErrorKind::NotFound)?;
        let waker = Waker::new()?;
        Ok((
            Box::new(source.woken_by(waker.clone())),
            Box::new(sink),
            vec![waker],
        ))
    }

    /// What is bound, in words.
    pub fn describe(&self) -> Vec<String> {
        self.bound.iter().map(|need| format!("{need:?}")).collect()
    }
}
