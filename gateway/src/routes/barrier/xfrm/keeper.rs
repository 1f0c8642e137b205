//! Installs, compares and deletes the policies of one gateway among those of the host.
//!
//! ```text
//!   index       229 · gateway · number · direction      identifies the gateway
//!   priority      1 000 …   during a change             before those of the old plan
//!               100 000 …   at all other times
//! ```
//!
//! A change takes three steps. It adds the new list before the old one, starting with its first policy; deletes what
//! is left of the old list, starting with its last policy; and moves the new list to its final priorities, starting
//! with its last policy. At each moment a packet is judged either by the new plan or by the old one.

use super::compiler::Rule;
use crate::routes::Site;
use crate::routes::netlink::xfrm::{Direction, Match, Policy, Xfrm};
use crate::routes::steering::OWNER;
use std::collections::{HashMap, HashSet};
use std::io;

/// Priority of the first policy of each direction: before those of other programs.
const PRIORITY: u32 = 100_000;

/// Priority of the first policy during a change.
const CHANGE_PRIORITY: u32 = 1_000;

/// Policies of one direction; limited by the distance of the two priorities and by the bits of the index.
const MAX_POLICIES: usize = 30_000;

const DIRECTIONS: [Direction; 3] = [Direction::In, Direction::Fwd, Direction::Out];

/// The policies that each direction should have, in order.
pub(super) type Wanted = Vec<(Direction, Vec<Rule>)>;

/// The policies of a host.
pub(super) trait Table {
    /// All policies, of whatever program.
    fn policies(&mut self) -> io::Result<Vec<Policy>>;
    /// Replaces the policy with the same selector and direction, or adds it.
    fn put(&mut self, policy: &Policy) -> io::Result<()>;
    /// Deletes one.
    fn delete(&mut self, policy: &Policy) -> io::Result<()>;
}

/// Changes XFRM policies in the kernel.
pub(super) struct Keeper<T> {
    table: T,
    indices: Indices,
}

impl<T: Table> Keeper<T> {
    /// Changes nothing yet.
    pub(super) fn over(table: T, site: &Site) -> Self {
        Self {
            table,
            indices: Indices::of(site),
        }
    }

    /// Makes the kernel have these policies and no others of this gateway.
    pub(super) fn put(&mut self, wanted: &Wanted) -> io::Result<()> {
        if wanted.iter().any(|(_, rules)| rules.len() > MAX_POLICIES) {
            return Err(io::Error::other(format!(
                "the plan needs more than {MAX_POLICIES} policies of one direction"
            )));
        }
        let mut present = self.present()?;
        for (direction, rules) in wanted {
            let present = present.remove(direction).unwrap_or_default();
            self.put_direction(*direction, rules, &present)?;
        }
        Ok(())
    }

    fn put_direction(
        &mut self,
        direction: Direction,
        rules: &[Rule],
        present: &[Policy],
    ) -> io::Result<()> {
        if present.iter().all(|policy| is_in_place(rules, policy)) {
            return self.add_lacking(direction, rules, present);
        }
        let known = indices(present);
        let mut free = self.indices.free(direction, &known);
        for policy in said(direction, rules, CHANGE_PRIORITY) {
            let index = known.get(&policy.fits).copied().or_else(|| free.next());
            let index = index.unwrap_or_default();
            self.table.put(&Policy { index, ..policy })?;
        }
        let wanted: HashSet<Match> = rules.iter().map(|rule| rule.fits).collect();
        for policy in present.iter().rev() {
            if !wanted.contains(&policy.fits) {
                self.delete(policy)?;
            }
        }
        let known = indices(&self.present()?.remove(&direction).unwrap_or_default());
        let moved: Vec<_> = said(direction, rules, PRIORITY).collect();
        for policy in moved.into_iter().rev() {
            let index = known.get(&policy.fits).copied().unwrap_or_default();
            self.table.put(&Policy { index, ..policy })?;
        }
        Ok(())
    }

    /// Adds the missing policies, when those present need no change.
    fn add_lacking(
        &mut self,
        direction: Direction,
        rules: &[Rule],
        present: &[Policy],
    ) -> io::Result<()> {
        let known = indices(present);
        let mut free = self.indices.free(direction, &known);
        for policy in said(direction, rules, PRIORITY) {
            if !known.contains_key(&policy.fits) {
                let index = free.next().unwrap_or_default();
                self.table.put(&Policy { index, ..policy })?;
            }
        }
        Ok(())
    }

