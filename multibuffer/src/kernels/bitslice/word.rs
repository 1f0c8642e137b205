//! Words of bits: an ordinary integer anywhere, vectors where the processor has them.

use std::ops::{BitAnd, BitOr, BitXor, Not};

/// Logic on many bits, seen as 64-bit elements.
///
/// # Safety
/// An implementer may need processor features, which the caller of a function that is generic over words must have
/// enabled; such a function is always inlined into one that enables them.
pub(super) trait Word:
    Copy + BitAnd<Output = Self> + BitOr<Output = Self> + BitXor<Output = Self> + Not<Output = Self>
{
    /// How many elements a word has.
    const ELEMENTS: usize;

    /// Every element is `element`.
    fn splat(element: u64) -> Self;
    /// Each element shifted towards its low end.
    fn down<const BY: u32>(self) -> Self;
    /// Each element shifted towards its high end.
    fn up<const BY: u32>(self) -> Self;
    /// The word of the first [`Word::ELEMENTS`] of `elements`.
    fn load(elements: &[u64]) -> Self;
    /// The reverse of [`Word::load`].
    fn store(self, elements: &mut [u64]);
}

impl Word for u64 {
    const ELEMENTS: usize = 1;

    #[inline(always)]
    fn splat(element: u64) -> Self {
        element
    }

    #[inline(always)]
    fn down<const BY: u32>(self) -> Self {
        self >> BY
    }

    #[inline(always)]
    fn up<const BY: u32>(self) -> Self {
        self << BY
    }

    #[inline(always)]
    fn load(elements: &[u64]) -> Self {
        elements[0]
    }

    #[inline(always)]
    fn store(self, elements: &mut [u64]) {
        elements[0] = self;
    }
}

#[cfg(target_arch = "x86_64")]
pub(super) use x86_64::{Wide256, Wide512};

#[cfg(target_arch = "x86_64")]
mod x86_64 {
    use std::arch::x86_64::*;

    use super::*;

    macro_rules! wide {
        ($name:ident, $vector:ident, $elements:literal, $and:ident, $or:ident, $xor:ident, $splat:ident,
         $down:ident, $up:ident, $load:ident, $store:ident) => {
            #[doc = concat!(stringify!($elements), " elements in a vector.")]
            /// Made and used only in functions that enable its instructions.
            #[derive(Clone, Copy)]
            pub(in super::super) struct $name($vector);

            impl BitAnd for $name {
                type Output = Self;
                #[inline(always)]
                fn bitand(self, other: Self) -> Self {
                    // SAFETY: a vector exists only where its instructions do.
                    Self(unsafe { $and(self.0, other.0) })
                }
            }

            impl BitOr for $name {
                type Output = Self;
                #[inline(always)]
                fn bitor(self, other: Self) -> Self {
                    // SAFETY: as above.
                    Self(unsafe { $or(self.0, other.0) })
                }
            }

            impl BitXor for $name {
                type Output = Self;
                #[inline(always)]
                fn bitxor(self, other: Self) -> Self {
                    // SAFETY: as above.
                    Self(unsafe { $xor(self.0, other.0) })
                }
            }

            impl Not for $name {
                type Output = Self;
                #[inline(always)]
                fn not(self) -> Self {
                    self ^ Self::splat(u64::MAX)
                }
            }

            impl Word for $name {
                const ELEMENTS: usize = $elements;

                #[inline(always)]
                fn splat(element: u64) -> Self {
                    // SAFETY: the contract of `Word`.
                    Self(unsafe { $splat(element as i64) })
                }

                #[inline(always)]
                fn down<const BY: u32>(self) -> Self {
                    // SAFETY: as above; the count in the low element of a vector is one that every such shift takes.
                    Self(unsafe { $down(self.0, _mm_cvtsi64_si128(BY as i64)) })
                }

                #[inline(always)]
                fn up<const BY: u32>(self) -> Self {
                    // SAFETY: as above.
                    Self(unsafe { $up(self.0, _mm_cvtsi64_si128(BY as i64)) })
                }

                #[inline(always)]
                fn load(elements: &[u64]) -> Self {
                    let elements: &[u64; $elements] =
                        elements[..$elements].try_into().expect("as long");
                    // SAFETY: the array is as long as the vector.
                    Self(unsafe { $load(elements.as_ptr().cast()) })
                }

                #[inline(always)]
                fn store(self, elements: &mut [u64]) {
                    let elements = &mut elements[..$elements];
                    // SAFETY: the slice is as long as the vector.
                    unsafe { $store(elements.as_mut_ptr().cast(), self.0) };
                }
            }
        };
    }

    wide!(
        Wide256,
        __m256i,
        4,
        _mm256_and_si256,
        _mm256_or_si256,
        _mm256_xor_si256,
        _mm256_set1_epi64x,
        _mm256_srl_epi64,
        _mm256_sll_epi64,
        _mm256_loadu_si256,
        _mm256_storeu_si256
    );
    wide!(
        Wide512,
        __m512i,
        8,
        _mm512_and_si512,
        _mm512_or_si512,
        _mm512_xor_si512,
        _mm512_set1_epi64,
        _mm512_srl_epi64,
        _mm512_sll_epi64,
        _mm512_loadu_si512,
        _mm512_storeu_si512
    );
}
