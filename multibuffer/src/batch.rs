//! From jobs to kernels: checks every job, then hands what is alike to one kernel together.
//!
//! ```text
//!   jobs ──► windows ──► members of one suite ──► strides ──► gather and encrypt all ──► MAC all
//! ```
//!
//! A window bounds the bookkeeping. The members of one suite need not stand together: where two security
//! associations share a link, their packets alternate. A stride is what passes from the cipher to the MAC while it is
//! still in the cache.

mod ccm;

use crate::{
    Key, OpenJob, SealJob, SignJob, Verdict, VerifyJob,
    aead::gather,
    cbc::{CipherKey, Text},
    compare::same,
    key::Transform,
    mac::{MacJob, MacKey},
};

/// Jobs that are looked at together.
const WINDOW: usize = 256;

/// Jobs that go through cipher and MAC together: so many full packets stay in the second-level cache.
///
/// MEASURED: against 32, 4 to 10 % more at 64 bytes and the same at 1408 (Xeon, family 6 model 207; `--example versus`).
const STRIDE: usize = 64;

/// Room for any ICV: the whole output of HMAC-SHA-512.
const MAX_ICV: usize = 64;

/// See [`crate::seal`].
pub(crate) fn seal(jobs: &mut [SealJob<'_>]) {
    jobs.iter().for_each(check_seal);
    by_suite(jobs, seal_members);
}

/// See [`crate::open`].
pub(crate) fn open(jobs: &mut [OpenJob<'_>]) {
    by_suite(jobs, open_members);
}

/// See [`crate::sign`].
pub(crate) fn sign(jobs: &mut [SignJob<'_>]) {
    jobs.iter().for_each(check_sign);
    by_suite(jobs, sign_members);
}

/// See [`crate::verify`].
pub(crate) fn verify(jobs: &mut [VerifyJob<'_>]) {
    jobs.iter()
        .for_each(|job| check_signer(job.key, job.iv.as_bytes()));
    by_suite(jobs, verify_members);
}

trait Job<'a> {
    fn key(&self) -> &'a Key;
}

impl<'a> Job<'a> for SealJob<'a> {
    fn key(&self) -> &'a Key {
        self.key
    }
}

impl<'a> Job<'a> for OpenJob<'a> {
    fn key(&self) -> &'a Key {
        self.key
    }
}

impl<'a> Job<'a> for SignJob<'a> {
    fn key(&self) -> &'a Key {
        self.key
    }
}

impl<'a> Job<'a> for VerifyJob<'a> {
    fn key(&self) -> &'a Key {
        self.key
    }
}

/// Some of the jobs of a window: those whose flag is up.
struct Members<'m, J> {
    jobs: &'m mut [J],
    flags: &'m [bool],
}

impl<J> Members<'_, J> {
    fn iter_mut(&mut self) -> impl Iterator<Item = &mut J> {
        self.jobs
            .iter_mut()
            .zip(self.flags)
            .filter_map(|(job, flag)| flag.then_some(job))
    }

    fn strides(&mut self, stride: usize) -> impl Iterator<Item = Members<'_, J>> {
        let parts = self.jobs.chunks_mut(stride).zip(self.flags.chunks(stride));
        parts.map(|(jobs, flags)| Members { jobs, flags })
    }
}

/// Calls `each` with one key and all jobs whose keys are like it, until every job had its turn.
fn by_suite<'a, J: Job<'a>>(jobs: &mut [J], each: impl Fn(&'a Key, Members<'_, J>)) {
    for window in jobs.chunks_mut(WINDOW) {
        let mut done = [false; WINDOW];
        let done = &mut done[..window.len()];
        while let Some(first) = done.iter().position(|done| !done) {
            let key = window[first].key();
            let mut flags = [false; WINDOW];
            let flags = &mut flags[..window.len()];
            for ((flag, done), job) in flags.iter_mut().zip(&mut *done).zip(&*window) {
                *flag = !*done && key.is_like(job.key());
                *done |= *flag;
            }
            each(
                key,
                Members {
                    jobs: window,
                    flags,
                },
            );
        }
    }
}

