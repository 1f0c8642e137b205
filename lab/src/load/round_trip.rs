//! Round trips: one question at a time from client to server and back, alone or beside a stream that takes half of what the
//! path carries; as datagrams, or each over a TCP connection of its own, which is opened for it and closed behind it.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use super::{Carried, Demand, Iperf3, Load, Prepared};
use crate::absence::Absence;
use crate::fault::Fault;
use crate::host::{Command, Process};
use crate::testbed::Bed;
use crate::tool::Answered;

const PORT: u16 = 5302;
/// For starting, and for a last answer to come.
const EXTRA_TIMEOUT: Duration = Duration::from_secs(5);

/// What carries a question.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Asked {
    /// A datagram.
    ByDatagram,
    /// A connection of its own.
    ByConnection,
}

impl Asked {
    /// The tools at the far end and at the near one.
    fn tools(self) -> [&'static str; 2] {
        match self {
            Asked::ByDatagram => ["echo", "ask"],
            Asked::ByConnection => ["accept", "connect"],
        }
    }
}

/// Round trips over an idle path.
pub struct RoundTrip {
    lab: PathBuf,
    bytes: u32,
    asked: Asked,
}

impl RoundTrip {
    /// With questions of so many bytes, asked by the tools of `lab`.
    pub fn new(lab: &Path, bytes: u32, asked: Asked) -> RoundTrip {
        RoundTrip {
            lab: lab.to_owned(),
            bytes,
            asked,
        }
    }

    fn listen(&self, bed: &Bed) -> Result<Echo, Fault> {
        let at = SocketAddr::from((bed.addresses.server, PORT));
        let process = bed
            .server
            .start(&Command::tool(&self.lab, self.asked.tools()[0]).arg(at.to_string()))?;
        Ok(Echo { at, process })
    }

    fn ask(&self, at: SocketAddr, pause: u64, duration: Duration) -> Command {
        Command::tool(&self.lab, self.asked.tools()[1])
            .arg(at.to_string())
            .arg("--bytes")
            .arg(self.bytes.to_string())
            .arg("--milliseconds")
            .arg(duration.as_millis().to_string())
            .arg("--pause")
            .arg(pause.to_string())
    }
}

/// The far end.
struct Echo {
    at: SocketAddr,
    process: Box<dyn Process>,
}

impl Echo {
    /// Waits until it answers; that warms the path, too.
    fn warm(&mut self, load: &RoundTrip, bed: &Bed) -> Result<(), Fault> {
        let started = Instant::now();
        while started.elapsed() < EXTRA_TIMEOUT {
            if let Some(code) = self.process.ended() {
                let said = self.process.said();
                return Err(Fault::failed(format!(
                    "the echo ended with {code}: {}",
                    said.trim()
                )));
            }
            let command = load.ask(self.at, 0, Duration::from_millis(50));
            let found = answered(&bed.client.must(&command, EXTRA_TIMEOUT)?)?;
            if found.asked > found.lost {
                return Ok(());
            }
        }
        Err(Fault::failed("the echo does not answer"))
    }
}

fn answered(said: &str) -> Result<Answered, Fault> {
    serde_json::from_str(said).map_err(|error| Fault::failed(format!("the asking tool: {error}")))
}

impl Load for RoundTrip {
    fn id(&self) -> &str {
        match self.asked {
            Asked::ByDatagram => "round-trip",
            Asked::ByConnection => "connections",
        }
    }

    fn demand(&self) -> Demand {
        Demand::RequestResponse
    }

    fn presence(&self, _bed: &Bed) -> Result<(), Absence> {
        Ok(())
    }

    fn prepare<'bed>(&'bed self, bed: &'bed Bed) -> Result<Box<dyn Prepared + 'bed>, Fault> {
        let echo = self.listen(bed)?;
        Ok(Box::new(Asking {
            load: self,
            bed,
            echo,
        }))
    }
}

struct Asking<'bed> {
    load: &'bed RoundTrip,
    bed: &'bed Bed,
    echo: Echo,
}

impl Prepared for Asking<'_> {
    fn warm_up(&mut self) -> Result<(), Fault> {
        self.echo.warm(self.load, self.bed)
    }

    fn run(&mut self, duration: Duration) -> Result<Carried, Fault> {
        let command = self.load.ask(self.echo.at, 0, duration);
        let found = answered(&self.bed.client.must(&command, duration + EXTRA_TIMEOUT)?)?;
        Ok(carried(&found, self.load))
    }
}

fn carried(found: &Answered, load: &RoundTrip) -> Carried {
    let answers = found.asked - found.lost;
    let carried = answers * u64::from(load.bytes);
    Carried {
        tool: format!("esplanade-lab {}", env!("CARGO_PKG_VERSION")),
        seconds: found.seconds,
        bytes: carried,
        goodput_bps: carried as f64 * 8.0 / found.seconds.max(1e-9),
        retransmits: None,
        intervals_bps: Vec::new(),
        figures: figures(found, load.asked),
    }
}

