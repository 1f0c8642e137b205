//! Integrity alone: signing and verifying what AH protects.

use super::{
    members::{MAX_ICV_BYTES, Members, parts, verdict},
    size::STRIDE_JOBS,
};
use crate::{
    Key, SignJob, VerifyJob,
    constant_time::constant_time_eq,
    key::Transform,
    mac::{MacJob, MacKey},
};

/// Panics over a job that cannot be signed.
pub(super) fn check(job: &SignJob<'_>) {
    let key = job.key;
    assert_eq!(
        job.icv.len(),
        key.icv_len(),
        "the ICV must be as long as the key's"
    );
    check_signer(key, job.iv.as_bytes());
}

/// The same of a job to verify.
pub(super) fn check_verify(job: &VerifyJob<'_>) {
    check_signer(job.key, job.iv.as_bytes());
}

fn check_signer(key: &Key, iv: &[u8]) {
    match &key.transform {
        Transform::Gmac(_) => {
            assert_eq!(iv.len(), key.iv_len(), "GMAC needs its IV")
        }
        Transform::EncryptThenMac { mac, .. } if !matches!(mac, MacKey::None) => {}
        _ => panic!("a key without an integrity algorithm cannot sign"),
    }
}

/// Signs every member; all keys are like `key`.
pub(super) fn members(key: &Key, mut members: Members<'_, SignJob<'_>>) {
    match &key.transform {
        Transform::EncryptThenMac { .. } => {
            let jobs = members.iter_mut();
            sign_all(key, jobs.map(|job| message(job.key, job.input, job.icv)));
        }
        Transform::Gmac(_) => members.iter_mut().for_each(sign_gmac),
        _ => unreachable!("only keys that sign were let in"),
    }
}

/// Signs every message; all keys are like `key`.
fn sign_all<'a>(key: &Key, messages: impl Iterator<Item = MacJob<'a>>) {
    if key.is_by_library() {
        messages.for_each(MacJob::alone);
    } else {
        parts(key).1.sign_all(messages);
    }
}

fn message<'a>(key: &'a Key, input: [&'a [u8]; 3], icv: &'a mut [u8]) -> MacJob<'a> {
    let [first, second, third] = input;
    MacJob {
        key: parts(key).1,
        message: [first, second, third, &[]],
        icv,
    }
}

fn sign_gmac(job: &mut SignJob<'_>) {
    match &job.key.transform {
        Transform::Gmac(key) => key.sign(&job.iv, job.input, job.icv),
        _ => unreachable!("a member of another suite"),
    }
}

/// Verifies every member; all keys are like `key`.
pub(super) fn verify_members(key: &Key, mut members: Members<'_, VerifyJob<'_>>) {
    for mut stride in members.strides(STRIDE_JOBS) {
        match &key.transform {
            Transform::EncryptThenMac { .. } => verify_macs(key, &mut stride),
            Transform::Gmac(_) => stride.iter_mut().for_each(verify_gmac),
            _ => unreachable!("only keys that sign were let in"),
        }
    }
}

fn verify_macs(key: &Key, stride: &mut Members<'_, VerifyJob<'_>>) {
    let mut expected = [[0; MAX_ICV_BYTES]; STRIDE_JOBS];
    let jobs = stride.iter_mut().zip(&mut expected);
    let messages =
        jobs.map(|(job, icv)| message(job.key, job.input, &mut icv[..job.key.icv_len()]));
    sign_all(key, messages);
    for (job, expected) in stride.iter_mut().zip(&expected) {
        let expected = &expected[..job.key.icv_len()];
        job.verdict = verdict(constant_time_eq(expected, job.icv));
    }
}

fn verify_gmac(job: &mut VerifyJob<'_>) {
    let fits = job.icv.len() == job.key.icv_len();
    job.verdict = match &job.key.transform {
        Transform::Gmac(key) => verdict(fits && key.verify(&job.iv, job.input, job.icv)),
        _ => unreachable!("a member of another suite"),
    };
}
