//! The judges of this crate: vectors published by others, second implementations, and the contract of the interface.
//!
//! Everything goes through `seal`, `open` and `sign`, as a gateway does. The whole suite can be run on a lower level
//! of kernels by the variable that the crate documents.

mod contract;
mod harness;
mod known_answers;
mod levels;
mod oracle;
mod oracles;
mod wycheproof;
