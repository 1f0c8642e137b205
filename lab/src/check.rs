//! Checks the tunnel before every load: both ends must reach each other with small and large packets, and a *canary* (a
//! known string, sent once from each side by UDP) must be seen once on the client's side, once on a plain wire, and
//! never on a protected one. The positive controls prove that the capture works. A row of numbered datagrams must
//! arrive complete and in order; where its order alone is wrong it is sent again, and a tunnel that keeps the order in
//! no row is refused.

mod row;

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::contender::{CapturePoint, Protection};
use crate::fault::Fault;
use crate::host::{Command, Host, Tap};
use crate::testbed::{Family, Topology, WAN};

pub use row::NumberedDatagrams;
use row::PORT;

/// What the check saw.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, Default)]
pub struct Evidence {
    /// Packet sizes that went from client to server and whose answer came back.
    pub client_reaches: Vec<u32>,
    /// Packet sizes that went from server to client and whose answer came back.
    pub server_reaches: Vec<u32>,
    /// The strings sent, and where they were seen.
    pub canaries: Vec<Canary>,
    /// Frames on the wire between the gateways while the canaries flew.
    pub wire_frames: usize,
    /// Numbered datagrams from client to server; records from before there were any lack them.
    #[serde(default)]
    pub row: Option<NumberedDatagrams>,
}

/// One string on its way.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Canary {
    /// The side that sent it.
    pub from: String,
    /// Whether it arrived unchanged at the other.
    pub delivered: bool,
    /// Frames that held it on the client's side. Two hosts alone have no such side: there it counts as seen where it
    /// arrived.
    pub client_side: usize,
    /// Frames that held it between the gateways.
    pub wire: usize,
}

/// Sizes tried, in bytes of ICMP payload in IPv4: one that fits anywhere and one that, wrapped, fills the wire.
const PING_SIZES_BYTES: [u32; 2] = [56, 1372];

/// Checks a topology whose contender is up. [`Evidence::verdict`] judges the result.
pub fn examine(topology: &Topology, token: &str, point: CapturePoint) -> Result<Evidence, Fault> {
    let mut evidence = Evidence {
        client_reaches: reached(&*topology.client, topology.addresses.server)?,
        server_reaches: reached(&*topology.server, topology.addresses.client)?,
        ..Evidence::default()
    };
    if !evidence.client_reaches.is_empty() && !evidence.server_reaches.is_empty() {
        send_canaries(topology, token, point, &mut evidence)?;
        evidence.row = Some(row::send(topology, token)?);
    }
    Ok(evidence)
}

fn reached(from: &dyn Host, to: IpAddr) -> Result<Vec<u32>, Fault> {
    let mut sizes = Vec::new();
    // The same length of packet in both families.
    let more = Family::of(to).header() - Family::V4.header();
    for size in PING_SIZES_BYTES.map(|size| size - more) {
        if answers(from, to, size)? {
            sizes.push(size);
        }
    }
    Ok(sizes)
}

/// The first packets of a path may be lost to address resolution or path MTU discovery: three are tried.
fn answers(from: &dyn Host, to: IpAddr, size: u32) -> Result<bool, Fault> {
    let ping = Command::line(&format!("ping -n -q -c 1 -W 1 -s {size} {to}"));
    for _ in 0..3 {
        let finished = from.run(&ping, Duration::from_secs(3))?;
        match finished.code {
            0 => return Ok(true),
            1 => continue,
            code => {
                let why = finished.complaint();
                return Err(Fault::failed(format!("`{ping}` ended with {code}: {why}")));
            }
        }
    }
    Ok(false)
}

fn send_canaries(
    topology: &Topology,
    token: &str,
    point: CapturePoint,
    evidence: &mut Evidence,
) -> Result<(), Fault> {
    let client_side = topology.client_side();
    let mut client_side = client_side
        .map(|name| topology.client.tap(name))
        .transpose()?;
    let mut canaries = CanaryCheck {
        client_side: client_side.as_mut(),
        token,
        evidence,
    };
    let (client, server) = (topology.addresses.client, topology.addresses.server);
    canaries.send(
        &*topology.client,
        client,
        &*topology.left,
        &*topology.server,
        server,
    )?;
    let near = match point {
        CapturePoint::Left => &*topology.left,
        CapturePoint::Sender => &*topology.right,
    };
    canaries.send(&*topology.server, server, near, &*topology.client, client)
}

