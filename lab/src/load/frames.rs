//! Our own frame generator and receiver, and the search for the highest rate without loss (RFC 2544 26.1; NDR) or with half
//! a percent of it (PDR): loss, duplicates, reordering and one-way latency of stamped UDP frames.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use super::search::{RateSearch, Step};
use super::{Carried, Load, Prepared};
use crate::contender::Absence;
use crate::fault::Fault;
use crate::host::Command;
use crate::testbed::Bed;
use crate::tool::{Received, Sent};

/// Stamped frames of one size.
pub struct Frames {
    /// `esplanade-lab`, whose tools send and receive.
    pub program: PathBuf,
    /// Bytes of each frame on an Ethernet, its check sequence included, before any tunnel.
    pub frame_bytes: u32,
    /// What is looked for.
    pub search: Search,
}

/// Which loss a rate may have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Search {
    /// No-drop rate: none.
    Ndr,
    /// Partial-drop rate: half a percent.
    Pdr,
}

impl Search {
    fn goal(self) -> f64 {
        match self {
            Search::Ndr => 0.0,
            Search::Pdr => 0.005,
        }
    }
}

const PORT: u16 = 5303;
/// Ethernet header and check sequence, IPv4 and UDP headers.
const AROUND: u32 = 18 + 20 + 8;
/// For starting, and for the receiver to notice the end.
const GRACE: Duration = Duration::from_secs(8);
/// The length of a trial that only narrows the range.
const SHORT: Duration = Duration::from_millis(150);
/// Full trials share the duration; one at least has this length.
const FULL_TRIALS: u32 = 5;
const WARM_UP_RATE: f64 = 1000.0;

impl Load for Frames {
    fn id(&self) -> &str {
        match self.search {
            Search::Ndr => "frames-ndr",
            Search::Pdr => "frames-pdr",
        }
    }

    fn presence(&self, _bed: &Bed) -> Result<(), Absence> {
        Ok(())
    }

    fn prepare<'bed>(&'bed self, bed: &'bed Bed) -> Result<Box<dyn Prepared + 'bed>, Fault> {
        Ok(Box::new(Range {
            load: self,
            bed,
            runs: 0,
        }))
    }
}

struct Range<'bed> {
    load: &'bed Frames,
    bed: &'bed Bed,
    runs: u32,
}

/// One trial at one rate.
struct Shot {
    sent: Sent,
    received: Received,
}

impl Shot {
    fn loss(&self) -> f64 {
        let lost = self.sent.sent.saturating_sub(self.received.received);
        lost as f64 / self.sent.sent.max(1) as f64
    }

    fn rate_pps(&self) -> f64 {
        self.received.received as f64 / self.received.seconds.max(1e-9)
    }
}

impl Range<'_> {
    /// Sends at a rate (0: as fast as it goes) for a while.
    fn shoot(&mut self, rate: f64, length: Duration) -> Result<Shot, Fault> {
        self.runs += 1;
        let (program, run) = (&self.load.program, self.runs.to_string());
        let at = SocketAddr::from((self.bed.addresses.server, PORT)).to_string();
        let receive = Command::tool(program, "receive")
            .arg(&at)
            .arg("--run")
            .arg(&run);
        let mut receiver = self.bed.server.start(&receive)?;
        self.wait_until_bound()?;
        let bytes = self.load.frame_bytes.saturating_sub(AROUND).to_string();
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
        let sent = self.bed.client.run(&send, length + GRACE)?.success(&send)?;
        let started = Instant::now();
        while receiver.ended().is_none() && started.elapsed() < GRACE {
            std::thread::sleep(Duration::from_millis(5));
        }
        Ok(Shot {
            sent: read("the sending tool", &sent)?,
            received: read("the receiving tool", &receiver.said())?,
        })
    }

    fn wait_until_bound(&self) -> Result<(), Fault> {
        let port = format!(":{PORT:04X} ");
        let started = Instant::now();
        while !self
            .bed
            .server
            .read("/proc/net/udp".as_ref())?
            .contains(&port)
        {
            if started.elapsed() > GRACE {
                return Err(Fault::failed("the receiving tool does not listen"));
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

impl Prepared for Range<'_> {
    fn warm_up(&mut self) -> Result<(), Fault> {
        let shot = self.shoot(WARM_UP_RATE, SHORT)?;
        match shot.received.received {
            0 => Err(Fault::failed("no frame arrives")),
            _ => Ok(()),
        }
    }

    fn run(&mut self, duration: Duration) -> Result<Carried, Fault> {
        let flood = self.shoot(0.0, SHORT)?;
        let most = flood.sent.sent as f64 / flood.sent.seconds.max(1e-9);
        let goal = self.load.search.goal();
        let mut search = RateSearch::new(most, flood.rate_pps(), goal, FULL_TRIALS * 2);
        let (mut best, mut behind) = (None, false);
        while let Some(step) = search.next() {
            let shot = self.shoot(step.rate, length(step, duration))?;
            let short_of = shot.sent.behind as f64 > 0.02 * shot.sent.sent as f64;
            behind |= short_of;
            // A rate that was not offered was not carried either.
            search.hear(step, if short_of { 1.0 } else { shot.loss() });
            if step.full && search.found() == step.rate {
                best = Some((step.rate, shot));
            }
        }
        let (rate, shot) = best.ok_or_else(|| {
            Fault::failed(format!("no rate had a loss of at most {} %", goal * 100.0))
        })?;
        Ok(self.carried(rate, &shot, &flood, behind))
    }
}

fn length(step: Step, duration: Duration) -> Duration {
    match step.full {
        true => (duration / FULL_TRIALS).max(2 * SHORT),
        false => SHORT,
    }
}

impl Range<'_> {
    fn carried(&self, rate: f64, shot: &Shot, flood: &Shot, generator_behind: bool) -> Carried {
        // A queue on the way swallows a little more than the path carries, for as long as a trial lasts: what counts is
        // the rate of arrival.
        let arrived = rate.min(shot.rate_pps());
        let mut figures: BTreeMap<String, f64> = shot.received.latency.figures("latency");
        let numbers = [
            ("rate_pps", arrived),
            ("offered_pps", rate),
            ("loss_ratio", shot.loss()),
            ("duplicates_count", shot.received.duplicates as f64),
            ("reordered_count", shot.received.reordered as f64),
            (
                "reorder_distance_frames",
                shot.received.reorder_distance as f64,
            ),
            ("overload.rate_pps", flood.rate_pps()),
            (
                "overload.offered_pps",
                flood.sent.sent as f64 / flood.sent.seconds.max(1e-9),
            ),
            ("generator.behind", f64::from(u8::from(generator_behind))),
        ];
        figures.extend(numbers.map(|(name, value)| (name.to_owned(), value)));
        Carried {
            tool: format!("esplanade-lab {}", env!("CARGO_PKG_VERSION")),
            seconds: shot.received.seconds,
            bytes: shot.received.bytes,
            goodput_bps: shot.received.bytes as f64 * 8.0 / shot.received.seconds.max(1e-9),
            retransmits: None,
            intervals_bps: Vec::new(),
            figures,
        }
    }
}
