//! The command line of netperf.

use std::net::IpAddr;

use super::answer;
use super::request::{Netperf, PORT, REPORT_INTERVAL_S, Test};
use crate::load::Direction;

/// How long a test goes on.
#[derive(Clone, Copy)]
pub(super) enum Amount {
    /// Until the time is over.
    Seconds(u64),
    /// Until so many were sent; for streams.
    Bytes(i64),
}

impl Netperf {
    /// Whether it is the far end that sends.
    pub(super) fn is_backwards(&self) -> bool {
        matches!(self.test, Test::Stream { .. }) && self.direction == Direction::Reverse
    }

    /// Options of the program itself come before the two dashes, those of the test behind them.
    pub(super) fn line(&self, to: IpAddr, amount: Amount, intervals: bool, port: u16) -> String {
        let family = if to.is_ipv6() { 6 } else { 4 };
        let length = match amount {
            Amount::Seconds(seconds) => seconds.to_string(),
            Amount::Bytes(bytes) => format!("-{bytes}"),
        };
        let (test, own) = self.test_and_options(intervals);
        let options = self.options_of_test(port);
        format!(
            "netperf -{family} -H {to},{family} -p {PORT} -P 0 -t {test} -l {length}{own} -- -{family}{options}"
        )
    }

    fn test_and_options(&self, intervals: bool) -> (&'static str, String) {
        let unit = format!(" -f {}", answer::UNIT_OPTION);
        match self.test {
            Test::Stream { .. } => {
                let test = if self.is_backwards() {
                    "TCP_MAERTS"
                } else {
                    "TCP_STREAM"
                };
                let told = if intervals {
                    format!(" -D {REPORT_INTERVAL_S}")
                } else {
                    String::new()
                };
                (test, unit + &told)
            }
            Test::Datagrams { .. } => ("UDP_STREAM", unit),
            // With it every request is timed.
            Test::Requests { .. } => ("TCP_RR", " -j".into()),
        }
    }

    fn options_of_test(&self, port: u16) -> String {
        let nodelay = if self.nodelay { " -D" } else { "" };
        match self.test {
            Test::Stream { message_bytes, .. } => {
                // The far end's size stands behind a comma.
                let sender = if self.is_backwards() { "," } else { "" };
                let size = message_bytes.map(|bytes| format!(" -m {sender}{bytes}"));
                let size = size.unwrap_or_default();
                format!("{size}{nodelay} -k {}", answer::STREAM_OUTPUTS)
            }
            // Without `-R 1` no datagram passes a gateway.
            Test::Datagrams { message_bytes } => format!(
                " -R 1 -m {message_bytes} -P {port},{port} -k {}",
                answer::STREAM_OUTPUTS
            ),
            Test::Requests { bytes } => {
                format!(
                    " -r {bytes},{bytes}{nodelay} -k {}",
                    answer::REQUEST_OUTPUTS
                )
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::load::netperf::request::MEGABYTE;

    fn line(load: &Netperf, to: &str, amount: Amount) -> String {
        load.line(to.parse().unwrap(), amount, true, 5311)
    }

    fn stream(direction: Direction) -> Netperf {
        Netperf {
            test: Test::Stream {
                message_bytes: Some(64),
                warm_up_megabytes: 8,
            },
            nodelay: true,
            direction,
        }
    }

    #[test]
    fn a_stream_is_sent_by_either_end_and_its_writes_are_the_senders() {
        let forward = line(
            &stream(Direction::Forward),
            "10.2.0.2",
            Amount::Bytes(MEGABYTE),
        );
        let begin = "netperf -4 -H 10.2.0.2,4 -p 5304 -P 0 -t TCP_STREAM -l -1048576 -f k -D 0.5 -- -4 -m 64 -D -k THROUGHPUT,";
        assert!(forward.starts_with(begin), "{forward}");
        let reverse = line(&stream(Direction::Reverse), "fd00::2", Amount::Seconds(5));
        let begin = "netperf -6 -H fd00::2,6 -p 5304 -P 0 -t TCP_MAERTS -l 5 -f k -D 0.5 -- -6 -m ,64 -D -k THROUGHPUT,";
        assert!(reverse.starts_with(begin), "{reverse}");
    }

    #[test]
    fn datagrams_may_pass_gateways_and_questions_are_timed() {
        let load = |test| Netperf {
            test,
            nodelay: false,
            direction: Direction::Forward,
        };
        let datagrams = load(Test::Datagrams {
            message_bytes: 1024,
        });
        let said = line(&datagrams, "10.2.0.2", Amount::Seconds(2));
        assert!(
            said.contains(" -t UDP_STREAM -l 2 -f k -- -4 -R 1 -m 1024 -P 5311,5311 -k "),
            "{said}"
        );
        let requests = line(
            &load(Test::Requests { bytes: 64 }),
            "10.2.0.2",
            Amount::Seconds(2),
        );
        assert!(
            requests.contains(" -t TCP_RR -l 2 -j -- -4 -r 64,64 -k TRANSACTION_RATE,"),
            "{requests}"
        );
    }
}