struct CanaryCheck<'a> {
    client_side: Option<&'a mut Box<dyn Tap>>,
    token: &'a str,
    evidence: &'a mut Evidence,
}

impl CanaryCheck<'_> {
    /// `gateway` is where the wire is listened to.
    fn send(
        &mut self,
        from: &dyn Host,
        source: IpAddr,
        gateway: &dyn Host,
        to: &dyn Host,
        target: IpAddr,
    ) -> Result<(), Fault> {
        let text = format!("ESPLANADE CANARY {} {}", from.name(), self.token);
        let mut wire = gateway.tap(WAN)?;
        let there = SocketAddr::from((target, PORT));
        let receiver = to.datagrams(there)?;
        from.datagrams(SocketAddr::from((source, PORT)))?
            .send(there, text.as_bytes())?;
        let delivered = receiver.receive(Duration::from_secs(2))?;
        let delivered = delivered.as_deref() == Some(text.as_bytes());
        let client_side = match &mut self.client_side {
            Some(tap) => count_frames_with(&mut ***tap, &text)?.0,
            None => usize::from(delivered),
        };
        let (wire, frames) = count_frames_with(&mut *wire, &text)?;
        self.evidence.wire_frames += frames;
        self.evidence.canaries.push(Canary {
            from: from.name().into(),
            delivered,
            client_side,
            wire,
        });
        Ok(())
    }
}

/// How many frames hold the text, and how many there were.
fn count_frames_with(tap: &mut dyn Tap, text: &str) -> Result<(usize, usize), Fault> {
    let frames = tap.frames()?;
    let holds = |bytes: &[u8]| {
        bytes
            .windows(text.len())
            .any(|window| window == text.as_bytes())
    };
    let seen = frames.iter().filter(|frame| holds(&frame.bytes)).count();
    Ok((seen, frames.len()))
}

impl Evidence {
    /// Whether this is what the contender promised. The error names what is wrong.
    pub fn verdict(&self, promised: Protection) -> Result<(), String> {
        self.both_ways()?;
        self.canaries
            .iter()
            .try_for_each(|canary| canary.verdict(promised))?;
        self.orderly()?;
        match self.wire_frames {
            0 => Err(
                "no packet crossed the wire between the gateways: packets take another path".into(),
            ),
            _ => Ok(()),
        }
    }

    /// What a measured trial tells of this check.
    pub fn note(&self) -> Option<String> {
        let disorder = self.row?.disorder()?;
        Some(format!("the check before the load: {disorder}"))
    }

    /// Whether packets arrive once each and in order, as far as that was looked at.
    fn orderly(&self) -> Result<(), String> {
        self.row.map_or(Ok(()), |row| row.verdict())
    }

    /// The same evidence without what a wire that is impaired on purpose makes of a row.
    pub fn of_an_impaired_wire(self) -> Evidence {
        Evidence { row: None, ..self }
    }

    fn both_ways(&self) -> Result<(), String> {
        match (self.client_reaches.len(), self.server_reaches.len()) {
            (0, 0) => Err("no packet passes in either direction".into()),
            (0, _) => Err(
                "one-way: the server reaches the client, the client does not reach the server"
                    .into(),
            ),
            (_, 0) => Err(
                "one-way: the client reaches the server, the server does not reach the client"
                    .into(),
            ),
            (there, back) if there < PING_SIZES_BYTES.len() || back < PING_SIZES_BYTES.len() => {
                Err(format!(
                    "large packets do not pass (client to server: {:?}, server to client: {:?} bytes of ICMP payload)",
                    self.client_reaches, self.server_reaches
                ))
            }
            _ => Ok(()),
        }
    }
}

