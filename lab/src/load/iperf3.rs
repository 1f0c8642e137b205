//! One TCP stream of iperf3 from client to server, and its JSON read back.

use std::path::Path;
use std::time::{Duration, Instant};

use serde::Deserialize;

use super::{Carried, Load, Prepared};
use crate::contender::Absence;
use crate::fault::Fault;
use crate::host::{Command, Process, program};
use crate::testbed::Bed;

/// iperf3 over TCP.
pub struct Iperf3 {
    warm_up_megabytes: u32,
}

const PORT: u16 = 5201;
/// Beyond the load itself: connecting, and draining what is in flight.
const GRACE: Duration = Duration::from_secs(8);
/// For the far end to listen, and for the little traffic of a warm-up over the slowest tunnel.
const PATIENCE: Duration = Duration::from_secs(10);

impl Iperf3 {
    /// With this much uncounted traffic before each load.
    pub fn new(warm_up_megabytes: u32) -> Iperf3 {
        Iperf3 { warm_up_megabytes }
    }
}

impl Load for Iperf3 {
    fn id(&self) -> &str {
        "iperf3-tcp"
    }

    fn presence(&self, _bed: &Bed) -> Result<(), Absence> {
        match program("iperf3") {
            Some(_) => Ok(()),
            None => Err(Absence::new(
                "iperf3 is not installed",
                "Get it by: apt-get install iperf3",
            )),
        }
    }

    fn prepare<'bed>(&'bed self, bed: &'bed Bed) -> Result<Box<dyn Prepared + 'bed>, Fault> {
        let listen = Command::line(&format!(
            "iperf3 --server --bind {} --port {PORT}",
            bed.addresses.server
        ));
        let mut server = bed.server.start(&listen)?;
        wait_until_listening(bed, &mut *server)?;
        Ok(Box::new(Listening {
            bed,
            server,
            warm_up: self.warm_up_megabytes,
        }))
    }
}

/// Asking by a connection would count as a test to iperf3, so the kernel's table is asked.
fn wait_until_listening(bed: &Bed, server: &mut dyn Process) -> Result<(), Fault> {
    let started = Instant::now();
    while !listens(&bed.server.read(Path::new("/proc/net/tcp"))?) {
        if let Some(code) = server.ended() {
            let said = server.said();
            return Err(Fault::failed(format!(
                "the iperf3 server ended with {code}: {}",
                said.trim()
            )));
        }
        if started.elapsed() > PATIENCE {
            let what = "the iperf3 server to listen".into();
            return Err(Fault::TimedOut {
                what,
                after: PATIENCE,
            });
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    Ok(())
}

fn listens(table: &str) -> bool {
    const LISTEN: &str = "0A";
    let port = format!(":{PORT:04X}");
    table.lines().any(|line| {
        let mut fields = line.split_whitespace().skip(1);
        let local = fields.next().unwrap_or_default();
        local.ends_with(&port) && fields.nth(1) == Some(LISTEN)
    })
}

struct Listening<'bed> {
    bed: &'bed Bed,
    server: Box<dyn Process>,
    warm_up: u32,
}

impl Listening<'_> {
    fn client(&mut self, amount: &str, limit: Duration) -> Result<Answer, Fault> {
        let server = self.bed.addresses.server;
        let command = Command::line(&format!(
            "iperf3 --client {server} --port {PORT} --connect-timeout 3000 --json {amount}"
        ));
        let finished = self.bed.client.run(&command, limit)?;
        read(&finished.stdout).map_err(|why| {
            let ended = self.server.ended().map_or(String::new(), |code| {
                format!("; its server ended with {code}")
            });
            Fault::failed(format!("iperf3: {why}{ended}"))
        })
    }
}

impl Prepared for Listening<'_> {
    fn warm_up(&mut self) -> Result<(), Fault> {
        if self.warm_up == 0 {
            return Ok(());
        }
        let amount = format!("--bytes {}M", self.warm_up);
        self.client(&amount, PATIENCE).map(drop)
    }

    fn run(&mut self, duration: Duration) -> Result<Carried, Fault> {
        let seconds = duration.as_secs().max(1);
        let amount = format!("--time {seconds} --interval 0.5");
        Ok(self.client(&amount, duration + GRACE)?.carried())
    }
}

#[derive(Deserialize)]
struct Answer {
    #[serde(default)]
    error: Option<String>,
    start: Start,
    intervals: Vec<Interval>,
    end: End,
}

#[derive(Deserialize)]
struct Start {
    version: String,
}

#[derive(Deserialize)]
struct Interval {
    sum: Sum,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct End {
    sum_sent: Sum,
    sum_received: Sum,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct Sum {
    seconds: f64,
    bytes: u64,
    bits_per_second: f64,
    retransmits: Option<u64>,
}

fn read(json: &str) -> Result<Answer, String> {
    let answer: Answer = serde_json::from_str(json).map_err(|error| match json.trim() {
        "" => "it said nothing".to_owned(),
        _ => format!("its answer is not understood: {error}"),
    })?;
    match answer.error {
        Some(error) => Err(error),
        None => Ok(answer),
    }
}

impl Answer {
    fn carried(self) -> Carried {
        Carried {
            tool: self.start.version,
            seconds: self.end.sum_received.seconds,
            bytes: self.end.sum_received.bytes,
            goodput_bps: self.end.sum_received.bits_per_second,
            retransmits: self.end.sum_sent.retransmits,
            intervals_bps: self
                .intervals
                .iter()
                .map(|interval| interval.sum.bits_per_second)
                .collect(),
            figures: Default::default(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = r#"{"start": {"version": "iperf 3.12", "connected": []},
        "intervals": [{"streams": [], "sum": {"bits_per_second": 8e9}}, {"sum": {"bits_per_second": 9.5e9}}],
        "end": {"sum_sent": {"seconds": 2.0, "bytes": 2500000, "bits_per_second": 1e7, "retransmits": 3},
                "sum_received": {"seconds": 2.01, "bytes": 2400000, "bits_per_second": 9.55e6}}}"#;

    #[test]
    fn the_receiver_decides_what_arrived() {
        let carried = read(GOOD).unwrap().carried();
        assert_eq!((carried.bytes, carried.retransmits), (2_400_000, Some(3)));
        assert_eq!(carried.intervals_bps, [8e9, 9.5e9]);
        assert_eq!(carried.tool, "iperf 3.12");
    }

    #[test]
    fn the_error_of_iperf3_is_passed_on() {
        let refused = r#"{"start": {"version": "iperf 3.12"}, "intervals": [], "end": {},
            "error": "unable to connect to server: Connection refused"}"#;
        assert_eq!(
            read(refused).err().unwrap(),
            "unable to connect to server: Connection refused"
        );
        assert_eq!(read("").err().unwrap(), "it said nothing");
        assert!(
            read("{")
                .err()
                .unwrap()
                .starts_with("its answer is not understood")
        );
    }

    #[test]
    fn only_a_listening_socket_on_the_port_counts() {
        let line = |state| {
            format!("   0: 0202000A:1451 00000000:0000 {state} 00000000:00000000 00:00000000")
        };
        assert!(listens(&line("0A")));
        assert!(!listens(&line("01")));
        assert!(!listens("   0: 0202000A:1452 00000000:0000 0A 0:0 0:0"));
    }
}
