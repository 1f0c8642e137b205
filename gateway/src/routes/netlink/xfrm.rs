//! Policies of the kernel's own IPsec that need no SA: `block`, and `allow` as an exception. `ip xfrm policy` shows
//! them.

use super::raw::{self, RawAnswer};
use crate::netlink_socket::NetlinkSocket;
use crate::netlink_socket::attributes::Attributes;
use crate::routes::plan::Family;
use ipsec::policy::Prefix;
use netlink_packet_core::{NLM_F_ACK, NLM_F_DUMP};
use netlink_sys::protocols::NETLINK_XFRM;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

const XFRM_MSG_NEWPOLICY: u16 = 0x13;
const XFRM_MSG_DELPOLICY: u16 = 0x14;
const XFRM_MSG_GETPOLICY: u16 = 0x15;
const XFRM_MSG_UPDPOLICY: u16 = 0x19;

/// XFRMA_POLICY_TYPE with `struct xfrm_userpolicy_type`, and XFRMA_MARK with value and mask.
const POLICY_TYPE: u16 = 16;
const MARK: u16 = 21;
const POLICY_TYPE_LEN: usize = 6;

/// Bytes of `struct xfrm_userpolicy_info`, and of `struct xfrm_userpolicy_id`.
const INFO_LEN: usize = 168;
const ID_LEN: usize = 64;

/// Offsets in the first of these structures.
const LIMITS: std::ops::Range<usize> = 56..88;
const PRIORITY: usize = 152;
const INDEX_IN_INFO: usize = 156;
const DIRECTION: usize = 160;
const ACTION: usize = 161;

/// Offsets in the second one.
const INDEX_IN_ID: usize = 56;
const DIRECTION_IN_ID: usize = 60;

/// XFRM_POLICY_ALLOW and XFRM_POLICY_BLOCK.
const ALLOW: u8 = 0;
const BLOCK: u8 = 1;

/// The direction of a policy, as XFRM numbers it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(crate) enum Direction {
    /// Packets delivered to this host.
    In = 0,
    /// Packets that leave, sent by this host or forwarded.
    Out = 1,
    /// Packets that are forwarded.
    Fwd = 2,
}

/// The list that a policy belongs to: XFRM_POLICY_TYPE_MAIN, or XFRM_POLICY_TYPE_SUB, which is looked up first and
/// which
/// `ip xfrm policy flush` does not flush.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) enum List {
    /// The list that other programs use.
    Main = 0,
    /// The list looked up before it.
    Sub = 1,
}

/// The packets that a policy matches.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Match {
    /// Source addresses, of the same family as the destination.
    pub source: Prefix,
    /// Destination addresses.
    pub destination: Prefix,
    /// IP protocol; 0 for any.
    pub protocol: u8,
    /// Source port, or type of ICMP.
    pub source_port: Option<u16>,
    /// Destination port, or code of ICMP.
    pub destination_port: Option<u16>,
    /// Index of the device by which packets leave; 0 for any.
    pub device: u32,
    /// Bits that the packets' mark must have.
    pub mark: u32,
}

/// One policy.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Policy {
    /// Which packets it matches.
    pub fits: Match,
    /// In which direction.
    pub direction: Direction,
    /// Whether matching packets are dropped; otherwise no further policy of this list is looked up.
    pub blocks: bool,
    /// Policies with smaller values are looked up first.
    pub priority: u32,
    /// The kernel's index, whose last three bits are the direction.
    pub index: u32,
}

/// A connection to the kernel's XFRM.
pub(crate) struct Xfrm {
    socket: NetlinkSocket,
    list: List,
}

impl Xfrm {
    /// Opens a connection; fails if the kernel has no XFRM or does not permit changing it.
    pub(crate) fn open() -> io::Result<Self> {
        let mut xfrm = Self {
            socket: NetlinkSocket::open(NETLINK_XFRM)?,
            list: List::Sub,
        };
        // A kernel that supports the list answers that it has no such policy (ENOENT).
        match xfrm.delete(Direction::In, !7, 0) {
            Err(error) if error.raw_os_error() == Some(libc::EINVAL) => xfrm.list = List::Main,
            Err(error) if error.raw_os_error() != Some(libc::ENOENT) => return Err(error),
            _ => {}
        }
        Ok(xfrm)
    }

    /// Uses the main list, as on a kernel that has no other.
    #[cfg(test)]
    pub fn into_main_list(mut self) -> Self {
        self.list = List::Main;
        self
    }

