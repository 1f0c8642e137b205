//! The kernels that take many packets at once, chosen by processor.

#[cfg(target_arch = "x86_64")]
pub(crate) use x86_64::*;

#[cfg(not(target_arch = "x86_64"))]
pub(crate) use other::*;

#[cfg(target_arch = "x86_64")]
mod x86_64 {
    pub(crate) use crate::kernels::{aesni::RoundKeys as LaneKeys, cbc_lanes::CbcJob};
    use crate::{
        detect::features,
        kernels::{aesni, vaes},
    };

    /// Encrypts all jobs in CBC mode; their keys have `rounds` rounds.
    pub(crate) fn cbc_encrypt<'a>(rounds: usize, jobs: impl Iterator<Item = CbcJob<'a>>) {
        if features().vaes {
            // SAFETY: the processor has VAES.
            unsafe { vaes::cbc_encrypt(rounds, jobs) }
        } else {
            aesni::cbc_encrypt(rounds, jobs);
        }
    }
}

/// Processors for which there are no such kernels: no key is ever made for them.
#[cfg(not(target_arch = "x86_64"))]
mod other {
    /// Cannot exist.
    pub(crate) enum LaneKeys {}

    impl LaneKeys {
        pub(crate) fn new(_key: &[u8]) -> Option<Self> {
            None
        }

        pub(crate) fn rounds(&self) -> usize {
            match *self {}
        }
    }

    pub(crate) struct CbcJob<'a> {
        pub(crate) keys: &'a LaneKeys,
        pub(crate) iv: [u8; 16],
        pub(crate) text: &'a mut [u8],
    }

    pub(crate) fn cbc_encrypt<'a>(_rounds: usize, mut jobs: impl Iterator<Item = CbcJob<'a>>) {
        assert!(jobs.next().is_none(), "no key exists for these jobs");
    }
}
