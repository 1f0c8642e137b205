//! Name constraints over a path (RFC 5280 4.2.1.10 and 6.1.3 (b) and (c)): those of every CA apply to every certificate
//! below it.

use crate::certificate::constraints::{GeneralName, NameConstraints, Subtree};
use crate::certificate::{Certificate, Check, Failure, NameRule};
use std::cell::Cell;

/// The most comparisons of a name with a subtree for one peer, over all paths that are tried.
const MAX_COMPARISONS: usize = 250_000;

/// The most letters of a name that a message has.
const MAX_LETTERS_SHOWN: usize = 300;

/// The most permitted subtrees that a message lists.
const MAX_SUBTREES_SHOWN: usize = 4;

/// Which names are checked.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Forms {
    /// Those that rustls-webpki leaves to this side: names in a directory, mail addresses and URIs.
    CheckedHere,
    /// All others, after rustls-webpki has refused one, to say which.
    CheckedByLibrary,
}

/// A check with a bound on its work.
pub(super) struct NameCheck {
    comparisons_left: Cell<usize>,
}

impl NameCheck {
    pub(super) fn new() -> Self {
        Self {
            comparisons_left: Cell::new(MAX_COMPARISONS),
        }
    }

    /// Checks a path: the peer's certificate first, the root last.
    pub(super) fn check(&self, path: &[&Certificate], forms: Forms) -> Result<(), Failure> {
        let constrains = |ca: &&Certificate| {
            let mut subtrees = ca.name_constraints().subtrees().iter();
            subtrees.any(|subtree| is_checked(&subtree.base, forms))
        };
        for (index, certificate) in path.iter().enumerate() {
            let cas: Vec<_> = path
                .iter()
                .skip(index + 1)
                .copied()
                .filter(constrains)
                .collect();
            // RFC 5280 6.1.3: a certificate that is self-issued is skipped, unless it is the last, which is the peer's.
            if cas.is_empty() || index > 0 && certificate.is_self_issued() {
                continue;
            }
            let names = certificate.constrained_names();
            for name in names.iter().filter(|name| is_checked(name, forms)) {
                for ca in &cas {
                    self.check_name(name, ca).map_err(|check| Failure {
                        certificate: certificate.subject(),
                        check,
                    })?;
                }
            }
        }
        Ok(())
    }

    fn check_name(&self, name: &GeneralName, ca: &Certificate) -> Result<(), Check> {
        let broken = self.broken_rule(name, ca.name_constraints())?;
        broken.map_or(Ok(()), |rule| {
            Err(Check::NameConstraint {
                name: readable(name),
                ca: ca.subject(),
                rule,
            })
        })
    }

    /// RFC 5280 4.2.1.10: a name in an excluded subtree is invalid regardless of those permitted; where subtrees of its
    /// form are permitted, it has to lie in one of them. A name that cannot be compared is refused.
    fn broken_rule(
        &self,
        name: &GeneralName,
        constraints: &NameConstraints,
    ) -> Result<Option<NameRule>, Check> {
        let of_form = |subtree: &&Subtree| subtree.base.has_form_of(name);
        let mut lies_in_permitted = false;
        let mut permitted = Vec::new();
        for subtree in constraints.subtrees().iter().filter(of_form) {
            let left = self.comparisons_left.get();
            let left = left.checked_sub(1).ok_or(Check::TooComplex)?;
            self.comparisons_left.set(left);
            match (name.lies_in(&subtree.base), subtree.excluded) {
                (None, _) => return Ok(Some(NameRule::CannotBeCompared(readable(&subtree.base)))),
                (Some(true), true) => return Ok(Some(NameRule::Exclude(readable(&subtree.base)))),
                (Some(false), true) => {}
                (Some(lies_in), false) => {
                    lies_in_permitted |= lies_in;
                    permitted.push(&subtree.base);
                }
            }
        }
        let is_permitted = lies_in_permitted || permitted.is_empty();
        Ok((!is_permitted).then(|| NameRule::PermitOnly(list(&permitted))))
    }
}

fn is_checked(name: &GeneralName, forms: Forms) -> bool {
    name.is_checked_here() == (forms == Forms::CheckedHere)
}

fn list(subtrees: &[&GeneralName]) -> String {
    let shown = subtrees
        .iter()
        .take(MAX_SUBTREES_SHOWN)
        .map(|base| readable(base));
    let mut shown: Vec<_> = shown.collect();
    if let more @ 1.. = subtrees.len().saturating_sub(MAX_SUBTREES_SHOWN) {
        shown.push(format!("{more} more"));
    }
    shown.join("; ")
}

/// For people, without the end of what is too long.
fn readable(name: &GeneralName) -> String {
    let text = name.to_string();
    match text.char_indices().nth(MAX_LETTERS_SHOWN) {
        Some((end, _)) => format!("{} …", text.get(..end).unwrap_or_default()),
        None => text,
    }
}
