//! The `setkey` language of ipsec-tools: from text to commands, and back to text.
//!
//! ```text
//!   text ──lexer──► tokens ──grammar──► File ──lower──► commands + warnings
//!                                        │
//!   text ◄──────────print────────────────┘          parse(print(file)) == file
//! ```
//!
//! Nothing here resolves a name, reads a clock or opens a file: what the language needs from outside is an argument.
//! A text with several mistakes yields several [`Problem`]s in one pass, each with its place, its cause and advice.
//! Keys are never part of a message: an excerpt of the text shows them as asterisks.

pub mod ast;
mod diagnostic;
mod dump;
mod fuzzing;
mod grammar;
mod lexer;
mod lower;
mod print;
mod protocol;
mod secret_text;
mod spelling;

pub use dump::{Frame, dump_policies, dump_sas, dump_short, local_time};
#[doc(hidden)]
pub use fuzzing::check_any_text;
pub use grammar::{Parsed, parse};
pub use lower::{
    Forwarding, Lowered, Names, NoNames, POLICY_OPTIONS, SA_OPTIONS, compile, lower, resolve,
};
pub use print::print;
pub use diagnostic::{Fault, Problem, Span, Warning};
pub use spelling::nearest;

use diagnostic::shown;
