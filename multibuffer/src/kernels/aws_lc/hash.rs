//! Hash functions that can go on from a saved chaining value, as HMAC with cached key blocks needs.

use aws_lc_sys as sys;
use zeroize::Zeroize;

use super::init;

/// A Merkle–Damgård hash function whose running state is plain data.
pub(crate) trait Hash {
    /// The chaining value between blocks.
    type State: Copy + Zeroize + Send + Sync;
    /// A hash under way.
    type Context;
    /// Bytes in a block.
    const BLOCK: usize;
    /// Bytes of digest.
    const OUTPUT: usize;

    /// A hash that has read nothing.
    fn start() -> Self::Context;
    /// A hash that has read one block and then had this chaining value.
    fn resume(state: &Self::State) -> Self::Context;
    /// Reads `bytes`.
    fn update(context: &mut Self::Context, bytes: &[u8]);
    /// The chaining value of a hash that has read whole blocks.
    fn state(context: &Self::Context) -> Self::State;
    /// Writes the digest to the first [`Hash::OUTPUT`] bytes of `digest`.
    fn finish(context: Self::Context, digest: &mut [u8; 64]);
}

macro_rules! hash {
    ($name:ident, $context:ident, $state:ty, $block:literal, $output:literal,
     $init:ident, $update:ident, $finish:ident $(, $field:ident = $value:expr)*) => {
        #[doc = concat!("`", stringify!($name), "` of AWS-LC.")]
        pub(crate) struct $name;

        impl Hash for $name {
            type State = $state;
            type Context = sys::$context;
            const BLOCK: usize = $block;
            const OUTPUT: usize = $output;

            fn start() -> Self::Context {
                init();
                let mut context = sys::$context::default();
                // SAFETY: `context` is writable; the function sets plain fields.
                unsafe { sys::$init(&raw mut context) };
                context
            }

            fn resume(state: &Self::State) -> Self::Context {
                // The length is counted in bits, so one block of $block bytes is eight times that.
                sys::$context { h: *state, Nl: $block * 8, $($field: $value,)* ..Default::default() }
            }

            fn update(context: &mut Self::Context, bytes: &[u8]) {
                // SAFETY: `bytes` is readable for its length, `context` was set by `start` or `resume`.
                unsafe { sys::$update(&raw mut *context, bytes.as_ptr().cast(), bytes.len()) };
            }

            fn state(context: &Self::Context) -> Self::State {
                debug_assert_eq!(context.num, 0, "a chaining value stands between blocks");
                context.h
            }

            fn finish(mut context: Self::Context, digest: &mut [u8; 64]) {
                // SAFETY: the function writes $output bytes, and `digest` has room for 64.
                unsafe { sys::$finish(digest.as_mut_ptr(), &raw mut context) };
            }
        }
    };
}

hash!(
    Md5, MD5_CTX, [u32; 4], 64, 16, MD5_Init, MD5_Update, MD5_Final
);
hash!(
    Sha1,
    SHA_CTX,
    [u32; 5],
    64,
    20,
    SHA1_Init,
    SHA1_Update,
    SHA1_Final
);
hash!(
    Ripemd160,
    RIPEMD160_CTX,
    [u32; 5],
    64,
    20,
    RIPEMD160_Init,
    RIPEMD160_Update,
    RIPEMD160_Final
);
hash!(
    Sha256,
    SHA256_CTX,
    [u32; 8],
    64,
    32,
    SHA256_Init,
    SHA256_Update,
    SHA256_Final,
    md_len = 32
);
hash!(
    Sha384,
    SHA512_CTX,
    [u64; 8],
    128,
    48,
    SHA384_Init,
    SHA384_Update,
    SHA384_Final,
    md_len = 48
);
hash!(
    Sha512,
    SHA512_CTX,
    [u64; 8],
    128,
    64,
    SHA512_Init,
    SHA512_Update,
    SHA512_Final,
    md_len = 64
);
