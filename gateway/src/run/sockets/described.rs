//! The open sockets in words.

use super::Sockets;
use crate::handover::Need;
use dataplane::io::udp::{OffloadState, UdpProbe, UdpStats};
use std::sync::Arc;

impl Sockets {
    /// The open sockets and their features, as text.
    pub(in crate::run) fn describe(&self) -> Vec<String> {
        let version = |v6: bool| if v6 { "IPv6" } else { "IPv4" };
        let line = |(need, stats): (&Need, &Option<Arc<UdpStats>>)| match (need, stats) {
            (Need::Udp { v6, port }, _) if self.kernel_opens => format!(
                "ESP in UDP over {}, port {port}, opened by the kernel",
                version(*v6)
            ),
            (Need::Esp { v6 }, _) => {
                format!("ESP over {}{}", version(*v6), self.native.describe(*v6))
            }
            (Need::Ah { v6 }, _) => format!("AH over {}", version(*v6)),
            (Need::Whole { v6 }, _) => format!("raw {} socket (IP_HDRINCL)", version(*v6)),
            (Need::Udp { v6, port }, stats) => {
                let stats = stats.as_deref();
                let trains =
                    stats.map_or("", |stats| trains_text(stats.segments(), stats.coalesces()));
                let trial = self.trials.get(v6).map_or("", trial_text);
                let keepalives = match stats.map_or(0, UdpStats::keepalives) {
                    0 => String::new(),
                    count => format!(", {count} keepalives received"),
                };
                format!(
                    "ESP in UDP over {}, port {port}{trains}{trial}{keepalives}",
                    version(*v6)
                )
            }
        };
        self.bound.iter().map(line).collect()
    }
}

fn trains_text(outwards: bool, inwards: bool) -> &'static str {
    match (outwards, inwards) {
        (true, true) => ", GSO/GRO: send and receive",
        (true, false) => ", GSO/GRO: send only",
        (false, true) => ", GSO/GRO: receive only",
        (false, false) => ", no GSO/GRO",
    }
}

/// How it was determined what works.
pub(super) fn trial_text(trial: &UdpProbe) -> &'static str {
    let stands = |standing| [trial.segments, trial.coalesces].contains(&standing);
    match () {
        () if stands(OffloadState::Failed) => " (failed verification)",
        () if stands(OffloadState::Assumed) => " (not verified: the loopback device is down)",
        () if stands(OffloadState::Proven) => " (verified)",
        () => "",
    }
}