fn figures(found: &Answered, asked: Asked) -> BTreeMap<String, f64> {
    let name = match asked {
        Asked::ByDatagram => "rtt",
        Asked::ByConnection => "connection",
    };
    let answers = (found.asked - found.lost) as f64;
    let mut figures = found.nanoseconds.figures(name);
    figures.insert(
        format!("{name}.lost_ratio"),
        found.lost as f64 / found.asked.max(1) as f64,
    );
    figures.insert(format!("{name}.answers_count"), answers);
    if asked == Asked::ByConnection {
        let rate = answers / found.seconds.max(1e-9);
        figures.insert("connections_per_s".into(), rate);
    }
    figures
}

/// Round trips beside a TCP stream at half the rate that this path was found to carry a moment before.
pub struct LoadedRoundTrip {
    asking: RoundTrip,
    stream: Iperf3,
}

impl LoadedRoundTrip {
    /// The questions, and the stream beside them.
    pub fn new(lab: &Path, bytes: u32, stream: Iperf3) -> LoadedRoundTrip {
        LoadedRoundTrip {
            asking: RoundTrip::new(lab, bytes, Asked::ByDatagram),
            stream,
        }
    }
}

impl Load for LoadedRoundTrip {
    fn id(&self) -> &str {
        "loaded-round-trip"
    }

    fn demand(&self) -> Demand {
        Demand::RequestResponse
    }

    fn presence(&self, bed: &Bed) -> Result<(), Absence> {
        self.stream.presence(bed)
    }

    fn prepare<'bed>(&'bed self, bed: &'bed Bed) -> Result<Box<dyn Prepared + 'bed>, Fault> {
        Ok(Box::new(Loaded {
            load: self,
            bed,
            echo: self.asking.listen(bed)?,
            stream: self.stream.listen(bed)?,
            capacity_bps: 0.0,
        }))
    }
}

struct Loaded<'bed> {
    load: &'bed LoadedRoundTrip,
    bed: &'bed Bed,
    echo: Echo,
    stream: super::iperf3::Listening<'bed>,
    capacity_bps: f64,
}

/// How long the whole capacity is looked for.
const CAPACITY_TRIAL: Duration = Duration::from_secs(1);
/// Between two questions: often enough for a 99th percentile, and no load of its own.
const REQUEST_INTERVAL_MS: u64 = 2;

impl Prepared for Loaded<'_> {
    /// Finds what the path carries.
    fn warm_up(&mut self) -> Result<(), Fault> {
        self.echo.warm(&self.load.asking, self.bed)?;
        self.stream.warm_up()?;
        self.capacity_bps = self.stream.run(CAPACITY_TRIAL)?.goodput_bps;
        Ok(())
    }

    /// The stream runs a moment longer on both sides of the questions, so that none is asked of an idle path.
    fn run(&mut self, duration: Duration) -> Result<Carried, Fault> {
        let margin = Duration::from_millis(500);
        let offered = (self.capacity_bps / 2.0) as u64;
        let mut background = self.stream.background(offered, duration + 2 * margin)?;
        std::thread::sleep(margin);
        let command = self
            .load
            .asking
            .ask(self.echo.at, REQUEST_INTERVAL_MS, duration);
        let found = answered(&self.bed.client.must(&command, duration + EXTRA_TIMEOUT)?)?;
        let mut carried = self
            .stream
            .finished(&mut *background, duration + 2 * margin + EXTRA_TIMEOUT)?;
        carried.figures = figures(&found, Asked::ByDatagram);
        carried
            .figures
            .insert("capacity_bps".into(), self.capacity_bps);
        carried
            .figures
            .insert("background_bps".into(), carried.goodput_bps);
        Ok(carried)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::load::Histogram;

    #[test]
    fn connections_are_a_rate_and_datagrams_are_times() {
        let mut nanoseconds = Histogram::default();
        (0..180).for_each(|_| nanoseconds.add(50_000));
        let found = Answered {
            asked: 200,
            lost: 20,
            seconds: 2.0,
            nanoseconds,
        };
        let by = |asked| carried(&found, &RoundTrip::new(Path::new("lab"), 64, asked)).figures;
        let connections = by(Asked::ByConnection);
        assert_eq!(connections["connections_per_s"], 90.0);
        assert_eq!(connections["connection.lost_ratio"], 0.1);
        let datagrams = by(Asked::ByDatagram);
        assert!((datagrams["rtt.p50_us"] - 50.0).abs() < 0.5);
        assert!(!datagrams.contains_key("connections_per_s"));
    }
}
