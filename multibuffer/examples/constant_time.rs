//! The subject of `tests/constant-time/run`: does what a gateway does with secrets, for others to watch.
//!
//! ```text
//!   secrets        under valgrind: keys and texts are marked undefined, so that memcheck reports every branch and every
//!                  address that depends on one
//!   leak-branch    the same with a function that leaks by a branch, and
//!   leak-index     by an address: memcheck has to report them
//!   times          how long kernels take for one secret and for many, as Welch's t (after the program dudect)
//! ```

use std::hint::black_box;

use multibuffer::{Cipher, Integrity, Iv, Key, OpenJob, SealJob, SignJob, Verdict};

/// What is claimed to take the same time for all secrets. Not here: Blowfish, CAST-128 and Camellia, which look secrets
/// up in tables, and DES in batches too small for bit slices.
const SUITES: &[(&str, Cipher, usize, Integrity, usize, usize)] = &[
    (
        "aes-128-gcm",
        Cipher::AesGcm { icv_len: 16 },
        20,
        Integrity::None,
        0,
        16,
    ),
    (
        "aes-256-gcm",
        Cipher::AesGcm { icv_len: 8 },
        36,
        Integrity::None,
        0,
        8,
    ),
    ("aes-128-gmac", Cipher::AesGmac, 20, Integrity::None, 0, 16),
    (
        "aes-128-ccm",
        Cipher::AesCcm { icv_len: 16 },
        19,
        Integrity::None,
        0,
        16,
    ),
    (
        "chacha20-poly1305",
        Cipher::ChaCha20Poly1305,
        36,
        Integrity::None,
        0,
        16,
    ),
    ("aes-192-cbc", Cipher::AesCbc, 24, Integrity::None, 0, 0),
    ("aes-128-ctr", Cipher::AesCtr, 20, Integrity::None, 0, 0),
    (
        "aes-128-cbc+hmac-sha1",
        Cipher::AesCbc,
        16,
        Integrity::HmacSha1,
        20,
        12,
    ),
    (
        "3des-cbc+hmac-md5",
        Cipher::TripleDesCbc,
        24,
        Integrity::HmacMd5,
        16,
        12,
    ),
    (
        "des-cbc+hmac-sha2-256",
        Cipher::DesCbc,
        8,
        Integrity::HmacSha256,
        32,
        16,
    ),
    (
        "null+hmac-sha2-384",
        Cipher::Null,
        0,
        Integrity::HmacSha384,
        48,
        24,
    ),
    (
        "null+hmac-sha2-512",
        Cipher::Null,
        0,
        Integrity::HmacSha512,
        64,
        32,
    ),
    (
        "null+hmac-ripemd160",
        Cipher::Null,
        0,
        Integrity::HmacRipemd160,
        20,
        12,
    ),
    (
        "null+aes-xcbc-mac",
        Cipher::Null,
        0,
        Integrity::AesXcbc,
        16,
        12,
    ),
    ("null+aes-cmac", Cipher::Null, 0, Integrity::AesCmac, 16, 12),
];

/// Packets: enough for bit slices in every pass.
const BATCH: usize = 16;
/// Bytes of text: short and long, for kernels choose by that.
const LENGTHS: [usize; 2] = [64, 352];

fn main() {
    match std::env::args().nth(1).as_deref() {
        Some("secrets") => SUITES.iter().for_each(use_secrets),
        Some("leak-branch") => leak_by_branch(),
        Some("leak-index") => leak_by_index(),
        Some("times") => SUITES.iter().for_each(time),
        _ => panic!("constant_time secrets|leak-branch|leak-index|times"),
    }
}

fn use_secrets(
    &(name, cipher, key_len, integrity, mac_len, icv_len): &(
        &str,
        Cipher,
        usize,
        Integrity,
        usize,
        usize,
    ),
) {
    println!("{name}");
    let (cipher_key, mac_key) = (vec![7; key_len], vec![9; mac_len]);
    memcheck::make_secret(&cipher_key);
    memcheck::make_secret(&mac_key);
    let key = Key::new(cipher, &cipher_key, integrity, &mac_key, icv_len).expect("a legal key");
    // Once in a batch, for the kernels, and once alone, unless that means tables.
    for len in LENGTHS {
        batch(&key, BATCH, len);
        if !matches!(cipher, Cipher::DesCbc | Cipher::TripleDesCbc) {
            batch(&key, 1, len);
        }
    }
    if integrity != Integrity::None {
        sign(&key);
    }
}

