//! The ciphers of IPsec, run over many packets at once.
//!
//! This crate handles keys and byte ranges, not packets. A caller builds one [`Key`] per security association,
//! describes each packet as a job and passes many jobs in one call, so that a kernel may keep several
//! packets in flight where one packet's chain (CBC, HMAC) would leave the processor idle.
//!
//! ```text
//!   seal    input[0] ++ input[1] ++ input[2]  ──►  output = ciphertext ++ ICV
//!   open    text     = ciphertext ++ ICV      ──►  text   = plaintext  ++ (ICV)      in place, verdict per job
//!   sign    input[0] ++ input[1] ++ input[2]  ──►  icv                               integrity alone, for AH
//!   verify  input[0] ++ input[1] ++ input[2], icv                                    the same, verdict per job
//! ```
//!
//! What an ICV covers, in this order: AEAD ciphers take [`aad`](SealJob::aad) as their additional data and
//! `salt ++ iv` as nonce; a cipher with a separate integrity algorithm is encrypt-then-MAC over
//! `aad ++ iv ++ ciphertext ++ aad_tail` (RFC 4303 3.3.2.2; the tail is the high half of an extended sequence
//! number, RFC 4303 2.2.1).
//!
//! Besides ciphers there is one function over a byte range without a key: [`word_sum`], from which the Internet
//! checksum is folded.
//!
//! Which kernels run is decided once per process, by what the processor has. The environment variable
//! `MULTIBUFFER_WITHOUT` takes some out of service: names with commas between, of `aesni`, `vaes`, `clmul`, `vclmul`,
//! `avx2`, `sha`, `avx512`, `ifma` and `bitslice`, or `all`, which leaves everything to the libraries.

// What only lanes need is compiled on every processor, but only x86-64 has lanes so far.
#![cfg_attr(not(target_arch = "x86_64"), allow(dead_code))]

mod aead;
mod algorithm;
mod batch;
mod cbc;
mod constant_time;
mod copy;
mod detect;
mod features;
mod hmac;
mod iv;
mod job;
mod kernels;
mod key;
mod mac;
#[cfg(feature = "memcheck")]
pub mod memcheck;
mod modp;
mod prf;
mod xcbc;
mod zeroing;

pub use algorithm::{Cipher, Integrity};
pub use constant_time::constant_time_eq;
pub use detect::{FeatureState, feature_states};
pub use iv::Iv;
pub use job::{OpenJob, SealJob, SignJob, Verdict, VerifyJob};
pub use key::{Key, KeyError};
pub use modp::{ModpGroup, ModpKey, PublicValueError};
pub use prf::{Prf, PrfKey};

/// Encrypts and authenticates every job, in any order; all of them succeed.
///
/// Jobs may use different keys; runs of one key are fastest.
///
/// # Panics
/// If a job's output is not exactly as long as its inputs and its key's ICV together, or the inputs are not a
/// whole number of cipher blocks, or the IV has not the key's [`Key::iv_len`], or an AEAD key is given an
/// `aad_tail`: these are errors of the caller, never of the network.
pub fn seal(jobs: &mut [SealJob<'_>]) {
    batch::seal(jobs);
}

/// Authenticates every job and decrypts those that are genuine; the outcome is each job's `verdict`.
///
/// A job whose text is shorter than the ICV, whose ciphertext is not a whole number of blocks, or whose IV or
/// `aad_tail` does not fit the key, is [`Verdict::BadIcv`]: such bytes come from the network and are no error of the
/// caller. The text of a job that is not genuine is unspecified and must not be used.
pub fn open(jobs: &mut [OpenJob<'_>]) {
    batch::open(jobs);
}

/// Computes the ICV of every job (AH, RFC 4302 3.3.3), truncated to [`Key::icv_len`].
///
/// # Panics
/// If a job's `icv` is not exactly [`Key::icv_len`] bytes, or the key cannot sign: it has neither an integrity
/// algorithm nor GMAC, or GMAC was not given its IV.
pub fn sign(jobs: &mut [SignJob<'_>]) {
    batch::sign(jobs);
}

/// The processor's time stamp counter, where it can be read: cycles of a constant frequency, which may differ from the
/// core's.
pub fn time_stamp() -> Option<u64> {
    kernels::time_stamp()
}

/// Prefetches all bytes of `what` into the cache. A caller that knows what many packets will need prefetches all of it
/// before it works on the first, so that the cache misses overlap.
#[inline]
pub fn prefetch<T: ?Sized>(what: &T) {
    kernels::prefetch(what);
}

/// Makes a value that holds a [`Key`], and zeroes the stack below: moving the value leaves copies of its bytes there,
/// which could end up in the padding of later values.
pub fn without_stack_copies<R>(make: impl FnOnce() -> R) -> R {
    let made = zeroing::in_own_frame(make);
    zeroing::zero_stack();
    made
}

/// A sum of a piece's words, in the machine's order and not folded. Folded to 16 bits by adding the carries back it is
/// the sum of the 16-bit words (RFC 1071), a last odd byte padded with zero.
///
/// MEASURED: 1448 bytes in 30 ns by AVX2, 66 ns in integers; 20 bytes in 4 to 8 ns (two processors of a Xeon at
/// 3.4 GHz, both busy).
#[inline]
pub fn word_sum(piece: &[u8]) -> u64 {
    kernels::word_sum::word_sum(piece)
}

/// Computes the ICV of every job and compares it, in constant time, with the one received; the outcome is each job's
/// `verdict`. An ICV that has not the key's length is [`Verdict::BadIcv`].
///
/// # Panics
/// As [`sign`], for a key that cannot sign: an error of the caller.
pub fn verify(jobs: &mut [VerifyJob<'_>]) {
    batch::verify(jobs);
}
