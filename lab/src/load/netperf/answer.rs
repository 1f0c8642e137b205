//! The output of netperf: the selected values as `NAME=value`, between error messages. Its exit code is not reliable:
//! some failures end with 0.

use std::collections::BTreeMap;

use super::request::REPORT_INTERVAL_S;
use crate::load::Carried;

/// What is selected of a stream, and of datagrams.
pub(super) const STREAM_OUTPUTS: &str = "THROUGHPUT,THROUGHPUT_UNITS,ELAPSED_TIME,LOCAL_BYTES_SENT,LOCAL_BYTES_RECVD,\
                                   REMOTE_BYTES_RECVD,LOCAL_TRANSPORT_RETRANS,REMOTE_TRANSPORT_RETRANS";
/// What is selected of requests.
pub(super) const REQUEST_OUTPUTS: &str = "TRANSACTION_RATE,ELAPSED_TIME,LOCAL_BYTES_RECVD,LOCAL_TRANSPORT_RETRANS,\
                                       MEAN_LATENCY,P50_LATENCY,P90_LATENCY,P99_LATENCY,MAX_LATENCY";
/// The unit that is requested: its results have two decimals in every test.
pub(super) const UNIT_OPTION: &str = "k";
const UNIT_NAME: &str = "10^3bits/s";

/// The outputs by their names.
#[derive(Debug)]
pub(super) struct Answer<'a>(BTreeMap<&'a str, &'a str>);

/// Parses them; if the test did not complete, returns netperf's message.
pub(super) fn read(said: &str) -> Result<Answer<'_>, String> {
    let outputs: BTreeMap<&str, &str> = said.lines().filter_map(output).collect();
    if outputs.contains_key("ELAPSED_TIME") {
        Ok(Answer(outputs))
    } else {
        Err(complaint(said))
    }
}

fn output(line: &str) -> Option<(&str, &str)> {
    let (name, value) = line.trim().split_once('=')?;
    let named = |letter: char| !letter.is_lowercase() && !letter.is_whitespace();
    (!name.is_empty() && name.chars().all(named)).then_some((name, value))
}

/// It reports one failure in up to three lines, on both outputs.
fn complaint(said: &str) -> String {
    let lines = said.lines().map(str::trim);
    let told: Vec<&str> = lines
        .filter(|line| !line.is_empty() && output(line).is_none())
        .take(3)
        .collect();
    if told.is_empty() {
        "it said nothing".into()
    } else {
        told.join("; ")
    }
}

impl Answer<'_> {
    /// One stream, as the receiver saw it: the far end, or with `backwards` netperf itself.
    pub(super) fn of_stream(&self, backwards: bool) -> Result<Carried, String> {
        let (received, sender) = if backwards {
            ("LOCAL_BYTES_RECVD", "REMOTE_TRANSPORT_RETRANS")
        } else {
            ("REMOTE_BYTES_RECVD", "LOCAL_TRANSPORT_RETRANS")
        };
        let mut carried = self.of_bytes(received)?;
        carried.retransmits = self.retransmits(sender);
        carried.intervals_bps = self.intervals_bps();
        Ok(carried)
    }

    /// Datagrams of so many bytes: what was received counts, and what was sent is a figure.
    pub(super) fn of_datagrams(&self, bytes: u32) -> Result<Carried, String> {
        let mut carried = self.of_bytes("REMOTE_BYTES_RECVD")?;
        let (sent, seconds) = (self.number("LOCAL_BYTES_SENT")?, carried.seconds.max(1e-9));
        let arrived = carried.bytes as f64;
        carried.figures = BTreeMap::from([
            ("sent_bps".into(), sent * 8.0 / seconds),
            (
                "loss_ratio".into(),
                (1.0 - arrived / sent.max(1.0)).max(0.0),
            ),
            ("rate_pps".into(), arrived / f64::from(bytes) / seconds),
        ]);
        Ok(carried)
    }

    /// Requests of so many bytes, and answers as large.
    pub(super) fn of_requests(&self, bytes: u32) -> Result<Carried, String> {
        let rate = self.number("TRANSACTION_RATE")?;
        let received = self.count("LOCAL_BYTES_RECVD")?;
        let mut figures = self.times()?;
        figures.insert("transactions_per_s".into(), rate);
        figures.insert(
            "rtt.answers_count".into(),
            received as f64 / f64::from(bytes),
        );
        Ok(Carried {
            seconds: self.number("ELAPSED_TIME")?,
            bytes: received,
            goodput_bps: rate * f64::from(bytes) * 8.0,
            retransmits: self.retransmits("LOCAL_TRANSPORT_RETRANS"),
            figures,
            ..nothing()
        })
    }

    fn of_bytes(&self, received: &str) -> Result<Carried, String> {
        let units = self.text("THROUGHPUT_UNITS")?;
        if units != UNIT_NAME {
            return Err(format!("its unit is {units}, not {UNIT_NAME}"));
        }
        Ok(Carried {
            seconds: self.number("ELAPSED_TIME")?,
            bytes: self.count(received)?,
            goodput_bps: self.number("THROUGHPUT")? * 1e3,
            ..nothing()
        })
    }

    /// Round trips by percentile, in whole microseconds. With too few values a percentile is 0.
    fn times(&self) -> Result<BTreeMap<String, f64>, String> {
        const TIMES: [(&str, &str); 5] = [
            ("MEAN_LATENCY", "rtt.mean_us"),
            ("P50_LATENCY", "rtt.p50_us"),
            ("P90_LATENCY", "rtt.p90_us"),
            ("P99_LATENCY", "rtt.p99_us"),
            ("MAX_LATENCY", "rtt.max_us"),
        ];
        let mut times = BTreeMap::new();
        for (output, figure) in TIMES {
            let time = self.number(output)?;
            if time > 0.0 {
                times.insert(figure.to_owned(), time);
            }
        }
        Ok(times)
    }

    /// The last interval ends with the test; one that is too short is ignored.
    fn intervals_bps(&self) -> Vec<f64> {
        let interval = |place: usize| {
            let told = |name: &str| self.number(&format!("NETPERF_{name}[{place}]")).ok();
            Some((told("INTERIM_RESULT")?, told("INTERVAL")?))
        };
        let told = (0..).map_while(interval);
        told.filter(|(_, seconds)| *seconds >= REPORT_INTERVAL_S / 2.0)
            .map(|(kilobits, _)| kilobits * 1e3)
            .collect()
    }

    /// A negative number means unknown.
    fn retransmits(&self, output: &str) -> Option<u64> {
        self.count(output).ok()
    }

    fn count(&self, output: &str) -> Result<u64, String> {
        self.parsed(output)
    }

    fn number(&self, output: &str) -> Result<f64, String> {
        let number: f64 = self.parsed(output)?;
        if number.is_finite() {
            Ok(number)
        } else {
            Err(format!("its {output} is not a number: {number}"))
        }
    }

    fn parsed<T: std::str::FromStr>(&self, output: &str) -> Result<T, String> {
        let text = self.text(output)?;
        text.parse()
            .map_err(|_| format!("its {output} is not a number: {text}"))
    }

    fn text(&self, output: &str) -> Result<&str, String> {
        let text = self.0.get(output);
        text.map(|text| text.trim())
            .ok_or_else(|| format!("its output has no {output}"))
    }
}

/// What a test of no kind carries.
fn nothing() -> Carried {
    Carried {
        tool: String::new(),
        seconds: 0.0,
        bytes: 0,
        goodput_bps: 0.0,
        retransmits: None,
        intervals_bps: Vec::new(),
        figures: BTreeMap::new(),
    }
}

#[cfg(test)]
mod tests;
