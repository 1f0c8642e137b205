//! A policy in XFRM's form: written to the kernel, and read from it.

use super::association::read_address;
use super::extensions::MODE_IPTFS;
use crate::plane::Unsupported;
use crate::plane::interface_id::{interface_id, of_device};
use ipsec::command::PolicyReport;
use ipsec::policy::{Action, Direction, Level, Policy, Prefix, Selector, Template, Upper};
use ipsec::sa::{Mode, Protocol, Reqid};
use netlink_packet_xfrm::policy::{DelGetMessage, FlushMessage, ModifyMessage};
use netlink_packet_xfrm::{
    AF_INET, AF_INET6, Address, IPPROTO_AH, IPPROTO_COMP, IPPROTO_ESP, IPPROTO_ICMP,
    IPPROTO_ICMPV6, Selector as KernelSelector, UserPolicyInfo, UserTemplate, XFRM_MODE_TRANSPORT,
    XFRM_MODE_TUNNEL, XFRM_POLICY_ALLOW, XFRM_POLICY_BLOCK, XFRM_POLICY_FWD, XFRM_POLICY_IN,
    XFRM_POLICY_OUT, XfrmAttrs, XfrmMessage,
};
use std::net::IpAddr;
use std::sync::Arc;

/// The kernel's value of priority 0; in the kernel smaller values take precedence.
const DEFAULT_PRIORITY: i64 = 0x8000_0000;
/// XFRM_MAX_DEPTH.
const MAX_TEMPLATES: usize = 6;
/// Request IDs above this are chosen by the gateway; setkey shows them as `unique#N`.
pub(super) const MAX_MANUAL_REQID: u32 = 0x3fff;

/// The message that adds this policy.
pub(super) fn emit(policy: &Policy) -> ModifyMessage {
    let info = UserPolicyInfo {
        selector: selector(&policy.selector),
        priority: kernel_priority(policy.priority).unwrap_or(0),
        direction: direction_number(policy.direction),
        action: match policy.action {
            Action::Discard => XFRM_POLICY_BLOCK,
            Action::Bypass | Action::Entrust | Action::Protect(_) => XFRM_POLICY_ALLOW,
        },
        ..UserPolicyInfo::default()
    };
    let mut attributes = Vec::new();
    if let Action::Protect(templates) = &policy.action {
        // What a tunnel has wrapped is of the family of its ends.
        let mut family = info.selector.family;
        let templates = templates.iter().map(|each| {
            let written = template(each, family);
            family = written.family;
            written
        });
        attributes.push(XfrmAttrs::Template(templates.collect()));
    }
    attributes.extend(of_device(policy.device.as_deref()));
    ModifyMessage {
        user_policy_info: info,
        nlas: attributes,
    }
}

/// The message that adds a gateway's policy. Packets that their sender did not compress arrive without IPComp (RFC 3173
/// 2.2), which the kernel accepts only where the template is optional.
pub(super) fn emit_enforced(policy: &Policy) -> ModifyMessage {
    let mut message = emit(policy);
    if policy.direction == Direction::Out {
        return message;
    }
    for attribute in &mut message.nlas {
        if let XfrmAttrs::Template(templates) = attribute {
            let compressed = templates
                .iter_mut()
                .filter(|each| each.id.proto == IPPROTO_COMP);
            compressed.for_each(|each| each.optional(true));
        }
    }
    message
}

fn kernel_priority(priority: i64) -> Option<u32> {
    u32::try_from(DEFAULT_PRIORITY.checked_sub(priority)?).ok()
}

fn direction_number(direction: Direction) -> u8 {
    match direction {
        Direction::In => XFRM_POLICY_IN,
        Direction::Out => XFRM_POLICY_OUT,
        Direction::Fwd => XFRM_POLICY_FWD,
    }
}

fn selector(selector: &Selector) -> KernelSelector {
    let Selector {
        source,
        destination,
        upper,
    } = selector;
    let mut out = KernelSelector {
        saddr: Address::from_ip(&source.address),
        daddr: Address::from_ip(&destination.address),
        prefixlen_s: source.len,
        prefixlen_d: destination.len,
        family: family(source.address),
        ..KernelSelector::default()
    };
    let (proto, near, far) = match *upper {
        Upper::Any => (0, None, None),
        Upper::Protocol {
            number,
            source_port,
            destination_port,
        } => (number, source_port, destination_port),
        Upper::Ports {
            source_port,
            destination_port,
        } => (0, source_port, destination_port),
        // The kernel keeps type and code where ports would be.
        Upper::Icmp { number, kind, code } => (number, kind.map(u16::from), code.map(u16::from)),
    };
    out.proto = proto;
    (out.sport, out.sport_mask) = port(near);
    (out.dport, out.dport_mask) = port(far);
    out
}

