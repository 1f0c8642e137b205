//! The lab's frame generator and receiver, and the search for the highest rate without loss (RFC 2544 26.1; NDR) or
//! with half a percent of it (PDR): loss, duplicates, reordering and one-way latency of stamped UDP frames. Or a steady
//! stream, whose frames are counted while keys or the path MTU change.
//!
//! Delays at the highest rate are mostly those of queues, which are full there. So a search may be followed by trials
//! at shares of the rate that it found, on the same tunnel and in the same record.

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
    /// At which percentages of the rate that a search found it also measures delays, in trials of their own.
    pub latency_at_percent: Vec<u32>,
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
/// MEASURED: 0.23 s for starting the tools of a trial and for its end, on two virtual processors, by
/// `esplanade-lab tool receive` and `send` over the loopback.
const TRIAL_OVERHEAD: Duration = Duration::from_millis(250);
/// A sender that sent less than the rest of this was too slow: it did not send at the rate.
const MAX_BEHIND_RATIO: f64 = 0.02;
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
            Search::Ndr | Search::Pdr => {
                let delays = self.latency_at_percent.len() as u32;
                let each = full_length(duration) + TRIAL_OVERHEAD;
                duration.mul_f64(1.4) + SEARCH_OVERHEAD + delays * each
            }
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

    /// The share of what was asked for that the sender could not send in time.
    fn behind(&self) -> f64 {
        let asked = self.sent.sent + self.sent.behind;
        self.sent.behind as f64 / asked.max(1) as f64
    }

    /// What became of the frames at a percentage of the rate that was found. Where the sender was too slow, the rate
    /// was another one, and the delays are not those of the percentage.
    fn figures_at(&self, percent: u32) -> BTreeMap<String, f64> {
        let mut figures = BTreeMap::from([
            (format!("rate_at_{percent}_pps"), self.rate_pps()),
            (format!("loss_at_{percent}_ratio"), self.loss()),
            (format!("behind_at_{percent}_ratio"), self.behind()),
            (
                format!("reordered_at_{percent}_count"),
                self.received.reordered as f64,
            ),
        ]);
        if self.behind() <= MAX_BEHIND_RATIO {
            let name = format!("latency_at_{percent}");
            figures.extend(self.received.latency.figures(&name));
        }
        figures
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
            let short_of = trial.behind() > MAX_BEHIND_RATIO;
            behind |= short_of;
            offered |= !short_of;
            // A rate that was not offered was not carried either.
            search.record(step, if short_of { 1.0 } else { trial.loss() });
            if step.full && search.found() == step.rate {
                best = Some((step.rate, trial));
            }
        }
        let (rate, trial) = best.ok_or_else(|| nothing_found(goal, offered))?;
        let mut carried = self.found(rate, &trial, &flood, behind);
        let found = carried.figures["rate_pps"];
        for percent in &self.load.latency_at_percent {
            let rate = found * f64::from(*percent) / 100.0;
            let trial = self.run_at(rate, full_length(duration))?;
            carried.figures.extend(trial.figures_at(*percent));
        }
        Ok(carried)
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
        full_length(duration)
    } else {
        SHORT_TRIAL
    }
}

fn full_length(duration: Duration) -> Duration {
    (duration / FULL_TRIALS_PER_DURATION).max(2 * SHORT_TRIAL)
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::load::Histogram;

    fn trial(sent: u64, behind: u64) -> RateTrial {
        let mut latency = Histogram::default();
        latency.add(40_000);
        RateTrial {
            sent: Sent {
                sent,
                seconds: 1.0,
                behind,
            },
            received: Received {
                received: sent - 1,
                seconds: 1.0,
                latency,
                reordered: 3,
                ..Received::default()
            },
        }
    }

    #[test]
    fn a_share_of_the_rate_has_delays_loss_and_order_of_its_own() {
        let figures = trial(1000, 0).figures_at(90);
        assert_eq!(figures["latency_at_90.max_us"], 40.0);
        assert_eq!(figures["rate_at_90_pps"], 999.0);
        assert_eq!(figures["loss_at_90_ratio"], 0.001);
        assert_eq!(figures["reordered_at_90_count"], 3.0);
    }

    #[test]
    fn a_sender_that_was_too_slow_gives_no_delays_of_that_share() {
        let figures = trial(900, 100).figures_at(99);
        assert_eq!(figures["behind_at_99_ratio"], 0.1);
        assert!(!figures.keys().any(|name| name.starts_with("latency")));
    }
}
