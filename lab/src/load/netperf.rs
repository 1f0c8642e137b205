//! netperf between client and server: one TCP stream, datagrams without a rate limit, or one request at a time. The lab
//! repeats tests itself; netperf's own repetition (`-I`) is not used.
//!
//! ```text
//!   netperf ── control: TCP ── netserver     which prepares the far end and returns its counts
//!           ══ the test ══════
//! ```

mod answer;
mod line;
mod program;
mod request;

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::{Duration, Instant};

use super::{Carried, Demand, Direction, Ends, Load, Prepared, sockets};
use crate::absence::Absence;
use crate::fault::Fault;
use crate::host::{Command, Process};
use crate::testbed::Topology;
use line::Amount;
use program::Program;
use request::{MEGABYTE, PORT};

pub use request::{Netperf, Test};

/// The first port of datagrams, at both ends. Each test has the next one, so that none meets what is left of the one
/// before.
const FIRST_DATAGRAM_PORT: u16 = 5310;
/// Beyond the load itself: connecting, draining what is in flight, and the 4 s that a far end waits for datagrams.
const EXTRA_TIMEOUT: Duration = Duration::from_secs(12);
/// For the little traffic of a warm-up over the slowest tunnel.
const WARM_UP_TIMEOUT: Duration = Duration::from_secs(14);

impl Netperf {
    /// netperf has a stream sent by either end. It has no such test of datagrams, so the ends change places.
    fn ends<'topology>(&self, topology: &'topology Topology) -> Ends<'topology> {
        match self.test {
            Test::Datagrams { .. } => self.direction.ends(topology),
            Test::Stream { .. } | Test::Requests { .. } => Direction::Forward.ends(topology),
        }
    }
}

impl Load for Netperf {
    fn id(&self) -> &str {
        match self.test {
            Test::Stream { .. } => "netperf-tcp",
            Test::Datagrams { .. } => "netperf-udp",
            Test::Requests { .. } => "netperf-rr",
        }
    }

    fn demand(&self) -> Demand {
        match self.test {
            Test::Stream { .. } | Test::Datagrams { .. } => Demand::Saturating,
            Test::Requests { .. } => Demand::RequestResponse,
        }
    }

    fn presence(&self, topology: &Topology) -> Result<(), Absence> {
        let ends = self.ends(topology);
        let near = Program::of(ends.from, "netperf")?;
        near.check_compatible(&Program::of(ends.to, "netserver")?)
    }

    fn prepare<'topology>(
        &'topology self,
        topology: &'topology Topology,
    ) -> Result<Box<dyn Prepared + 'topology>, Fault> {
        let ends = self.ends(topology);
        let program =
            Program::of(ends.from, "netperf").map_err(|absence| Fault::failed(absence.why))?;
        let family = if ends.address.is_ipv6() { 6 } else { 4 };
        // In the foreground, without a child per test and without a log file: it ends with the lab, and its output is
        // captured.
        let listen = format!("netserver -D -f -N -L {},{family} -p {PORT}", ends.address);
        let mut server = ends.to.start(&Command::line(&listen))?;
        let at = SocketAddr::from((ends.address, PORT));
        sockets::wait_until_listening(ends.to, &mut *server, "netperf", at)?;
        Ok(Box::new(Listening {
            load: self,
            ends,
            program,
            server,
            port: FIRST_DATAGRAM_PORT,
        }))
    }
}

/// netperf with its far end listening.
struct Listening<'topology> {
    load: &'topology Netperf,
    ends: Ends<'topology>,
    program: Program,
    server: Box<dyn Process>,
    /// Where the datagrams of the test go from and to.
    port: u16,
}