fn family(address: IpAddr) -> u16 {
    match address {
        IpAddr::V4(_) => AF_INET,
        IpAddr::V6(_) => AF_INET6,
    }
}

fn port(port: Option<u16>) -> (u16, u16) {
    port.map_or((0, 0), |port| (port, u16::MAX))
}

fn template(template: &Template, family: u16) -> UserTemplate {
    let mut out = UserTemplate::default();
    match &template.endpoints {
        Some((near, far)) => {
            out.source(near);
            out.destination(far);
        }
        None => out.family = family,
    }
    out.protocol(template.protocol.number());
    out.mode(match template.mode {
        Mode::Tunnel => XFRM_MODE_TUNNEL,
        Mode::Transport | Mode::Any => XFRM_MODE_TRANSPORT,
    });
    out.optional(template.level == Level::Use);
    if let Level::Unique(Some(Reqid(reqid))) = template.level {
        out.reqid(reqid);
    }
    out
}

/// The query for one policy, which is also the request to delete it.
pub(super) fn named(traffic: &Selector, direction: Direction) -> DelGetMessage {
    let mut message = DelGetMessage::default();
    message.user_policy_id.selector = selector(traffic);
    message.user_policy_id.direction = direction_number(direction);
    message
}

/// What names a policy in the kernel: its selector, its direction, and the ID of its XFRM interface, 0 for none.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) struct PolicyName {
    pub selector: Selector,
    pub direction: Direction,
    pub interface_id: u32,
}

impl PolicyName {
    /// That of a gateway's policy.
    pub(super) fn of(policy: &Policy) -> Self {
        Self {
            selector: policy.selector,
            direction: policy.direction,
            interface_id: policy.device.as_deref().map_or(0, interface_id),
        }
    }

    /// That of a policy which the kernel has, if setkey syntax can express it.
    pub(super) fn read(message: &ModifyMessage) -> Option<Self> {
        let policy = parse(message)?.policy;
        let id = message.nlas.iter().find_map(|attribute| match attribute {
            XfrmAttrs::IfId(id) => Some(*id),
            _ => None,
        });
        Some(Self {
            interface_id: id.unwrap_or(0),
            ..Self::of(&policy)
        })
    }

    /// The query for it, which is also the request to delete it.
    pub(super) fn message(&self) -> DelGetMessage {
        let mut message = named(&self.selector, self.direction);
        if self.interface_id != 0 {
            message.nlas.push(XfrmAttrs::IfId(self.interface_id));
        }
        message
    }
}

pub(super) fn flush() -> XfrmMessage {
    XfrmMessage::FlushPolicy(FlushMessage::default())
}

pub(super) fn everything() -> XfrmMessage {
    XfrmMessage::GetPolicy(DelGetMessage::default())
}

/// Whether the kernel's policy is what `wanted` would add, whatever it has carried and its index is.
pub(super) fn is_the_same(found: &ModifyMessage, wanted: &ModifyMessage) -> bool {
    let bare = |message: &ModifyMessage| {
        let mut info = message.user_policy_info;
        info.lifetime_cur = Default::default();
        info.index = 0;
        info
    };
    let is_said = |attribute: &&XfrmAttrs| !matches!(attribute, XfrmAttrs::PolicyType(_));
    let mut attributes = wanted.nlas.iter().filter(is_said);
    bare(found) == bare(wanted)
        && attributes.all(|attribute| found.nlas.contains(attribute))
        && found.nlas.iter().filter(is_said).count() == wanted.nlas.iter().filter(is_said).count()
}

/// Reads a policy of the kernel; `None` if setkey syntax cannot express it.
pub(super) fn parse(message: &ModifyMessage) -> Option<PolicyReport> {
    let info = &message.user_policy_info;
    let policy = Policy {
        selector: read_selector(&info.selector)?,
        direction: match info.direction {
            XFRM_POLICY_IN => Direction::In,
            XFRM_POLICY_OUT => Direction::Out,
            XFRM_POLICY_FWD => Direction::Fwd,
            _ => return None,
        },
        action: read_action(message)?,
        spread: 1,
        priority: DEFAULT_PRIORITY - i64::from(info.priority),
        is_negotiated: false,
        device: None,
    };
    Some(PolicyReport {
        policy: Arc::new(policy),
        id: info.index,
        created: info.lifetime_cur.add_time,
        last_used: info.lifetime_cur.use_time,
    })
}

