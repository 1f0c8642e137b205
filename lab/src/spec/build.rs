//! Builds a cell from its settings: a contender, its topology and its load.

mod kind;
mod load;
mod possible;

use std::collections::BTreeMap;
use std::time::Duration;

use super::kinds::{LoadKind, Named};
use super::settings::{flag, number};
use super::{Cell, Programs, Spec, factor};
use crate::case::Case;
use crate::fault::Fault;
use crate::ideal;
use crate::load::Direction;
use crate::testbed::{Impairment, Layout, PathMtuChange, Receiving, Shape, Tcp, TopologySpec};
use possible::{families, is_pair};

pub(super) use kind::Kind;
pub(super) use possible::Impossible;

impl Spec {
    /// What is measured, ready to start.
    pub(crate) fn cases(&self, programs: &Programs) -> Result<Vec<Case>, Fault> {
        let cells = self.cells.iter().enumerate();
        cells
            .map(|(order, cell)| {
                let contender = cell.kind.contender(programs, order)?;
                Ok(Case {
                    id: cell.id.clone(),
                    label: cell.label(contender.label()),
                    ideal_bps: cell.ideal_bps(),
                    contender,
                    topology_spec: cell.topology_spec(programs),
                    load: cell.load(programs),
                    duration: cell.duration.unwrap_or(self.duration),
                    factors: cell.factors(),
                    intrusive: cell.intrusive.clone(),
                })
            })
            .collect()
    }
}

impl Cell {
    /// Every factor of it, for the record.
    pub(crate) fn factors(&self) -> BTreeMap<String, String> {
        let settings = self.settings.iter();
        let mut factors: BTreeMap<String, String> = settings
            .map(|(name, value)| ((*name).to_owned(), value.clone()))
            .collect();
        factors.entry("mtu".into()).or_insert_with(|| "1500".into());
        factors.insert("load".into(), self.load.name().into());
        if let Some(part) = &self.part {
            factors.insert("part".into(), part.clone());
        }
        factors
    }

    /// Whether its topology is a pair of hosts.
    pub(super) fn is_of_a_pair(&self) -> bool {
        is_pair(&self.settings)
    }

    /// About how long a run of its load with this duration takes.
    pub(super) fn takes(&self, asked: Duration) -> Duration {
        self.load(&Programs::default()).takes(asked)
    }

    fn number(&self, name: &str) -> Option<f64> {
        number(&self.settings, name)
    }

    fn topology_spec(&self, programs: &Programs) -> TopologySpec {
        TopologySpec {
            layout: if is_pair(&self.settings) {
                Layout::Pair
            } else {
                Layout::Gateways
            },
            families: families(&self.settings),
            mtu: self.number("mtu").map_or(1500, |mtu| mtu as u32),
            wire_offloads: flag(&self.settings, "offloads").unwrap_or(true),
            shape: self.number("link.rate_mbit").map(|rate| Shape {
                bits_per_second: rate * 1e6,
                burst_bytes: self.number("link.burst_bytes").map(|burst| burst as u32),
                latency_ms: self.number("link.latency_ms"),
                in_front: self.is_in_front(),
            }),
            tcp: Tcp {
                timestamps: flag(&self.settings, "tcp.timestamps"),
                window_scaling: flag(&self.settings, "tcp.window_scaling"),
                sack: flag(&self.settings, "tcp.sack"),
                buffer_bytes: self.number("tcp.buffer_bytes").map(|bytes| bytes as u64),
                buffers: self
                    .settings
                    .get("tcp.buffers")
                    .and_then(|text| factor::sizes(text)),
            },
            gro_flush_timeout_ns: self.number("gro_flush_timeout_ns").map(|ns| ns as u64),
            napi_defer_hard_irqs: self.number("napi_defer_hard_irqs").map(|irqs| irqs as u32),
            receiving: Receiving {
                early_demux: flag(&self.settings, "ip_early_demux"),
                udp_gro_forwarding: flag(&self.settings, "rx_udp_gro_forwarding"),
                gro_list: flag(&self.settings, "rx_gro_list"),
                steered_to: self.settings.get("rps_cpus").cloned(),
            },
            impairment: self.impairment(programs),
            path: self.number("path.mtu").map(|mtu| PathMtuChange {
                mtu: mtu as u32,
                after_s: self.number("path.after_s").unwrap_or(1.0),
                answers: flag(&self.settings, "path.answers").unwrap_or(true),
            }),
            processors: self.settings.get("cpus").cloned(),
            share: self.number("share"),
        }
    }

    fn impairment(&self, programs: &Programs) -> Option<Impairment> {
        let share = |name| self.number(name).unwrap_or(0.0) / 100.0;
        let asked = self.settings.keys().any(|name| name.starts_with("impair."));
        asked.then(|| Impairment {
            program: programs.lab.clone(),
            delay_ms: self.number("impair.delay_ms").unwrap_or(0.0),
            loss: share("impair.loss_percent"),
            duplicate: share("impair.duplicate_percent"),
            reorder: share("impair.reorder_percent"),
            seed: self.number("impair.seed").map_or(1, |seed| seed as u64),
        })
    }

    /// Whether the link is shaped in front of the tunnel, where packets are still as the end hosts sent them.
    fn is_in_front(&self) -> bool {
        let place = self.settings.get("link.place").map(String::as_str);
        place == Some("lan")
    }

    fn label(&self, contender: &str) -> String {
        match flag(&self.settings, "offloads") {
            Some(false) => format!("{contender}, offloads off on the wire"),
            _ => contender.to_owned(),
        }
    }

    /// The bits of user data per second that this cell could carry at most, where its link has a rate.
    pub(crate) fn ideal_bps(&self) -> Option<f64> {
        if self.kind.compresses() {
            // It depends on what is sent.
            return None;
        }
        let link = self.number("link.rate_mbit")? * 1e6;
        let mtu = self.number("mtu").map_or(1500, |mtu| mtu as u32);
        let timestamps = flag(&self.settings, "tcp.timestamps").unwrap_or(true);
        let ways = match self.direction() {
            Direction::Both => 2.0,
            Direction::Forward | Direction::Reverse => 1.0,
        };
        let (layers, families) = (self.kind.layers(), families(&self.settings));
        let one = match self.load {
            LoadKind::Iperf3 | LoadKind::Netperf => {
                ideal::tcp(layers, families, mtu, timestamps, link, self.is_in_front())
            }
            _ if self.is_in_front() => return None,
            _ => ideal::datagrams(layers, families, mtu, &self.datagrams()?, link),
        };
        // The link carries its rate each way.
        one.map(|one| one * ways)
    }
}
