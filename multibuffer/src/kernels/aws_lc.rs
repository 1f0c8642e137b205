//! AWS-LC behind safe functions: AES, DES, the hash functions, the AEADs and exponentiation in prime fields.
//!
//! Only one-shot primitives that never allocate are used: expanded keys are plain data in this crate's own
//! structures, and a hash context is rebuilt on the stack from a saved chaining value. The raw interface is used
//! because the safe crate has no 8 or 12 byte tags, no AES-192-GCM, no DES and no saved hash states.

mod aead;
mod aes;
mod des;
mod hash;
mod modp;

pub(crate) use aead::{Aead, AeadAlgorithm};
pub(crate) use aes::AesKey;
pub(crate) use des::{DesKey, TripleDesKey};
pub(crate) use hash::{Hash, Md5, Ripemd160, Sha1, Sha256, Sha384, Sha512};
pub(crate) use modp::{Field, KnownPrime};

use std::sync::Once;

/// Lets the library look at the processor; must precede everything else in this module.
fn init() {
    static ONCE: Once = Once::new();
    ONCE.call_once(aws_lc_sys::init);
}
