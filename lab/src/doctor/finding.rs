//! What the doctor found, and how it weighs.

/// How a finding weighs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Weight {
    /// As it should be.
    Good,
    /// Something cannot be measured, or not as well.
    Poor,
    /// No experiment can run.
    Fatal,
}

/// One thing that was looked at.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Finding {
    /// How it weighs.
    pub weight: Weight,
    /// What was found, and what to do where something can be done.
    pub text: String,
}

pub(super) fn finding(weight: Weight, text: impl Into<String>) -> Finding {
    Finding {
        weight,
        text: text.into(),
    }
}