    /// All policies of both families and lists that [`Policy`] can represent.
    pub(crate) fn policies(&mut self) -> io::Result<Vec<Policy>> {
        let answers = raw::ask(
            &mut self.socket,
            XFRM_MSG_GETPOLICY,
            NLM_F_DUMP,
            &[0; ID_LEN],
        )?;
        let there = answers
            .iter()
            .filter(|answer| answer.kind == XFRM_MSG_NEWPOLICY);
        Ok(there.filter_map(read).collect())
    }

    /// Atomically replaces the policy with the same selector and direction, or adds it.
    pub(crate) fn put(&mut self, policy: &Policy) -> io::Result<()> {
        let body = [&info(policy)[..], &self.attributes(policy.fits.mark)].concat();
        raw::ask(&mut self.socket, XFRM_MSG_UPDPOLICY, NLM_F_ACK, &body).map(drop)
    }

    /// Deletes the policy with this index.
    pub(crate) fn delete(&mut self, direction: Direction, index: u32, mark: u32) -> io::Result<()> {
        let mut id = [0; ID_LEN];
        id[INDEX_IN_ID..][..4].copy_from_slice(&index.to_ne_bytes());
        id[DIRECTION_IN_ID] = direction as u8;
        let body = [&id[..], &self.attributes(mark)].concat();
        raw::ask(&mut self.socket, XFRM_MSG_DELPOLICY, NLM_F_ACK, &body).map(drop)
    }

    fn attributes(&self, mark: u32) -> Vec<u8> {
        let mut attributes = Attributes::default();
        let mut list = [0; POLICY_TYPE_LEN];
        list[0] = self.list as u8;
        attributes.put(POLICY_TYPE, &list);
        if mark != 0 {
            attributes.put(MARK, &[mark.to_ne_bytes(), mark.to_ne_bytes()].concat());
        }
        attributes.into_bytes()
    }
}

impl Direction {
    fn of(number: u8) -> Option<Self> {
        [Self::In, Self::Out, Self::Fwd]
            .into_iter()
            .find(|direction| *direction as u8 == number)
    }
}

impl Match {
    /// Every packet of a family.
    pub(crate) fn all(family: Family) -> Self {
        let address = match family {
            Family::V4 => IpAddr::V4(Ipv4Addr::UNSPECIFIED),
            Family::V6 => IpAddr::V6(Ipv6Addr::UNSPECIFIED),
        };
        let all = Prefix { address, len: 0 };
        Self {
            source: all,
            destination: all,
            protocol: 0,
            source_port: None,
            destination_port: None,
            device: 0,
            mark: 0,
        }
    }
}

/// Whether a notification may be about a policy whose index begins with this byte. The notification of a deletion often
/// has no index.
pub(crate) fn is_about(kind: u16, body: &[u8], owner: u8) -> bool {
    let at = match kind {
        XFRM_MSG_NEWPOLICY | XFRM_MSG_UPDPOLICY => INDEX_IN_INFO,
        XFRM_MSG_DELPOLICY => INDEX_IN_ID,
        _ => return true,
    };
    let index = body.get(at..).and_then(<[u8]>::first_chunk);
    let index = index.map_or(0, |bytes| u32::from_ne_bytes(*bytes));
    index == 0 || index >> 24 == u32::from(owner)
}

/// `struct xfrm_userpolicy_info`.
fn info(policy: &Policy) -> [u8; INFO_LEN] {
    let mut bytes = [0; INFO_LEN];
    let fits = &policy.fits;
    let (port, any) = (u16::MAX.to_be_bytes(), [0; 2]);
    let mut put = |at: usize, value: &[u8]| bytes[at..at + value.len()].copy_from_slice(value);
    put(0, &address(fits.destination.address));
    put(16, &address(fits.source.address));
    for (at, wanted) in [(32, fits.destination_port), (36, fits.source_port)] {
        put(at, &wanted.unwrap_or(0).to_be_bytes());
        put(at + 2, if wanted.is_some() { &port } else { &any });
    }
    let family = match Family::of(fits.source.address) {
        Family::V4 => libc::AF_INET,
        Family::V6 => libc::AF_INET6,
    };
    put(40, &(family as u16).to_ne_bytes());
    put(42, &[fits.destination.len, fits.source.len, fits.protocol]);
    put(48, &fits.device.to_ne_bytes());
    // XFRM_INF: no limit of bytes or packets.
    put(LIMITS.start, &[0xff; LIMITS.end - LIMITS.start]);
    put(PRIORITY, &policy.priority.to_ne_bytes());
    put(INDEX_IN_INFO, &policy.index.to_ne_bytes());
    put(DIRECTION, &[policy.direction as u8]);
    put(ACTION, &[if policy.blocks { BLOCK } else { ALLOW }]);
    bytes
}

