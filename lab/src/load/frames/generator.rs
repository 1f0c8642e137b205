//! Runs the receiver on one end host and the sender on the other, and reads what both counted.

use std::net::SocketAddr;
use std::path::Path;
use std::time::{Duration, Instant};

use super::trial::RateTrial;
use crate::fault::Fault;
use crate::host::{Command, Finished, Host, Process};
use crate::load::{Direction, Ends};
use crate::testbed::{Family, Topology};
use crate::tool::LISTENING;

/// What a frame has beside user data: Ethernet header and check sequence, and the header of UDP; that of IP comes in
/// between.
pub const FRAME_OVERHEAD_BYTES: u32 = 18 + 8;
const PORT: u16 = 5303;
/// Where the sender reads answers.
const ANSWERS_PORT: u16 = 5304;
/// Answers go the other way through the same tunnel: so few take none of what it carries, and are enough for a 99th
/// percentile after a second.
const MAX_ANSWERS_PER_S: f64 = 1000.0;
/// For starting, and until the receiver sees the end.
const EXTRA_TIMEOUT: Duration = Duration::from_secs(8);
/// Without a frame the receiver ends after this; the sender is started later, over a slow line much later.
const MAX_SILENCE: Duration = Duration::from_secs(3);
const MAX_REMOTE_SILENCE: Duration = Duration::from_secs(6);

/// The two tools, and how often they were started.
pub(super) struct Generator<'topology> {
    program: &'topology Path,
    frame_bytes: &'topology [u32],
    ends: Ends<'topology>,
    one_clock: bool,
    runs: u32,
}

impl<'topology> Generator<'topology> {
    /// With the tools of the lab's program, for frames of these sizes in turn.
    pub(super) fn new(
        program: &'topology Path,
        frame_bytes: &'topology [u32],
        direction: Direction,
        topology: &'topology Topology,
    ) -> Self {
        Generator {
            program,
            frame_bytes,
            ends: direction.ends(topology),
            one_clock: topology.one_clock,
            runs: 0,
        }
    }

    /// Sends at a rate (0: as fast as it goes) for a while.
    pub(super) fn run_at(&mut self, rate: f64, length: Duration) -> Result<RateTrial, Fault> {
        self.runs += 1;
        let mut receiver = self.ends.to.start(&self.receive(rate))?;
        self.wait_until_listening(&mut *receiver)?;
        let sender = self.send(rate, length);
        let sent = self.ends.from.run(&sender, length + EXTRA_TIMEOUT)?;
        let sent = result("sender", self.ends.from, &sent)?;
        let started = Instant::now();
        while receiver.ended().is_none() && started.elapsed() < EXTRA_TIMEOUT {
            std::thread::sleep(Duration::from_millis(5));
        }
        let finished = Finished {
            code: receiver.ended().unwrap_or(0),
            stdout: receiver.output(),
            stderr: String::new(),
        };
        let received = result("receiver", self.ends.to, &finished)?;
        Ok(RateTrial { sent, received })
    }

    fn receive(&self, rate: f64) -> Command {
        let patience = if self.one_clock {
            MAX_SILENCE
        } else {
            MAX_REMOTE_SILENCE
        };
        let receive = Command::tool(self.program, "receive")
            .arg(self.far().to_string())
            .arg("--run")
            .arg(self.runs.to_string())
            .arg("--patience")
            .arg(patience.as_millis().to_string());
        if self.one_clock {
            return receive;
        }
        receive
            .arg("--answer-to")
            .arg(self.near().to_string())
            .arg("--answer-one-in")
            .arg(answered_one_in(rate).to_string())
    }

    fn send(&self, rate: f64, length: Duration) -> Command {
        let bytes = self.frame_bytes.iter();
        let around = FRAME_OVERHEAD_BYTES + Family::of(self.ends.address).header();
        let bytes = bytes.map(|bytes| bytes.saturating_sub(around).to_string());
        let bytes = bytes.collect::<Vec<_>>().join(",");
        let send = Command::tool(self.program, "send")
            .arg(self.far().to_string())
            .arg("--bytes")
            .arg(bytes)
            .arg("--rate")
            .arg(rate.to_string())
            .arg("--milliseconds")
            .arg(length.as_millis().to_string())
            .arg("--run")
            .arg(self.runs.to_string());
        if self.one_clock {
            return send;
        }
        send.arg("--answers-at").arg(self.near().to_string())
    }

    fn far(&self) -> SocketAddr {
        SocketAddr::from((self.ends.address, PORT))
    }

    fn near(&self) -> SocketAddr {
        SocketAddr::from((self.ends.from_address, ANSWERS_PORT))
    }

    /// Its own word counts: another program may have the port.
    fn wait_until_listening(&self, receiver: &mut dyn Process) -> Result<(), Fault> {
        let started = Instant::now();
        loop {
            let ended = receiver.ended();
            let said = receiver.output();
            if said.lines().any(|line| line == LISTENING) {
                return Ok(());
            }
            if let Some(code) = ended {
                let finished = Finished {
                    code,
                    stdout: said,
                    stderr: String::new(),
                };
                return Err(failed("receiver", self.ends.to, &finished));
            }
            if started.elapsed() > EXTRA_TIMEOUT {
                let place = self.ends.to.place();
                return Err(Fault::failed(format!(
                    "{place}: the receiver of frames does not listen"
                )));
            }
            std::thread::sleep(Duration::from_millis(2));
        }
    }
}

/// Every n-th frame is answered; 0 for none. Frames sent without a rate limit are not answered, because their delay
/// only measures full queues.
fn answered_one_in(rate: f64) -> u64 {
    if rate > 0.0 {
        (rate / MAX_ANSWERS_PER_S).ceil().max(1.0) as u64
    } else {
        0
    }
}

/// The result of a tool, which is its last line.
fn result<T: serde::de::DeserializeOwned>(
    who: &str,
    host: &dyn Host,
    finished: &Finished,
) -> Result<T, Fault> {
    let last = finished.stdout.lines().last().unwrap_or_default();
    match serde_json::from_str(last) {
        Ok(found) if finished.code == 0 => Ok(found),
        _ => Err(failed(who, host, finished)),
    }
}

fn failed(who: &str, host: &dyn Host, finished: &Finished) -> Fault {
    let (place, code) = (host.place(), finished.code);
    let why = finished.complaint();
    let why = why.strip_prefix("error: ").unwrap_or(why);
    Fault::failed(format!(
        "{place}: the {who} of frames ended with {code}: {why}"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn at_most_a_thousand_answers_a_second_are_asked_for() {
        assert_eq!(answered_one_in(500.0), 1);
        assert_eq!(answered_one_in(1000.0), 1);
        assert_eq!(answered_one_in(1001.0), 2);
        assert_eq!(answered_one_in(250_000.0), 250);
        assert_eq!(answered_one_in(0.0), 0);
    }
}
