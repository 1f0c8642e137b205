//! Code for ordered policies over an area of addresses: the first match decides, found by destination, then by source,
//! then by the policy's upper-layer conditions.
//!
//! The addresses are cut at both ends of every prefix, so that between two cuts the same policies match all addresses.
//! Policies that cannot change the outcome are left out, and ranges with the same policies share their code.

use super::assembler::{Assembler, Label, Op, Test};
use super::headers::{self, KNOWLEDGE, KNOWN, LATER, PORTS, PROTOCOL, UNKNOWN};
use super::search::search;
use super::{FilterHook, TooMany};
use crate::routes::plan::{Family, WITH_PORTS};
use crate::routes::range::Range;
use ipsec::policy::Upper;
use std::collections::{BTreeSet, HashMap};

/// A policy as the filter needs it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) struct FilterRule {
    /// Source addresses.
    pub source: Range,
    /// Destination addresses.
    pub destination: Range,
    /// Upper-layer conditions.
    pub upper: Upper,
    /// Whether matching packets are dropped.
    pub drops: bool,
}

impl FilterRule {
    /// Its part within an area; none if it has no address there.
    pub(super) fn within(&self, area: &Area) -> Option<Self> {
        Some(Self {
            source: self.source.within(area.source)?,
            destination: self.destination.within(area.destination)?,
            ..*self
        })
    }
}

/// An area of addresses: all pairs of a range of sources and a range of destinations.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Area {
    /// Sources.
    pub source: Range,
    /// Destinations.
    pub destination: Range,
}

impl Area {
    /// Everything.
    pub(super) fn all(family: Family) -> Self {
        let all = Range::all(family);
        Self {
            source: all,
            destination: all,
        }
    }
}

/// Labels for the two outcomes of one list.
#[derive(Clone, Copy, Debug)]
pub(super) struct Outcomes {
    /// The first matching policy drops.
    pub dropped: Label,
    /// The first matching policy lets the packet pass, or none matches.
    pub passed: Label,
}

/// Sum, over all ranges between cuts, of the policies that match there; bounds the compiler's time and memory.
const MAX_POLICY_MENTIONS: usize = 100_000;

/// Whether a list has conditions on more than addresses.
pub(super) fn asks_upper(rules: &[FilterRule]) -> bool {
    rules.iter().any(|rule| rule.upper != Upper::Any)
}

/// Writes the code for one list. The hook decides how a fragment without ports is treated; `mark` is the mark on the
/// gateway's own outer packets.
pub(super) fn judge(
    program: &mut Assembler,
    (family, hook, mark): (Family, FilterHook, u32),
    rules: &[FilterRule],
    outcomes: Outcomes,
) -> Result<(), TooMany> {
    let mut writer = Writer {
        family,
        hook,
        mark,
        outcomes,
        places: 0,
    };
    writer.by_destination(program, rules)
}

struct Writer {
    family: Family,
    hook: FilterHook,
    mark: u32,
    outcomes: Outcomes,
    places: usize,
}

/// Upper-layer conditions in order, each with whether a match drops.
type Asked = Vec<(Upper, bool)>;

impl Writer {
    fn by_destination(
        &mut self,
        program: &mut Assembler,
        rules: &[FilterRule],
    ) -> Result<(), TooMany> {
        let mut leaves: HashMap<Vec<(Range, Asked)>, Label> = HashMap::new();
        let (mut ranges, mut order) = (Vec::new(), Vec::new());
        for (range, fitting) in self.cut(rules, |rule| rule.destination)? {
            let leaf = self.sources(&fitting)?;
            if leaf.is_empty() {
                continue;
            }
            let label = *leaves.entry(leaf.clone()).or_insert_with(|| {
                let label = program.label();
                order.push((label, leaf));
                label
            });
            ranges.push((range, label));
        }
        let field = headers::destination(self.family);
        search(program, field, &ranges, self.outcomes.passed);
        for (label, leaf) in order {
            program.bind(label);
            self.by_source(program, &leaf);
        }
        Ok(())
    }

    /// The upper-layer conditions for each range of sources in which anything is dropped at all.
    fn sources(&mut self, rules: &[FilterRule]) -> Result<Vec<(Range, Asked)>, TooMany> {
        let cut = self.cut(rules, |rule| rule.source)?;
        let asked = cut
            .into_iter()
            .map(|(range, fitting)| (range, asked(&fitting)));
        Ok(asked.filter(|(_, asked)| !asked.is_empty()).collect())
    }

    /// Ranges between the ends of all prefixes, each with the rules that match there, in their order.
    fn cut(
        &mut self,
        rules: &[FilterRule],
        side: fn(&FilterRule) -> Range,
    ) -> Result<Vec<(Range, Vec<FilterRule>)>, TooMany> {
        let mut ends: Vec<_> = rules
            .iter()
            .enumerate()
            .flat_map(|(n, rule)| ends(side(rule), n))
            .collect();
        ends.sort_unstable();
        let (mut pieces, mut open) = (Vec::new(), BTreeSet::new());
        for (place, end) in ends.iter().enumerate() {
            if end.opens {
                open.insert(end.rule)
            } else {
                open.remove(&end.rule)
            };
            let next = ends.get(place + 1).map(|next| next.at);
            let Some(next) = next.filter(|next| *next != end.at && !open.is_empty()) else {
                continue;
            };
            let (first, last) = (end.at.begin(), next.begin().wrapping_sub(1));
            self.places += open.len();
            if self.places > MAX_POLICY_MENTIONS {
                return Err(TooMany);
            }
            let fitting = open.iter().map(|rule| rules[*rule]).collect();
            pieces.push((Range { first, last }, fitting));
        }
        Ok(pieces)
    }

