//! How many packets the whole engine carries in memory, and what of the time each step takes.
//!
//! ```text
//! cargo run --release -p dataplane --example engine -- [MILLISECONDS PER POINT] [MOST WORKERS] [FILTER]
//! ```
//!
//! For each suite, direction and size of the inner packet: nanoseconds per packet for the steps that must be done in
//! order (prepare, commit; together T_serial) and for the one that need not (transform), packets per second inline and
//! with workers in one flow, and how that compares with the bare ciphers on the same bytes. `train` rows are TCP
//! super-packets; `esp+ah` is an ESP tunnel with AH around it.

#[path = "../tests/pipeline/world.rs"]
mod world;

use dataplane::bench::{self, Bench, InboundBench, OutboundBench, StepTimes};
use dataplane::buffers::BatchSize;
use dataplane::pipeline::lane::Commit;
use dataplane::pipeline::pump::Prepare;
use dataplane::train::Offload;
use ipsec::sa::Protocol;
use multibuffer::{Iv, Key, OpenJob, SealJob, SignJob, Verdict};
use std::time::{Duration, Instant};
use world::{bundle, bytes, datagram, tcp, tso, tunnel};

fn main() {
    let argument = |place| std::env::args().nth(place);
    let time = argument(1)
        .and_then(|text| text.parse().ok())
        .unwrap_or(200);
    let time = Duration::from_millis(time);
    let most_workers = argument(2).and_then(|text| text.parse().ok()).unwrap_or(1);
    let filter = argument(3).unwrap_or_default();
    let workers: Vec<usize> = std::iter::successors(Some(1), |count| Some(count * 2))
        .take_while(|&count| count <= most_workers)
        .collect();
    print!(
        "{:<22} {:>8} {:>5} | {:>7} {:>9} {:>7} {:>8} ns/packet | {:>6} {:>6}",
        "suite", "way", "bytes", "prepare", "transform", "commit", "T_serial", "bare", "inline"
    );
    workers
        .iter()
        .for_each(|count| print!(" {:>6}", format!("{count} w")));
    println!(" Mpps | of bare  Gbit/s inline");
    for way_through in ways_through() {
        let name = way_through.name;
        for shape in [
            Shape::Single(64),
            Shape::Single(494),
            Shape::Single(1408),
            Shape::Train(1448),
        ] {
            for outbound in [true, false] {
                let row = format!("{name} {} {shape:?}", way(outbound));
                if row.contains(&filter) {
                    print_row(&way_through, shape, outbound, &workers, time);
                }
            }
        }
    }
}

/// The setkey texts of both gateways of a row.
struct WayThrough {
    name: &'static str,
    left: String,
    right: String,
}

fn ways_through() -> Vec<WayThrough> {
    let text = |suite: &str, right| tunnel(suite, "esp-udp", right).replace("-r 1024", "");
    let tunnels = suites().into_iter().map(|(name, suite)| WayThrough {
        name,
        left: text(&suite, false),
        right: text(&suite, true),
    });
    let bundle = WayThrough {
        name: "esp+ah: cbc+sha1, sha1",
        left: bundle("out"),
        right: bundle("in"),
    };
    tunnels.chain([bundle]).collect()
}

fn suites() -> Vec<(&'static str, String)> {
    let sha1 = format!("-A hmac-sha1 {}", bytes("c3", 20));
    vec![
        ("null+sha1", format!("-E null {sha1}")),
        ("aes-128-gcm", world::gcm()),
        (
            "chacha20-poly1305",
            format!("-E chacha20-poly1305 {}", bytes("e5", 36)),
        ),
        (
            "aes-128-cbc+sha1",
            format!("-E aes-cbc {} {sha1}", bytes("b2", 16)),
        ),
        (
            "3des+sha1",
            format!("-E 3des-cbc {} {sha1}", bytes("f6", 24)),
        ),
    ]
}

fn way(outbound: bool) -> &'static str {
    if outbound { "outbound" } else { "inbound" }
}

#[derive(Clone, Copy, Debug)]
enum Shape {
    /// UDP datagrams of so many bytes.
    Single(usize),
    /// TCP super-packets of segments with so much payload.
    Train(u16),
}

impl Shape {
    fn items(self) -> Vec<(Vec<u8>, Offload)> {
        match self {
            Self::Single(len) => (0..64)
                .map(|number| (datagram(number, len - 28), Offload::default()))
                .collect(),
            Self::Train(size) => (0..3)
                .map(|number| {
                    (
                        tcp(false, number, &vec![7; usize::from(size) * 44]),
                        tso(size),
                    )
                })
                .collect(),
        }
    }

    fn packet_len(self) -> usize {
        match self {
            Self::Single(len) => len,
            Self::Train(size) => usize::from(size) + 40,
        }
    }
}