impl Prepared for Listening<'_> {
    fn warm_up(&mut self) -> Result<(), Fault> {
        let second = Amount::Seconds(1);
        let warm = match self.load.test {
            Test::Stream {
                warm_up_megabytes: 0,
                ..
            } => return Ok(()),
            Test::Stream {
                warm_up_megabytes, ..
            } => self.ask(
                Amount::Bytes(i64::from(warm_up_megabytes) * MEGABYTE),
                WARM_UP_TIMEOUT,
            ),
            // netperf ends at the first datagram that exceeds the path MTU. By then the kernel has cached the path MTU,
            // so the second attempt succeeds.
            Test::Datagrams { .. } => self
                .flood(second, WARM_UP_TIMEOUT)
                .or_else(|_| self.flood(second, WARM_UP_TIMEOUT)),
            Test::Requests { .. } => self.ask(second, WARM_UP_TIMEOUT),
        };
        warm.map(drop)
    }

    fn run(&mut self, duration: Duration) -> Result<Carried, Fault> {
        let seconds = Amount::Seconds(duration.as_secs().max(1));
        match self.load.test {
            Test::Datagrams { .. } => self.flood(seconds, duration + EXTRA_TIMEOUT),
            Test::Stream { .. } | Test::Requests { .. } => {
                self.ask(seconds, duration + EXTRA_TIMEOUT)
            }
        }
    }
}

impl Listening<'_> {
    fn command(&self, amount: Amount) -> Command {
        let intervals = self.program.has_intervals;
        let line = self
            .load
            .line(self.ends.address, amount, intervals, self.port);
        Command::line(&line)
    }

    fn ask(&mut self, amount: Amount, limit: Duration) -> Result<Carried, Fault> {
        let finished = self.ends.from.run(&self.command(amount), limit)?;
        self.carried(&(finished.stdout + &finished.stderr))
    }

    /// netperf signals the end of datagrams by three empty ones, which a full queue may lose. The far end would then
    /// wait for four more seconds while the meters see an idle tunnel, so the end is sent again once netperf has closed
    /// its socket.
    fn flood(&mut self, amount: Amount, limit: Duration) -> Result<Carried, Fault> {
        const POLL_INTERVAL: Duration = Duration::from_millis(100);
        self.port += 1;
        let command = self.command(amount);
        let (from, six) = (self.ends.from, self.ends.address.is_ipv6());
        let near = SocketAddr::from((unspecified(six), self.port));
        let far = SocketAddr::from((self.ends.address, self.port));
        let end_sender = from.datagrams(SocketAddr::from((unspecified(six), 0)))?;
        let mut netperf = from.start(&command)?;
        let (started, mut sending) = (Instant::now(), false);
        while netperf.ended().is_none() {
            if started.elapsed() > limit {
                return Err(Fault::TimedOut {
                    what: format!("`{command}`"),
                    after: limit,
                });
            }
            let has_socket = sockets::has_udp_socket(from, near)?;
            if sending && !has_socket {
                end_sender.send(far, &[])?;
            }
            sending |= has_socket;
            // Nothing is received: this is a sleep that ends when the user stops the run.
            end_sender.receive(POLL_INTERVAL)?;
        }
        self.carried(&netperf.output())
    }

    fn carried(&mut self, said: &str) -> Result<Carried, Fault> {
        let answer = answer::read(said).and_then(|answer| match self.load.test {
            Test::Stream { .. } => answer.of_stream(self.load.is_backwards()),
            Test::Datagrams { message_bytes } => answer.of_datagrams(message_bytes),
            Test::Requests { bytes } => answer.of_requests(bytes),
        });
        let tool = self.program.tool();
        match answer {
            Ok(carried) => Ok(Carried { tool, ..carried }),
            Err(why) => {
                let ended = self.server.ended().map_or(String::new(), |code| {
                    let said = self.server.output();
                    let last = said.lines().last().unwrap_or_default().trim();
                    format!("; its netserver ended with {code}: {last}")
                });
                Err(Fault::failed(format!("{tool}: {why}{ended}")))
            }
        }
    }
}

fn unspecified(six: bool) -> IpAddr {
    if six {
        Ipv6Addr::UNSPECIFIED.into()
    } else {
        Ipv4Addr::UNSPECIFIED.into()
    }
}
