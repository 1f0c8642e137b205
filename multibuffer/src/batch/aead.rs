//! One packet by a cipher that authenticates too.

use super::members::{are_blocks, fits, verdict};
use crate::{OpenJob, SealJob, aead::gather, key::Transform};

/// Seals one packet by a cipher that authenticates too.
pub(super) fn seal_aead(job: &mut SealJob<'_>) {
    let text_len = job.output.len() - job.key.icv_len();
    let (text, icv) = job.output.split_at_mut(text_len);
    if let Transform::Aead(key) = &job.key.transform {
        return key.seal(&job.iv, job.aad, job.input, text, icv);
    }
    gather(job.input, text);
    match &job.key.transform {
        Transform::Ccm(key) => key.seal(&job.iv, job.aad, text, icv),
        Transform::Gmac(key) => key.sign(&job.iv, [job.aad, job.iv.as_bytes(), text], icv),
        _ => unreachable!("a member of another suite"),
    }
}

/// Opens one packet by a cipher that authenticates too.
pub(super) fn open_aead(job: &mut OpenJob<'_>) {
    let text_len = text_len(job);
    let genuine = text_len.is_some_and(|text_len| {
        let (text, icv) = job.text.split_at_mut(text_len);
        match &job.key.transform {
            Transform::Aead(key) => key.open(&job.iv, job.aad, text, icv),
            Transform::Ccm(key) => key.open(&job.iv, job.aad, text, icv),
            Transform::Gmac(key) => key.verify(&job.iv, [job.aad, job.iv.as_bytes(), text], icv),
            Transform::EncryptThenMac { .. } => unreachable!("a member of another suite"),
        }
    });
    job.verdict = verdict(genuine);
}

/// Bytes of ciphertext, unless the lengths cannot be right.
pub(super) fn text_len(job: &OpenJob<'_>) -> Option<usize> {
    let key = job.key;
    let text_len = job.text.len().checked_sub(key.icv_len())?;
    let fits = fits(key, job.iv.as_bytes(), job.aad, job.aad_tail);
    (fits && are_blocks(key, text_len)).then_some(text_len)
}
