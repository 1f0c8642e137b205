//! The lab's frame generator and receiver, and the search for the highest rate without loss (RFC 2544 26.1; NDR) or
//! with half a percent of it (PDR): loss, duplicates, reordering and one-way latency of stamped UDP frames. Or a steady
//! stream, whose frames are counted while keys or the path MTU change.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use super::search::{RateSearch, Step};
use super::{Carried, Demand, Direction, Ends, Load, Prepared, sockets};
use crate::absence::Absence;
use crate::fault::Fault;
use crate::host::Command;
use crate::testbed::{Family, Topology};
use crate::tool::{Received, Sent};

/// Stamped frames, searched for the highest rate.
pub struct Frames {
    /// `esplanade-lab`, whose tools send and receive.
    pub program: PathBuf,
    /// Bytes of a frame on an Ethernet, its check sequence included, before any tunnel; several go out in turn.
    pub frame_bytes: Vec<u32>,
    /// What is done with them.
    pub search: Search,
    /// Which way they go.
    pub direction: Direction,
}

/// Which rate is looked for, if one is.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Search {
    /// No-drop rate: the highest without loss.
    Ndr,
    /// Partial-drop rate: the highest with half a percent.
    Pdr,
    /// None: so many frames a second, and what becomes of each.
    Steady(f64),
}

impl Search {
    fn goal(self) -> f64 {
        match self {
            Search::Ndr | Search::Steady(_) => 0.0,
            Search::Pdr => 0.005,
        }
    }
}

const PORT: u16 = 5303;
/// What a frame has beside user data: Ethernet header and check sequence, and the header of UDP; that of IP comes in
/// between.
pub const FRAME_OVERHEAD_BYTES: u32 = 18 + 8;
/// For starting, and until the receiver sees the end.
const EXTRA_TIMEOUT: Duration = Duration::from_secs(8);
/// The time of a search beyond 1.4 times the sum of its full trials. MEASURED: 17.8 s for 10 s, with starting the tools
/// for some twenty trials.
const SEARCH_OVERHEAD: Duration = Duration::from_millis(3500);
/// The length of a trial that only narrows the range.
const SHORT_TRIAL: Duration = Duration::from_millis(150);
/// Full trials share the duration; one at least has this length.
const FULL_TRIALS_PER_DURATION: u32 = 5;
const WARM_UP_FRAMES_PER_S: f64 = 1000.0;

impl Load for Frames {
    fn id(&self) -> &str {
        match self.search {
            Search::Ndr => "frames-ndr",
            Search::Pdr => "frames-pdr",
            Search::Steady(_) => "frames-steady",
        }
    }

    fn demand(&self) -> Demand {
        match self.search {
            Search::Ndr | Search::Pdr => Demand::RateSearch,
            Search::Steady(_) => Demand::Steady,
        }
    }

    fn presence(&self, _topology: &Topology) -> Result<(), Absence> {
        Ok(())
    }

    fn takes(&self, duration: Duration) -> Duration {
        match self.search {
            Search::Steady(_) => duration,
            Search::Ndr | Search::Pdr => duration.mul_f64(1.4) + SEARCH_OVERHEAD,
        }
    }

    fn prepare<'topology>(
        &'topology self,
        topology: &'topology Topology,
    ) -> Result<Box<dyn Prepared + 'topology>, Fault> {
        Ok(Box::new(PreparedFrames {
            load: self,
            topology,
            ends: self.direction.ends(topology),
            runs: 0,
        }))
    }
}

struct PreparedFrames<'topology> {
    load: &'topology Frames,
    topology: &'topology Topology,
    ends: Ends<'topology>,
    runs: u32,
}

/// One trial at one rate.
struct RateTrial {
    sent: Sent,
    received: Received,
}

impl RateTrial {
    fn loss(&self) -> f64 {
        let lost = self.sent.sent.saturating_sub(self.received.received);
        lost as f64 / self.sent.sent.max(1) as f64
    }

    fn rate_pps(&self) -> f64 {
        self.received.received as f64 / self.received.seconds.max(1e-9)
    }
}

impl PreparedFrames<'_> {
    /// Sends at a rate (0: as fast as it goes) for a while.
    fn run_at(&mut self, rate: f64, length: Duration) -> Result<RateTrial, Fault> {
        self.runs += 1;
        let (program, run) = (&self.load.program, self.runs.to_string());
        let at = SocketAddr::from((self.ends.address, PORT)).to_string();
        let receive = Command::tool(program, "receive")
            .arg(&at)
            .arg("--run")
            .arg(&run);
        let mut receiver = self.ends.to.start(&receive)?;
        self.wait_until_bound()?;
        let bytes = self.load.frame_bytes.iter();
        let around = FRAME_OVERHEAD_BYTES + Family::of(self.ends.address).header();
        let bytes = bytes.map(|bytes| bytes.saturating_sub(around).to_string());
        let bytes = bytes.collect::<Vec<_>>().join(",");
        let send = Command::tool(program, "send")
            .arg(&at)
            .arg("--bytes")
            .arg(bytes)
            .arg("--rate")
            .arg(rate.to_string())
            .arg("--milliseconds")
            .arg(length.as_millis().to_string())
            .arg("--run")
            .arg(&run);
        let sent = self.ends.from.must(&send, length + EXTRA_TIMEOUT)?;
        let started = Instant::now();
        while receiver.ended().is_none() && started.elapsed() < EXTRA_TIMEOUT {
            std::thread::sleep(Duration::from_millis(5));
        }
        Ok(RateTrial {
            sent: read("the sender", &sent)?,
            received: read("the receiver", &receiver.output())?,
        })
    }

    fn wait_until_bound(&self) -> Result<(), Fault> {
        let at = SocketAddr::from((self.ends.address, PORT));
        let started = Instant::now();
        while !sockets::has_udp_socket(self.ends.to, at)? {
            if started.elapsed() > EXTRA_TIMEOUT {
                return Err(Fault::failed("the receiver does not listen"));
            }
            std::thread::sleep(Duration::from_millis(2));
        }
        Ok(())
    }
}

