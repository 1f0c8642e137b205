//! The policies of one gateway among those of the host: put in order, compared, deleted.
//!
//! ```text
//!   index       229 · gateway · number · direction      whose it is
//!   priority      1 000 …   while a change lasts        before those of the plan that goes
//!               100 000 …   as a rule
//! ```
//!
//! A change puts the new list before the old one, its first policy first, deletes what is left of the old one, its last
//! policy first, and moves the new one to where it stays, its last policy first. At each moment a packet meets either
//! what the new plan says of it or what the old one says.

use super::compiler::Rule;
use crate::routes::Site;
use crate::routes::netlink::xfrm::{Direction, Match, Policy, Xfrm};
use crate::routes::steering::OWNER;
use std::collections::{HashMap, HashSet};
use std::io;

/// Of the first policy of each direction: before those of other programs.
const PRIORITY: u32 = 100_000;

/// Of the first one while a change lasts.
const CHANGE_PRIORITY: u32 = 1_000;

/// Policies of one direction, by the room between the two priorities and in the index.
const MAX_POLICIES: usize = 30_000;

const DIRECTIONS: [Direction; 3] = [Direction::In, Direction::Fwd, Direction::Out];

/// What each direction is to have, in order.
pub(super) type Wanted = Vec<(Direction, Vec<Rule>)>;

/// The policies of a host.
pub(super) trait Table {
    /// All there are.
    fn policies(&mut self) -> io::Result<Vec<Policy>>;
    /// Puts one in the place of that with the same packets and direction, or adds it.
    fn put(&mut self, policy: &Policy) -> io::Result<()>;
    /// Takes one away.
    fn delete(&mut self, policy: &Policy) -> io::Result<()>;
}

/// The hand on policies of XFRM.
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

    /// Makes the kernel have these and nothing else of ours.
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

    /// What is there is right, as far as it goes.
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

    /// What is gone, changed or too much, in words.
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

    /// Deletes all of ours, the last ones first.
    pub(super) fn clear(&mut self) -> io::Result<()> {
        let present = self.present()?;
        for policy in present.values().flat_map(|policies| policies.iter().rev()) {
            self.delete(policy)?;
        }
        Ok(())
    }

    fn delete(&mut self, policy: &Policy) -> io::Result<()> {
        match self.table.delete(policy) {
            // Another program was faster.
            Err(error) if error.raw_os_error() == Some(libc::ENOENT) => Ok(()),
            deleted => deleted,
        }
    }

    /// Ours, by direction, in the order in which they are asked.
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

/// A list of rules as policies from this priority on, without indices.
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

/// The kernel's numbers of one gateway's policies: the number of its routes' owner, its block of preferences among
/// routing rules, a number, and in the last three bits the direction.
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

    /// Those of a direction that none of these policies has.
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
