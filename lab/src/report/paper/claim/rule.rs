//! From what single cells say to what becomes of the claim.

/// Whether a claim holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Judgement {
    /// Every decided cell confirms it, and at least half of all cells are decided.
    Holds,
    /// At least one decided cell contradicts it.
    DoesNotHold {
        /// How many do.
        contradicting: usize,
    },
    /// No cell contradicts it, but fewer than half are decided.
    Undecided,
    /// Nothing of it was measured.
    NotMeasured,
}

/// The judgement over all cells: each confirms, contradicts, or leaves open (`None`) what is claimed.
pub(super) fn judge(cells: &[Option<bool>]) -> Judgement {
    let count = |answer: Option<bool>| cells.iter().filter(|cell| **cell == answer).count();
    let (confirming, contradicting) = (count(Some(true)), count(Some(false)));
    match (cells.len(), confirming, contradicting) {
        (0, ..) => Judgement::NotMeasured,
        (all, confirming, 0) if 2 * confirming >= all => Judgement::Holds,
        (_, _, 0) => Judgement::Undecided,
        (_, _, contradicting) => Judgement::DoesNotHold { contradicting },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rule_by_its_truth_table() {
        let table = [
            // confirm, contradict, open
            ((0, 0, 0), Judgement::NotMeasured),
            ((1, 0, 0), Judgement::Holds),
            ((5, 0, 0), Judgement::Holds),
            ((3, 0, 3), Judgement::Holds),
            ((3, 0, 4), Judgement::Undecided),
            ((1, 0, 5), Judgement::Undecided),
            ((0, 0, 1), Judgement::Undecided),
            ((0, 1, 0), Judgement::DoesNotHold { contradicting: 1 }),
            ((0, 1, 5), Judgement::DoesNotHold { contradicting: 1 }),
            ((9, 1, 0), Judgement::DoesNotHold { contradicting: 1 }),
            ((9, 2, 9), Judgement::DoesNotHold { contradicting: 2 }),
            ((0, 4, 0), Judgement::DoesNotHold { contradicting: 4 }),
        ];
        for ((confirm, contradict, open), expected) in table {
            let mut cells = vec![Some(true); confirm];
            cells.extend(vec![Some(false); contradict]);
            cells.extend(vec![None; open]);
            let shown = format!("{confirm} confirm, {contradict} contradict, {open} are open");
            assert_eq!(judge(&cells), expected, "{shown}");
            cells.reverse();
            assert_eq!(judge(&cells), expected, "{shown}, in another order");
        }
    }
}
