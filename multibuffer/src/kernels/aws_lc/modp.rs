//! Modular exponentiation with a secret exponent, in the prime fields of Diffie-Hellman groups.

use std::ptr::{self, NonNull};

use aws_lc_sys::{
    BIGNUM, BN_CTX, BN_CTX_free, BN_CTX_new, BN_MONT_CTX, BN_MONT_CTX_free,
    BN_MONT_CTX_new_for_modulus, BN_bin2bn, BN_bn2bin_padded, BN_clear_free, BN_cmp, BN_cmp_word,
    BN_mod_exp_mont_consttime, BN_new, BN_num_bytes, BN_sub_word,
};
use zeroize::Zeroizing;

use super::init;

/// Writes a prime that the library has into a number, or makes one where it is given none.
pub(crate) type KnownPrime = unsafe extern "C" fn(*mut BIGNUM) -> *mut BIGNUM;

/// A prime with what exponentiation modulo it needs.
pub(crate) struct Field {
    prime: Number,
    /// The prime less one, of order two.
    largest: Number,
    montgomery: NonNull<BN_MONT_CTX>,
}

// SAFETY: after `Field::new` nothing writes to it; the library only reads what it is given as constant.
unsafe impl Send for Field {}
// SAFETY: as above.
unsafe impl Sync for Field {}

impl Field {
    /// The field of a prime that the library has.
    pub(crate) fn of_known(prime: KnownPrime) -> Self {
        init();
        // SAFETY: given no number, the function allocates one that is the caller's.
        Self::new(Number(allocated(unsafe { prime(ptr::null_mut()) })))
    }

    /// The field of an odd prime, big-endian.
    pub(crate) fn of_prime(prime: &[u8]) -> Self {
        init();
        Self::new(Number::from_bytes(prime))
    }

    fn new(prime: Number) -> Self {
        let mut bytes = vec![0; prime.len()];
        prime.write(&mut bytes);
        let largest = Number::from_bytes(&bytes);
        // SAFETY: both numbers are allocated; `largest` is not shared, and an odd prime is larger than one.
        let montgomery = unsafe {
            assert_eq!(BN_sub_word(largest.0.as_ptr(), 1), 1);
            let context = Context::new();
            BN_MONT_CTX_new_for_modulus(prime.0.as_ptr(), context.0.as_ptr())
        };
        Self {
            montgomery: allocated(montgomery),
            prime,
            largest,
        }
    }

    /// Bytes of a number of this field.
    pub(crate) fn len(&self) -> usize {
        self.prime.len()
    }

    /// Whether 1 < `value` < prime - 1 (RFC 6989 2.1).
    pub(crate) fn is_public_value(&self, value: &[u8]) -> bool {
        let value = Number::from_bytes(value);
        // SAFETY: all numbers are allocated and only read.
        unsafe {
            BN_cmp_word(value.0.as_ptr(), 1) > 0
                && BN_cmp(value.0.as_ptr(), self.largest.0.as_ptr()) < 0
        }
    }

    /// `base` to the power of `exponent`, as long as the prime. The time depends on the length of the exponent, not on
    /// its value. `None` where the library has no memory, or `base` is not smaller than the prime.
    pub(crate) fn power(&self, base: &[u8], exponent: &[u8]) -> Option<Zeroizing<Vec<u8>>> {
        let (base, exponent) = (Number::from_bytes(base), Number::from_bytes(exponent));
        let (context, result) = (Context::new(), Number::new());
        // SAFETY: every number and context is freed after the call, `result` is not shared, and the Montgomery context
        // is that of this modulus. The library refuses a base that is not reduced.
        let status = unsafe {
            BN_mod_exp_mont_consttime(
                result.0.as_ptr(),
                base.0.as_ptr(),
                exponent.0.as_ptr(),
                self.prime.0.as_ptr(),
                context.0.as_ptr(),
                self.montgomery.as_ptr(),
            )
        };
        let mut bytes = Zeroizing::new(vec![0; self.len()]);
        (status == 1).then(|| result.write(&mut bytes))?;
        Some(bytes)
    }
}

impl Drop for Field {
    fn drop(&mut self) {
        // SAFETY: it is ours, and freed once.
        unsafe { BN_MONT_CTX_free(self.montgomery.as_ptr()) }
    }
}

/// A number of the library's; zeroed when dropped.
struct Number(NonNull<BIGNUM>);

impl Number {
    fn new() -> Self {
        // SAFETY: no arguments.
        Self(allocated(unsafe { BN_new() }))
    }

    /// Big-endian, leading zeroes allowed: the number of words depends on the number of bytes, not on their value.
    fn from_bytes(bytes: &[u8]) -> Self {
        // SAFETY: `bytes` has the length passed; given a null pointer, the function allocates the number.
        let number = unsafe { BN_bin2bn(bytes.as_ptr(), bytes.len(), ptr::null_mut()) };
        Self(allocated(number))
    }

    /// Bytes without leading zeroes.
    fn len(&self) -> usize {
        // SAFETY: the number is allocated and only read.
        unsafe { BN_num_bytes(self.0.as_ptr()) as usize }
    }

    /// Big-endian, with leading zeroes.
    ///
    /// # Panics
    /// If `bytes` are too few for the number.
    fn write(&self, bytes: &mut [u8]) {
        // SAFETY: `bytes` is writable and has the length passed; the number is only read.
        let status = unsafe { BN_bn2bin_padded(bytes.as_mut_ptr(), bytes.len(), self.0.as_ptr()) };
        assert_eq!(status, 1, "room for the number");
    }
}

impl Drop for Number {
    fn drop(&mut self) {
        // SAFETY: it is ours, and freed once.
        unsafe { BN_clear_free(self.0.as_ptr()) }
    }
}

/// The library's room for intermediate results.
struct Context(NonNull<BN_CTX>);

impl Context {
    fn new() -> Self {
        // SAFETY: no arguments.
        Self(allocated(unsafe { BN_CTX_new() }))
    }
}

impl Drop for Context {
    fn drop(&mut self) {
        // SAFETY: it is ours, and freed once.
        unsafe { BN_CTX_free(self.0.as_ptr()) }
    }
}

/// What the library has allocated. It fails only without memory, as Rust's own allocations do.
fn allocated<T>(made: *mut T) -> NonNull<T> {
    NonNull::new(made).expect("memory for a number")
}
