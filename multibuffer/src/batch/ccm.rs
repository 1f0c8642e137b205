//! AES-CCM over many packets: the MACs of all in lanes, then counter mode packet by packet.
//!
//! CCM authenticates the plaintext, so a packet is signed before it is sealed, and decrypted before it is verified.

use super::{
    aead::{open_aead, seal_aead, text_len},
    members::{Members, verdict},
    size::STRIDE_JOBS,
};
use crate::{
    Iv, OpenJob, SealJob, Verdict,
    aead::{Ccm, MacScratch, gather},
    constant_time::constant_time_eq,
    kernels::lanes::{self, LaneKeys},
    key::Transform,
};

/// Seals every member; all keys are as long as `key`.
pub(super) fn seal_members(key: &Ccm, members: &mut Members<'_, SealJob<'_>>) {
    by_stride(key, members, |job| job.aad.len(), seal_stride, seal_aead);
}

/// Opens every member; all keys are as long as `key`.
pub(super) fn open_members(key: &Ccm, members: &mut Members<'_, OpenJob<'_>>) {
    by_stride(key, members, |job| job.aad.len(), open_stride, open_aead);
}

/// Puts each stride into lanes for the number of rounds of its keys, or processes it packet by packet where there are
/// no lanes for associated data of its length.
fn by_stride<J>(
    key: &Ccm,
    members: &mut Members<'_, J>,
    aad_len: impl Fn(&J) -> usize,
    in_lanes: impl Fn(usize, &mut Members<'_, J>),
    alone: impl Fn(&mut J),
) {
    for mut stride in members.strides(STRIDE_JOBS) {
        let longest = stride.iter_mut().map(|job| aad_len(job)).max();
        match key.lanes(longest.unwrap_or_default()) {
            Some(keys) => in_lanes(keys.rounds(), &mut stride),
            None => stride.iter_mut().for_each(&alone),
        }
    }
}

fn seal_stride(rounds: usize, stride: &mut Members<'_, SealJob<'_>>) {
    let mut scratches = [MacScratch::EMPTY; STRIDE_JOBS];
    let jobs = stride.iter_mut().zip(&mut scratches).map(|(job, scratch)| {
        let (key, keys) = parts(&job.key.transform);
        let text_len = job.output.len() - job.key.icv_len();
        let text = &mut job.output[..text_len];
        gather(job.input, text);
        key.message(keys, (&job.iv, job.aad), text, scratch)
    });
    lanes::cbc_mac(rounds, jobs);
    for (job, scratch) in stride.iter_mut().zip(&mut scratches) {
        let text_len = job.output.len() - job.key.icv_len();
        let (text, icv) = job.output.split_at_mut(text_len);
        apply(&job.key.transform, &job.iv, text, &mut scratch.tag);
        icv.copy_from_slice(&scratch.tag[..icv.len()]);
    }
}

fn open_stride(rounds: usize, stride: &mut Members<'_, OpenJob<'_>>) {
    let mut scratches = [MacScratch::EMPTY; STRIDE_JOBS];
    for job in stride.iter_mut() {
        let Some(text_len) = text_len(job) else {
            job.verdict = Verdict::BadIcv;
            continue;
        };
        job.verdict = Verdict::Pending;
        let mut unused = [0; 16];
        apply(
            &job.key.transform,
            &job.iv,
            &mut job.text[..text_len],
            &mut unused,
        );
    }
    let jobs = stride
        .iter_mut()
        .zip(&mut scratches)
        .filter_map(|(job, scratch)| {
            let text = &job.text[..text_len(job)?];
            let (key, keys) = parts(&job.key.transform);
            Some(key.message(keys, (&job.iv, job.aad), text, scratch))
        });
    lanes::cbc_mac(rounds, jobs);
    for (job, scratch) in stride.iter_mut().zip(&mut scratches) {
        if job.verdict == Verdict::Pending {
            set_verdict(job, scratch);
        }
    }
}

/// Compares the ICV with the MAC; if it is wrong, the plaintext is zeroed.
fn set_verdict(job: &mut OpenJob<'_>, scratch: &mut MacScratch) {
    apply(&job.key.transform, &job.iv, &mut [], &mut scratch.tag);
    let text_len = job.text.len() - job.key.icv_len();
    let (text, icv) = job.text.split_at_mut(text_len);
    let genuine = constant_time_eq(&scratch.tag[..icv.len()], icv);
    if !genuine {
        text.fill(0);
    }
    job.verdict = verdict(genuine);
}

fn apply(transform: &Transform, iv: &Iv, text: &mut [u8], tag: &mut [u8; 16]) {
    let (key, keys) = parts(transform);
    key.apply(keys, iv, text, tag);
}

fn parts(transform: &Transform) -> (&Ccm, &LaneKeys) {
    match transform {
        Transform::Ccm(key) => (
            key,
            key.lanes(0).expect("all keys were made for this processor"),
        ),
        _ => unreachable!("a member of another suite"),
    }
}