fn batch(key: &Key, count: usize, len: usize) {
    let plain = vec![5; len];
    memcheck::make_secret(&plain);
    let iv = Iv::new(&[6; 16][..key.iv_len()]);
    let mut packets = vec![vec![0; len + key.icv_len()]; count];
    let mut jobs: Vec<SealJob<'_>> = packets
        .iter_mut()
        .map(|output| SealJob {
            key,
            aad: &[9; 8],
            aad_tail: &[],
            iv,
            input: [&plain[..20], &plain[20..len - 10], &plain[len - 10..]],
            output,
        })
        .collect();
    multibuffer::seal(&mut jobs);
    let mut jobs: Vec<OpenJob<'_>> = packets
        .iter_mut()
        .map(|text| OpenJob {
            key,
            aad: &[9; 8],
            aad_tail: &[],
            iv,
            text,
            verdict: Verdict::Pending,
        })
        .collect();
    multibuffer::open(&mut jobs);
    assert!(jobs.iter().all(|job| job.verdict == Verdict::Genuine));
}

fn sign(key: &Key) {
    let message = [5; 100];
    memcheck::make_secret(&message);
    let mut icvs = vec![vec![0; key.icv_len()]; BATCH];
    let mut jobs: Vec<SignJob<'_>> = icvs
        .iter_mut()
        .map(|icv| SignJob {
            key,
            input: [&message[..30], &message[30..], &[]],
            iv: Iv::default(),
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

/// Welch's t between the times for texts that are all alike and for texts that are all different. Beyond 4.5 something
/// is to be looked at; this is told, not judged, for it is the machine's noise as well.
fn time(
    &(name, cipher, key_len, integrity, mac_len, icv_len): &(
        &str,
        Cipher,
        usize,
        Integrity,
        usize,
        usize,
    ),
) {
    #[cfg(target_arch = "x86_64")]
    if is_x86_feature_detected!("sse4.1") {
        // SAFETY: the processor has the instruction. Called so that the control stays in the program.
        black_box(unsafe { leaky_vector_control(black_box(&[0; 16])) });
    }
    let key = Key::new(
        cipher,
        &vec![7; key_len],
        integrity,
        &vec![9; mac_len],
        icv_len,
    );
    let key = key.expect("a legal key");
    let iv = Iv::new(&[6; 16][..key.iv_len()]);
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
        let plain: Vec<u8> = (0..LENGTHS[1]).map(|_| next() * class as u8).collect();
        let mut packets = vec![vec![0; LENGTHS[1] + key.icv_len()]; BATCH];
        let mut jobs: Vec<SealJob<'_>> = packets
            .iter_mut()
            .map(|output| SealJob {
                key: &key,
                aad: &[9; 8],
                aad_tail: &[],
                iv,
                input: [&plain, &[], &[]],
                output,
            })
            .collect();
        let Some(start) = multibuffer::time_stamp() else {
            return;
        };
        multibuffer::seal(&mut jobs);
        let ticks = multibuffer::time_stamp().unwrap_or_default() - start;
        if round >= 100 {
            classes[class].push(ticks as f64);
        }
    }
    println!("{name:<24} t = {:.2}", welch(classes));
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

/// Memcheck's client requests (valgrind's header `memcheck.h`).
mod memcheck {
    /// Marks the bytes as undefined where memcheck watches; does nothing elsewhere.
    pub fn make_secret(bytes: &[u8]) {
        #[cfg(target_arch = "x86_64")]
        {
            let request = [
                0x4d43_0001,
                bytes.as_ptr() as u64,
                bytes.len() as u64,
                0,
                0,
                0,
            ];
            // SAFETY: rotations that undo each other, and a move of a register to itself: outside valgrind these
            // instructions change nothing but the flags.
            unsafe {
                std::arch::asm!(
                    "rol rdi, 3",
                    "rol rdi, 13",
                    "rol rdi, 61",
                    "rol rdi, 51",
                    "xchg rbx, rbx",
                    in("rax") request.as_ptr(),
                    inout("rdx") 0_u64 => _,
                );
            }
        }
        std::hint::black_box(bytes);
    }
}