fn read_selector(from: &KernelSelector) -> Option<Selector> {
    let prefix = |address, len| Prefix {
        address: read_address(address, from.family),
        len,
    };
    let (near, far) = (
        read_port(from.sport, from.sport_mask)?,
        read_port(from.dport, from.dport_mask)?,
    );
    let small = |port: Option<u16>| port.map(u8::try_from).transpose().ok();
    let upper = match from.proto {
        0 if near.or(far).is_none() => Upper::Any,
        0 => Upper::Ports {
            source_port: near,
            destination_port: far,
        },
        number @ (IPPROTO_ICMP | IPPROTO_ICMPV6) => Upper::Icmp {
            number,
            kind: small(near)?,
            code: small(far)?,
        },
        number => Upper::Protocol {
            number,
            source_port: near,
            destination_port: far,
        },
    };
    Some(Selector {
        source: prefix(&from.saddr, from.prefixlen_s),
        destination: prefix(&from.daddr, from.prefixlen_d),
        upper,
    })
}

/// A port, any port, or nothing where the mask stands for a range.
fn read_port(port: u16, mask: u16) -> Option<Option<u16>> {
    match mask {
        0 => Some(None),
        u16::MAX => Some(Some(port)),
        _ => None,
    }
}

fn read_action(message: &ModifyMessage) -> Option<Action> {
    if message.user_policy_info.action == XFRM_POLICY_BLOCK {
        return Some(Action::Discard);
    }
    let templates = message.nlas.iter().find_map(|attribute| match attribute {
        XfrmAttrs::Template(templates) => Some(templates),
        _ => None,
    });
    match templates {
        None => Some(Action::Bypass),
        Some(templates) => {
            let templates: Option<Vec<_>> = templates.iter().map(read_template).collect();
            templates.map(Action::Protect)
        }
    }
}

fn read_template(from: &UserTemplate) -> Option<Template> {
    let ends = (
        read_address(&from.saddr, from.family),
        read_address(&from.id.daddr, from.family),
    );
    Some(Template {
        protocol: match from.id.proto {
            IPPROTO_ESP => Protocol::Esp,
            IPPROTO_AH => Protocol::Ah,
            IPPROTO_COMP => Protocol::IpComp,
            _ => return None,
        },
        mode: match from.mode {
            XFRM_MODE_TRANSPORT => Mode::Transport,
            // A policy in setkey syntax does not say how its tunnel's associations share outer packets.
            XFRM_MODE_TUNNEL | MODE_IPTFS => Mode::Tunnel,
            _ => return None,
        },
        endpoints: (!ends.0.is_unspecified() || !ends.1.is_unspecified()).then_some(ends),
        level: match (from.optional, from.reqid) {
            (0, 0) => Level::Require,
            (0, reqid) => Level::Unique(Some(Reqid(reqid))),
            _ => Level::Use,
        },
    })
}

/// Refuses what the kernel does not support, with a sentence.
pub(super) fn check_supported(policy: &Policy) -> Result<(), Unsupported> {
    if kernel_priority(policy.priority).is_none() {
        return Err(Unsupported::new(
            "the kernel does not support this priority; choose one nearer to `def`",
        ));
    }
    let Action::Protect(templates) = &policy.action else {
        return Ok(());
    };
    if policy.spread > 1 {
        return Err(Unsupported::new(
            "the kernel sends all traffic of a policy through one association; remove `-o spread`, or write one \
             policy for each part of the traffic",
        ));
    }
    if templates.len() > MAX_TEMPLATES {
        return Err(Unsupported(format!(
            "the kernel applies at most {MAX_TEMPLATES} transformations to a packet"
        )));
    }
    let may_skip_tunnel = |template: &Template| {
        template.level == Level::Use
            && template.mode == Mode::Tunnel
            && policy.direction == Direction::Out
    };
    if templates.iter().any(may_skip_tunnel) {
        return Err(Unsupported::new(
            "the kernel does not support `use` for an outbound tunnel; write `require`",
        ));
    }
    Ok(())
}