    /// Describes how many policies are missing, changed or superfluous.
    pub(super) fn lost(&mut self, wanted: &Wanted) -> io::Result<Option<String>> {
        let present = self.present()?;
        let (mut right, mut wrong, mut all) = (0, 0, 0);
        for (direction, rules) in wanted {
            let present = present.get(direction).map_or(&[][..], Vec::as_slice);
            let in_place = present
                .iter()
                .filter(|policy| is_in_place(rules, policy))
                .count();
            (right, wrong) = (right + in_place, wrong + present.len() - in_place);
            all += rules.len();
        }
        Ok(match (all - right, wrong) {
            (0, 0) => None,
            (lacking, 0) => Some(format!("deleted ({lacking} of {all})")),
            (_, wrong) => Some(format!("changed ({wrong} of {all})")),
        })
    }

    /// Deletes all policies of this gateway, those of lowest precedence first.
    pub(super) fn clear(&mut self) -> io::Result<()> {
        let present = self.present()?;
        for policy in present.values().flat_map(|policies| policies.iter().rev()) {
            self.delete(policy)?;
        }
        Ok(())
    }

    fn delete(&mut self, policy: &Policy) -> io::Result<()> {
        match self.table.delete(policy) {
            // Another program has deleted it meanwhile.
            Err(error) if error.raw_os_error() == Some(libc::ENOENT) => Ok(()),
            deleted => deleted,
        }
    }

    /// This gateway's policies by direction, in the order in which the kernel looks them up.
    fn present(&mut self) -> io::Result<HashMap<Direction, Vec<Policy>>> {
        let mut ours = self.table.policies()?;
        ours.retain(|policy| self.indices.has(policy.index));
        ours.sort_by_key(|policy| policy.priority);
        let by_direction = DIRECTIONS.map(|direction| {
            let its = ours.iter().filter(|policy| policy.direction == direction);
            (direction, its.copied().collect())
        });
        Ok(by_direction.into())
    }
}

impl Table for Xfrm {
    fn policies(&mut self) -> io::Result<Vec<Policy>> {
        self.policies()
    }

    fn put(&mut self, policy: &Policy) -> io::Result<()> {
        self.put(policy)
    }

    fn delete(&mut self, policy: &Policy) -> io::Result<()> {
        self.delete(policy.direction, policy.index, policy.fits.mark)
    }
}

/// A list of rules as policies whose priorities count up from `first`, without indices.
fn said(
    direction: Direction,
    rules: &[Rule],
    first: u32,
) -> impl Iterator<Item = Policy> + use<'_> {
    rules
        .iter()
        .zip(first..)
        .map(move |(rule, priority)| Policy {
            fits: rule.fits,
            direction,
            blocks: rule.blocks,
            priority,
            index: 0,
        })
}

fn is_in_place(rules: &[Rule], policy: &Policy) -> bool {
    let number = policy.priority.checked_sub(PRIORITY);
    let rule = number.and_then(|number| rules.get(number as usize));
    rule.is_some_and(|rule| rule.fits == policy.fits && rule.blocks == policy.blocks)
}

fn indices(present: &[Policy]) -> HashMap<Match, u32> {
    let each = present.iter().map(|policy| (policy.fits, policy.index));
    each.collect()
}

/// The policy indices of one gateway: the protocol number of its routes ([`OWNER`]), the number of its block of routing
/// rule preferences, a number, and in the last three bits the direction.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Indices(u32);

impl Indices {
    pub(super) fn of(site: &Site) -> Self {
        Self(u32::from(OWNER) << 24 | (site.table() % 20) << 19)
    }

    /// Whether a policy is one of this gateway's.
    pub(super) fn has(self, index: u32) -> bool {
        index & 0xfff8_0000 == self.0
    }

    /// Indices of a direction that no known policy has.
    fn free(
        self,
        direction: Direction,
        known: &HashMap<Match, u32>,
    ) -> impl Iterator<Item = u32> + use<> {
        let taken: HashSet<u32> = known.values().copied().collect();
        let all = (1..1 << 16).map(move |number: u32| self.0 | number << 3 | direction as u32);
        all.filter(move |index| !taken.contains(index))
    }
}

#[cfg(test)]
mod tests;
