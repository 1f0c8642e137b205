//! A sequence of numbered datagrams: they must arrive complete, once each and in order.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::fault::Fault;
use crate::testbed::Topology;

/// What became of a sequence of numbered datagrams.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, Default)]
pub struct NumberedDatagrams {
    /// How many were sent.
    pub sent: usize,
    /// How many different ones arrived.
    pub arrived: usize,
    /// How many arrived again.
    pub doubled: usize,
    /// How many a later one had overtaken.
    pub overtaken: usize,
    /// How many rows had such a one; records from before there could be several have 0.
    #[serde(default)]
    pub disordered_rows: usize,
}

/// Port of the datagrams of the check: one of the dynamic range, both ends.
pub(super) const PORT: u16 = 54_321;
/// Few and small enough for the queue of the slowest shaped link.
pub(super) const ROW_DATAGRAMS: usize = 32;
/// How often a row is sent at most while each is out of order.
const MAX_ROWS: usize = 3;

/// Sends a row of numbered datagrams and records the order of arrival; another one while the last was out of order and
/// nothing else. A kernel lets a datagram overtake another where the thread that sends them is moved to another
/// processor, which is rare: a tunnel that reorders does it in every row. On a wire that reorders on purpose this
/// proves nothing about a tunnel.
pub(super) fn send(topology: &Topology, token: &str) -> Result<NumberedDatagrams, Fault> {
    let mut all = send_row(topology, token, 0)?;
    for number in 1..MAX_ROWS {
        if !all.is_disordered_alone() {
            break;
        }
        all = all.and(send_row(topology, token, number)?);
    }
    Ok(all)
}

fn send_row(topology: &Topology, token: &str, row: usize) -> Result<NumberedDatagrams, Fault> {
    let there = SocketAddr::from((topology.addresses.server, PORT));
    let receiver = topology.server.datagrams(there)?;
    let sender = topology
        .client
        .datagrams(SocketAddr::from((topology.addresses.client, PORT)))?;
    let head = format!("ESPLANADE ROW {token} {row} ");
    for number in 0..ROW_DATAGRAMS {
        sender.send(there, format!("{head}{number}").as_bytes())?;
    }
    let mut numbers = Vec::new();
    // The last may be one that was held back: the row has ended when nothing more comes for a while.
    while let Some(datagram) = receiver.receive(wait_time(numbers.len()))? {
        let text = String::from_utf8_lossy(&datagram);
        let number: Option<usize> = text.strip_prefix(&head).and_then(|rest| rest.parse().ok());
        numbers.extend(number);
    }
    Ok(NumberedDatagrams::of(&numbers))
}

/// A whole row that has arrived may still have doubles behind it, but not for long.
fn wait_time(arrived: usize) -> Duration {
    if arrived < ROW_DATAGRAMS {
        Duration::from_millis(500)
    } else {
        Duration::from_millis(20)
    }
}

impl NumberedDatagrams {
    /// Judges the numbers that arrived, in their order.
    pub(super) fn of(numbers: &[usize]) -> NumberedDatagrams {
        let mut seen = BTreeSet::new();
        let mut row = NumberedDatagrams {
            sent: ROW_DATAGRAMS,
            ..NumberedDatagrams::default()
        };
        for number in numbers {
            let overtaken = seen.last().is_some_and(|last| number < last);
            if seen.insert(*number) {
                row.overtaken += usize::from(overtaken)
            } else {
                row.doubled += 1
            }
        }
        row.arrived = seen.len();
        row.disordered_rows = usize::from(row.overtaken > 0);
        row
    }

    /// These and those of a further row.
    fn and(self, next: NumberedDatagrams) -> NumberedDatagrams {
        NumberedDatagrams {
            sent: self.sent + next.sent,
            arrived: self.arrived + next.arrived,
            doubled: self.doubled + next.doubled,
            overtaken: self.overtaken + next.overtaken,
            disordered_rows: self.disordered_rows + next.disordered_rows,
        }
    }

    /// Whether they arrived complete and once, and every row out of order.
    fn is_disordered_alone(&self) -> bool {
        let every_row = self.disordered_rows * ROW_DATAGRAMS == self.sent;
        every_row && self.arrived == self.sent && self.doubled == 0
    }

    /// What was seen of disorder.
    pub fn disorder(&self) -> Option<String> {
        let NumberedDatagrams {
            sent, overtaken, ..
        } = self;
        (*overtaken > 0).then(|| {
            format!("reordering: {overtaken} of {sent} datagrams were overtaken by later ones")
        })
    }

    /// Whether they arrived complete and once, and one row at least in order; the error names what is wrong.
    pub(super) fn verdict(&self) -> Result<(), String> {
        let NumberedDatagrams {
            sent,
            arrived,
            doubled,
            ..
        } = self;
        match (sent - arrived, doubled) {
            (0, 0) if self.is_disordered_alone() => self.disorder().map_or(Ok(()), Err),
            (0, 0) => Ok(()),
            (0, ..) => Err(format!(
                "duplication: {doubled} of {sent} datagrams arrived twice"
            )),
            (lost, ..) => Err(format!("loss: {lost} of {sent} datagrams did not arrive")),
        }
    }
}
