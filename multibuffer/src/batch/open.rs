//! Opening, the mirror image of sealing: first the MACs of all, then the texts of those that are genuine.

use super::{
    aead::{open_aead, text_len},
    ccm, chacha,
    members::{MAX_ICV_BYTES, Members, parts, verdict},
    size::STRIDE_JOBS,
};
use crate::{
    Key, OpenJob, Verdict,
    cbc::{CipherKey, Text},
    constant_time::constant_time_eq,
    key::Transform,
    mac::{MacJob, MacKey},
};

/// Opens every member; all keys are like `key`.
pub(super) fn members(key: &Key, mut members: Members<'_, OpenJob<'_>>) {
    let Transform::EncryptThenMac { cipher, mac } = &key.transform else {
        return match &key.transform {
            Transform::Ccm(key) => ccm::open_members(key, &mut members),
            Transform::Aead(key) => match key.max_lane_bytes() {
                Some(max_bytes) => chacha::open_members(max_bytes, &mut members),
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
            .strides(STRIDE_JOBS)
            .for_each(|mut stride| verify_all(mac, &mut stride));
        decrypt_genuine(cipher, &mut members);
    } else {
        for mut stride in members.strides(STRIDE_JOBS) {
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
    let mut expected = [0; MAX_ICV_BYTES];
    if let Some(message) = received_message(job, &mut expected) {
        message.alone();
    }
    set_verdict(job, &expected);
    if job.verdict == Verdict::Genuine {
        text_to_decrypt(job).decrypt_alone();
    }
}

/// Sets the verdict of each job: computes all ICVs, then compares each in constant time. Without an integrity algorithm
/// only lengths can be wrong.
fn verify_all(mac: &MacKey, stride: &mut Members<'_, OpenJob<'_>>) {
    if let MacKey::None = mac {
        let set_verdict = |job: &mut OpenJob<'_>| job.verdict = verdict(text_len(job).is_some());
        return stride.iter_mut().for_each(set_verdict);
    }
    let mut expected = [[0; MAX_ICV_BYTES]; STRIDE_JOBS];
    let jobs = stride.iter_mut().zip(&mut expected);
    mac.sign_all(jobs.filter_map(|(job, icv)| received_message(job, icv)));
    for (job, expected) in stride.iter_mut().zip(&expected) {
        set_verdict(job, expected);
    }
}

fn set_verdict(job: &mut OpenJob<'_>, expected: &[u8; MAX_ICV_BYTES]) {
    let genuine = text_len(job).is_some_and(|text_len| {
        let icv = &job.text[text_len..];
        constant_time_eq(&expected[..icv.len()], icv)
    });
    job.verdict = verdict(genuine);
}

fn received_message<'m>(
    job: &'m OpenJob<'_>,
    icv: &'m mut [u8; MAX_ICV_BYTES],
) -> Option<MacJob<'m>> {
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
