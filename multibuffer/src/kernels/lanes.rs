//! The kernels for many packets at once, chosen by the processor's features; safe functions around them.

#[cfg(target_arch = "x86_64")]
pub(crate) use x86_64::*;

#[cfg(not(target_arch = "x86_64"))]
pub(crate) use other::*;

use super::bitslice::{self, PlaneWidth};
use crate::detect::features;

/// Decrypts all jobs: all are of Triple DES if `triple`, else all of DES.
pub(crate) fn des_cbc_decrypt<'a>(
    triple: bool,
    jobs: impl Iterator<Item = bitslice::DesCbcJob<'a>>,
) {
    // SAFETY: the processor has the features.
    unsafe { bitslice::cbc_decrypt(PlaneWidth::for_many(features()), triple, jobs) }
}

/// Encrypts all jobs: all are of Triple DES if `triple`, else all of DES.
pub(crate) fn des_cbc_encrypt<'a>(
    triple: bool,
    jobs: impl Iterator<Item = bitslice::DesCbcJob<'a>>,
) {
    // SAFETY: the processor has the features.
    unsafe { bitslice::cbc_encrypt(PlaneWidth::for_few(features()), triple, jobs) }
}

#[cfg(target_arch = "x86_64")]
mod x86_64 {
    pub(crate) use crate::kernels::{
        aesni::RoundKeys as LaneKeys,
        cbc_lanes::{CbcJob, CbcMacJob},
        chacha::{ChaChaKey, ChaChaPackets},
        gcm::GcmKey,
        hash_lanes::{HmacJob, Lanes, Md5, Ripemd160, Sha1, Sha256, Sha384, Sha512},
        streams::inverse,
    };
    use crate::{
        detect::features,
        kernels::{
            aesni, cbc_lanes, chacha, hash_lanes::HmacKernel, nonce::Nonce, streams, wide::AesLevel,
        },
    };

    /// Expands 16, 24 or 32 key bytes; `None` for others, or if the processor lacks AES-NI.
    pub(crate) fn aes_keys(key: &[u8]) -> Option<LaneKeys> {
        let fits = matches!(key.len(), 16 | 24 | 32) && features().aesni;
        // SAFETY: the processor has AES-NI.
        fits.then(|| unsafe { aesni::expand(key) })
    }

    /// Expands 16, 24 or 32 bytes, if this processor has the instructions.
    pub(crate) fn gcm_key(key: &[u8]) -> Option<GcmKey> {
        let level = AesLevel::for_gcm(features())?;
        // SAFETY: the processor has the features.
        matches!(key.len(), 16 | 24 | 32).then(|| unsafe { GcmKey::for_level(level, key) })
    }

    /// Takes 32 bytes, if this processor has the instructions.
    pub(crate) fn chacha_key(key: &[u8]) -> Option<ChaChaKey> {
        let level = chacha::ChaChaLevel::best(features())?;
        // SAFETY: the processor has the features.
        Some(unsafe { ChaChaKey::for_level(level, key.try_into().ok()?) })
    }

    /// Counter mode over `text` in place, counted from `number` on.
    pub(crate) fn ctr(keys: &LaneKeys, nonce: Nonce, number: u32, text: &mut [u8]) {
        // SAFETY: the processor has the features.
        unsafe { streams::ctr_in_place_on(level(), keys, nonce, number, text) }
    }

    /// Counter mode from `input` into `output`, which is as long.
    pub(crate) fn ctr_into(
        keys: &LaneKeys,
        nonce: Nonce,
        number: u32,
        input: [&[u8]; 3],
        output: &mut [u8],
    ) {
        // SAFETY: the processor has the features.
        unsafe { streams::ctr_on(level(), keys, nonce, number, input, output) }
    }

    /// CBC decryption of `text`, whole blocks, in place, by keys that [`inverse`] made.
    pub(crate) fn cbc_decrypt(keys: &LaneKeys, iv: &[u8; 16], text: &mut [u8]) {
        assert!(text.len().is_multiple_of(16), "CBC text is whole blocks");
        // SAFETY: the processor has the features.
        unsafe { streams::cbc_decrypt_on(level(), keys, iv, text) }
    }

    /// Encrypts all jobs in CBC mode; their keys have `rounds` rounds.
    pub(crate) fn cbc_encrypt<'a>(rounds: usize, jobs: impl Iterator<Item = CbcJob<'a>>) {
        // SAFETY: the processor has the features.
        unsafe { cbc_lanes::cbc_encrypt(level(), rounds, jobs) }
    }

    /// Signs all jobs with XCBC or CMAC; their keys have `rounds` rounds.
    pub(crate) fn cbc_mac<'a>(rounds: usize, jobs: impl Iterator<Item = CbcMacJob<'a>>) {
        // SAFETY: the processor has the features.
        unsafe { cbc_lanes::cbc_mac(level(), rounds, jobs) }
    }

    /// Whether [`ctr_into`] is faster than counter mode in place after a copy: not where vectors are put together in
    /// memory.
    pub(crate) fn ctr_reads_ranges() -> bool {
        level() == AesLevel::Four
    }

    fn level() -> AesLevel {
        AesLevel::for_aes(features()).expect("round keys exist only where AES instructions do")
    }

    /// The fewest messages for which lanes are faster than the library, if this processor has them.
    pub(crate) fn hmac_min_jobs<A: Lanes>() -> Option<usize> {
        A::choose(features()).min_jobs()
    }

    /// Signs all jobs. Only where [`hmac_min_jobs`] is not `None`: then there are lanes.
    pub(crate) fn hmac<'a, A: Lanes>(jobs: impl Iterator<Item = HmacJob<'a, A>>) {
        // SAFETY: only kernels of the features that the processor has are best.
        unsafe {
            match A::choose(features()) {
                HmacKernel::Vectors(width) => A::sign_in_vectors(width, jobs),
                HmacKernel::Pair => A::sign_in_pairs(jobs),
                HmacKernel::Library => unreachable!("asked for lanes where there are none"),
            }
        }
    }
}

