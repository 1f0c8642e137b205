//! A naive evaluation of a plan for a packet, entry by entry, from its fields instead of its bytes.

use super::super::task::Target;
use super::super::{FilterHook, LinkKind};
use super::packet::{Fragment, Packet};
use crate::routes::plan::{Disposition, Entry, Plan, Planes};
use ipsec::policy::Upper;
use std::net::IpAddr;

/// Whether the packet is dropped at a device.
pub fn reads_drop(plan: &Plan, target: Target, packet: &Packet) -> bool {
    if target.hook == FilterHook::Ingress
        && !matches!(
            plan.planes,
            Planes::User
                | Planes::Both {
                    kernel_opens: false
                }
        )
    {
        return false;
    }
    let lists = match target.hook {
        FilterHook::Egress => vec![&plan.leaving],
        FilterHook::Ingress => vec![&plan.arriving, &plan.passing],
    };
    let judges = |v6: bool| {
        lists.iter().all(|list| {
            list.iter().any(|entry| {
                entry.selector.source.address.is_ipv6() == v6
                    && entry.verdict != Disposition::Bypass
            })
        })
    };
    if target.link == LinkKind::Ethernet && packet.tags.len() > 2 {
        return judges(false) || judges(true);
    }
    judges(packet.is_v6())
        && lists.iter().all(|list| refuses(list, target, packet))
        && !is_excepted(plan, target, packet)
}

fn refuses(list: &[Entry], target: Target, packet: &Packet) -> bool {
    let first = list.iter().find(|entry| fits(entry, target, packet));
    first.is_some_and(|entry| entry.verdict != Disposition::Bypass)
}

/// What is known of the header above IP.
#[derive(PartialEq)]
enum Upwards {
    Riddle,
    Later,
    Short,
    Known,
}

fn upwards(packet: &Packet) -> Upwards {
    let extensions = if packet.is_v6() {
        packet.extensions.len()
    } else {
        0
    };
    let headers = extensions + usize::from(packet.is_v6() && packet.fragment.is_some());
    let no_next = packet.is_v6() && packet.protocol == 59;
    match packet.fragment {
        _ if extensions > 8 || headers > 8 && packet.fragment.is_some() => Upwards::Riddle,
        Some(Fragment::Later) => Upwards::Later,
        _ if packet.payload < 4 || no_next => Upwards::Short,
        _ => Upwards::Known,
    }
}

fn fits(entry: &Entry, target: Target, packet: &Packet) -> bool {
    let drops = entry.verdict != Disposition::Bypass;
    let selector = &entry.selector;
    if !selector.source.contains(packet.source)
        || !selector.destination.contains(packet.destination)
    {
        return false;
    }
    let protocols: Vec<u8> = match selector.upper {
        Upper::Any => return true,
        Upper::Protocol { number, .. } | Upper::Icmp { number, .. } => vec![number],
        Upper::Ports { .. } => vec![6, 17, 33, 132, 136],
    };
    let known = upwards(packet);
    if known == Upwards::Riddle {
        return drops;
    }
    if !protocols.contains(&packet.protocol) {
        return false;
    }
    match known {
        Upwards::Known => asks_for(selector.upper, packet),
        _ if !entry.asks_ports() || drops => true,
        Upwards::Later => target.hook == FilterHook::Ingress || packet.mark & target.mark != 0,
        _ => false,
    }
}

fn asks_for(upper: Upper, packet: &Packet) -> bool {
    let word = packet.first_word();
    let source = u16::from_be_bytes([word[0], word[1]]);
    let destination = u16::from_be_bytes([word[2], word[3]]);
    match upper {
        Upper::Any => true,
        Upper::Protocol {
            source_port,
            destination_port,
            ..
        }
        | Upper::Ports {
            source_port,
            destination_port,
        } => {
            source_port.is_none_or(|port| port == source)
                && destination_port.is_none_or(|port| port == destination)
        }
        Upper::Icmp { kind, code, .. } => {
            kind.is_none_or(|kind| kind == word[0]) && code.is_none_or(|code| code == word[1])
        }
    }
}

fn is_excepted(plan: &Plan, target: Target, packet: &Packet) -> bool {
    let known = upwards(packet);
    let bare = packet.extensions.is_empty() && packet.fragment.is_none();
    let discovers = packet.is_v6()
        && bare
        && packet.protocol == 58
        && packet.hops == 255
        && known == Upwards::Known
        && (133..=137).contains(&packet.icmp.0);
    let protocol = if known == Upwards::Riddle {
        0
    } else {
        packet.protocol
    };
    let udp_later = protocol == 17 && known == Upwards::Later;
    let ports = (protocol == 17 && known == Upwards::Known).then_some(packet.ports);
    if discovers || ports.is_some_and(|ports| is_lease(packet, ports)) {
        return true;
    }
    let names_a_group = if packet.is_v6() {
        known == Upwards::Known && protocol == 58 && matches!(packet.icmp.0, 130 | 131 | 132 | 143)
    } else {
        protocol == 2
    };
    if names_a_group && packet.hops == 1 && packet.destination.is_multicast() {
        return true;
    }
    let used = |port| plan.udp_ports.contains(&port);
    match target.hook {
        FilterHook::Egress => {
            let may_send = |port| used(port) || matches!(port, 500 | 4500);
            let ours = matches!(protocol, 50 | 51)
                || udp_later
                || ports
                    .is_some_and(|(source, destination)| may_send(source) || may_send(destination));
            let is_switched = target.is_bridged && packet.kind != 0;
            let is_opened = target.delivers && packet.mark & target.mark != 0;
            let is_ike = plan.exchanges_keys
                && ports.is_some_and(|(source, _)| matches!(source, 500 | 4500));
            is_switched
                || is_opened
                || packet.mark & target.mark != 0 && is_ike
                || packet.mark & target.mark != 0
                    && ours
                    && plan.outer.contains(&(packet.source, packet.destination))
        }
        FilterHook::Ingress => {
            let complains = if packet.is_v6() {
                protocol == 58 && packet.icmp.0 == 2 && packet.payload >= 50
            } else {
                protocol == 1 && packet.icmp == (3, 4) && packet.payload >= 30
            };
            let (quoted, port) = packet.quoted;
            let ours = matches!(quoted, 50 | 51) || quoted == 17 && used(port);
            packet.kind == 3
                || matches!(protocol, 50 | 51)
                || udp_later && !plan.udp_ports.is_empty() && is_for_us(plan, packet.destination)
                || ports.is_some_and(|(_, destination)| used(destination))
                || known == Upwards::Known && complains && ours
        }
    }
}

/// Whether a peer's outer packets to this address would be dropped by a policy.
fn is_for_us(plan: &Plan, address: IpAddr) -> bool {
    let drops = |source: IpAddr, entry: &Entry| {
        entry.verdict != Disposition::Bypass
            && entry.selector.source.contains(source)
            && entry.selector.destination.contains(address)
    };
    let mut pairs = plan.outer.iter();
    pairs.any(|(source, destination)| {
        let mut entries = plan.arriving.iter().chain(&plan.passing);
        *destination == address && entries.any(|entry| drops(*source, entry))
    })
}

fn is_lease(packet: &Packet, ports: (u16, u16)) -> bool {
    if packet.is_v6() {
        matches!(ports, (546, 547) | (547, 546)) && packet.source.to_string().starts_with("fe80:")
    } else {
        matches!(ports, (67, 68) | (68, 67))
            && (packet.source.is_unspecified()
                || packet.destination.to_string() == "255.255.255.255")
    }
}
