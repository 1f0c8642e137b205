//! Why proposals do not fit: the material of an explanation for an administrator.

use super::{Algorithm, Offer, algorithm::joined};
use crate::message::payload::{Proposal, Protocol, TransformType};
use std::fmt;

/// How many comparisons an explanation keeps.
pub(super) const MAX_COMPARISONS: usize = 256;

/// No proposal of the peer fits a local offer: answered by NO_PROPOSAL_CHOSEN.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Refused {
    /// Each proposal of the peer compared with each local offer, the closest first: at most 256.
    pub comparisons: Vec<Comparison>,
}

/// One proposal of the peer compared with one local offer.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Comparison {
    /// The number of the peer's proposal.
    pub number: u8,
    /// Its text, in the notation of local offers.
    pub theirs: String,
    /// The text of the local offer.
    pub ours: String,
    /// What has nothing in common. INVARIANT: at least one.
    pub differences: Vec<Difference>,
}

/// Something in which two proposals have nothing in common.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Difference {
    /// What it is.
    pub subject: Subject,
    /// What the peer offers.
    pub theirs: Vec<Algorithm>,
    /// What is offered here.
    pub ours: Vec<Algorithm>,
}

/// What two proposals differ in.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Subject {
    /// One is for another protocol.
    Protocol(Protocol, Protocol),
    /// The algorithms of one type.
    Transform(TransformType),
    /// The peer demands a type of transform that is not known here (RFC 7296 3.3.6).
    UnknownType(TransformType),
}

impl Comparison {
    pub(super) fn new(theirs: &Proposal<'_>, ours: &Offer, differences: Vec<Difference>) -> Self {
        let algorithms: Vec<_> = theirs.transforms.iter().filter_map(Algorithm::of).collect();
        let theirs_text = joined(&algorithms, "-");
        Self {
            number: theirs.number,
            theirs: theirs_text,
            ours: ours.to_string(),
            differences,
        }
    }
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.subject {
            Subject::Protocol(theirs, ours) => {
                write!(f, "protocol: the peer offers {theirs}, we offer {ours}")
            }
            Subject::Transform(kind) => {
                let (theirs, ours) = (joined(&self.theirs, ", "), joined(&self.ours, ", "));
                write!(f, "{kind}: the peer offers {theirs}, we offer {ours}")
            }
            Subject::UnknownType(kind) => {
                write!(f, "{kind}: the peer demands one, which is not supported")
            }
        }
    }
}

impl fmt::Display for Refused {
    /// One line for each comparison.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.comparisons.is_empty() {
            return f.write_str("there is nothing to compare: one side offers nothing");
        }
        for comparison in &self.comparisons {
            let Comparison {
                number,
                theirs,
                ours,
                differences,
            } = comparison;
            write!(
                f,
                "proposal {number} of the peer ({theirs}) against {ours}: "
            )?;
            let texts: Vec<_> = differences.iter().map(Difference::to_string).collect();
            writeln!(f, "{}", texts.join("; "))?;
        }
        Ok(())
    }
}

impl std::error::Error for Refused {}
