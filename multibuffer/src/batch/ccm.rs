//! AES-CCM over many packets: the MACs of all in lanes, then counter mode packet by packet.
//!
//! CCM signs the plaintext, so a packet is signed before it is sealed, and decrypted before it is proven.

use super::{
    Members, STRIDE,
    open::{open_aead, text_len},
    seal::seal_aead,
    verdict,
};
use crate::{
    Iv, OpenJob, SealJob, Verdict,
    aead::{Ccm, Desk, gather},
    compare::same,
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

/// Puts each stride into lanes, which are told the rounds of its keys, or takes it packet by packet where there are none
/// for associated data of its length.
fn by_stride<J>(
    key: &Ccm,
    members: &mut Members<'_, J>,
    aad_len: impl Fn(&J) -> usize,
    in_lanes: impl Fn(usize, &mut Members<'_, J>),
    alone: impl Fn(&mut J),
) {
    for mut stride in members.strides(STRIDE) {
        let longest = stride.iter_mut().map(|job| aad_len(job)).max();
        match key.lanes(longest.unwrap_or_default()) {
            Some(keys) => in_lanes(keys.rounds(), &mut stride),
            None => stride.iter_mut().for_each(&alone),
        }
    }
}

fn seal_stride(rounds: usize, stride: &mut Members<'_, SealJob<'_>>) {
    let mut desks = [Desk::EMPTY; STRIDE];
    let jobs = stride.iter_mut().zip(&mut desks).map(|(job, desk)| {
        let (key, keys) = parts(&job.key.transform);
        let text_len = job.output.len() - job.key.icv_len();
        let text = &mut job.output[..text_len];
        gather(job.input, text);
        key.message(keys, (&job.iv, job.aad), text, desk)
    });
    lanes::cbc_mac(rounds, jobs);
    for (job, desk) in stride.iter_mut().zip(&mut desks) {
        let text_len = job.output.len() - job.key.icv_len();
        let (text, icv) = job.output.split_at_mut(text_len);
        apply(&job.key.transform, &job.iv, text, &mut desk.tag);
        icv.copy_from_slice(&desk.tag[..icv.len()]);
    }
}

fn open_stride(rounds: usize, stride: &mut Members<'_, OpenJob<'_>>) {
    let mut desks = [Desk::EMPTY; STRIDE];
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
    let jobs = stride.iter_mut().zip(&mut desks).filter_map(|(job, desk)| {
        let text = &job.text[..text_len(job)?];
        let (key, keys) = parts(&job.key.transform);
        Some(key.message(keys, (&job.iv, job.aad), text, desk))
    });
    lanes::cbc_mac(rounds, jobs);
    for (job, desk) in stride.iter_mut().zip(&mut desks) {
        if job.verdict == Verdict::Pending {
            settle(job, desk);
        }
    }
}

/// Compares the ICV with what was signed; a plaintext that proves false is wiped.
fn settle(job: &mut OpenJob<'_>, desk: &mut Desk) {
    apply(&job.key.transform, &job.iv, &mut [], &mut desk.tag);
    let text_len = job.text.len() - job.key.icv_len();
    let (text, icv) = job.text.split_at_mut(text_len);
    let genuine = same(&desk.tag[..icv.len()], icv);
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
