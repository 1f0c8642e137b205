//! Binary search of an address: its words are compared with sorted ranges, so that four thousand destinations take
//! about twelve comparisons.

use super::assembler::{Assembler, Label, Op, Test};
use crate::routes::range::Range;

/// Where the words of an address lie.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct AddressField {
    /// The first of them.
    pub place: AddressLocation,
    /// How many.
    pub words: u32,
}

/// Location of a word.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum AddressLocation {
    /// In this word of scratch memory.
    Scratch(u32),
    /// In the packet, at this byte offset.
    Packet(u32),
}

impl AddressField {
    /// Loads the first word.
    pub(super) fn load(self) -> Op {
        match self.place {
            AddressLocation::Scratch(slot) => Op::Recall(slot),
            AddressLocation::Packet(offset) => Op::Word(offset),
        }
    }

    /// Without the first word.
    fn rest(self) -> Self {
        let place = match self.place {
            AddressLocation::Scratch(slot) => AddressLocation::Scratch(slot + 1),
            AddressLocation::Packet(offset) => AddressLocation::Packet(offset + 4),
        };
        Self {
            place,
            words: self.words - 1,
        }
    }

    fn all(self) -> Range {
        let last = u128::MAX >> (128 - 32 * self.words);
        Range { first: 0, last }
    }
}

/// Jumps to the label of the range that contains the address, else to `miss`. The ranges are sorted and disjoint.
pub(super) fn search(
    program: &mut Assembler,
    field: AddressField,
    ranges: &[(Range, Label)],
    miss: Label,
) {
    let joined = join(ranges);
    match &joined[..] {
        [] => program.jump(miss),
        [(range, label)] if *range == field.all() => program.jump(*label),
        _ => word(program, field, &joined, miss),
    }
}

/// Joins adjacent ranges with the same label.
fn join(ranges: &[(Range, Label)]) -> Vec<(Range, Label)> {
    let mut joined: Vec<(Range, Label)> = Vec::new();
    for (range, label) in ranges {
        match joined.last_mut() {
            Some((before, same))
                if same == label && before.last.checked_add(1) == Some(range.first) =>
            {
                before.last = range.last;
            }
            _ => joined.push((*range, *label)),
        }
    }
    joined
}

/// What the first word of an address leads to.
enum Part {
    /// Values from the first to the second lead to this label, whatever the further words are.
    Whole(u32, u32, Label),
    /// For this value the further words decide.
    NextWord(u32, Vec<(Range, Label)>),
}

impl Part {
    fn first(&self) -> u32 {
        match self {
            Self::Whole(first, ..) | Self::NextWord(first, _) => *first,
        }
    }
}

fn word(program: &mut Assembler, field: AddressField, ranges: &[(Range, Label)], miss: Label) {
    let mut parts = Vec::new();
    for (range, label) in ranges {
        cut(&mut parts, field, *range, *label);
    }
    program.run(&[field.load()]);
    halve(program, field, &parts, (0, u32::MAX), miss);
}

/// Cuts a range by the first word: whole values, and at either end a value for which the further words decide.
fn cut(parts: &mut Vec<Part>, field: AddressField, range: Range, label: Label) {
    let behind = 32 * (field.words - 1);
    let rest = (1u128 << behind) - 1;
    let high = |number: u128| (number >> behind) as u32;
    let (mut first, mut last) = (u64::from(high(range.first)), u64::from(high(range.last)));
    let low = Range {
        first: range.first & rest,
        last: range.last & rest,
    };
    if first == last && (low.first, low.last) != (0, rest) {
        return push_next_word(parts, first as u32, low, label);
    }
    if low.first != 0 {
        let end = Range { last: rest, ..low };
        push_next_word(parts, first as u32, end, label);
        first += 1;
    }
    let tail = (low.last != rest).then_some(last as u32);
    // If both ends were cut off, no whole value may be left; the result may be below zero, hence signed.
    let whole_to = last as i64 - i64::from(tail.is_some());
    if first as i64 <= whole_to {
        last = whole_to as u64;
        parts.push(Part::Whole(first as u32, last as u32, label));
    }
    if let Some(value) = tail {
        let start = Range { first: 0, ..low };
        push_next_word(parts, value, start, label);
    }
}

fn push_next_word(parts: &mut Vec<Part>, value: u32, range: Range, label: Label) {
    match parts.last_mut() {
        Some(Part::NextWord(same, ranges)) if *same == value => ranges.push((range, label)),
        _ => parts.push(Part::NextWord(value, vec![(range, label)])),
    }
}

/// Halves the parts. The accumulator holds the word, which is known to lie between two values.
fn halve(
    program: &mut Assembler,
    field: AddressField,
    parts: &[Part],
    (least, most): (u32, u32),
    miss: Label,
) {
    match parts {
        [] => program.jump(miss),
        [Part::Whole(first, last, label)] => {
            if *first > least {
                program.go_unless(Test::AtLeast(*first), miss);
            }
            if *last < most {
                program.branch(Test::Greater(*last), miss, *label)
            } else {
                program.jump(*label)
            }
        }
        [Part::NextWord(value, ranges)] => {
            if least != most {
                program.go_unless(Test::Equal(*value), miss);
            }
            word(program, field.rest(), ranges, miss);
        }
        _ => {
            let (below, above) = parts.split_at(parts.len() / 2);
            let middle = above[0].first();
            let (upper, lower) = (program.label(), program.label());
            program.branch(Test::AtLeast(middle), upper, lower);
            program.bind(lower);
            halve(program, field, below, (least, middle - 1), miss);
            program.bind(upper);
            halve(program, field, above, (middle, most), miss);
        }
    }
}