    fn by_source(&self, program: &mut Assembler, leaf: &[(Range, Asked)]) {
        let mut known: HashMap<&Asked, Label> = HashMap::new();
        let (mut ranges, mut order) = (Vec::new(), Vec::new());
        for (range, asked) in leaf {
            let label = match &asked[..] {
                [(Upper::Any, true)] => self.outcomes.dropped,
                _ => *known.entry(asked).or_insert_with(|| {
                    let label = program.label();
                    order.push((label, asked));
                    label
                }),
            };
            ranges.push((*range, label));
        }
        search(
            program,
            headers::source(self.family),
            &ranges,
            self.outcomes.passed,
        );
        for (label, asked) in order {
            program.bind(label);
            self.by_upper(program, asked);
        }
    }

    fn by_upper(&self, program: &mut Assembler, asked: &Asked) {
        for (upper, drops) in asked {
            let next = program.label();
            self.one(program, *upper, *drops, next);
            program.bind(next);
        }
        program.jump(self.outcomes.passed);
    }

    /// One policy: jumps to its outcome if it matches, else to `next`.
    fn one(&self, program: &mut Assembler, upper: Upper, drops: bool, next: Label) {
        let end = if drops {
            self.outcomes.dropped
        } else {
            self.outcomes.passed
        };
        let numbers: &[u8] = match &upper {
            Upper::Any => return program.jump(end),
            Upper::Protocol { number, .. } | Upper::Icmp { number, .. } => {
                std::slice::from_ref(number)
            }
            Upper::Ports { .. } => &WITH_PORTS,
        };
        program.run(&[Op::Recall(PROTOCOL)]);
        let right = program.label();
        for number in numbers {
            program.go_if(Test::Equal((*number).into()), right);
        }
        // A packet whose protocol is unknown might be one that must be dropped.
        if drops {
            program.branch(Test::Equal(UNKNOWN), end, next)
        } else {
            program.jump(next)
        }
        program.bind(right);
        let facts = facts(upper);
        if facts.is_empty() {
            return program.jump(end);
        }
        self.with_ports(program, drops, end, next);
        for (shift, mask, value) in facts {
            program.run(&[Op::Recall(PORTS), Op::ShiftRight(shift), Op::And(mask)]);
            program.go_unless(Test::Equal(value), next);
        }
        program.jump(end);
    }

    /// Continues if ports are known. RFC 4301 7: a later fragment carries none, so a policy with ports that drops
    /// applies to it; one that lets pass applies at ingress, because the fragment is useless without the first one, and
    /// at egress if the drop rules have seen the whole packet and marked it.
    fn with_ports(&self, program: &mut Assembler, drops: bool, end: Label, next: Label) {
        program.run(&[Op::Recall(KNOWLEDGE)]);
        if drops {
            return program.go_unless(Test::Equal(KNOWN), end);
        }
        let (known, unknown) = (program.label(), program.label());
        program.branch(Test::Equal(KNOWN), known, unknown);
        program.bind(unknown);
        program.go_unless(Test::Equal(LATER), next);
        match self.hook {
            FilterHook::Ingress => program.jump(end),
            FilterHook::Egress => {
                program.run(&[Op::Word(MARK)]);
                program.branch(Test::HasBit(self.mark), end, next);
            }
        }
        program.bind(known);
    }
}

/// Offset at which the kernel returns the packet's mark.
pub(super) const MARK: u32 = (libc::SKF_AD_OFF + libc::SKF_AD_MARK) as u32;

/// Shift, mask and value of the conditions on the first four bytes.
fn facts(upper: Upper) -> Vec<(u32, u32, u32)> {
    let wide = |shift, value: Option<u16>| value.map(|value| (shift, 0xffff, value.into()));
    let narrow = |shift, value: Option<u8>| value.map(|value| (shift, 0xff, value.into()));
    let facts = if let Upper::Icmp { kind, code, .. } = upper {
        [narrow(24, kind), narrow(16, code)]
    } else {
        let (source, destination) = upper.ports();
        [wide(16, source), wide(0, destination)]
    };
    facts.into_iter().flatten().collect()
}

/// The rules that decide among those that match the same addresses: none after one that always matches, and at the end
/// none that lets pass, because packets without a match pass anyway.
fn asked(rules: &[FilterRule]) -> Asked {
    let always = rules.iter().position(|rule| rule.upper == Upper::Any);
    let reached = always.map_or(rules, |place| &rules[..=place]);
    let last = reached.iter().rposition(|rule| rule.drops);
    let deciding = &reached[..last.map_or(0, |place| place + 1)];
    // If the last rule drops everything and none before lets pass, no condition needs to be checked.
    match deciding {
        [.., last] if last.upper == Upper::Any && deciding.iter().all(|rule| rule.drops) => {
            vec![(Upper::Any, true)]
        }
        _ => deciding
            .iter()
            .map(|rule| (rule.upper, rule.drops))
            .collect(),
    }
}

/// The boundary before an address, or the one after the last address.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Boundary {
    Before(u128),
    BehindAll,
}

impl Boundary {
    fn begin(self) -> u128 {
        match self {
            Self::Before(address) => address,
            Self::BehindAll => 0,
        }
    }
}

/// One end of a rule's range.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
struct End {
    at: Boundary,
    opens: bool,
    rule: usize,
}

fn ends(range: Range, rule: usize) -> [End; 2] {
    let behind = range
        .last
        .checked_add(1)
        .map_or(Boundary::BehindAll, Boundary::Before);
    let end = |at, opens| End { at, opens, rule };
    [end(Boundary::Before(range.first), true), end(behind, false)]
}
