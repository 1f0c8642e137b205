//! DES without tables: one bit of many blocks in each word, the S-boxes as circuits of logic gates.
//!
//! A word of 256 bits carries bit *n* of 256 blocks, so one pass over the gates enciphers 256 blocks, whose time
//! depends on no key and no data. Turning blocks into bit planes is a transposition of 64 × 64 bits.
//!
//! ```text
//!   blocks  b0 ▪▫▪▪…        planes  p0 ▪▫▫…   bit 0 of b0 b1 b2 …
//!           b1 ▫▫▪▫…   ──►          p1 ▫▫▪…   bit 1
//!           b2 ▫▪▪▫…                p2 ▪▪▪…   bit 2
//! ```
//!
//! Decryption in CBC mode knows all blocks of a packet at once; encryption takes a block of each packet of the batch.

mod cbc;
mod des;
mod engine;
mod sboxes;
mod word;

pub(crate) use cbc::{DesCbcJob, DesKeys, MIN_LANE_BLOCKS};
pub(super) use cbc::{cbc_decrypt, cbc_encrypt};
pub(super) use engine::PlaneWidth;
#[cfg(target_arch = "x86_64")]
pub(crate) use engine::avx512_is_right;
