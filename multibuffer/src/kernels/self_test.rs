//! Whether the AVX-512 kernels compute what others do on this very processor, asked before they are first used.
//!
//! Fewer machines have run them than any other kernel here, so they have to show on each one that they are right.

use super::{
    aws_lc::{self, Hash},
    bitslice,
    hash_lanes::{self, HmacJob, Lanes, Width},
};
use crate::hmac::HmacKey;

/// # Safety
/// The processor has AVX-512 F, BW and VL.
pub(crate) unsafe fn avx512_is_right() -> bool {
    // SAFETY: the caller answers for the processor.
    unsafe {
        bitslice::avx512_is_right()
            && hmac_is_right::<aws_lc::Md5, hash_lanes::Md5>()
            && hmac_is_right::<aws_lc::Sha1, hash_lanes::Sha1>()
            && hmac_is_right::<aws_lc::Ripemd160, hash_lanes::Ripemd160>()
            && hmac_is_right::<aws_lc::Sha256, hash_lanes::Sha256>()
            && hmac_is_right::<aws_lc::Sha384, hash_lanes::Sha384>()
            && hmac_is_right::<aws_lc::Sha512, hash_lanes::Sha512>()
    }
}

/// Messages, more than there are lanes.
const MESSAGES: usize = 19;

/// Compares the lanes with the library.
///
/// # Safety
/// The processor has AVX-512 F and BW.
unsafe fn hmac_is_right<H, A>() -> bool
where
    H: Hash<State: AsRef<[A::Element]>>,
    A: Lanes,
{
    let key = HmacKey::<H>::new(b"any key will do");
    let text: [u8; 512] = std::array::from_fn(|at| (at * at / 7) as u8);
    let message = |at: usize| [&text[at..2 * at], &text[..at * at], &[], &text[at..at + 4]];
    let mut icvs = [[0; 16]; MESSAGES];
    let [inner, outer] = key.states().map(AsRef::as_ref);
    let jobs = icvs.iter_mut().enumerate().map(|(at, icv)| HmacJob {
        inner,
        outer,
        message: message(at),
        icv,
    });
    // SAFETY: the caller answers for the processor.
    unsafe { A::sign_in_vectors(Width::Full, jobs) };
    icvs.iter()
        .enumerate()
        .all(|(at, icv)| key.sign(&message(at))[..16] == *icv)
}
