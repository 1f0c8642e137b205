//! What the kernel has to enforce, and how large packets may be: on each policy's path, and through each device.

use super::super::sockets;
use super::Host;
use crate::handover::Need;
use crate::routes::gateway_peers::protected_among;
use crate::routes::plan::{IKE_PORTS, Plan, Way};
use ipsec::database::{SaIndex, Snapshot};
use ipsec::pmtu;
use ipsec::policy::{Action, Direction, Policy, Prefix, Template};
use ipsec::sa::{Mode, SaConfig};
use std::borrow::Borrow;
use std::collections::hash_map::Entry;
use std::collections::{BTreeSet, HashMap};
use std::io;
use std::net::IpAddr;
use std::sync::Arc;

impl Host {
    /// What the kernel has to enforce for these databases. An error if the kernel does not answer by which route a
    /// peer is reached: taken for "no route" it would make the peer's networks unreachable.
    pub(super) fn plan(&mut self, snapshot: &Snapshot, needs: &BTreeSet<Need>) -> io::Result<Plan> {
        let (planes, by_kernel) = self.planes();
        let mut plan = Plan {
            planes,
            udp_ports: sockets::udp_ports(needs),
            has_direction_devices: planes.by_user() && self.devices.has_direction_devices(),
            senders: self.senders.clone(),
            exchanges_keys: self.exchanges_keys,
            devices: following(snapshot),
            ..Plan::default()
        };
        if self.exchanges_keys {
            plan.udp_ports.extend(IKE_PORTS);
        }
        plan.leaving.reserve(count(snapshot, Direction::Out));
        plan.arriving.reserve(count(snapshot, Direction::In));
        plan.passing.reserve(count(snapshot, Direction::Fwd));
        let (mut known, mut ways) = (HashMap::new(), HashMap::new());
        for (policy, paths) in snapshot.outbound_paths() {
            let paths: Vec<_> = paths.filter(|path| !path.is_empty()).collect();
            if self.is_led_by_kernel(snapshot, &paths, by_kernel) {
                // The kernel knows the size of what fits by itself.
                plan.push(policy, !paths.is_empty(), None);
                let path = paths.first().copied().unwrap_or_default();
                let via = self.way(outer_ends(snapshot, path, policy), policy, &mut ways)?;
                plan.lead_last_by(via);
                continue;
            }
            let mtus = paths
                .iter()
                .filter_map(|path| self.way_mtu(snapshot, path, policy, &mut known));
            let mtu = mtus.min();
            plan.push(policy, !paths.is_empty(), mtu);
        }
        for direction in [Direction::In, Direction::Fwd] {
            // Level `use` accepts unencrypted packets, as in the kernel: the peer may have no association yet.
            for (_, policy) in snapshot.policies(direction) {
                plan.push(policy, false, None);
            }
        }
        plan.outer = snapshot
            .sas()
            .map(|sa| (sa.config.source, sa.config.id.destination))
            .filter(|_| !self.outside.is_elsewhere())
            .collect();
        plan.gateway_peers = protected_among(&plan, &plan.outer);
        Ok(plan)
    }

    /// The largest packet that a policy's associations, applied one after the other, carry without fragments.
    fn way_mtu(
        &mut self,
        snapshot: &Snapshot,
        path: &[SaIndex],
        policy: &Policy,
        known: &mut HashMap<(IpAddr, IpAddr), Option<u32>>,
    ) -> Option<u32> {
        let Action::Protect(templates) = &policy.action else {
            return None;
        };
        let chain: Vec<_> = path
            .iter()
            .map(|index| &snapshot.sa(*index).config)
            .collect();
        let last = chain.last()?;
        let ends = (last.source, last.id.destination);
        let path = *known.entry(ends).or_insert_with(|| self.path_mtu(ends));
        let floor = if policy.selector.destination.address.is_ipv6() {
            1280
        } else {
            576
        };
        Some(inner_mtu(templates, &chain, path?).max(floor))
    }

    /// The way of a policy's outer packets; without one nothing is routed to the kernel's IPsec.
    fn way(
        &mut self,
        ends: (IpAddr, IpAddr),
        policy: &Policy,
        known: &mut HashMap<(IpAddr, IpAddr, Prefix), Option<Way>>,
    ) -> io::Result<Option<Way>> {
        let source = policy.selector.source;
        let mark = self.installed.site().outside_mark();
        let netlink = self.installed.netlink();
        let (local, key) = (&self.local, (ends.0, ends.1, source));
        match known.entry(key) {
            Entry::Occupied(way) => Ok(way.get().clone()),
            Entry::Vacant(place) => {
                let way = netlink.way(ends, mark, local, source).map_err(unanswered)?;
                Ok(place.insert(way).clone())
            }
        }
    }

