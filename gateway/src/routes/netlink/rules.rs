//! Routing rules of the gateway's block of preferences in the kernel.

use super::super::PREFERENCES_PER_SITE;
use super::super::plan::Family;
use super::super::steering::{OWNER, RoutingRule, RuleAction};
use super::{FAMILIES, Netlink, absent_is_empty, any, family};
use ipsec::policy::Prefix;
use netlink_packet_core::{NLM_F_ACK, NLM_F_CREATE, NLM_F_DUMP, NLM_F_EXCL};
use netlink_packet_route::route::RouteProtocol;
use netlink_packet_route::rule::{
    RuleAction as KernelAction, RuleAttribute, RuleMessage, RulePortRange,
};
use netlink_packet_route::{AddressFamily, RouteNetlinkMessage};
use std::io;

/// FIB_RULE_FIND_SADDR: an IPv6 rule with a source prefix also matches a lookup without a source, if the address that
/// the kernel would choose lies in the prefix.
const FIND_SOURCE: u32 = 0x0001_0000;

impl Netlink {
    /// The gateway's rules in the block of preferences that begins at `first`.
    pub(crate) fn rules(&mut self, first: u32) -> io::Result<Vec<RoutingRule>> {
        let mut rules = Vec::new();
        for family in FAMILIES {
            let mut message = RuleMessage::default();
            message.header.family = family;
            let answers = self.ask(RouteNetlinkMessage::GetRule(message), NLM_F_DUMP);
            for answer in absent_is_empty(answers)? {
                if let RouteNetlinkMessage::NewRule(message) = answer {
                    rules.extend(read_rule(&message));
                }
            }
        }
        let block = first..first + PREFERENCES_PER_SITE;
        rules.retain(|rule| block.contains(&rule.preference));
        Ok(rules)
    }

    /// Adds a rule.
    pub(crate) fn add_rule(&mut self, rule: &RoutingRule) -> io::Result<()> {
        let message = RouteNetlinkMessage::NewRule(write_rule(rule));
        self.ask(message, NLM_F_ACK | NLM_F_CREATE | NLM_F_EXCL)
            .map(drop)
    }

    /// Deletes a rule.
    pub(crate) fn delete_rule(&mut self, rule: &RoutingRule) -> io::Result<()> {
        let message = RouteNetlinkMessage::DelRule(write_rule(rule));
        self.ask(message, NLM_F_ACK).map(drop)
    }
}

pub(super) fn write_rule(rule: &RoutingRule) -> RuleMessage {
    let mut message = RuleMessage::default();
    message.header.family = family(any(rule.family));
    let attributes = &mut message.attributes;
    attributes.push(RuleAttribute::Priority(rule.preference));
    attributes.push(RuleAttribute::Protocol(RouteProtocol::Other(OWNER)));
    message.header.action = match rule.action {
        RuleAction::Lookup(table) => {
            attributes.push(RuleAttribute::Table(table));
            KernelAction::ToTable
        }
        RuleAction::Goto(preference) => {
            attributes.push(RuleAttribute::Goto(preference));
            KernelAction::Goto
        }
        RuleAction::Drop => KernelAction::Blackhole,
        RuleAction::Nothing => KernelAction::Nop,
    };
    if let Some(prefix) = rule.source.filter(|prefix| prefix.len > 0) {
        message.header.src_len = prefix.len;
        attributes.push(RuleAttribute::Source(prefix.address));
        if rule.family == Family::V6 {
            message.header.flags =
                netlink_packet_route::rule::RuleFlags::from_bits_retain(FIND_SOURCE);
        }
    }
    if let Some(prefix) = rule.destination.filter(|prefix| prefix.len > 0) {
        message.header.dst_len = prefix.len;
        attributes.push(RuleAttribute::Destination(prefix.address));
    }
    if let Some(protocol) = rule.protocol {
        attributes.push(RuleAttribute::IpProtocol(protocol.into()));
    }
    let only = |port| RulePortRange {
        start: port,
        end: port,
    };
    attributes.extend(
        rule.source_port
            .map(only)
            .map(RuleAttribute::SourcePortRange),
    );
    attributes.extend(
        rule.destination_port
            .map(only)
            .map(RuleAttribute::DestinationPortRange),
    );
    if let Some(mark) = rule.mark {
        attributes.push(RuleAttribute::FwMark(mark));
        attributes.push(RuleAttribute::FwMask(mark));
    }
    message
}

/// Parses a rule; none if its protocol is not the gateway's.
pub(super) fn read_rule(message: &RuleMessage) -> Option<RoutingRule> {
    let ours = RuleAttribute::Protocol(RouteProtocol::Other(OWNER));
    if !message.attributes.contains(&ours) {
        return None;
    }
    let family = match message.header.family {
        AddressFamily::Inet => Family::V4,
        _ => Family::V6,
    };
    let whole = Prefix {
        address: any(family),
        len: 0,
    };
    let (mut table, mut goto) = (u32::from(message.header.table), 0);
    let mut rule = RoutingRule {
        source: Some(whole),
        destination: Some(whole),
        ..RoutingRule::of_all(family, 0, RuleAction::Nothing)
    };
    for attribute in &message.attributes {
        match attribute {
            RuleAttribute::Priority(value) => rule.preference = *value,
            RuleAttribute::Table(value) => table = *value,
            RuleAttribute::Goto(value) => goto = *value,
            RuleAttribute::Source(address) => {
                rule.source = Some(Prefix {
                    address: *address,
                    len: message.header.src_len,
                });
            }
            RuleAttribute::Destination(address) => {
                rule.destination = Some(Prefix {
                    address: *address,
                    len: message.header.dst_len,
                });
            }
            RuleAttribute::IpProtocol(protocol) => rule.protocol = Some((*protocol).into()),
            RuleAttribute::SourcePortRange(range) => rule.source_port = Some(range.start),
            RuleAttribute::DestinationPortRange(range) => rule.destination_port = Some(range.start),
            RuleAttribute::FwMark(mark) => rule.mark = Some(*mark),
            _ => {}
        }
    }
    rule.action = match message.header.action {
        KernelAction::ToTable => RuleAction::Lookup(table),
        KernelAction::Goto => RuleAction::Goto(goto),
        KernelAction::Blackhole => RuleAction::Drop,
        _ => RuleAction::Nothing,
    };
    // Rules by mark, and the target of `goto` at the end of the block, have no prefixes.
    if rule.mark.is_some() || rule.action == RuleAction::Nothing {
        rule.source = None;
        rule.destination = None;
    }
    Some(rule)
}
