//! iperf3 between client and server, over TCP or UDP, and its JSON read back.

mod answer;

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use super::{Carried, Demand, Direction, Ends, Load, Prepared, sockets};
use crate::absence::Absence;
use crate::fault::Fault;
use crate::host::{Command, Host, Process};
use crate::testbed::Topology;
use answer::{Answer, read};

/// iperf3 between client and server.
#[derive(Debug, Clone, PartialEq)]
pub struct Iperf3 {
    /// TCP or UDP.
    pub protocol: Protocol,
    /// Uncounted traffic before each load.
    pub warm_up_megabytes: u32,
    /// Bytes of each write; `None`: iperf3's own choice.
    pub message_bytes: Option<u32>,
    /// Send every write at once (TCP_NODELAY).
    pub nodelay: bool,
    /// Parallel streams.
    pub streams: u32,
    /// Which way they go.
    pub direction: Direction,
}

/// What iperf3 sends.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Protocol {
    /// As fast as TCP goes.
    Tcp,
    /// UDP at a rate.
    Udp {
        /// Millions of bits of user data per second, all streams together.
        offered_mbit: f64,
    },
}

impl Default for Iperf3 {
    fn default() -> Iperf3 {
        Iperf3 {
            protocol: Protocol::Tcp,
            warm_up_megabytes: 8,
            message_bytes: None,
            nodelay: false,
            streams: 1,
            direction: Direction::Forward,
        }
    }
}

const PORT: u16 = 5201;
/// Beyond the load itself: connecting, and draining what is in flight.
const EXTRA_TIMEOUT: Duration = Duration::from_secs(8);
/// For the little traffic of a warm-up over the slowest tunnel.
const WARM_UP_TIMEOUT: Duration = Duration::from_secs(10);

impl Iperf3 {
    /// Starts the far end.
    pub(super) fn listen<'topology>(
        &self,
        topology: &'topology Topology,
    ) -> Result<Listening<'topology>, Fault> {
        let ends = self.direction.ends(topology);
        let listen = Command::line(&format!(
            "iperf3 --server --bind {} --port {PORT}",
            ends.address
        ));
        let mut server = ends.to.start(&listen)?;
        let at = SocketAddr::from((ends.address, PORT));
        sockets::wait_until_listening(ends.to, &mut *server, "iperf3", at)?;
        Ok(Listening {
            topology,
            ends,
            server,
            load: self.clone(),
        })
    }

    /// The options for what is sent.
    fn options(&self) -> String {
        let mut options = match self.protocol {
            Protocol::Tcp => String::new(),
            Protocol::Udp { offered_mbit } => {
                let each = offered_mbit * 1e6 / f64::from(self.streams);
                format!(" --udp --bitrate {each:.0}")
            }
        };
        if let Some(bytes) = self.message_bytes {
            options += &format!(" --length {bytes}");
        }
        if self.nodelay {
            options += " --no-delay";
        }
        if self.streams > 1 {
            options += &format!(" --parallel {}", self.streams);
        }
        if self.direction == Direction::Both {
            options += " --bidir";
        }
        options
    }
}

impl Load for Iperf3 {
    fn id(&self) -> &str {
        match self.protocol {
            Protocol::Tcp => "iperf3-tcp",
            Protocol::Udp { .. } => "iperf3-udp",
        }
    }

    fn demand(&self) -> Demand {
        Demand::Saturating
    }

    fn presence(&self, topology: &Topology) -> Result<(), Absence> {
        let missing = |host: &&dyn Host| !host.has("iperf3").unwrap_or(false);
        if [&*topology.client, &*topology.server].iter().any(missing) {
            Err(Absence::new(
                "iperf3 is not installed",
                "Fix: apt-get install iperf3",
            ))
        } else {
            Ok(())
        }
    }

    fn prepare<'topology>(
        &'topology self,
        topology: &'topology Topology,
    ) -> Result<Box<dyn Prepared + 'topology>, Fault> {
        Ok(Box::new(self.listen(topology)?))
    }
}

/// iperf3 with its far end listening.
pub(super) struct Listening<'topology> {
    topology: &'topology Topology,
    ends: Ends<'topology>,
    server: Box<dyn Process>,
    load: Iperf3,
}

