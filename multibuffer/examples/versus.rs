//! This crate's kernels against the library, suite by suite: `cargo run --release -p multibuffer --example versus
//! [FILTER]`.
//!
//! The same batches go through the crate twice, in two kinds of child process: one with all kernels, one with
//! `MULTIBUFFER_WITHOUT=all`, where AWS-LC computes one packet at a time with expanded keys and cached HMAC states.
//! Children take turns, so that a change of the machine's mood meets both; the medians are printed.

use std::hint::black_box;
use std::process::Command;
use std::time::{Duration, Instant};

use multibuffer::{Cipher, Integrity as Mac, Key, Verdict};

#[path = "both/batch.rs"]
mod batch;
#[path = "both/median.rs"]
mod median;

use batch::{Suite, open_jobs, seal_jobs};
use median::median;

const ROUNDS: usize = 5;
const BATCH_JOBS: usize = 64;
const TEXT_BYTES: [usize; 3] = [64, 494, 1408];
/// How long one child measures one row.
const ROW_DURATION: Duration = Duration::from_millis(12);

const ROWS: &[Suite] = &[
    ("aes128-cbc", Cipher::AesCbc, 16, Mac::None),
    ("aes256-cbc", Cipher::AesCbc, 32, Mac::None),
    ("aes128-cbc+md5", Cipher::AesCbc, 16, Mac::HmacMd5),
    ("aes128-cbc+sha1", Cipher::AesCbc, 16, Mac::HmacSha1),
    ("aes128-cbc+sha256", Cipher::AesCbc, 16, Mac::HmacSha256),
    ("aes256-cbc+sha512", Cipher::AesCbc, 32, Mac::HmacSha512),
    ("aes128-cbc+xcbc", Cipher::AesCbc, 16, Mac::AesXcbc),
    ("aes128-ctr+sha1", Cipher::AesCtr, 20, Mac::HmacSha1),
    ("des-cbc", Cipher::DesCbc, 8, Mac::None),
    ("3des-cbc", Cipher::TripleDesCbc, 24, Mac::None),
    ("3des-cbc+sha1", Cipher::TripleDesCbc, 24, Mac::HmacSha1),
    ("null+md5", Cipher::Null, 0, Mac::HmacMd5),
    ("null+sha1", Cipher::Null, 0, Mac::HmacSha1),
    ("null+ripemd160", Cipher::Null, 0, Mac::HmacRipemd160),
    ("null+sha256", Cipher::Null, 0, Mac::HmacSha256),
    ("null+sha384", Cipher::Null, 0, Mac::HmacSha384),
    ("null+sha512", Cipher::Null, 0, Mac::HmacSha512),
    ("null+xcbc", Cipher::Null, 0, Mac::AesXcbc),
    ("null+cmac", Cipher::Null, 0, Mac::AesCmac),
    ("aes128-gcm", Cipher::AesGcm { icv_len: 16 }, 20, Mac::None),
    ("aes256-gcm", Cipher::AesGcm { icv_len: 16 }, 36, Mac::None),
    ("chacha20-poly1305", Cipher::ChaCha20Poly1305, 36, Mac::None),
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
    for _ in 0..ROUNDS {
        ours.push(child(filter, ""));
        library.push(child(filter, "all"));
    }
    println!(
        "{:<20} {:>5} {:>5} {:>9} {:>9} {:>7}",
        "suite", "", "bytes", "kernels", "library", "ratio"
    );
    for (at, label) in labels(filter).enumerate() {
        let of_row = |turns: &[Vec<f64>]| {
            let figures: Vec<f64> = turns.iter().map(|turn| turn[at]).collect();
            median(&figures)
        };
        let (ours, library) = (of_row(&ours), of_row(&library));
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

fn rows(filter: &str) -> impl Iterator<Item = (&'static Suite, usize, bool)> {
    let rows = ROWS.iter().filter(move |row| row.0.contains(filter));
    rows.flat_map(|row| {
        TEXT_BYTES
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
fn measure(suite: &Suite, size: usize, sealing: bool) -> f64 {
    let key = batch::key(suite, |_| {});
    let size = size.next_multiple_of(key.block_len());
    let plain = vec![5; size];
    let mut sealed = vec![vec![0; size + key.icv_len()]; BATCH_JOBS];
    seal(&key, &plain, &mut sealed);
    let mut times = Vec::new();
    let start = Instant::now();
    while start.elapsed() < ROW_DURATION {
        let time = if sealing {
            seal(&key, &plain, &mut sealed)
        } else {
            open(&key, &mut sealed.clone())
        };
        times.push(time);
    }
    times.sort();
    (size * BATCH_JOBS * 8) as f64 / times[times.len() / 2].as_nanos() as f64
}

fn seal(key: &Key, plain: &[u8], outputs: &mut [Vec<u8>]) -> Duration {
    let mut jobs = seal_jobs(key, plain, outputs);
    let start = Instant::now();
    multibuffer::seal(black_box(&mut jobs));
    start.elapsed()
}

fn open(key: &Key, sealed: &mut [Vec<u8>]) -> Duration {
    let mut jobs = open_jobs(key, sealed);
    let start = Instant::now();
    multibuffer::open(black_box(&mut jobs));
    let time = start.elapsed();
    assert!(
        jobs.iter().all(|job| job.verdict == Verdict::Genuine),
        "a fast wrong answer is no answer"
    );
    time
}
