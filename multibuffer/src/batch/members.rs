//! The jobs of one suite, and the checks that sealing, opening and signing share.

use std::ptr;

use crate::{
    Key, OpenJob, SealJob, SignJob, Verdict, VerifyJob, cbc::CipherKey, key::Transform, mac::MacKey,
};

/// How many jobs ahead keys are prefetched.
const PREFETCH_DISTANCE_JOBS: usize = 6;

/// Room for any ICV: the whole output of HMAC-SHA-512.
pub(super) const MAX_ICV_BYTES: usize = 64;

/// What the four kinds of job have in common.
pub(super) trait Job<'a> {
    fn key(&self) -> &'a Key;

    /// About how many bytes are enciphered.
    fn text_len(&self) -> usize;
}

impl<'a> Job<'a> for SealJob<'a> {
    fn key(&self) -> &'a Key {
        self.key
    }

    fn text_len(&self) -> usize {
        self.output.len()
    }
}

impl<'a> Job<'a> for OpenJob<'a> {
    fn key(&self) -> &'a Key {
        self.key
    }

    fn text_len(&self) -> usize {
        self.text.len()
    }
}

impl<'a> Job<'a> for SignJob<'a> {
    fn key(&self) -> &'a Key {
        self.key
    }

    fn text_len(&self) -> usize {
        0
    }
}

impl<'a> Job<'a> for VerifyJob<'a> {
    fn key(&self) -> &'a Key {
        self.key
    }

    fn text_len(&self) -> usize {
        0
    }
}

/// The jobs of a window whose flag is set.
pub(super) struct Members<'m, J> {
    pub(super) jobs: &'m mut [J],
    pub(super) flags: &'m [bool],
}

impl<J> Members<'_, J> {
    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = &mut J> {
        self.jobs
            .iter_mut()
            .zip(self.flags)
            .filter_map(|(job, flag)| flag.then_some(job))
    }

    /// Processes them one after the other, and prefetches the keys of the next ones.
    pub(super) fn one_by_one<'a>(&mut self, work: impl Fn(&mut J))
    where
        J: Job<'a>,
    {
        (0..PREFETCH_DISTANCE_JOBS).for_each(|place| self.prefetch_for(place));
        for place in 0..self.jobs.len() {
            self.prefetch_for(place + PREFETCH_DISTANCE_JOBS);
            if self.flags[place] {
                work(&mut self.jobs[place]);
            }
        }
    }

    /// Prefetches the key of the job at `place`, unless the job before it has the same one.
    #[inline]
    fn prefetch_for<'a>(&self, place: usize)
    where
        J: Job<'a>,
    {
        let Some(job) = self.jobs.get(place) else {
            return;
        };
        let before = place.checked_sub(1).map(|before| self.jobs[before].key());
        if !before.is_some_and(|before| ptr::eq(before, job.key())) {
            job.key().prefetch_for(job.text_len());
        }
    }

    pub(super) fn strides(&mut self, stride: usize) -> impl Iterator<Item = Members<'_, J>> {
        let parts = self.jobs.chunks_mut(stride).zip(self.flags.chunks(stride));
        parts.map(|(jobs, flags)| Members { jobs, flags })
    }
}

/// Whether IV and associated data have lengths that the key can use. The associated data of CCM are at most 65279 bytes
/// (RFC 3610 2.2, the short form of their length).
pub(super) fn fits(key: &Key, iv: &[u8], aad: &[u8], aad_tail: &[u8]) -> bool {
    let tail_fits =
        aad_tail.is_empty() || matches!(key.transform, Transform::EncryptThenMac { .. });
    let aad_fits = aad.len() < 0xff00 || !matches!(key.transform, Transform::Ccm(_));
    iv.len() == key.iv_len() && tail_fits && aad_fits
}

/// Whether `len` is a whole number of blocks. A block's length is a power of two; a division would cost a short packet
/// time.
pub(super) fn are_blocks(key: &Key, len: usize) -> bool {
    len & (key.block_len() - 1) == 0
}

pub(super) fn parts(key: &Key) -> (&CipherKey, &MacKey) {
    match &key.transform {
        Transform::EncryptThenMac { cipher, mac } => (cipher, mac),
        _ => unreachable!("a member of another suite"),
    }
}

pub(super) fn verdict(genuine: bool) -> Verdict {
    if genuine {
        Verdict::Genuine
    } else {
        Verdict::BadIcv
    }
}
