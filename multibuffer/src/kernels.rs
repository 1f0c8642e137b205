//! What computes: libraries behind safe functions, and our own kernels.
//!
//! Nothing outside this folder contains `unsafe`. A kernel knows expanded keys, blocks and chaining values; what a
//! packet's bytes mean (which are associated data, where the ICV stands) is its caller's business.

pub(crate) mod aws_lc;
pub(crate) mod scalar;