impl Canary {
    fn verdict(&self, promised: Protection) -> Result<(), String> {
        let from = &self.from;
        if !self.delivered {
            return Err(format!(
                "the canary from the {from} did not arrive unchanged"
            ));
        }
        if self.client_side != 1 {
            let seen = self.client_side;
            return Err(format!(
                "the canary from the {from} was seen {seen} times on the client's side, not once: the capture proves nothing"
            ));
        }
        match (promised, self.wire) {
            (Protection::Secret, 0) | (Protection::Clear, 1) | (Protection::Readable, _) => Ok(()),
            (Protection::Secret, seen) => Err(format!(
                "plaintext on the wire: the canary from the {from} was readable in {seen} frames between the gateways"
            )),
            (Protection::Clear, seen) => Err(format!(
                "the canary from the {from} was seen {seen} times on the plain wire, not once: the capture proves nothing"
            )),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::row::ROW_DATAGRAMS;
    use super::*;

    fn right() -> Evidence {
        let canary = |from: &str| Canary {
            from: from.into(),
            delivered: true,
            client_side: 1,
            wire: 0,
        };
        Evidence {
            client_reaches: PING_SIZES_BYTES.to_vec(),
            server_reaches: PING_SIZES_BYTES.to_vec(),
            canaries: vec![canary("client"), canary("server")],
            wire_frames: 2,
            row: Some(NumberedDatagrams::of(
                &(0..ROW_DATAGRAMS).collect::<Vec<_>>(),
            )),
        }
    }

    #[test]
    fn a_row_that_is_out_of_order_doubled_or_short_is_named() {
        let all = || (0..ROW_DATAGRAMS).collect::<Vec<usize>>();
        let said = |numbers: &[usize]| {
            let found = Evidence {
                row: Some(NumberedDatagrams::of(numbers)),
                ..right()
            };
            found.verdict(Protection::Secret).unwrap_err()
        };
        let mut swapped = all();
        swapped.swap(3, 4);
        assert_eq!(
            said(&swapped),
            "reordering: 1 of 32 datagrams were overtaken by later ones"
        );
        let mut doubled = all();
        doubled.push(7);
        assert!(said(&doubled).starts_with("duplication: 1 of 32"));
        assert!(said(&all()[..30]).ends_with("2 of 32 datagrams did not arrive"));
        let orderly_at_last = NumberedDatagrams {
            sent: 2 * ROW_DATAGRAMS,
            arrived: 2 * ROW_DATAGRAMS,
            ..NumberedDatagrams::of(&swapped)
        };
        let found = Evidence {
            row: Some(orderly_at_last),
            ..right()
        };
        assert_eq!(found.verdict(Protection::Secret), Ok(()));
        assert!(found.note().unwrap().contains("1 of 64"));
        assert_eq!(right().note(), None);
        let impaired = Evidence {
            row: Some(NumberedDatagrams::of(&swapped)),
            ..right()
        };
        let looked = impaired.of_an_impaired_wire();
        assert_eq!(looked.verdict(Protection::Secret), Ok(()));
    }

    #[test]
    fn a_right_tunnel_passes() {
        assert_eq!(right().verdict(Protection::Secret), Ok(()));
    }

    #[test]
    fn plaintext_on_the_wire_is_named() {
        let mut leaking = right();
        leaking.canaries[1].wire = 1;
        let why = leaking.verdict(Protection::Secret).unwrap_err();
        assert!(
            why.starts_with("plaintext on the wire: the canary from the server"),
            "{why}"
        );
        assert_eq!(leaking.verdict(Protection::Readable), Ok(()));
    }

    #[test]
    fn a_one_way_tunnel_is_named() {
        let mut deaf = right();
        deaf.server_reaches.clear();
        let why = deaf.verdict(Protection::Secret).unwrap_err();
        assert!(
            why.starts_with("one-way: the client reaches the server"),
            "{why}"
        );
    }

    #[test]
    fn a_tunnel_for_small_packets_only_is_named() {
        let mut narrow = right();
        narrow.client_reaches.truncate(1);
        let why = narrow.verdict(Protection::Secret).unwrap_err();
        assert!(why.starts_with("large packets do not pass"), "{why}");
    }

    #[test]
    fn a_way_around_the_wire_is_named() {
        let mut around = right();
        around.wire_frames = 0;
        let why = around.verdict(Protection::Secret).unwrap_err();
        assert!(why.contains("another path"), "{why}");
    }

    #[test]
    fn a_blind_capture_is_no_proof() {
        let mut blind = right();
        blind.canaries[0].client_side = 0;
        assert!(blind.verdict(Protection::Secret).is_err());
        let mut plain = right();
        plain.canaries[0].wire = 0;
        assert!(plain.verdict(Protection::Clear).is_err());
    }
}
