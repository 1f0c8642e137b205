//! From a cell's settings to the load that fills its tunnel.

use super::{Programs, flag};
use crate::load::{
    Asked, Direction, Frames, Iperf3, Load, LoadedRoundTrip, Protocol, RoundTrip, Search,
};
use crate::spec::{Cell, imix};

impl Cell {
    pub(super) fn load(&self, programs: &Programs) -> Box<dyn Load> {
        let (lab, request) = (&programs.lab, self.count("request_bytes").unwrap_or(64));
        match self.load.as_str() {
            "round-trip" => Box::new(RoundTrip::new(lab, request, Asked::ByDatagram)),
            "connections" => Box::new(RoundTrip::new(lab, request, Asked::ByConnection)),
            "loaded-round-trip" => Box::new(LoadedRoundTrip::new(lab, request, self.stream())),
            "frames" | "steady" => Box::new(self.frames(programs)),
            _ => Box::new(self.stream()),
        }
    }

    pub(super) fn direction(&self) -> Direction {
        match self.settings.get("direction").map(String::as_str) {
            Some("reverse") => Direction::Reverse,
            Some("both") => Direction::Both,
            _ => Direction::Forward,
        }
    }

    fn count(&self, name: &str) -> Option<u32> {
        self.number(name).map(|number| number as u32)
    }

    fn stream(&self) -> Iperf3 {
        Iperf3 {
            protocol: match self.load.as_str() {
                "iperf3-udp" => Protocol::Udp {
                    offered_mbit: self.number("offered_mbit").unwrap_or(100.0),
                },
                _ => Protocol::Tcp,
            },
            warm_up_megabytes: self.count("warm_up_megabytes").unwrap_or(8),
            message_bytes: self.count("message_bytes"),
            nodelay: flag(&self.settings, "nodelay").unwrap_or(false),
            streams: self.count("streams").unwrap_or(1),
            direction: self.direction(),
        }
    }

    fn frames(&self, programs: &Programs) -> Frames {
        Frames {
            program: programs.lab.clone(),
            direction: self.direction(),
            frame_bytes: match self.settings.get("imix") {
                Some(genome) => imix::sizes(genome),
                None => vec![self.count("frame_bytes").unwrap_or(1518)],
            },
            search: match self.settings.get("search").map(String::as_str) {
                _ if self.load == "steady" => {
                    Search::Steady(self.number("rate_pps").unwrap_or(1000.0))
                }
                Some("pdr") => Search::Pdr,
                _ => Search::Ndr,
            },
        }
    }
}
