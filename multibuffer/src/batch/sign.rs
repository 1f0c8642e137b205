//! Integrity alone: signing and verifying what AH protects.

use super::{MAX_ICV, Members, STRIDE, parts, verdict};
use crate::{
    Key, SignJob, VerifyJob,
    compare::same,
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
        Transform::EncryptThenMac { .. } if key.is_by_library() => {
            members
                .iter_mut()
                .for_each(|job| message_to_sign(job).alone());
        }
        Transform::EncryptThenMac { mac, .. } => {
            mac.sign_all(members.iter_mut().map(message_to_sign));
        }
        Transform::Gmac(_) => members.iter_mut().for_each(sign_gmac),
        _ => unreachable!("only keys that sign were let in"),
    }
}

fn message_to_sign<'m>(job: &'m mut SignJob<'_>) -> MacJob<'m> {
    let [first, second, third] = job.input;
    MacJob {
        key: parts(job.key).1,
        message: [first, second, third, &[]],
        icv: job.icv,
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
    for mut stride in members.strides(STRIDE) {
        match &key.transform {
            Transform::EncryptThenMac { mac, .. } => verify_macs(mac, &mut stride),
            Transform::Gmac(_) => stride.iter_mut().for_each(verify_gmac),
            _ => unreachable!("only keys that sign were let in"),
        }
    }
}

fn verify_macs(mac: &MacKey, stride: &mut Members<'_, VerifyJob<'_>>) {
    let mut expected = [[0; MAX_ICV]; STRIDE];
    mac.sign_all(stride.iter_mut().zip(&mut expected).map(|(job, icv)| {
        let [first, second, third] = job.input;
        MacJob {
            key: parts(job.key).1,
            message: [first, second, third, &[]],
            icv: &mut icv[..job.key.icv_len()],
        }
    }));
    for (job, expected) in stride.iter_mut().zip(&expected) {
        let expected = &expected[..job.key.icv_len()];
        job.verdict = verdict(same(expected, job.icv));
    }
}

fn verify_gmac(job: &mut VerifyJob<'_>) {
    let fits = job.icv.len() == job.key.icv_len();
    job.verdict = match &job.key.transform {
        Transform::Gmac(key) => verdict(fits && key.verify(&job.iv, job.input, job.icv)),
        _ => unreachable!("a member of another suite"),
    };
}
