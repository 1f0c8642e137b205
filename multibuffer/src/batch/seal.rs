//! Sealing: what is required of a job, and its path through cipher and MAC.

use super::{
    aead::seal_aead,
    ccm, chacha,
    members::{Members, are_blocks, fits, parts},
    size::{STRIDE_JOBS, WINDOW_JOBS},
};
use crate::{Key, SealJob, aead::gather, cbc::Text, key::Transform, mac::MacJob};

/// Panics over a job that cannot be sealed.
pub(super) fn check(job: &SealJob<'_>) {
    let key = job.key;
    let text_len: usize = job.input.iter().map(|part| part.len()).sum();
    assert_eq!(
        job.output.len(),
        text_len + key.icv_len(),
        "output must be the inputs' length and the ICV's together"
    );
    assert!(
        are_blocks(key, text_len),
        "the inputs must be whole blocks together"
    );
    let fits = fits(key, job.iv.as_bytes(), job.aad, job.aad_tail);
    assert!(fits, "IV or associated data do not fit the key");
}

/// Seals every member; all keys are like `key`.
pub(super) fn members(key: &Key, mut members: Members<'_, SealJob<'_>>) {
    let Transform::EncryptThenMac { cipher, mac } = &key.transform else {
        return match &key.transform {
            Transform::Ccm(key) => ccm::seal_members(key, &mut members),
            Transform::Aead(key) => match key.max_lane_bytes() {
                Some(max_bytes) => chacha::seal_members(max_bytes, &mut members),
                None => members.one_by_one(seal_aead),
            },
            _ => members.one_by_one(seal_aead),
        };
    };
    if key.is_by_library() {
        return members.iter_mut().for_each(|job| {
            text_to_encrypt(job).encrypt_alone();
            sealed_message(job).alone();
        });
    }
    let stride = if cipher.prefers_many() {
        WINDOW_JOBS
    } else {
        STRIDE_JOBS
    };
    for mut stride in members.strides(stride) {
        if cipher.reads_ranges() {
            stride.iter_mut().for_each(encrypt_ranges);
        } else {
            cipher.encrypt_all(stride.iter_mut().map(text_to_encrypt));
        }
        mac.sign_all(stride.iter_mut().map(sealed_message));
    }
}

fn encrypt_ranges(job: &mut SealJob<'_>) {
    let text_len = job.output.len() - job.key.icv_len();
    let (cipher, text) = (parts(job.key).0, &mut job.output[..text_len]);
    cipher.encrypt_ranges(job.iv.as_bytes(), job.input, text);
}

/// The input of one job, gathered just before a kernel reads it.
fn text_to_encrypt<'m>(job: &'m mut SealJob<'_>) -> Text<'m> {
    let text_len = job.output.len() - job.key.icv_len();
    let text = &mut job.output[..text_len];
    gather(job.input, text);
    Text {
        key: parts(job.key).0,
        iv: job.iv,
        text,
    }
}

/// RFC 4303 3.3.2.2: the ICV covers the header, the IV, the ciphertext and the high sequence number.
fn sealed_message<'m>(job: &'m mut SealJob<'_>) -> MacJob<'m> {
    let text_len = job.output.len() - job.key.icv_len();
    let (text, icv) = job.output.split_at_mut(text_len);
    let message = [job.aad, job.iv.as_bytes(), text, job.aad_tail];
    MacJob {
        key: parts(job.key).1,
        message,
        icv,
    }
}