fn check_seal(job: &SealJob<'_>) {
    let key = job.key;
    let text_len: usize = job.input.iter().map(|part| part.len()).sum();
    assert_eq!(
        job.output.len(),
        text_len + key.icv_len(),
        "output must be the inputs' length and the ICV's together"
    );
    assert!(
        text_len.is_multiple_of(key.block_len()),
        "the inputs must be whole blocks together"
    );
    let fits = fits(key, job.iv.as_bytes(), job.aad, job.aad_tail);
    assert!(fits, "IV or associated data do not fit the key");
}

/// Whether what stands beside the text has a length that the key can use. The associated data of CCM are at most
/// 65279 bytes (RFC 3610 2.2, the short form of their length).
fn fits(key: &Key, iv: &[u8], aad: &[u8], aad_tail: &[u8]) -> bool {
    let tail_fits =
        aad_tail.is_empty() || matches!(key.transform, Transform::EncryptThenMac { .. });
    let aad_fits = aad.len() < 0xff00 || !matches!(key.transform, Transform::Ccm(_));
    iv.len() == key.iv_len() && tail_fits && aad_fits
}

fn seal_members(key: &Key, mut members: Members<'_, SealJob<'_>>) {
    let Transform::EncryptThenMac { cipher, mac } = &key.transform else {
        if let Transform::Ccm(key) = &key.transform {
            return ccm::seal_members(key, &mut members);
        }
        return members.iter_mut().for_each(seal_aead);
    };
    if key.is_by_library() {
        return members.iter_mut().for_each(|job| {
            text_to_encrypt(job).encrypt_alone();
            sealed_message(job).alone();
        });
    }
    let stride = if cipher.prefers_many() {
        WINDOW
    } else {
        STRIDE
    };
    for mut stride in members.strides(stride) {
        cipher.encrypt_all(stride.iter_mut().map(text_to_encrypt));
        mac.sign_all(stride.iter_mut().map(sealed_message));
    }
}

fn seal_aead(job: &mut SealJob<'_>) {
    let text_len = job.output.len() - job.key.icv_len();
    let (text, icv) = job.output.split_at_mut(text_len);
    if let Transform::Sealing(key) = &job.key.transform {
        return key.seal(&job.iv, job.aad, job.input, text, icv);
    }
    gather(job.input, text);
    match &job.key.transform {
        Transform::Ccm(key) => key.seal(&job.iv, job.aad, text, icv),
        Transform::Gmac(key) => key.sign(&job.iv, [job.aad, job.iv.as_bytes(), text], icv),
        _ => unreachable!("a member of another suite"),
    }
}

/// The input of one job, gathered just before a kernel wants it.
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

fn parts(key: &Key) -> (&CipherKey, &MacKey) {
    match &key.transform {
        Transform::EncryptThenMac { cipher, mac } => (cipher, mac),
        _ => unreachable!("a member of another suite"),
    }
}

fn open_members(key: &Key, mut members: Members<'_, OpenJob<'_>>) {
    let Transform::EncryptThenMac { cipher, mac } = &key.transform else {
        if let Transform::Ccm(key) = &key.transform {
            return ccm::open_members(key, &mut members);
        }
        return members.iter_mut().for_each(open_aead);
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

fn open_aead(job: &mut OpenJob<'_>) {
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

fn verdict(genuine: bool) -> Verdict {
    if genuine {
        Verdict::Genuine
    } else {
        Verdict::BadIcv
    }
}

/// Bytes of ciphertext, unless the lengths cannot be right.
fn text_len(job: &OpenJob<'_>) -> Option<usize> {
    let key = job.key;
    let text_len = job.text.len().checked_sub(key.icv_len())?;
    let fits = fits(key, job.iv.as_bytes(), job.aad, job.aad_tail);
    (fits && text_len.is_multiple_of(key.block_len())).then_some(text_len)
}

/// Settles the verdict of each job: computes all ICVs, then compares each in constant time.
fn verify_all(mac: &MacKey, stride: &mut Members<'_, OpenJob<'_>>) {
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

fn check_sign(job: &SignJob<'_>) {
    let key = job.key;
    assert_eq!(
        job.icv.len(),
        key.icv_len(),
        "the ICV must be as long as the key's"
    );
    check_signer(key, job.iv.as_bytes());
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

fn sign_members(key: &Key, mut members: Members<'_, SignJob<'_>>) {
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

fn verify_members(key: &Key, mut members: Members<'_, VerifyJob<'_>>) {
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
