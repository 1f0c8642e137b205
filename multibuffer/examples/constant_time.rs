//! The program that `tests/constant-time/run` examines: it does what a gateway does with secrets.
//!
//! ```text
//!   secrets        under valgrind: keys and texts are marked undefined, so that memcheck reports every branch and
//!                  every address that depends on one
//!   leak-branch    the same with a function that leaks by a branch, and
//!   leak-index     by an address: memcheck has to report them
//!   times          how long kernels take for one secret and for many, as Welch's t (after the program dudect)
//! ```

use std::hint::black_box;

use multibuffer::{Cipher, Integrity as Mac, Key, SignJob, Verdict, memcheck};

#[path = "both/batch.rs"]
mod batch;

use batch::{Suite, open_jobs, seal_jobs};

/// What is claimed to take the same time for all secrets. Not here: Blowfish, CAST-128 and Camellia, which look secrets
/// up in tables, and DES in batches too small for bit slices.
const SUITES: &[Suite] = &[
    ("aes-128-gcm", Cipher::AesGcm { icv_len: 16 }, 20, Mac::None),
    ("aes-256-gcm", Cipher::AesGcm { icv_len: 8 }, 36, Mac::None),
    ("aes-128-gmac", Cipher::AesGmac, 20, Mac::None),
    ("aes-128-ccm", Cipher::AesCcm { icv_len: 16 }, 19, Mac::None),
    ("chacha20-poly1305", Cipher::ChaCha20Poly1305, 36, Mac::None),
    ("aes-192-cbc", Cipher::AesCbc, 24, Mac::None),
    ("aes-128-ctr", Cipher::AesCtr, 20, Mac::None),
    ("aes-128-cbc+hmac-sha1", Cipher::AesCbc, 16, Mac::HmacSha1),
    ("3des-cbc+hmac-md5", Cipher::TripleDesCbc, 24, Mac::HmacMd5),
    ("des-cbc+hmac-sha2-256", Cipher::DesCbc, 8, Mac::HmacSha256),
    ("null+hmac-sha2-384", Cipher::Null, 0, Mac::HmacSha384),
    ("null+hmac-sha2-512", Cipher::Null, 0, Mac::HmacSha512),
    ("null+hmac-ripemd160", Cipher::Null, 0, Mac::HmacRipemd160),
    ("null+aes-xcbc-mac", Cipher::Null, 0, Mac::AesXcbc),
    ("null+aes-cmac", Cipher::Null, 0, Mac::AesCmac),
    ("null+aes-128-gmac", Cipher::Null, 0, Mac::AesGmac),
];

/// Packets: enough for bit slices in every pass.
const BATCH_JOBS: usize = 16;
/// Bytes of text: a short and a long one, since kernels are chosen by length.
const TEXT_BYTES: [usize; 2] = [64, 352];

fn main() {
    match std::env::args().nth(1).as_deref() {
        Some("secrets") => SUITES.iter().for_each(use_secrets),
        Some("leak-branch") => leak_by_branch(),
        Some("leak-index") => leak_by_index(),
        Some("times") => SUITES.iter().for_each(time),
        _ => panic!("constant_time secrets|leak-branch|leak-index|times"),
    }
}

fn use_secrets(suite: &Suite) {
    let &(name, cipher, _, integrity) = suite;
    println!("{name}");
    let key = batch::key(suite, memcheck::make_secret);
    // Once in a batch, for the kernels, and once alone, unless that means tables.
    for len in TEXT_BYTES {
        seal_and_open(&key, BATCH_JOBS, len);
        if !matches!(cipher, Cipher::DesCbc | Cipher::TripleDesCbc) {
            seal_and_open(&key, 1, len);
        }
    }
    if integrity != Mac::None {
        sign(&key);
    }
}

fn seal_and_open(key: &Key, count: usize, len: usize) {
    let plain = vec![5; len];
    memcheck::make_secret(&plain);
    let mut packets = vec![vec![0; len + key.icv_len()]; count];
    multibuffer::seal(&mut seal_jobs(key, &plain, &mut packets));
    let mut jobs = open_jobs(key, &mut packets);
    multibuffer::open(&mut jobs);
    assert!(jobs.iter().all(|job| job.verdict == Verdict::Genuine));
}

