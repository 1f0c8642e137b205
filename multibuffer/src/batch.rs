//! From jobs to kernels: checks every job, then hands what is alike to one kernel together.
//!
//! ```text
//!   jobs ──► windows ──► members of one suite ──► strides ──► gather and encrypt all ──► MAC all
//! ```
//!
//! A window bounds the bookkeeping. The members of one suite need not stand together: where two security
//! associations share a link, their packets alternate. A stride is what passes from the cipher to the MAC while it is
//! still in the cache.

mod aead;
mod ccm;
mod chacha;
mod members;
mod open;
mod seal;
mod sign;
pub(crate) mod size;

use members::{Job, Members};
use size::WINDOW_JOBS;

use std::ptr;

use crate::{Key, OpenJob, SealJob, SignJob, VerifyJob, zeroing};

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

/// Calls `each` with one key and all jobs whose keys are like it, until every job had its turn.
fn by_suite<'a, J: Job<'a>>(jobs: &mut [J], each: impl Fn(&'a Key, Members<'_, J>)) {
    for window in jobs.chunks_mut(WINDOW_JOBS) {
        let mut done = [false; WINDOW_JOBS];
        let done = &mut done[..window.len()];
        while let Some(first) = done.iter().position(|done| !done) {
            let key = window[first].key();
            let mut flags = [false; WINDOW_JOBS];
            let flags = &mut flags[..window.len()];
            // Neighbours mostly have one key, and need no second comparison.
            let (mut last, mut is_like) = (key, true);
            for ((flag, done), job) in flags.iter_mut().zip(&mut *done).zip(&*window) {
                if !ptr::eq(last, job.key()) {
                    (last, is_like) = (job.key(), key.is_like(job.key()));
                }
                *flag = is_like && !*done;
                *done |= is_like;
            }
            let members = Members {
                jobs: window,
                flags,
            };
            zeroing::in_own_frame(|| each(key, members));
            if key.leaves_copies() {
                zeroing::zero_stack();
            }
        }
    }
}
