//! From jobs to kernels: checks every job, then hands what is alike to one kernel together.
//!
//! ```text
//!   jobs ──► windows ──► members of one suite ──► strides ──► gather and encrypt all ──► MAC all
//! ```
//!
//! A window bounds the bookkeeping. The members of one suite need not stand together: where two security
//! associations share a link, their packets alternate. A stride is what passes from the cipher to the MAC while it is
//! still in the cache.

mod ccm;
mod chacha;
mod open;
mod seal;
mod sign;

use std::ptr;

use crate::{
    Key, OpenJob, SealJob, SignJob, Verdict, VerifyJob, cbc::CipherKey, key::Transform,
    mac::MacKey, wipe,
};

/// Jobs that are looked at together.
pub(crate) const WINDOW: usize = 256;

/// Jobs that go through cipher and MAC together: so many full packets stay in the second-level cache.
///
/// MEASURED: against 32, 4 to 10 % more at 64 bytes and the same at 1408 (Xeon, family 6 model 207; `--example versus`).
const STRIDE: usize = 64;

/// How many jobs before its own a key is asked for.
const AHEAD: usize = 6;

/// Room for any ICV: the whole output of HMAC-SHA-512.
const MAX_ICV: usize = 64;

/// See [`crate::seal`].
pub(crate) fn seal(jobs: &mut [SealJob<'_>]) {
    jobs.iter().for_each(seal::check);
    by_suite(jobs, seal::members);
}

/// See [`crate::open`].
pub(crate) fn open(jobs: &mut [OpenJob<'_>]) {
    by_suite(jobs, open::members);
}

/// See [`crate::sign`].
pub(crate) fn sign(jobs: &mut [SignJob<'_>]) {
    jobs.iter().for_each(sign::check);
    by_suite(jobs, sign::members);
}

/// See [`crate::verify`].
pub(crate) fn verify(jobs: &mut [VerifyJob<'_>]) {
    jobs.iter().for_each(sign::check_verify);
    by_suite(jobs, sign::verify_members);
}

trait Job<'a> {
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

/// Some of the jobs of a window: those whose flag is up.
struct Members<'m, J> {
    jobs: &'m mut [J],
    flags: &'m [bool],
}

impl<J> Members<'_, J> {
    fn iter_mut(&mut self) -> impl Iterator<Item = &mut J> {
        self.jobs
            .iter_mut()
            .zip(self.flags)
            .filter_map(|(job, flag)| flag.then_some(job))
    }

    /// Does all of them one after the other. Meanwhile the keys of the next are on their way.
    fn one_by_one<'a>(&mut self, work: impl Fn(&mut J))
    where
        J: Job<'a>,
    {
        (0..AHEAD).for_each(|place| self.fetch(place));
        for place in 0..self.jobs.len() {
            self.fetch(place + AHEAD);
            if self.flags[place] {
                work(&mut self.jobs[place]);
            }
        }
    }

    /// Asks for the key of the job at `place`, if there is one and the job before has another.
    #[inline]
    fn fetch<'a>(&self, place: usize)
    where
        J: Job<'a>,
    {
        let Some(job) = self.jobs.get(place) else {
            return;
        };
        let before = place.checked_sub(1).map(|before| self.jobs[before].key());
        if !before.is_some_and(|before| ptr::eq(before, job.key())) {
            job.key().fetch(job.text_len());
        }
    }

    fn strides(&mut self, stride: usize) -> impl Iterator<Item = Members<'_, J>> {
        let parts = self.jobs.chunks_mut(stride).zip(self.flags.chunks(stride));
        parts.map(|(jobs, flags)| Members { jobs, flags })
    }
}

/// Calls `each` with one key and all jobs whose keys are like it, until every job had its turn.
fn by_suite<'a, J: Job<'a>>(jobs: &mut [J], each: impl Fn(&'a Key, Members<'_, J>)) {
    for window in jobs.chunks_mut(WINDOW) {
        let mut done = [false; WINDOW];
        let done = &mut done[..window.len()];
        while let Some(first) = done.iter().position(|done| !done) {
            let key = window[first].key();
            let mut flags = [false; WINDOW];
            let flags = &mut flags[..window.len()];
            for ((flag, done), job) in flags.iter_mut().zip(&mut *done).zip(&*window) {
                *flag = !*done && key.is_like(job.key());
                *done |= *flag;
            }
            let members = Members {
                jobs: window,
                flags,
            };
            wipe::apart(|| each(key, members));
            if key.leaves_copies() {
                wipe::stack();
            }
        }
    }
}

/// Whether what stands beside the text has a length that the key can use. The associated data of CCM are at most
/// 65279 bytes (RFC 3610 2.2, the short form of their length).
fn fits(key: &Key, iv: &[u8], aad: &[u8], aad_tail: &[u8]) -> bool {
    let tail_fits =
        aad_tail.is_empty() || matches!(key.transform, Transform::EncryptThenMac { .. });
    let aad_fits = aad.len() < 0xff00 || !matches!(key.transform, Transform::Ccm(_));
    iv.len() == key.iv_len() && tail_fits && aad_fits
}

/// Whether so many bytes are whole blocks. A block's length is a power of two; short packets would feel a division.
fn are_blocks(key: &Key, len: usize) -> bool {
    len & (key.block_len() - 1) == 0
}

fn parts(key: &Key) -> (&CipherKey, &MacKey) {
    match &key.transform {
        Transform::EncryptThenMac { cipher, mac } => (cipher, mac),
        _ => unreachable!("a member of another suite"),
    }
}

fn verdict(genuine: bool) -> Verdict {
    if genuine {
        Verdict::Genuine
    } else {
        Verdict::BadIcv
    }
}