fn print_row(ends: &WayThrough, shape: Shape, outbound: bool, workers: &[usize], time: Duration) {
    let (step_times, inline, parallel) = if outbound {
        timed(|| outbound_bench(ends, shape), workers, time)
    } else {
        timed(|| inbound_bench(ends, shape), workers, time)
    };
    let bare = bare(ends, shape.packet_len(), outbound, time);
    let StepTimes {
        prepare,
        transform,
        commit,
        ..
    } = step_times;
    let size = match shape {
        Shape::Single(len) => len.to_string(),
        Shape::Train(size) => format!("t{size}"),
    };
    print!(
        "{:<22} {:>8} {size:>5} | {prepare:>7.1} {transform:>9.1} {commit:>7.1} {:>8.1}           | {:>6.3} {:>6.3}",
        ends.name,
        way(outbound),
        step_times.serial(),
        bare / 1e6,
        inline / 1e6
    );
    parallel
        .iter()
        .for_each(|rate| print!(" {:>6.3}", rate / 1e6));
    println!(
        "      | {:>7.2} {:>8.2}",
        inline / bare,
        inline * shape.packet_len() as f64 * 8.0 / 1e9
    );
}

/// The steps one by one, the whole inline, and with so many workers each.
fn timed<P, C>(
    bench: impl Fn() -> Bench<P, C>,
    workers: &[usize],
    time: Duration,
) -> (StepTimes, f64, Vec<f64>)
where
    P: Prepare,
    C: Commit<P::Batch> + 'static,
{
    let rate = |workers| bench().start(workers, &[]).unwrap().rate(time).unwrap();
    let step_times = bench().step_times(time).unwrap();
    let parallel = workers.iter().map(|&count| rate(count)).collect();
    (step_times, rate(0), parallel)
}

fn outbound_bench(ends: &WayThrough, shape: Shape) -> OutboundBench {
    let databases = world::database(&ends.left).snapshot();
    bench::outbound(databases, shape.items(), BatchSize::default())
}

fn inbound_bench(ends: &WayThrough, shape: Shape) -> InboundBench {
    let databases = |text| world::database(text).snapshot();
    let size = BatchSize::default();
    let bursts = bench::sealed(databases(&ends.left), shape.items(), size).unwrap();
    bench::inbound(databases(&ends.right), bursts, size)
}

/// Packets per second of the ciphers alone, 64 packets of `len` plaintext bytes in a call. AH's ICV is computed in
/// either direction.
fn bare(ends: &WayThrough, len: usize, outbound: bool, time: Duration) -> f64 {
    let snapshot = world::database(&ends.left).snapshot();
    let of = |protocol| {
        let mut sas = snapshot.sas();
        sas.find(|sa| sa.config.id.protocol == protocol)
    };
    let (sa, signer) = (of(Protocol::Esp).unwrap(), of(Protocol::Ah));
    let sign = |sealed: &[Vec<u8>]| {
        if let Some(signer) = signer {
            sign_all(&signer.key, sealed);
        }
    };
    let key: &Key = &sa.key;
    let len = (len + 2).next_multiple_of(sa.config.suite.align());
    // As many plaintexts as the engine reads: a single one would stay in the first-level cache.
    let plains = vec![vec![3; len]; 64];
    let iv = Iv::new(&[9; 16][..key.iv_len()]);
    let mut sealed = vec![vec![0u8; len + key.icv_len()]; 64];
    let seal = |sealed: &mut [Vec<u8>]| {
        let mut jobs: Vec<_> = sealed
            .iter_mut()
            .zip(&plains)
            .map(|(output, plain)| SealJob {
                key,
                aad: &[1; 8],
                aad_tail: &[],
                iv,
                input: [plain, &[], &[]],
                output,
            })
            .collect();
        multibuffer::seal(&mut jobs);
    };
    seal(&mut sealed);
    let genuine = sealed.clone();
    let (start, mut rates) = (Instant::now(), Vec::new());
    while start.elapsed() < time {
        let begin;
        if outbound {
            begin = Instant::now();
            seal(&mut sealed);
            sign(&sealed);
        } else {
            sealed
                .iter_mut()
                .zip(&genuine)
                .for_each(|(text, genuine)| text.copy_from_slice(genuine));
            begin = Instant::now();
            sign(&sealed);
            let mut jobs: Vec<_> = sealed
                .iter_mut()
                .map(|text| OpenJob {
                    key,
                    aad: &[1; 8],
                    aad_tail: &[],
                    iv,
                    text,
                    verdict: Verdict::Pending,
                })
                .collect();
            multibuffer::open(&mut jobs);
            assert!(jobs.iter().all(|job| job.verdict == Verdict::Genuine));
        }
        rates.push(64.0 / begin.elapsed().as_secs_f64());
    }
    bench::median(&rates)
}

fn sign_all(key: &Key, texts: &[Vec<u8>]) {
    let mut icvs = vec![[0; 64]; texts.len()];
    let job = |(text, icv)| -> SignJob<'_> {
        let (text, icv): (&Vec<u8>, &mut [u8; 64]) = (text, icv);
        SignJob {
            key,
            input: [&[1; 44], text, &[]],
            iv: Iv::default(),
            icv: &mut icv[..key.icv_len()],
        }
    };
    let mut jobs: Vec<_> = texts.iter().zip(&mut icvs).map(job).collect();
    multibuffer::sign(&mut jobs);
}
