//! What both examples share: suites, one in a line, and batches of jobs under one key.

use multibuffer::{Cipher, Integrity, Iv, Key, OpenJob, SealJob, Verdict};

/// Name, cipher, bytes of its key with the salt, integrity algorithm.
pub type Suite = (&'static str, Cipher, usize, Integrity);

/// A key of the suite with the usual lengths. `see` is shown the bytes before they are used.
pub fn key(&(_, cipher, key_len, integrity): &Suite, see: impl Fn(&[u8])) -> Key {
    let (mac_len, icv_len) = lengths(cipher, integrity);
    let cipher_key: Vec<u8> = (1..=key_len as u8).collect();
    let mac_key = vec![3; mac_len];
    see(&cipher_key);
    see(&mac_key);
    Key::new(cipher, &cipher_key, integrity, &mac_key, icv_len).expect("a legal key")
}

/// Bytes of the integrity algorithm's key, and of the ICV.
fn lengths(cipher: Cipher, integrity: Integrity) -> (usize, usize) {
    match integrity {
        Integrity::None => (0, aead_icv_len(cipher)),
        Integrity::HmacMd5 | Integrity::AesXcbc | Integrity::AesCmac => (16, 12),
        Integrity::HmacSha1 | Integrity::HmacRipemd160 => (20, 12),
        Integrity::HmacSha256 => (32, 16),
        Integrity::HmacSha384 => (48, 24),
        Integrity::HmacSha512 => (64, 32),
        Integrity::AesGmac => (20, 16),
    }
}

fn aead_icv_len(cipher: Cipher) -> usize {
    match cipher {
        Cipher::AesGcm { icv_len } | Cipher::AesCcm { icv_len } => icv_len.into(),
        cipher if cipher.is_aead() => 16,
        _ => 0,
    }
}

/// Seals `plain`, in three ranges as a tunnel has them, into each of `outputs`.
pub fn seal_jobs<'a>(
    key: &'a Key,
    plain: &'a [u8],
    outputs: &'a mut [Vec<u8>],
) -> Vec<SealJob<'a>> {
    let trailer = plain.len() - 10;
    let job = |output: &'a mut Vec<u8>| SealJob {
        key,
        aad: &[9; 8],
        aad_tail: &[],
        iv: iv(key),
        input: [&plain[..20], &plain[20..trailer], &plain[trailer..]],
        output,
    };
    outputs.iter_mut().map(job).collect()
}

/// Opens each of `texts`, as [`seal_jobs`] made them.
pub fn open_jobs<'a>(key: &'a Key, texts: &'a mut [Vec<u8>]) -> Vec<OpenJob<'a>> {
    let job = |text: &'a mut Vec<u8>| OpenJob {
        key,
        aad: &[9; 8],
        aad_tail: &[],
        iv: iv(key),
        text,
        verdict: Verdict::Pending,
    };
    texts.iter_mut().map(job).collect()
}

pub fn iv(key: &Key) -> Iv {
    Iv::new(&[6; 16][..key.iv_len()])
}
