//! What a run lacks on this machine. The experiment continues without it and reports how to install it.

/// Why a contender or a tool is not here, and how to get it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Absence {
    /// What is missing.
    pub why: String,
    /// The command or step that mends it.
    pub remedy: String,
}

impl Absence {
    /// Both sentences.
    pub fn new(why: impl Into<String>, remedy: impl Into<String>) -> Absence {
        Absence {
            why: why.into(),
            remedy: remedy.into(),
        }
    }
}