/// Processors for which there are no such kernels: no key is ever made for them.
#[cfg(not(target_arch = "x86_64"))]
mod other {
    use std::marker::PhantomData;

    use crate::kernels::nonce::Nonce;

    pub(crate) use NoCbcJob as CbcJob;
    pub(crate) use NoCbcMacJob as CbcMacJob;
    pub(crate) use NoKey as ChaChaKey;
    pub(crate) use NoKey as GcmKey;
    pub(crate) use NoKey as LaneKeys;
    pub(crate) use NoPackets as ChaChaPackets;

    /// Cannot exist.
    pub(crate) enum NoKey {}

    pub(crate) fn aes_keys(_key: &[u8]) -> Option<LaneKeys> {
        None
    }

    pub(crate) fn gcm_key(_key: &[u8]) -> Option<GcmKey> {
        None
    }

    pub(crate) fn chacha_key(_key: &[u8]) -> Option<ChaChaKey> {
        None
    }

    impl NoKey {
        pub(crate) fn rounds(&self) -> usize {
            match *self {}
        }
    }

    impl NoKey {
        pub(crate) fn is_faster_for(&self, _len: usize) -> bool {
            match *self {}
        }

        pub(crate) fn prefetch_for(&self, _len: usize) {
            match *self {}
        }

        pub(crate) fn seal(
            &self,
            _nonce: Nonce,
            _aad: &[u8],
            _input: [&[u8]; 3],
            _output: &mut [u8],
        ) -> [u8; 16] {
            match *self {}
        }

        pub(crate) fn open(&self, _nonce: Nonce, _aad: &[u8], _text: &mut [u8]) -> [u8; 16] {
            match *self {}
        }

        pub(crate) fn sign(&self, _nonce: Nonce, _message: [&[u8]; 3]) -> [u8; 16] {
            match *self {}
        }
    }

    impl NoKey {
        pub(crate) fn max_bytes(&self) -> usize {
            match *self {}
        }
    }

    /// Always empty.
    pub(crate) struct NoPackets<'a>(PhantomData<&'a ChaChaKey>);

    impl<'a> NoPackets<'a> {
        pub(crate) const MAX_PACKETS: usize = 32;

        pub(crate) fn none() -> Self {
            Self(PhantomData)
        }

        pub(crate) fn add(
            &mut self,
            key: &'a ChaChaKey,
            _nonce_and_aad: (Nonce, &'a [u8]),
            _input: [&'a [u8]; 3],
            _output: &'a mut [u8],
            _tag: &'a mut [u8; 16],
        ) {
            match *key {}
        }

        pub(crate) fn add_in_place(
            &mut self,
            key: &'a ChaChaKey,
            _nonce_and_aad: (Nonce, &'a [u8]),
            _text: &'a mut [u8],
            _tag: &'a mut [u8; 16],
        ) {
            match *key {}
        }

        pub(crate) fn seal(&mut self) {}

        pub(crate) fn sign(&mut self) {}

        pub(crate) fn apply(&mut self) {}
    }

    pub(crate) fn ctr(keys: &LaneKeys, _nonce: Nonce, _number: u32, _text: &mut [u8]) {
        match *keys {}
    }

    pub(crate) fn ctr_reads_ranges() -> bool {
        false
    }

    pub(crate) fn ctr_into(
        keys: &LaneKeys,
        _nonce: Nonce,
        _number: u32,
        _input: [&[u8]; 3],
        _output: &mut [u8],
    ) {
        match *keys {}
    }

    pub(crate) fn cbc_decrypt(keys: &LaneKeys, _iv: &[u8; 16], _text: &mut [u8]) {
        match *keys {}
    }

    pub(crate) fn inverse(keys: &LaneKeys) -> LaneKeys {
        match *keys {}
    }

    pub(crate) struct NoCbcJob<'a> {
        pub(crate) keys: &'a LaneKeys,
        pub(crate) iv: [u8; 16],
        pub(crate) text: &'a mut [u8],
    }

    pub(crate) struct NoCbcMacJob<'a> {
        pub(crate) keys: &'a LaneKeys,
        pub(crate) complete: &'a [u8; 16],
        pub(crate) padded: &'a [u8; 16],
        pub(crate) message: [&'a [u8]; 4],
        pub(crate) icv: &'a mut [u8],
    }

    pub(crate) fn cbc_mac<'a>(_rounds: usize, mut jobs: impl Iterator<Item = CbcMacJob<'a>>) {
        assert!(jobs.next().is_none(), "no key exists for these jobs");
    }

    pub(crate) fn cbc_encrypt<'a>(_rounds: usize, mut jobs: impl Iterator<Item = CbcJob<'a>>) {
        assert!(jobs.next().is_none(), "no key exists for these jobs");
    }
}