    /// Opens the devices that associations name, each with the MTU of its path.
    pub(super) fn open_all_devices(&mut self, snapshot: &Snapshot) -> io::Result<()> {
        for interface in snapshot.interfaces() {
            let config = interface
                .outbound_sa
                .map(|index| &snapshot.sa(index).config);
            let mtu = config.and_then(|config| {
                let path = self.path_mtu((config.source, config.id.destination))?;
                Some(pmtu::inner_mtu(config, path as usize) as u32)
            });
            self.devices
                .open(interface, mtu, self.installed.netlink())?;
        }
        Ok(())
    }

    /// The MTU between two outer addresses: by the kernel's routes, and as learnt by the sockets.
    fn path_mtu(&mut self, ends: (IpAddr, IpAddr)) -> Option<u32> {
        let mark = self.installed.site().outside_mark();
        let device = self.outside.device.as_ref().map(|(_, index)| *index);
        let path = self.outside.netlink.path(ends, mark, device).ok()?;
        let learnt = self.paths.mtu(ends.1).unwrap_or(u32::MAX);
        // Where outer packets loop back to this host the device's MTU is above that of any link.
        let route = path.mtu.min(u16::MAX.into());
        self.paths.set_route(ends.1, route);
        Some(route.min(learnt))
    }
}

/// The outer addresses of a policy's packets: those of its association, else of its template. A policy without either,
/// such as that of a peer whose address is not known, has the packets' own.
fn outer_ends(snapshot: &Snapshot, path: &[SaIndex], policy: &Policy) -> (IpAddr, IpAddr) {
    if let Some(last) = path.last() {
        let config = &snapshot.sa(*last).config;
        return (config.source, config.id.destination);
    }
    let templates = match &policy.action {
        Action::Protect(templates) => &**templates,
        _ => &[],
    };
    let named = templates
        .iter()
        .rev()
        .find_map(|template| template.endpoints);
    let selector = &policy.selector;
    named
        .filter(|(_, peer)| !peer.is_unspecified())
        .unwrap_or((selector.source.address, selector.destination.address))
}

fn unanswered(error: io::Error) -> io::Error {
    let told = format!("the kernel does not answer by which route a peer is reached: {error}");
    io::Error::new(error.kind(), told)
}

/// How many policies there are of a direction.
fn count(snapshot: &Snapshot, direction: Direction) -> usize {
    snapshot.policies(direction).count()
}

/// The devices of peers into which policies lead.
fn following(snapshot: &Snapshot) -> BTreeSet<Arc<str>> {
    let devices = snapshot.interfaces().iter();
    let following = devices.filter(|interface| interface.follows_policies);
    following
        .map(|interface| Arc::clone(&interface.name))
        .collect()
}

/// Each association, from the outermost inwards, subtracts its headers and padding.
fn inner_mtu(templates: &[Template], chain: &[impl Borrow<SaConfig>], path: u32) -> u32 {
    let layers = chain.iter().enumerate().rev().map(|(place, config)| {
        let is_transport = templates
            .get(place)
            .is_some_and(|template| template.mode == Mode::Transport);
        let config = config.borrow();
        let ip_header = if config.id.destination.is_ipv6() {
            40
        } else {
            20
        };
        (config, is_transport.then_some(ip_header))
    });
    pmtu::bundle_mtu(layers, path as usize) as u32
}

#[cfg(test)]
mod tests {
    use super::*;
    use ipsec::command::Command;
    use ipsec::setkey::{Forwarding, NoNames, compile};

    fn chain(text: &str) -> (Vec<Template>, Vec<Arc<SaConfig>>) {
        let commands = compile(text.as_bytes(), Forwarding::AsWritten, &mut NoNames)
            .unwrap()
            .commands;
        let (mut templates, mut sas) = (Vec::new(), Vec::new());
        for command in commands {
            match command {
                Command::AddSa(config) => sas.push(config),
                Command::AddPolicy(policy) => {
                    if let Action::Protect(list) = &policy.action {
                        templates.clone_from(list);
                    }
                }
                _ => {}
            }
        }
        (templates, sas)
    }

    #[test]
    fn a_gcm_tunnel_in_udp_leaves_1438_of_1500() {
        let (templates, sas) = chain(
            "add 192.0.2.1 192.0.2.2 esp-udp 0x1001 -m tunnel -r 4 -E aes-gcm-16 0x000102030405060708090a0b0c0d0e0f10111213;
             spdadd 10.1.0.0/24 10.2.0.0/24 any -P out ipsec esp/tunnel/192.0.2.1-192.0.2.2/require;",
        );
        // 1500 − 20 IP − 8 UDP − 8 ESP − 8 IV − 16 ICV = 1440, less two of trailer, in steps of four.
        assert_eq!(inner_mtu(&templates, &sas, 1500), 1438);
    }

    #[test]
    fn transport_keeps_the_ip_header_outside() {
        let (templates, sas) = chain(
            "add 192.0.2.1 192.0.2.2 esp 0x1001 -m transport -r 4 -E aes-gcm-16 0x000102030405060708090a0b0c0d0e0f10111213;
             spdadd 192.0.2.1 192.0.2.2 any -P out ipsec esp/transport//require;",
        );
        assert_eq!(inner_mtu(&templates, &sas, 1500), 1466);
    }
}
