//! ChaCha20-Poly1305 over many packets: keystreams of all, then the tags of all; opened, tags come first.

use super::{
    aead::{open_aead, seal_aead, text_len},
    members::{Job, Members, verdict},
};
use crate::{
    Iv, Key, OpenJob, SealJob, Verdict,
    constant_time::constant_time_eq,
    kernels::{
        lanes::{ChaChaKey, ChaChaPackets},
        nonce::Nonce,
    },
    key::Transform,
};

/// Packets that are computed together.
const STRIDE_JOBS: usize = ChaChaPackets::MAX_PACKETS;

/// From how many packets on lanes are faster than the library.
const MIN_JOBS: usize = 4;

/// Seals every member; lanes are used for texts of up to `max_bytes` bytes.
pub(super) fn seal_members(max_bytes: usize, members: &mut Members<'_, SealJob<'_>>) {
    let is_short = |job: &SealJob<'_>| job.output.len() <= max_bytes;
    by_stride(members, is_short, seal_stride, seal_aead);
}

/// Opens every member; lanes are used for texts of up to `max_bytes` bytes.
pub(super) fn open_members(max_bytes: usize, members: &mut Members<'_, OpenJob<'_>>) {
    let is_short = |job: &OpenJob<'_>| job.text.len() <= max_bytes;
    by_stride(members, is_short, open_stride, open_aead);
}

/// Puts each stride into lanes, or processes it packet by packet where lanes are slower.
fn by_stride<'a, J: Job<'a>>(
    members: &mut Members<'_, J>,
    is_short: impl Fn(&J) -> bool,
    in_lanes: impl Fn(&mut Members<'_, J>),
    alone: impl Fn(&mut J),
) {
    for mut stride in members.strides(STRIDE_JOBS) {
        if stride.iter_mut().filter(|job| is_short(job)).count() < MIN_JOBS {
            stride.one_by_one(&alone);
        } else {
            in_lanes(&mut stride);
        }
    }
}

fn seal_stride(stride: &mut Members<'_, SealJob<'_>>) {
    let mut tags = [[0; 16]; STRIDE_JOBS];
    let mut packets = ChaChaPackets::none();
    for (job, tag) in stride.iter_mut().zip(&mut tags) {
        let text_len = job.output.len() - job.key.icv_len();
        let (key, nonce) = parts(job.key, &job.iv);
        let text = &mut job.output[..text_len];
        packets.add(key, (nonce, job.aad), job.input, text, tag);
    }
    packets.seal();
    for (job, tag) in stride.iter_mut().zip(&tags) {
        let text_len = job.output.len() - job.key.icv_len();
        job.output[text_len..].copy_from_slice(tag);
    }
}

/// RFC 8439 2.8: nothing is decrypted before its tag is known to be right.
fn open_stride(stride: &mut Members<'_, OpenJob<'_>>) {
    let mut tags = [[0; 16]; STRIDE_JOBS];
    let mut packets = ChaChaPackets::none();
    for (job, tag) in stride.iter_mut().zip(&mut tags) {
        let Some(text_len) = text_len(job) else {
            job.verdict = Verdict::BadIcv;
            continue;
        };
        job.verdict = Verdict::Pending;
        add(&mut packets, job, text_len, tag);
    }
    packets.sign();
    let mut packets = ChaChaPackets::none();
    for (job, tag) in stride.iter_mut().zip(&mut tags) {
        if job.verdict == Verdict::Pending {
            let text_len = job.text.len() - job.key.icv_len();
            job.verdict = verdict(constant_time_eq(tag, &job.text[text_len..]));
            if job.verdict == Verdict::Genuine {
                add(&mut packets, job, text_len, tag);
            }
        }
    }
    packets.apply();
}

fn add<'m>(
    packets: &mut ChaChaPackets<'m>,
    job: &'m mut OpenJob<'_>,
    text_len: usize,
    tag: &'m mut [u8; 16],
) {
    let (key, nonce) = parts(job.key, &job.iv);
    let text = &mut job.text[..text_len];
    packets.add_in_place(key, (nonce, job.aad), text, tag);
}

fn parts<'k>(key: &'k Key, iv: &Iv) -> (&'k ChaChaKey, Nonce) {
    match &key.transform {
        Transform::Aead(key) => key
            .in_lanes(iv)
            .expect("all keys were made for this processor"),
        _ => unreachable!("a member of another suite"),
    }
}
