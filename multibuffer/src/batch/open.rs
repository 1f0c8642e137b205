//! Opening, the mirror image of sealing: first the MACs of all, then the texts of those that are genuine.

use super::{MAX_ICV, Members, STRIDE, are_blocks, ccm, chacha, fits, parts, verdict};
use crate::{
    Key, OpenJob, Verdict,
    cbc::{CipherKey, Text},
    compare::same,
    key::Transform,
    mac::{MacJob, MacKey},
};

/// Opens every member; all keys are like `key`.
pub(super) fn members(key: &Key, mut members: Members<'_, OpenJob<'_>>) {
    let Transform::EncryptThenMac { cipher, mac } = &key.transform else {
        return match &key.transform {
            Transform::Ccm(key) => ccm::open_members(key, &mut members),
            Transform::Sealing(key) => match key.longest_in_lanes() {
                Some(longest) => chacha::open_members(longest, &mut members),
                None => members.one_by_one(open_aead),
            },
            _ => members.one_by_one(open_aead),
        };
    };
    if key.is_by_library() {
        return members.iter_mut().for_each(open_by_library);
    }
    // RFC 4303 3.4.4: the ICV is checked before anything is decrypted.
    if cipher.prefers_many() {
        members
            .strides(STRIDE)
            .for_each(|mut stride| verify_all(mac, &mut stride));
        decrypt_genuine(cipher, &mut members);
    } else {
        for mut stride in members.strides(STRIDE) {
            verify_all(mac, &mut stride);
            decrypt_genuine(cipher, &mut stride);
        }
    }
}

fn decrypt_genuine(cipher: &CipherKey, members: &mut Members<'_, OpenJob<'_>>) {
    let genuine = members
        .iter_mut()
        .filter(|job| job.verdict == Verdict::Genuine);
    cipher.decrypt_all(genuine.map(text_to_decrypt));
}

fn open_by_library(job: &mut OpenJob<'_>) {
    let mut expected = [0; MAX_ICV];
    if let Some(message) = received_message(job, &mut expected) {
        message.alone();
    }
    settle(job, &expected);
    if job.verdict == Verdict::Genuine {
        text_to_decrypt(job).decrypt_alone();
    }
}

/// Opens one packet by a cipher that authenticates too.
pub(super) fn open_aead(job: &mut OpenJob<'_>) {
    let text_len = text_len(job);
    let genuine = text_len.is_some_and(|text_len| {
        let (text, icv) = job.text.split_at_mut(text_len);
        match &job.key.transform {
            Transform::Sealing(key) => key.open(&job.iv, job.aad, text, icv),
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

/// Settles the verdict of each job: computes all ICVs, then compares each in constant time. Where there are none, only
/// lengths can be wrong.
fn verify_all(mac: &MacKey, stride: &mut Members<'_, OpenJob<'_>>) {
    if let MacKey::None = mac {
        let settle = |job: &mut OpenJob<'_>| job.verdict = verdict(text_len(job).is_some());
        return stride.iter_mut().for_each(settle);
    }
    let mut expected = [[0; MAX_ICV]; STRIDE];
    let jobs = stride.iter_mut().zip(&mut expected);
    mac.sign_all(jobs.filter_map(|(job, icv)| received_message(job, icv)));
    for (job, expected) in stride.iter_mut().zip(&expected) {
        settle(job, expected);
    }
}

fn settle(job: &mut OpenJob<'_>, expected: &[u8; MAX_ICV]) {
    let genuine = text_len(job).is_some_and(|text_len| {
        let icv = &job.text[text_len..];
        same(&expected[..icv.len()], icv)
    });
    job.verdict = verdict(genuine);
}

fn received_message<'m>(job: &'m OpenJob<'_>, icv: &'m mut [u8; MAX_ICV]) -> Option<MacJob<'m>> {
    let text = &job.text[..text_len(job)?];
    let message = [job.aad, job.iv.as_bytes(), text, job.aad_tail];
    Some(MacJob {
        key: parts(job.key).1,
        message,
        icv: &mut icv[..job.key.icv_len()],
    })
}

fn text_to_decrypt<'m>(job: &'m mut OpenJob<'_>) -> Text<'m> {
    let text_len = job.text.len() - job.key.icv_len();
    Text {
        key: parts(job.key).0,
        iv: job.iv,
        text: &mut job.text[..text_len],
    }
}