fn read<T: serde::de::DeserializeOwned>(who: &str, said: &str) -> Result<T, Fault> {
    serde_json::from_str(said)
        .map_err(|error| Fault::failed(format!("{who}: {error}: {}", said.trim())))
}

impl Prepared for PreparedFrames<'_> {
    fn warm_up(&mut self) -> Result<(), Fault> {
        let trial = self.run_at(WARM_UP_FRAMES_PER_S, SHORT_TRIAL)?;
        match trial.received.received {
            0 => Err(Fault::failed("no frame arrived")),
            _ => Ok(()),
        }
    }

    fn run(&mut self, duration: Duration) -> Result<Carried, Fault> {
        match self.load.search {
            Search::Steady(rate) => self.steady(rate, duration),
            Search::Ndr | Search::Pdr => self.search(duration),
        }
    }
}

impl PreparedFrames<'_> {
    fn search(&mut self, duration: Duration) -> Result<Carried, Fault> {
        let flood = self.run_at(0.0, SHORT_TRIAL)?;
        let most = flood.sent.sent as f64 / flood.sent.seconds.max(1e-9);
        let goal = self.load.search.goal();
        let mut search =
            RateSearch::new(most, flood.rate_pps(), goal, FULL_TRIALS_PER_DURATION * 2);
        let (mut best, mut behind, mut offered) = (None, false, false);
        while let Some(step) = search.next() {
            let trial = self.run_at(step.rate, length(step, duration))?;
            let short_of = trial.sent.behind as f64 > 0.02 * trial.sent.sent as f64;
            behind |= short_of;
            offered |= !short_of;
            // A rate that was not offered was not carried either.
            search.record(step, if short_of { 1.0 } else { trial.loss() });
            if step.full && search.found() == step.rate {
                best = Some((step.rate, trial));
            }
        }
        let (rate, trial) = best.ok_or_else(|| nothing_found(goal, offered))?;
        Ok(self.found(rate, &trial, &flood, behind))
    }
}

fn nothing_found(goal: f64, offered: bool) -> Fault {
    Fault::failed(if offered {
        format!("no rate had a loss of at most {} %", goal * 100.0)
    } else {
        "no rate could be offered in time: this machine is too busy to send frames evenly".into()
    })
}

fn length(step: Step, duration: Duration) -> Duration {
    if step.full {
        (duration / FULL_TRIALS_PER_DURATION).max(2 * SHORT_TRIAL)
    } else {
        SHORT_TRIAL
    }
}

impl PreparedFrames<'_> {
    /// What became of every frame of a steady stream. An interruption of the path is reported as the longest gap.
    fn steady(&mut self, rate: f64, duration: Duration) -> Result<Carried, Fault> {
        let trial = self.run_at(rate, duration)?;
        let lost = trial.sent.sent.saturating_sub(trial.received.received);
        // If the path stays interrupted, the gap lasts from its last frame to the sender's last.
        let after = (trial.sent.seconds - trial.received.seconds).max(0.0) * 1e9;
        let silence = (trial.received.longest_gap as f64).max(after);
        let mut carried = self.carried(&trial);
        carried.figures.extend([
            ("lost_count".to_owned(), lost as f64),
            ("silence_us".to_owned(), silence / 1e3),
        ]);
        if self.topology.path.is_some() {
            carried.figures.insert("outage_s".into(), silence / 1e9);
        }
        Ok(carried)
    }

    fn found(
        &self,
        rate: f64,
        trial: &RateTrial,
        flood: &RateTrial,
        generator_behind: bool,
    ) -> Carried {
        let mut carried = self.carried(trial);
        // A queue on the path absorbs slightly more than the path carries during a trial: the rate of arrival counts.
        let arrived = rate.min(trial.rate_pps());
        let numbers = [
            ("rate_pps", arrived),
            ("offered_pps", rate),
            ("overload.rate_pps", flood.rate_pps()),
            (
                "overload.offered_pps",
                flood.sent.sent as f64 / flood.sent.seconds.max(1e-9),
            ),
            ("generator.behind", f64::from(u8::from(generator_behind))),
        ];
        let named = numbers.map(|(name, value)| (name.to_owned(), value));
        carried.figures.extend(named);
        carried
    }

    fn carried(&self, trial: &RateTrial) -> Carried {
        let mut figures: BTreeMap<String, f64> = trial.received.latency.figures("latency");
        let numbers = [
            ("rate_pps", trial.rate_pps()),
            ("loss_ratio", trial.loss()),
            ("duplicates_count", trial.received.duplicates as f64),
            ("reordered_count", trial.received.reordered as f64),
            (
                "reorder_distance_frames",
                trial.received.reorder_distance as f64,
            ),
        ];
        figures.extend(numbers.map(|(name, value)| (name.to_owned(), value)));
        Carried {
            tool: format!("esplanade-lab {}", env!("CARGO_PKG_VERSION")),
            seconds: trial.received.seconds,
            bytes: trial.received.bytes,
            goodput_bps: trial.received.bytes as f64 * 8.0 / trial.received.seconds.max(1e-9),
            retransmits: None,
            intervals_bps: Vec::new(),
            figures,
        }
    }
}