impl Listening<'_> {
    fn command(&self, amount: &str) -> Command {
        let server = self.ends.address;
        Command::line(&format!(
            "iperf3 --client {server} --port {PORT} --connect-timeout 3000 --json {amount}"
        ))
    }

    fn client(&mut self, amount: &str, limit: Duration) -> Result<Answer, Fault> {
        let finished = self.ends.from.run(&self.command(amount), limit)?;
        self.answer(&finished.stdout)
    }

    fn answer(&mut self, said: &str) -> Result<Answer, Fault> {
        read(said).map_err(|why| {
            let ended = self.server.ended().map_or(String::new(), |code| {
                format!("; its server ended with {code}")
            });
            Fault::failed(format!("iperf3: {why}{ended}"))
        })
    }

    /// Starts a stream of at most so many bits per second, to run beside something else.
    pub(super) fn background(
        &self,
        bits_per_second: u64,
        duration: Duration,
    ) -> Result<Box<dyn Process>, Fault> {
        let seconds = duration.as_secs_f64().ceil();
        let amount = format!(
            "--time {seconds} --bitrate {bits_per_second}{}",
            self.load.options()
        );
        self.ends.from.start(&self.command(&amount))
    }

    /// Waits for such a stream to end.
    pub(super) fn finished(
        &mut self,
        stream: &mut dyn Process,
        limit: Duration,
    ) -> Result<Carried, Fault> {
        let started = Instant::now();
        while stream.ended().is_none() {
            if started.elapsed() > limit {
                let what = "the background stream".into();
                return Err(Fault::TimedOut { what, after: limit });
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        Ok(self.answer(&stream.output())?.carried())
    }
}

impl Prepared for Listening<'_> {
    fn warm_up(&mut self) -> Result<(), Fault> {
        if self.load.warm_up_megabytes == 0 {
            return Ok(());
        }
        let amount = match self.load.protocol {
            Protocol::Tcp => format!("--bytes {}M", self.load.warm_up_megabytes),
            Protocol::Udp { .. } => format!("--time 1{}", self.load.options()),
        };
        self.client(&amount, WARM_UP_TIMEOUT)?;
        // The client ends before the server: the server rejects the next client until it has seen the end.
        let at = SocketAddr::from((self.ends.address, PORT));
        sockets::wait_until_free(self.ends.to, "iperf3", at)
    }

    fn run(&mut self, duration: Duration) -> Result<Carried, Fault> {
        let seconds = duration.as_secs().max(1);
        let interval = match self.topology.path {
            Some(_) => FINE_REPORT_INTERVAL_S,
            None => REPORT_INTERVAL_S,
        };
        let options = self.load.options();
        let amount = format!("--time {seconds} --interval {interval}{options}");
        let mut carried = self.client(&amount, duration + EXTRA_TIMEOUT)?.carried();
        if self.topology.path.is_some() {
            let silence = longest_silence(&carried.intervals_bps) as f64 * FINE_REPORT_INTERVAL_S;
            carried.figures.insert("outage_s".into(), silence);
        }
        Ok(carried)
    }
}

/// Seconds of an interval, and of one on a path that changes.
const REPORT_INTERVAL_S: f64 = 0.5;
const FINE_REPORT_INTERVAL_S: f64 = 0.1;

/// The most intervals in a row with hardly anything in them: a twentieth of the median is a probe or two.
fn longest_silence(intervals_bps: &[f64]) -> usize {
    let usual = crate::stats::median(intervals_bps).unwrap_or(0.0);
    let quiet = intervals_bps.split(|bps| *bps > 0.05 * usual);
    quiet.map(<[f64]>::len).max().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_asked_for_becomes_options() {
        assert_eq!(Iperf3::default().options(), "");
        let udp = Iperf3 {
            protocol: Protocol::Udp { offered_mbit: 90.0 },
            message_bytes: Some(1400),
            streams: 3,
            ..Iperf3::default()
        };
        assert_eq!(
            udp.options(),
            " --udp --bitrate 30000000 --length 1400 --parallel 3"
        );
        let small = Iperf3 {
            message_bytes: Some(64),
            nodelay: true,
            ..Iperf3::default()
        };
        assert_eq!(small.options(), " --length 64 --no-delay");
        let both = Iperf3 {
            direction: Direction::Both,
            ..Iperf3::default()
        };
        assert_eq!(both.options(), " --bidir");
    }

    #[test]
    fn the_longest_silence_is_counted_in_intervals() {
        assert_eq!(
            longest_silence(&[9.0, 0.0, 8.0, 0.1, 0.0, 0.0, 9.0, 9.0, 9.0]),
            3
        );
        assert_eq!(longest_silence(&[9.0, 8.0, 9.0, 0.0]), 1);
        assert_eq!(longest_silence(&[5.0, 5.0, 5.0]), 0);
    }
}
