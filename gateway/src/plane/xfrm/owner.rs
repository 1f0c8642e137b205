//! By what a gateway recognises its own associations and policies among all those in the kernel: after it was killed,
//! and beside those of other programs. Nothing of it changes what the kernel does.

use crate::routes::Site;
use ipsec::policy::Direction;
use netlink_packet_xfrm::state::ModifyMessage;
use netlink_packet_xfrm::{XFRM_POLICY_FWD, XFRM_POLICY_IN, XFRM_POLICY_OUT, XfrmAttrs};

/// The first byte of a policy's index. That of the barrier of XFRM policies is one lower.
const INDEX_OWNER: u32 = 0xe6;

/// Bits of an index: the owner, the site, the number, and the direction, which the kernel demands at this place.
const OWNER_SHIFT: u32 = 24;
const SITE_SHIFT: u32 = 19;
const NUMBER_SHIFT: u32 = 3;

/// Policies of one gateway that have an index at the same time.
pub(super) const MAX_POLICIES: u32 = 1 << (SITE_SHIFT - NUMBER_SHIFT);

/// Sites differ in this many values: those of the routing rules' preferences.
const SITES: u32 = 20;

/// One gateway, as its marks in the kernel name it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Owner {
    mark: u32,
    table: u32,
}

impl Owner {
    pub(super) fn of(site: &Site) -> Self {
        Self {
            mark: site.outside_mark(),
            table: site.table(),
        }
    }

    /// The mark that the kernel sets on packets which an association has sealed: they must not be led into the tunnel
    /// again. On packets that it has opened it sets none. The other bits of the value change no packet; they name the
    /// routing table, so that two gateways on one host tell their associations apart.
    pub(super) fn mark(self, is_inbound: bool) -> [XfrmAttrs; 2] {
        let mask = if is_inbound { 0 } else { self.mark };
        [XfrmAttrs::MarkVal(self.value()), XfrmAttrs::MarkMask(mask)]
    }

    /// Whether an association is this gateway's.
    pub(super) fn owns_sa(self, message: &ModifyMessage) -> bool {
        message.nlas.contains(&XfrmAttrs::MarkVal(self.value()))
    }

    fn value(self) -> u32 {
        self.mark | self.table & !self.mark
    }

    /// The index of the policy with this number, which must be below [`MAX_POLICIES`].
    pub(super) fn index(self, number: u32, direction: Direction) -> u32 {
        let direction = match direction {
            Direction::In => XFRM_POLICY_IN,
            Direction::Out => XFRM_POLICY_OUT,
            Direction::Fwd => XFRM_POLICY_FWD,
        };
        self.site_bits() | number << NUMBER_SHIFT | u32::from(direction)
    }

    /// The number in the index of a policy, if it is this gateway's.
    pub(super) fn number(self, index: u32) -> Option<u32> {
        let is_ours = index >> SITE_SHIFT == self.site_bits() >> SITE_SHIFT;
        is_ours.then_some(index >> NUMBER_SHIFT & (MAX_POLICIES - 1))
    }

    fn site_bits(self) -> u32 {
        INDEX_OWNER << OWNER_SHIFT | (self.table % SITES) << SITE_SHIFT
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::routes::DEFAULT_MARK;

    fn owner(name: &str) -> Owner {
        Owner::of(&Site::new(name, None, DEFAULT_MARK).unwrap())
    }

    #[test]
    fn an_index_names_its_gateway_its_number_and_its_direction() {
        let (ours, others) = (owner("esp0"), owner("esp1"));
        for number in [0, 7, MAX_POLICIES - 1] {
            for (direction, bits) in [(Direction::In, 0), (Direction::Out, 1), (Direction::Fwd, 2)]
            {
                let index = ours.index(number, direction);
                assert_eq!(index & 7, bits);
                assert_eq!(ours.number(index), Some(number));
                assert_eq!(others.number(index), None);
            }
        }
        assert_eq!(ours.number(0), None);
    }

    #[test]
    fn associations_of_another_gateway_with_the_same_mark_are_not_ours() {
        for is_inbound in [false, true] {
            let message = ModifyMessage {
                nlas: owner("esp0").mark(is_inbound).to_vec(),
                ..ModifyMessage::default()
            };
            assert!(owner("esp0").owns_sa(&message));
            assert!(!owner("esp1").owns_sa(&message));
        }
        assert!(!owner("esp0").owns_sa(&ModifyMessage::default()));
    }
}
