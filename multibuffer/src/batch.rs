//! From jobs to kernels: checks every job, then seals, opens or signs it.

use crate::{Key, OpenJob, SealJob, SignJob, Verdict, key::Transform, mac::MacKey};

/// See [`crate::seal`].
pub(crate) fn seal(jobs: &mut [SealJob<'_>]) {
    for job in jobs {
        check_seal(job);
        let text_len = gather(job);
        let (text, icv) = job.output.split_at_mut(text_len);
        match &job.key.transform {
            Transform::Sealing(key) => key.seal(&job.iv, job.aad, text, icv),
            Transform::Ccm(key) => key.seal(&job.iv, job.aad, text, icv),
            Transform::Gmac(key) => key.sign(&job.iv, [job.aad, job.iv.as_bytes(), text], icv),
            Transform::EncryptThenMac { cipher, mac } => {
                cipher.encrypt(job.iv.as_bytes(), text);
                mac.sign(&[job.aad, job.iv.as_bytes(), text, job.aad_tail], icv);
            }
        }
    }
}

fn check_seal(job: &SealJob<'_>) {
    let key = job.key;
    let text_len = input_len(job);
    assert_eq!(
        job.output.len(),
        text_len + key.icv_len(),
        "output must be the inputs' length and the ICV's together"
    );
    assert!(
        text_len.is_multiple_of(key.block_len()),
        "the inputs must be whole blocks together"
    );
    assert!(
        fits(key, job.iv.as_bytes(), job.aad, job.aad_tail),
        "IV or associated data do not fit the key"
    );
}

/// Whether what stands beside the text has a length that the key can use. The associated data of CCM are at most
/// 65279 bytes (RFC 3610 2.2, the short form of their length).
fn fits(key: &Key, iv: &[u8], aad: &[u8], aad_tail: &[u8]) -> bool {
    let tail_fits =
        aad_tail.is_empty() || matches!(key.transform, Transform::EncryptThenMac { .. });
    let aad_fits = aad.len() < 0xff00 || !matches!(key.transform, Transform::Ccm(_));
    iv.len() == key.iv_len() && tail_fits && aad_fits
}

fn input_len(job: &SealJob<'_>) -> usize {
    job.input.iter().map(|part| part.len()).sum()
}

/// Copies the inputs to the start of the output, where the ciphers then work in place; returns their length.
fn gather(job: &mut SealJob<'_>) -> usize {
    let mut at = 0;
    for part in job.input {
        job.output[at..at + part.len()].copy_from_slice(part);
        at += part.len();
    }
    at
}

/// See [`crate::open`].
pub(crate) fn open(jobs: &mut [OpenJob<'_>]) {
    for job in jobs {
        let genuine = open_one(job);
        job.verdict = if genuine {
            Verdict::Genuine
        } else {
            Verdict::BadIcv
        };
    }
}

fn open_one(job: &mut OpenJob<'_>) -> bool {
    let Some(text_len) = text_len(job) else {
        return false;
    };
    let (text, icv) = job.text.split_at_mut(text_len);
    match &job.key.transform {
        Transform::Sealing(key) => key.open(&job.iv, job.aad, text, icv),
        Transform::Ccm(key) => key.open(&job.iv, job.aad, text, icv),
        Transform::Gmac(key) => key.verify(&job.iv, [job.aad, job.iv.as_bytes(), text], icv),
        Transform::EncryptThenMac { cipher, mac } => {
            let iv = job.iv.as_bytes();
            // RFC 4303 3.4.4: the ICV is checked before anything is decrypted.
            let genuine = mac.verify(&[job.aad, iv, text, job.aad_tail], icv);
            if genuine {
                cipher.decrypt(iv, text);
            }
            genuine
        }
    }
}

/// Bytes of ciphertext, unless the lengths cannot be right.
fn text_len(job: &OpenJob<'_>) -> Option<usize> {
    let key = job.key;
    let text_len = job.text.len().checked_sub(key.icv_len())?;
    let fits = text_len.is_multiple_of(key.block_len())
        && fits(key, job.iv.as_bytes(), job.aad, job.aad_tail);
    fits.then_some(text_len)
}

/// See [`crate::sign`].
pub(crate) fn sign(jobs: &mut [SignJob<'_>]) {
    for job in jobs {
        let key = job.key;
        assert_eq!(
            job.icv.len(),
            key.icv_len(),
            "the ICV must be as long as the key's"
        );
        match &key.transform {
            Transform::Gmac(gmac) => {
                assert_eq!(job.iv.as_bytes().len(), key.iv_len(), "GMAC needs its IV");
                gmac.sign(&job.iv, job.input, job.icv);
            }
            Transform::EncryptThenMac { mac, .. } if !matches!(mac, MacKey::None) => {
                mac.sign(&job.input, job.icv)
            }
            _ => panic!("a key without an integrity algorithm cannot sign"),
        }
    }
}