fn sign(key: &Key) {
    let message = [5; 100];
    memcheck::make_secret(&message);
    let mut icvs = vec![vec![0; key.icv_len()]; BATCH_JOBS];
    let mut jobs: Vec<SignJob<'_>> = icvs
        .iter_mut()
        .map(|icv| SignJob {
            key,
            input: [&message[..30], &message[30..], &[]],
            iv: batch::iv(key),
            icv,
        })
        .collect();
    multibuffer::sign(&mut jobs);
}

/// Compares as one must not: it stops at the first difference.
#[inline(never)]
fn leak_by_branch() {
    let (secret, guess) = ([7_u8; 16], [7, 7, 8]);
    memcheck::make_secret(&secret);
    let mut right = 0;
    for (secret, guess) in black_box(&secret).iter().zip(black_box(&guess)) {
        if secret != guess {
            break;
        }
        right += 1;
    }
    println!("{right} right");
}

/// Looks a secret up in a table, as ciphers did before bit slices.
#[inline(never)]
fn leak_by_index() {
    let (secret, table) = ([7_u8; 16], [3_u8; 256]);
    memcheck::make_secret(&secret);
    let found = black_box(&secret)
        .iter()
        .fold(0, |found, &at| found ^ black_box(&table)[usize::from(at)]);
    black_box(found);
}

/// Never called with anything of value: a branch on vector contents, which the check of the machine code has to find.
#[cfg(target_arch = "x86_64")]
#[inline(never)]
#[target_feature(enable = "sse4.1")]
fn leaky_vector_control(secret: &[u8; 16]) -> u32 {
    use std::arch::x86_64::{_mm_loadu_si128, _mm_testz_si128};
    // SAFETY: a block is as long as the vector.
    let secret = unsafe { _mm_loadu_si128(secret.as_ptr().cast()) };
    if _mm_testz_si128(secret, secret) == 1 {
        3
    } else {
        5
    }
}

/// Welch's t between the times for texts that are all alike and for texts that are all different. A value beyond 4.5
/// should be examined; it is printed but fails nothing, because it includes the machine's noise.
fn time(suite: &Suite) {
    #[cfg(target_arch = "x86_64")]
    if is_x86_feature_detected!("sse4.1") {
        // SAFETY: the processor has the instruction. Called so that the control stays in the program.
        black_box(unsafe { leaky_vector_control(black_box(&[0; 16])) });
    }
    let key = batch::key(suite, |_| {});
    let mut chance = 1_u64;
    let mut classes = [const { Vec::new() }; 2];
    for round in 0..3000 {
        let class = chance as usize >> 40 & 1;
        let mut next = || {
            chance = chance
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            (chance >> 33) as u8
        };
        next();
        let plain: Vec<u8> = (0..TEXT_BYTES[1]).map(|_| next() * class as u8).collect();
        let Some(ticks) = ticks_to_seal(&key, &plain) else {
            return;
        };
        if round >= 100 {
            classes[class].push(ticks);
        }
    }
    println!("{:<24} t = {:.2}", suite.0, welch(classes));
}

fn ticks_to_seal(key: &Key, plain: &[u8]) -> Option<f64> {
    let mut packets = vec![vec![0; plain.len() + key.icv_len()]; BATCH_JOBS];
    let mut jobs = seal_jobs(key, plain, &mut packets);
    let start = multibuffer::time_stamp()?;
    multibuffer::seal(&mut jobs);
    Some((multibuffer::time_stamp()? - start) as f64)
}

/// Of the faster nine tenths of each class: what interrupted the others was no secret.
fn welch(classes: [Vec<f64>; 2]) -> f64 {
    let [first, second] = classes.map(|mut times| {
        times.sort_by(f64::total_cmp);
        times.truncate(times.len() * 9 / 10);
        let count = times.len() as f64;
        let mean = times.iter().sum::<f64>() / count;
        let variance = times.iter().map(|time| (time - mean).powi(2)).sum::<f64>() / (count - 1.0);
        (mean, variance / count)
    });
    (first.0 - second.0) / (first.1 + second.1).sqrt()
}
