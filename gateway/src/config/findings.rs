//! What is wrong or doubtful in a file: collected while it is read, so that one run reports every mistake.

use super::secrets;
use ipsec::setkey::{Problem, Span, Warning, nearest};
use std::cell::RefCell;

/// How many problems are reported: more do not fit a screen.
const MAX_PROBLEMS: usize = 50;

/// Problems and warnings of one file.
#[derive(Default)]
pub(super) struct Findings {
    problems: RefCell<Vec<Problem>>,
    warnings: RefCell<Vec<Warning>>,
}

impl Findings {
    /// Adds a problem.
    pub(super) fn problem(&self, problem: Problem) {
        self.problems.borrow_mut().push(problem);
    }

    /// Adds a warning, once for each place and text.
    pub(super) fn warn(&self, at: Span, message: impl Into<String>) {
        let warning = Warning::new(at, message);
        let mut warnings = self.warnings.borrow_mut();
        if !warnings.contains(&warning) {
            warnings.push(warning);
        }
    }

    /// The value, or `None` and its problem.
    pub(super) fn keep<T>(&self, result: Result<T, Problem>) -> Option<T> {
        result.map_err(|problem| self.problem(problem)).ok()
    }

    /// Whether the file can be used.
    pub(super) fn is_clean(&self) -> bool {
        self.problems.borrow().is_empty()
    }

    /// Every problem as a user reads it, in the order of the file.
    pub(super) fn problems(&self, name: &str, text: &str) -> Vec<String> {
        let mut problems = self.problems.borrow().clone();
        problems.sort_by_key(|problem| problem.span);
        problems.dedup();
        let hidden = secrets::places(text);
        let shown = problems.iter().take(MAX_PROBLEMS);
        let mut rendered: Vec<_> = shown
            .map(|problem| problem.render_hiding(name, text.as_bytes(), &hidden))
            .collect();
        if problems.len() > MAX_PROBLEMS {
            rendered.push(format!(
                "{name}: {} more problems\n",
                problems.len() - MAX_PROBLEMS
            ));
        }
        rendered
    }

    /// Every warning as a user reads it, in the order of the file.
    pub(super) fn warnings(&self, name: &str, text: &str) -> Vec<String> {
        let mut warnings = self.warnings.borrow().clone();
        warnings.sort_by_key(|warning| warning.span);
        let hidden = secrets::places(text);
        let warnings = warnings.iter();
        warnings
            .map(|warning| warning.render_hiding(name, text.as_bytes(), &hidden))
            .collect()
    }
}

/// What to write instead of `word`: the nearest of the known words, or all of them.
pub(super) fn instead_of(word: &str, known: &[&str]) -> String {
    match nearest(word, known.iter().copied()) {
        Some(near) => format!("did you mean `{near}`?"),
        None => format!("known: {}", known.join(", ")),
    }
}
