//! Which kernel signs with which hash function on which processor.

use super::{
    Algorithm, HmacJob, LaneSet, Md5, Ripemd160, Sha1, Sha256, Sha384, Sha512, run, shani, sign,
    vector::{Vector, Words4Long, Words8, Words8Long, Words16},
};
use crate::features::Features;

/// Vectors that this processor has.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum HashWidth {
    /// AVX2.
    Avx2,
    /// AVX-512 F and BW.
    Avx512,
}

/// The fastest kernel for a hash function.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum HmacKernel {
    /// The library.
    Library,
    /// The SHA instructions on two messages.
    Pair,
    /// A message in each lane of a vector.
    Vectors(HashWidth),
}

impl HashWidth {
    /// The widest, if there is any.
    fn best(features: Features) -> Option<Self> {
        let avx2 = features.avx2.then_some(Self::Avx2);
        if features.avx512 {
            Some(Self::Avx512)
        } else {
            avx2
        }
    }
}

/// Hash functions with a kernel for each kind of processor.
pub(crate) trait Lanes: Algorithm + Sized {
    /// The fastest on a processor with these features.
    ///
    /// MEASURED: at 1408 bytes, Gbit/s of HMAC-SHA1 by AVX2 9.5 to 14.5, by pairs 7.7; of HMAC-SHA-256 by AVX2 5.8, by
    /// pairs 8.4, by the library 8.3; by AVX-512 28 and 17 (Xeon, family 6 model 207, where pairs gain nothing over one
    /// message; `MULTIBUFFER_WITHOUT=… versus --measure null+sha`).
    fn choose(features: Features) -> HmacKernel {
        match HashWidth::best(features) {
            Some(width) => HmacKernel::Vectors(width),
            None => HmacKernel::Library,
        }
    }

    /// Signs all jobs.
    ///
    /// # Safety
    /// The processor has vectors of this width.
    unsafe fn sign_in_vectors<'a>(width: HashWidth, jobs: impl Iterator<Item = HmacJob<'a, Self>>);

    /// Signs all jobs.
    ///
    /// # Safety
    /// The processor has the SHA instructions, and this is a hash function that they know.
    unsafe fn sign_in_pairs<'a>(_jobs: impl Iterator<Item = HmacJob<'a, Self>>) {
        unreachable!("never the best of this hash function");
    }
}

impl HmacKernel {
    /// The fewest messages for which this is faster than the library, if ever.
    pub(crate) fn min_jobs(self) -> Option<usize> {
        match self {
            Self::Library => None,
            Self::Pair => Some(2),
            Self::Vectors(HashWidth::Avx2) => Some(3),
            Self::Vectors(HashWidth::Avx512) => Some(4),
        }
    }
}

macro_rules! lanes {
    ($($algorithm:ident: $half:ident $full:ident $(, $pairs:path, beats AVX2: $pairs_beat_half:literal)?;)*) => {$(
        impl Lanes for $algorithm {
            unsafe fn sign_in_vectors<'a>(width: HashWidth, jobs: impl Iterator<Item = HmacJob<'a, Self>>) {
                type Words = LaneSet<<$algorithm as Algorithm>::Element>;

                #[target_feature(enable = "avx2")]
                unsafe fn half(lane_set: &mut Words, blocks: usize) {
                    // SAFETY: the lane set's invariant.
                    unsafe { run::<$algorithm, $half>(lane_set, blocks) }
                }

                #[target_feature(enable = "avx512f,avx512bw")]
                unsafe fn full(lane_set: &mut Words, blocks: usize) {
                    // SAFETY: the lane set's invariant.
                    unsafe { run::<$algorithm, $full>(lane_set, blocks) }
                }

                match width {
                    // SAFETY: the caller promises the width, and `sign` keeps the lane set's invariant.
                    HashWidth::Avx2 => sign($half::LANES, jobs, |lane_set, blocks| unsafe { half(lane_set, blocks) }),
                    // SAFETY: as above.
                    HashWidth::Avx512 => sign($full::LANES, jobs, |lane_set, blocks| unsafe { full(lane_set, blocks) }),
                }
            }

            $(
                fn choose(features: Features) -> HmacKernel {
                    match HashWidth::best(features) {
                        Some(HashWidth::Avx512) => HmacKernel::Vectors(HashWidth::Avx512),
                        Some(HashWidth::Avx2) if !(features.sha && $pairs_beat_half) => {
                            HmacKernel::Vectors(HashWidth::Avx2)
                        }
                        _ if features.sha => HmacKernel::Pair,
                        _ => HmacKernel::Library,
                    }
                }

                unsafe fn sign_in_pairs<'a>(jobs: impl Iterator<Item = HmacJob<'a, Self>>) {
                    // SAFETY: the caller promises the instructions.
                    unsafe { $pairs(jobs) }
                }
            )?
        }
    )*};
}

lanes! {
    Md5: Words8 Words16;
    Sha1: Words8 Words16, shani::sign_sha1, beats AVX2: false;
    Ripemd160: Words8 Words16;
    Sha256: Words8 Words16, shani::sign_sha256, beats AVX2: true;
    Sha384: Words4Long Words8Long;
    Sha512: Words4Long Words8Long;
}
