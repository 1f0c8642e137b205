//! What the kernel's protocols counted on every host while the load ran: IP, ICMP, UDP and TCP of both families, and
//! XFRM where the kernel has it. Only what moved is kept, under the kernel's own names, so that its documentation
//! explains them.

use std::path::Path;

use super::machines::hosts;
use super::readings::{Meter, MeterContext, Readings, difference};
use crate::fault::Fault;

/// `server.kernel.Udp.RcvbufErrors_count`, `client.kernel.TcpExt.TCPTimeouts_count`,
/// `left.kernel.Ip6.InDiscards_count`, `right.kernel.Xfrm.InStateSeqError_count` and so on.
#[derive(Default)]
pub struct Protocols {
    before: Readings,
}

impl Meter for Protocols {
    fn id(&self) -> &'static str {
        "protocols"
    }

    fn begin(&mut self, context: &MeterContext<'_>) -> Result<(), Fault> {
        self.before = read_counters(context);
        Ok(())
    }

    fn end(&mut self, context: &MeterContext<'_>) -> Result<Readings, Fault> {
        let mut readings = difference(&self.before, &read_counters(context));
        readings.retain(|_, count| *count > 0.0);
        Ok(readings)
    }
}

/// A table with two lines for each protocol: names, then values.
const IN_PAIRS: [&str; 2] = ["/proc/net/snmp", "/proc/net/netstat"];
/// Tables with a name and a value in each line.
const IN_LINES: [&str; 2] = ["/proc/net/snmp6", "/proc/net/xfrm_stat"];

/// A kernel without a protocol has no table of it.
fn read_counters(context: &MeterContext<'_>) -> Readings {
    let mut all = Readings::new();
    for (name, host) in hosts(context.topology) {
        let table = |path: &str| host.read(Path::new(path)).unwrap_or_default();
        for path in IN_PAIRS {
            all.extend(in_pairs(&table(path), name));
        }
        for path in IN_LINES {
            all.extend(in_lines(&table(path), name));
        }
    }
    all
}

fn in_pairs(table: &str, host: &str) -> Readings {
    let mut lines = table.lines();
    let mut readings = Readings::new();
    while let (Some(names), Some(values)) = (lines.next(), lines.next()) {
        let (Some((protocol, names)), Some((_, values))) =
            (names.split_once(':'), values.split_once(':'))
        else {
            break;
        };
        let named = names.split_whitespace().zip(values.split_whitespace());
        readings.extend(named.filter_map(|(name, value)| {
            let reading = format!("{host}.kernel.{protocol}.{name}_count");
            Some((reading, value.parse().ok()?))
        }));
    }
    readings
}

/// Names such as `Ip6InDiscards` and `XfrmInNoStates` begin with their protocol.
const PROTOCOLS: [&str; 5] = ["UdpLite6", "Icmp6", "Udp6", "Ip6", "Xfrm"];

fn in_lines(table: &str, host: &str) -> Readings {
    let named = table.lines().filter_map(|line| {
        let (name, value) = line.split_once(char::is_whitespace)?;
        let protocol = PROTOCOLS.iter().find(|word| name.starts_with(**word))?;
        let reading = format!("{host}.kernel.{protocol}.{}_count", &name[protocol.len()..]);
        Some((reading, value.trim().parse().ok()?))
    });
    named.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_values_in_two_lines_are_put_together() {
        let table = "TcpExt: SyncookiesSent TCPTimeouts\nTcpExt: 0 7\nIpExt: InNoRoutes InOctets\nIpExt: 2 900\n";
        let readings = in_pairs(table, "client");
        assert_eq!(readings["client.kernel.TcpExt.TCPTimeouts_count"], 7.0);
        assert_eq!(readings["client.kernel.IpExt.InNoRoutes_count"], 2.0);
        assert_eq!(readings.len(), 4);
    }

    #[test]
    fn names_in_lines_are_split_behind_their_protocol() {
        let table =
            "Ip6InDiscards                  \t3\nUdp6RcvbufErrors \t4\nXfrmInStateSeqError \t5\n";
        let readings = in_lines(table, "right");
        assert_eq!(readings["right.kernel.Ip6.InDiscards_count"], 3.0);
        assert_eq!(readings["right.kernel.Udp6.RcvbufErrors_count"], 4.0);
        assert_eq!(readings["right.kernel.Xfrm.InStateSeqError_count"], 5.0);
    }

    #[test]
    fn no_table_is_no_count() {
        assert!(in_pairs("", "left").is_empty() && in_lines("", "left").is_empty());
    }
}
