//! Our kernels against the library, suite by suite: `cargo run --release -p multibuffer --example versus [FILTER]`.
//!
//! The same batches go through the crate twice, in two kinds of child process: one with all kernels, one with
//! `MULTIBUFFER_WITHOUT=all`, where AWS-LC computes one packet at a time with expanded keys and cached HMAC states.
//! Children take turns, so that a change of the machine's mood meets both; the medians are printed.

use std::hint::black_box;
use std::process::Command;
use std::time::{Duration, Instant};

use multibuffer::{Cipher, Integrity, Iv, Key, OpenJob, SealJob, Verdict};

const TURNS: usize = 5;
const BATCH: usize = 64;
const SIZES: [usize; 3] = [64, 494, 1408];
/// How long one child measures one row.
const PATIENCE: Duration = Duration::from_millis(12);

/// Name, cipher, its key length, integrity, its key length, ICV length.
type Row = (&'static str, Cipher, usize, Integrity, usize, usize);

const ROWS: &[Row] = &[
    ("aes128-cbc", Cipher::AesCbc, 16, Integrity::None, 0, 0),
    ("aes256-cbc", Cipher::AesCbc, 32, Integrity::None, 0, 0),
    (
        "aes128-cbc+md5",
        Cipher::AesCbc,
        16,
        Integrity::HmacMd5,
        16,
        12,
    ),
    (
        "aes128-cbc+sha1",
        Cipher::AesCbc,
        16,
        Integrity::HmacSha1,
        20,
        12,
    ),
    (
        "aes128-cbc+sha256",
        Cipher::AesCbc,
        16,
        Integrity::HmacSha256,
        32,
        16,
    ),
    (
        "aes256-cbc+sha512",
        Cipher::AesCbc,
        32,
        Integrity::HmacSha512,
        64,
        32,
    ),
    (
        "aes128-cbc+xcbc",
        Cipher::AesCbc,
        16,
        Integrity::AesXcbc,
        16,
        12,
    ),
    (
        "aes128-ctr+sha1",
        Cipher::AesCtr,
        20,
        Integrity::HmacSha1,
        20,
        12,
    ),
    ("des-cbc", Cipher::DesCbc, 8, Integrity::None, 0, 0),
    ("3des-cbc", Cipher::TripleDesCbc, 24, Integrity::None, 0, 0),
    (
        "3des-cbc+sha1",
        Cipher::TripleDesCbc,
        24,
        Integrity::HmacSha1,
        20,
        12,
    ),
    ("null+md5", Cipher::Null, 0, Integrity::HmacMd5, 16, 12),
    ("null+sha1", Cipher::Null, 0, Integrity::HmacSha1, 20, 12),
    (
        "null+ripemd160",
        Cipher::Null,
        0,
        Integrity::HmacRipemd160,
        20,
        12,
    ),
    (
        "null+sha256",
        Cipher::Null,
        0,
        Integrity::HmacSha256,
        32,
        16,
    ),
    (
        "null+sha384",
        Cipher::Null,
        0,
        Integrity::HmacSha384,
        48,
        24,
    ),
    (
        "null+sha512",
        Cipher::Null,
        0,
        Integrity::HmacSha512,
        64,
        32,
    ),
    ("null+xcbc", Cipher::Null, 0, Integrity::AesXcbc, 16, 12),
    ("null+cmac", Cipher::Null, 0, Integrity::AesCmac, 16, 12),
    (
        "aes128-gcm",
        Cipher::AesGcm { icv_len: 16 },
        20,
        Integrity::None,
        0,
        16,
    ),
    (
        "aes256-gcm",
        Cipher::AesGcm { icv_len: 16 },
        36,
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
];

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.split_first() {
        Some((first, filter)) if first == "--measure" => measure_all(&filter.concat()),
        _ => compare(&arguments.concat()),
    }
}

fn compare(filter: &str) {
    let mut ours = Vec::new();
    let mut library = Vec::new();
    for _ in 0..TURNS {
        ours.push(child(filter, ""));
        library.push(child(filter, "all"));
    }
    println!(
        "{:<20} {:>5} {:>5} {:>9} {:>9} {:>7}",
        "suite", "", "bytes", "kernels", "library", "ratio"
    );
    for (at, label) in labels(filter).enumerate() {
        let median = |turns: &[Vec<f64>]| {
            let mut figures: Vec<f64> = turns.iter().map(|turn| turn[at]).collect();
            figures.sort_by(f64::total_cmp);
            figures[figures.len() / 2]
        };
        let (ours, library) = (median(&ours), median(&library));
        println!(
            "{label} {ours:>9.2} {library:>9.2} {:>6.2}x",
            ours / library
        );
    }
}

fn child(filter: &str, without: &str) -> Vec<f64> {
    let program = std::env::current_exe().expect("the path of this program");
    let mut command = Command::new(program);
    let run = command
        .args(["--measure", filter])
        .env("MULTIBUFFER_WITHOUT", without)
        .output();
    let said = String::from_utf8(run.expect("the child starts").stdout).expect("text");
    said.lines()
        .map(|line| line.parse().expect("a figure"))
        .collect()
}

fn rows(filter: &str) -> impl Iterator<Item = (&'static Row, usize, bool)> {
    let rows = ROWS.iter().filter(move |row| row.0.contains(filter));
    rows.flat_map(|row| {
        SIZES
            .into_iter()
            .flat_map(move |size| [(row, size, true), (row, size, false)])
    })
}

fn labels(filter: &str) -> impl Iterator<Item = String> {
    rows(filter).map(|(row, size, sealing)| {
        format!(
            "{:<20} {:>5} {size:>5}",
            row.0,
            if sealing { "seal" } else { "open" }
        )
    })
}

fn measure_all(filter: &str) {
    for (row, size, sealing) in rows(filter) {
        println!("{}", measure(row, size, sealing));
    }
}

/// Gbit/s of plaintext.
fn measure(
    &(_, cipher, key_len, integrity, mac_len, icv_len): &Row,
    size: usize,
    sealing: bool,
) -> f64 {
    let bytes: Vec<u8> = (1..=key_len as u8).collect();
    let key = Key::new(cipher, &bytes, integrity, &vec![3; mac_len], icv_len).expect("a legal key");
    let size = size.next_multiple_of(key.block_len());
    let (plain, iv) = (vec![5; size], Iv::new(&[6; 16][..key.iv_len()]));
    let mut sealed = vec![vec![0; size + icv_len]; BATCH];
    seal(&key, iv, &plain, &mut sealed);
    let mut times = Vec::new();
    let start = Instant::now();
    while start.elapsed() < PATIENCE {
        let time = if sealing {
            seal(&key, iv, &plain, &mut sealed)
        } else {
            open(&key, iv, &mut sealed.clone())
        };
        times.push(time);
    }
    times.sort();
    (size * BATCH * 8) as f64 / times[times.len() / 2].as_nanos() as f64
}

fn seal(key: &Key, iv: Iv, plain: &[u8], outputs: &mut [Vec<u8>]) -> Duration {
    let input = [
        &plain[..20],
        &plain[20..plain.len() - 10],
        &plain[plain.len() - 10..],
    ];
    let job = |output| SealJob {
        key,
        aad: &[9; 8],
        aad_tail: &[],
        iv,
        input,
        output,
    };
    let mut jobs: Vec<SealJob<'_>> = outputs
        .iter_mut()
        .map(|output| job(output.as_mut_slice()))
        .collect();
    let start = Instant::now();
    multibuffer::seal(black_box(&mut jobs));
    start.elapsed()
}

fn open(key: &Key, iv: Iv, sealed: &mut [Vec<u8>]) -> Duration {
    let job = |text| OpenJob {
        key,
        aad: &[9; 8],
        aad_tail: &[],
        iv,
        text,
        verdict: Verdict::Pending,
    };
    let mut jobs: Vec<OpenJob<'_>> = sealed
        .iter_mut()
        .map(|text| job(text.as_mut_slice()))
        .collect();
    let start = Instant::now();
    multibuffer::open(black_box(&mut jobs));
    let time = start.elapsed();
    assert!(
        jobs.iter().all(|job| job.verdict == Verdict::Genuine),
        "a fast wrong answer is no answer"
    );
    time
}
