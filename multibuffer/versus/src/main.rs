//! Compares the kernels of `multibuffer` with every library that is available, in one process:
//! `cargo run --release [SUITE…]` in this folder.
//!
//! Batches of both sides alternate, and each pair gives one ratio; printed are the median of the ratios and the lower
//! bound of their 95 % confidence interval. The output of a rival is compared first: a rival whose output differs is
//! left out. The libraries do not gather three input ranges, as the kernels here do.
//!
//! Needs `libssl-dev` and `libipsec-mb-dev`, which is why this is no member of the workspace.

mod aws_lc;
mod clock;
mod foreign;
#[path = "../../examples/both/median.rs"]
mod median;
mod ours;
mod ring;
mod rust_crypto;
mod statistics;
mod suites;

use median::median;
use ours::Ours;
use suites::{SUITES, Suite};

/// Turns of each side. A turn is as many batches as fill about a millisecond.
const PAIRS: usize = 11;
/// Bytes of associated data: SPI and sequence number.
const AAD: usize = 8;

/// A library that seals and opens batches of packets in place: 8 bytes of associated data, the IV, `len` bytes of text,
/// ICV.
trait Rival {
    fn name(&self) -> &'static str;
    fn seal(&mut self, packets: &mut [Vec<u8>], len: usize);
    /// Returns whether all were genuine.
    fn open(&mut self, packets: &mut [Vec<u8>], len: usize) -> bool;
}

fn rivals(suite: &Suite) -> Vec<Box<dyn Rival>> {
    let mut rivals: Vec<Box<dyn Rival>> = Vec::new();
    rivals.extend(aws_lc::rival(suite));
    rivals.extend(ring::rival(suite));
    rivals.extend(foreign::evp(suite));
    rivals.extend(foreign::ipsec_mb(suite));
    rivals.extend(rust_crypto::rival(suite));
    rivals
}

fn main() {
    let (mut batch, mut sizes) = (64, vec![64, 494, 1408]);
    let mut filter = Vec::new();
    let mut arguments = std::env::args().skip(1);
    while let Some(argument) = arguments.next() {
        if argument == "--batch" {
            batch = arguments
                .next()
                .and_then(|n| n.parse().ok())
                .expect("--batch N");
        } else if argument == "--size" {
            let list = arguments.next().unwrap_or_default();
            let size = |size: &str| size.parse().expect("--size N,N…");
            sizes = list.split(',').map(size).collect();
        } else {
            filter.push(argument);
        }
    }
    println!(
        "batch {batch}; Gbit/s of text; by the thread's own CPU time; ratio = ours / rival, median of {PAIRS} pairs and lower 95 % bound"
    );
    println!(
        "{:<22} {:>4} {:>5} {:>8}  best rival    rival   ratio   low   others",
        "suite", "", "bytes", "ours"
    );
    for suite in SUITES {
        if filter.is_empty() || filter.iter().any(|word| suite.name.contains(word.as_str())) {
            for &size in &sizes {
                row(suite, size, batch, true);
                row(suite, size, batch, false);
            }
        }
    }
}

struct Figure {
    name: &'static str,
    ours: f64,
    rival: f64,
    ratio: f64,
    low: f64,
}

fn row(suite: &Suite, size: usize, batch: usize, sealing: bool) {
    let ours = Ours::new(suite);
    let len = size.next_multiple_of(ours.block_len());
    let mut figures: Vec<Figure> = rivals(suite)
        .into_iter()
        .filter_map(|rival| compare(&ours, rival, len, batch, sealing))
        .collect();
    figures.sort_by(|a, b| a.ratio.total_cmp(&b.ratio));
    let direction = if sealing { "seal" } else { "open" };
    let Some(best) = figures.first() else {
        println!("{:<22} {direction:>4} {size:>5}  no rival", suite.name);
        return;
    };
    let others: Vec<String> = figures[1..]
        .iter()
        .map(|f| format!("{} {:.2}x", f.name, f.ratio))
        .collect();
    println!(
        "{:<22} {direction:>4} {size:>5} {:>8.2}  {:<11} {:>7.2} {:>6.2}x {:>5.2}   {}",
        suite.name,
        best.ours,
        best.name,
        best.rival,
        best.ratio,
        best.low,
        others.join(", ")
    );
}

/// `None`, and a line on standard output, if the rival computes something else.
fn compare(
    ours: &Ours,
    mut rival: Box<dyn Rival>,
    len: usize,
    batch: usize,
    sealing: bool,
) -> Option<Figure> {
    let mut packets = ours.packets(len, batch);
    let sealed = ours.sealed(len, batch);
    rival.seal(&mut packets, len);
    if packets != sealed {
        println!("  {} seals otherwise and is left out", rival.name());
        return None;
    }
    if !rival.open(&mut packets, len)
        || packets[0][..AAD + ours.iv_len() + len]
            != ours.packets(len, 1)[0][..AAD + ours.iv_len() + len]
    {
        println!("  {} opens otherwise and is left out", rival.name());
        return None;
    }
    let repeats = (400_000 / (len * batch)).max(2);
    let mine = || ours.time(&sealed, len, sealing, repeats);
    let mut theirs = || {
        let mut batches = vec![sealed.clone(); repeats];
        let start = clock::now();
        for packets in &mut batches {
            if sealing {
                rival.seal(packets, len);
            } else {
                assert!(rival.open(packets, len), "genuine a moment ago");
            }
        }
        clock::now() - start
    };
    (mine(), theirs());
    let pairs: Vec<(f64, f64)> = (0..PAIRS).map(|_| (mine(), theirs())).collect();
    let ratios: Vec<f64> = pairs.iter().map(|(mine, theirs)| theirs / mine).collect();
    let bits = (len * batch * repeats * 8) as f64 / 1e9;
    let median_of =
        |pick: fn(&(f64, f64)) -> f64| median(&pairs.iter().map(pick).collect::<Vec<_>>());
    Some(Figure {
        name: rival.name(),
        ours: bits / median_of(|pair| pair.0),
        rival: bits / median_of(|pair| pair.1),
        ratio: median(&ratios),
        low: statistics::lower_bound(ratios),
    })
}
