//! The engine over a capture file.

pub mod file;
pub mod link;
