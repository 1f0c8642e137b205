//! From a cell's settings to the load that fills its tunnel.

use super::families;
use crate::load::{
    Direction, FRAME_OVERHEAD_BYTES, Frames, Iperf3, Load, LoadedRoundTrip, Netperf, Protocol,
    RequestTransport, RoundTrip, Search, Test,
};
use crate::spec::kinds::LoadKind;
use crate::spec::settings::flag;
use crate::spec::{Cell, Programs, factor, imix};

/// Default bytes of a request.
const REQUEST_BYTES: u32 = 64;
/// Megabytes before a stream is measured.
const WARM_UP_MEGABYTES: u32 = 8;
/// Bytes of a datagram of netperf, whose own choice is the longest that there is, cut to pieces by every path: this
/// fits any tunnel.
const NETPERF_DATAGRAM_BYTES: u32 = 1024;

impl Cell {
    pub(super) fn load(&self, programs: &Programs) -> Box<dyn Load> {
        let request = self.count("request_bytes").unwrap_or(REQUEST_BYTES);
        let lab = &programs.lab;
        match self.load {
            LoadKind::RoundTrip => {
                Box::new(RoundTrip::new(lab, request, RequestTransport::Datagram))
            }
            LoadKind::Connections => {
                Box::new(RoundTrip::new(lab, request, RequestTransport::Connection))
            }
            LoadKind::LoadedRoundTrip => {
                Box::new(LoadedRoundTrip::new(lab, request, self.stream()))
            }
            LoadKind::Frames | LoadKind::Steady => Box::new(self.frames(programs)),
            LoadKind::Netperf => Box::new(self.netperf(Test::Stream {
                message_bytes: self.count("message_bytes"),
                warm_up_megabytes: self.count("warm_up_megabytes").unwrap_or(WARM_UP_MEGABYTES),
            })),
            LoadKind::NetperfUdp => Box::new(
                self.netperf(Test::Datagrams {
                    message_bytes: self
                        .count("message_bytes")
                        .unwrap_or(NETPERF_DATAGRAM_BYTES),
                }),
            ),
            LoadKind::NetperfRr => Box::new(self.netperf(Test::Requests { bytes: request })),
            LoadKind::Iperf3 | LoadKind::Iperf3Udp => Box::new(self.stream()),
        }
    }

    pub(super) fn direction(&self) -> Direction {
        match self.settings.get("direction").map(String::as_str) {
            Some("reverse") => Direction::Reverse,
            Some("both") => Direction::Both,
            _ => Direction::Forward,
        }
    }

    /// The bytes of user data in the datagrams that fill the tunnel, in turn. `None` where the load does not fill it,
    /// or chooses their length by itself.
    pub(super) fn datagrams(&self) -> Option<Vec<u32>> {
        let around = FRAME_OVERHEAD_BYTES + families(&self.settings).inner.header();
        match self.load {
            LoadKind::Iperf3Udp => Some(vec![self.count("message_bytes")?]),
            LoadKind::NetperfUdp => Some(vec![
                self.count("message_bytes")
                    .unwrap_or(NETPERF_DATAGRAM_BYTES),
            ]),
            LoadKind::Frames => {
                let frames = self.frame_bytes().into_iter();
                Some(frames.map(|bytes| bytes.saturating_sub(around)).collect())
            }
            _ => None,
        }
    }

    fn count(&self, name: &str) -> Option<u32> {
        self.number(name).map(|number| number as u32)
    }

    fn stream(&self) -> Iperf3 {
        Iperf3 {
            protocol: match self.load {
                LoadKind::Iperf3Udp => Protocol::Udp {
                    offered_mbit: self.number("offered_mbit").unwrap_or(100.0),
                },
                _ => Protocol::Tcp,
            },
            warm_up_megabytes: self.count("warm_up_megabytes").unwrap_or(WARM_UP_MEGABYTES),
            message_bytes: self.count("message_bytes"),
            nodelay: self.has_nodelay(),
            streams: self.count("streams").unwrap_or(1),
            direction: self.direction(),
        }
    }

    fn netperf(&self, test: Test) -> Netperf {
        Netperf {
            test,
            nodelay: self.has_nodelay(),
            direction: self.direction(),
        }
    }

    fn has_nodelay(&self) -> bool {
        flag(&self.settings, "nodelay").unwrap_or(false)
    }

    fn frame_bytes(&self) -> Vec<u32> {
        match self.settings.get("imix") {
            Some(genome) => imix::sizes(genome),
            None => vec![self.count("frame_bytes").unwrap_or(1518)],
        }
    }

    fn latency_at_percent(&self) -> Vec<u32> {
        let written = self.settings.get("latency_at_percent");
        written
            .and_then(|text| factor::percentages(text))
            .unwrap_or_default()
    }

    fn frames(&self, programs: &Programs) -> Frames {
        Frames {
            program: programs.lab.clone(),
            direction: self.direction(),
            frame_bytes: self.frame_bytes(),
            latency_at_percent: self.latency_at_percent(),
            search: match self.settings.get("search").map(String::as_str) {
                _ if self.load == LoadKind::Steady => {
                    Search::Steady(self.number("rate_pps").unwrap_or(1000.0))
                }
                Some("pdr") => Search::Pdr,
                _ => Search::Ndr,
            },
        }
    }
}