fn address(address: IpAddr) -> [u8; 16] {
    match address {
        IpAddr::V4(address) => {
            let mut bytes = [0; 16];
            bytes[..4].copy_from_slice(&address.octets());
            bytes
        }
        IpAddr::V6(address) => address.octets(),
    }
}

fn read(answer: &RawAnswer) -> Option<Policy> {
    let fixed = answer.fixed::<INFO_LEN>();
    let word = |at: usize| Some(u32::from_ne_bytes(*fixed.get(at..)?.first_chunk()?));
    let half = |at: usize| Some(u16::from_be_bytes(*fixed.get(at..)?.first_chunk()?));
    let port = |at: usize| {
        let wanted = half(at)?;
        // A policy with a range of ports is another program's.
        match half(at + 2)? {
            0 => Some(None),
            u16::MAX => Some(Some(wanted)),
            _ => None,
        }
    };
    let family = u16::from_ne_bytes([fixed[40], fixed[41]]);
    let place = |at: usize, len: u8| {
        let bytes: [u8; 16] = *fixed.get(at..)?.first_chunk()?;
        let address = match i32::from(family) {
            libc::AF_INET => IpAddr::from(*bytes.first_chunk::<4>()?),
            libc::AF_INET6 => IpAddr::from(bytes),
            _ => return None,
        };
        Some(Prefix { address, len })
    };
    let mark = answer.find(INFO_LEN, MARK).unwrap_or(&[0; 8]);
    Some(Policy {
        fits: Match {
            destination: place(0, fixed[42])?,
            source: place(16, fixed[43])?,
            protocol: fixed[44],
            source_port: port(36)?,
            destination_port: port(32)?,
            device: word(48)?,
            mark: u32::from_ne_bytes(*mark.first_chunk()?),
        },
        direction: Direction::of(fixed[DIRECTION])?,
        blocks: fixed[ACTION] == BLOCK,
        priority: word(PRIORITY)?,
        index: word(INDEX_IN_INFO)?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::routes::plan::tests::prefix;

    fn policy(fits: Match) -> Policy {
        Policy {
            fits,
            direction: Direction::Fwd,
            blocks: true,
            priority: 100_003,
            index: 0xe500_0012,
        }
    }

    fn message(policy: &Policy, len: usize) -> Vec<u8> {
        info(policy)[..len].to_vec()
    }

    #[test]
    fn the_kernel_returns_what_was_installed_in_both_lists_and_families() {
        let Ok(xfrm) = Xfrm::open() else {
            return;
        };
        let mut lists = vec![xfrm];
        lists.extend(Xfrm::open().map(Xfrm::into_main_list));
        for mut xfrm in lists {
            let wide = policy(Match::all(Family::V6));
            let narrow = policy(Match {
                source: prefix("10.1.0.0/24"),
                destination: prefix("10.2.0.7/32"),
                protocol: 17,
                source_port: Some(0),
                destination_port: Some(53),
                device: 3,
                mark: 0x4000_0000,
            });
            for policy in [wide, narrow] {
                xfrm.put(&policy).unwrap();
                assert_eq!(xfrm.policies().unwrap(), [policy]);
                let moved = Policy {
                    priority: 7,
                    blocks: false,
                    ..policy
                };
                xfrm.put(&moved).unwrap();
                assert_eq!(xfrm.policies().unwrap(), [moved]);
                xfrm.delete(policy.direction, policy.index, policy.fits.mark)
                    .unwrap();
                assert_eq!(xfrm.policies().unwrap(), []);
            }
        }
    }

    #[test]
    fn news_of_others_policies_are_not_ours() {
        let ours = message(&policy(Match::all(Family::V4)), INFO_LEN);
        let others = message(
            &Policy {
                index: 9,
                ..policy(Match::all(Family::V4))
            },
            INFO_LEN,
        );
        assert!(is_about(XFRM_MSG_NEWPOLICY, &ours, 0xe5));
        assert!(!is_about(XFRM_MSG_NEWPOLICY, &others, 0xe5));
        // A truncated message, and a flush.
        assert!(is_about(XFRM_MSG_UPDPOLICY, &others[..20], 0xe5));
        assert!(is_about(0x1d, &[], 0xe5));
    }
}
