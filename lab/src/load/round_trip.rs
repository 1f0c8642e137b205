//! Round trips: one request at a time from client to server and back, alone or beside a stream that takes half of what
//! the path carries; as datagrams, or each over a TCP connection of its own, which is opened for it and closed behind
//! it.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use super::{Carried, Demand, Iperf3, Load, Prepared};
use crate::absence::Absence;
use crate::fault::Fault;
use crate::host::{Command, Process};
use crate::testbed::Topology;
use crate::tool::RoundTrips;

const PORT: u16 = 5302;
/// For starting, and for a last answer to come.
const EXTRA_TIMEOUT: Duration = Duration::from_secs(5);

/// What carries a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RequestTransport {
    /// A datagram.
    Datagram,
    /// A connection of its own.
    Connection,
}

impl RequestTransport {
    /// The tools at the far end and at the near one.
    fn tools(self) -> [&'static str; 2] {
        match self {
            RequestTransport::Datagram => ["echo", "ask"],
            RequestTransport::Connection => ["accept", "connect"],
        }
    }
}

/// Round trips over an idle path.
pub struct RoundTrip {
    lab: PathBuf,
    bytes: u32,
    asked: RequestTransport,
}

impl RoundTrip {
    /// With requests of so many bytes, sent by the tools of `lab`.
    pub fn new(lab: &Path, bytes: u32, asked: RequestTransport) -> RoundTrip {
        RoundTrip {
            lab: lab.to_owned(),
            bytes,
            asked,
        }
    }

    fn listen(&self, topology: &Topology) -> Result<Echo, Fault> {
        let at = SocketAddr::from((topology.addresses.server, PORT));
        let process = topology
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
    fn warm(&mut self, load: &RoundTrip, topology: &Topology) -> Result<(), Fault> {
        let started = Instant::now();
        while started.elapsed() < EXTRA_TIMEOUT {
            if let Some(code) = self.process.ended() {
                let said = self.process.output();
                return Err(Fault::failed(format!(
                    "the echo ended with {code}: {}",
                    said.trim()
                )));
            }
            let command = load.ask(self.at, 0, Duration::from_millis(50));
            let found = answered(&topology.client.must(&command, EXTRA_TIMEOUT)?)?;
            if found.asked > found.lost {
                return Ok(());
            }
        }
        Err(Fault::failed("the echo does not answer"))
    }
}

fn answered(said: &str) -> Result<RoundTrips, Fault> {
    serde_json::from_str(said).map_err(|error| Fault::failed(format!("the request tool: {error}")))
}

impl Load for RoundTrip {
    fn id(&self) -> &str {
        match self.asked {
            RequestTransport::Datagram => "round-trip",
            RequestTransport::Connection => "connections",
        }
    }

    fn demand(&self) -> Demand {
        Demand::RequestResponse
    }

    fn presence(&self, _topology: &Topology) -> Result<(), Absence> {
        Ok(())
    }

    fn prepare<'topology>(
        &'topology self,
        topology: &'topology Topology,
    ) -> Result<Box<dyn Prepared + 'topology>, Fault> {
        let echo = self.listen(topology)?;
        Ok(Box::new(PreparedRoundTrip {
            load: self,
            topology,
            echo,
        }))
    }
}

struct PreparedRoundTrip<'topology> {
    load: &'topology RoundTrip,
    topology: &'topology Topology,
    echo: Echo,
}

impl Prepared for PreparedRoundTrip<'_> {
    fn warm_up(&mut self) -> Result<(), Fault> {
        self.echo.warm(self.load, self.topology)
    }

    fn run(&mut self, duration: Duration) -> Result<Carried, Fault> {
        let command = self.load.ask(self.echo.at, 0, duration);
        let found = answered(
            &self
                .topology
                .client
                .must(&command, duration + EXTRA_TIMEOUT)?,
        )?;
        Ok(carried(&found, self.load))
    }
}

fn carried(found: &RoundTrips, load: &RoundTrip) -> Carried {
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

fn figures(found: &RoundTrips, asked: RequestTransport) -> BTreeMap<String, f64> {
    let name = match asked {
        RequestTransport::Datagram => "rtt",
        RequestTransport::Connection => "connection",
    };
    let answers = (found.asked - found.lost) as f64;
    let mut figures = found.nanoseconds.figures(name);
    figures.insert(
        format!("{name}.lost_ratio"),
        found.lost as f64 / found.asked.max(1) as f64,
    );
    figures.insert(format!("{name}.answers_count"), answers);
    if asked == RequestTransport::Connection {
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
    /// The requests, and the stream beside them.
    pub fn new(lab: &Path, bytes: u32, stream: Iperf3) -> LoadedRoundTrip {
        LoadedRoundTrip {
            asking: RoundTrip::new(lab, bytes, RequestTransport::Datagram),
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

    fn presence(&self, topology: &Topology) -> Result<(), Absence> {
        self.stream.presence(topology)
    }

    fn prepare<'topology>(
        &'topology self,
        topology: &'topology Topology,
    ) -> Result<Box<dyn Prepared + 'topology>, Fault> {
        Ok(Box::new(PreparedLoadedRoundTrip {
            load: self,
            topology,
            echo: self.asking.listen(topology)?,
            stream: self.stream.listen(topology)?,
            capacity_bps: 0.0,
        }))
    }
}

struct PreparedLoadedRoundTrip<'topology> {
    load: &'topology LoadedRoundTrip,
    topology: &'topology Topology,
    echo: Echo,
    stream: super::iperf3::Listening<'topology>,
    capacity_bps: f64,
}

/// How long the whole capacity is looked for.
const CAPACITY_TRIAL: Duration = Duration::from_secs(1);
/// Between two requests: often enough for a 99th percentile, and no load of its own.
const REQUEST_INTERVAL_MS: u64 = 2;

impl Prepared for PreparedLoadedRoundTrip<'_> {
    /// Finds what the path carries.
    fn warm_up(&mut self) -> Result<(), Fault> {
        self.echo.warm(&self.load.asking, self.topology)?;
        self.stream.warm_up()?;
        self.capacity_bps = self.stream.run(CAPACITY_TRIAL)?.goodput_bps;
        Ok(())
    }

    /// The stream starts before the requests and ends after them, so that no request meets an idle path.
    fn run(&mut self, duration: Duration) -> Result<Carried, Fault> {
        let margin = Duration::from_millis(500);
        let offered = (self.capacity_bps / 2.0) as u64;
        let mut background = self.stream.background(offered, duration + 2 * margin)?;
        std::thread::sleep(margin);
        let command = self
            .load
            .asking
            .ask(self.echo.at, REQUEST_INTERVAL_MS, duration);
        let found = answered(
            &self
                .topology
                .client
                .must(&command, duration + EXTRA_TIMEOUT)?,
        )?;
        let mut carried = self
            .stream
            .finished(&mut *background, duration + 2 * margin + EXTRA_TIMEOUT)?;
        carried.figures = figures(&found, RequestTransport::Datagram);
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
        let found = RoundTrips {
            asked: 200,
            lost: 20,
            seconds: 2.0,
            nanoseconds,
        };
        let by = |asked| carried(&found, &RoundTrip::new(Path::new("lab"), 64, asked)).figures;
        let connections = by(RequestTransport::Connection);
        assert_eq!(connections["connections_per_s"], 90.0);
        assert_eq!(connections["connection.lost_ratio"], 0.1);
        let datagrams = by(RequestTransport::Datagram);
        assert!((datagrams["rtt.p50_us"] - 50.0).abs() < 0.5);
        assert!(!datagrams.contains_key("connections_per_s"));
    }
}
