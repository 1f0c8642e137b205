//! The `setkey` language of ipsec-tools: from text to commands, and back to text.
//!
//! ```text
//!   text ──lexer──► tokens ──grammar──► File ──lower──► commands + warnings
//!                                        │
//!   text ◄──────────print────────────────┘          parse(print(file)) == file
//! ```
//!
//! No name is resolved, no clock read and no file opened here: these are arguments.
//! A text with several mistakes yields several [`Problem`]s in one pass, each with its place, its cause and advice.
//! Keys are never part of a message: an excerpt of the text shows them as asterisks.

pub mod ast;
mod diagnostic;
mod dump;
mod grammar;
mod lexer;
mod lower;
mod print;
mod protocol;
mod secret_text;
mod span;
mod spelling;

pub use diagnostic::{Fault, Problem, Warning};
pub use dump::{DumpContext, dump_policies, dump_sas, dump_short, local_time, policy_statement};
pub use grammar::{Parsed, parse};
pub use lower::{
    Forwarding, LookupError, Lowered, Names, NoNames, POLICY_OPTIONS, SA_OPTIONS, compile, lower,
    resolve,
};
pub use print::print;
pub use span::Span;
pub use spelling::nearest;

use diagnostic::shown;
