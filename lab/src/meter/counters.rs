//! The kernel's own counters on both gateways: packets and losses of every interface (a tunnel's TUN device too), and
//! datagrams the sockets had no room for. What a gateway cannot count, because it never saw it, is counted here.

use std::path::Path;

use super::readings::{Meter, MeterContext, Readings, difference};
use crate::fault::Fault;
use crate::gateway::Side;

/// `left.if.wan.rx_packets`, `left.if.wan.tx_dropped`, `left.udp.receive_buffer_errors` and so on.
#[derive(Default)]
pub struct Interfaces {
    before: Readings,
}

impl Meter for Interfaces {
    fn id(&self) -> &'static str {
        "interfaces"
    }

    fn begin(&mut self, context: &MeterContext<'_>) -> Result<(), Fault> {
        self.before = read_counters(context)?;
        Ok(())
    }

    fn end(&mut self, context: &MeterContext<'_>) -> Result<Readings, Fault> {
        Ok(difference(&self.before, &read_counters(context)?))
    }
}

fn read_counters(context: &MeterContext<'_>) -> Result<Readings, Fault> {
    let mut all = Readings::new();
    for side in Side::BOTH {
        let (host, name) = (context.topology.gateway(side), side.name());
        all.extend(interfaces(&host.read(Path::new("/proc/net/dev"))?, name));
        all.extend(sockets(&host.read(Path::new("/proc/net/snmp"))?, name));
    }
    Ok(all)
}

/// Columns of `/proc/net/dev` that are kept.
const COLUMNS: [(usize, &str); 8] = [
    (0, "rx_bytes"),
    (1, "rx_packets"),
    (2, "rx_errors"),
    (3, "rx_dropped"),
    (8, "tx_bytes"),
    (9, "tx_packets"),
    (10, "tx_errors"),
    (11, "tx_dropped"),
];

fn interfaces(table: &str, host: &str) -> Readings {
    let mut readings = Readings::new();
    for (interface, numbers) in table
        .lines()
        .skip(2)
        .filter_map(|line| line.split_once(':'))
    {
        let fields: Vec<f64> = numbers
            .split_whitespace()
            .filter_map(|field| field.parse().ok())
            .collect();
        for (column, name) in COLUMNS {
            let value = fields.get(column).copied().unwrap_or(0.0);
            readings.insert(format!("{host}.if.{}.{name}", interface.trim()), value);
        }
    }
    readings
}

fn sockets(snmp: &str, host: &str) -> Readings {
    let mut udp = snmp.lines().filter_map(|line| line.strip_prefix("Udp:"));
    let (Some(names), Some(values)) = (udp.next(), udp.next()) else {
        return Readings::new();
    };
    let wanted = [
        ("RcvbufErrors", "receive_buffer_errors"),
        ("SndbufErrors", "send_buffer_errors"),
    ];
    let named = names.split_whitespace().zip(values.split_whitespace());
    named
        .filter_map(|(name, value)| {
            let (_, ours) = wanted.iter().find(|(theirs, _)| *theirs == name)?;
            Some((format!("{host}.udp.{ours}"), value.parse().ok()?))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn interfaces_are_read_by_column() {
        let table = "Inter-|   Receive                            |  Transmit\n face |bytes    packets errs drop\n   \
                     wan: 1000 10 0 2 0 0 0 0 2000 20 0 3 0 0 0 0\n";
        let readings = interfaces(table, "left");
        assert_eq!(readings["left.if.wan.rx_packets"], 10.0);
        assert_eq!(readings["left.if.wan.rx_dropped"], 2.0);
        assert_eq!(readings["left.if.wan.tx_bytes"], 2000.0);
        assert_eq!(readings["left.if.wan.tx_dropped"], 3.0);
    }

    #[test]
    fn socket_losses_are_found_by_name() {
        let snmp = "Udp: InDatagrams NoPorts InErrors OutDatagrams RcvbufErrors SndbufErrors InCsumErrors\n\
                    Udp: 5 0 7 5 7 1 0\n";
        let readings = sockets(snmp, "right");
        assert_eq!(readings["right.udp.receive_buffer_errors"], 7.0);
        assert_eq!(readings["right.udp.send_buffer_errors"], 1.0);
        assert!(sockets("", "right").is_empty());
    }
}
