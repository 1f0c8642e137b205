use super::*;
use crate::io::faulty::{Faults, FaultySink};
use crate::io::namespaces::{command, isolated, warnings};
use crate::io::{Sent, Warn};
use std::sync::Mutex;

const BOTH: [Family; 2] = [Family::V4, Family::V6];

fn options(warn: Warn) -> SocketOptions {
    SocketOptions::new(PmtuCache::default(), warn)
}

/// The result of the probe over one family with a wrapped sink, and the warnings.
fn probed(
    family: Family,
    way: impl FnOnce(UdpSink) -> Box<dyn ProtectedSink>,
) -> (UdpProbe, Vec<String>) {
    let (warn, heard) = warnings();
    let result = probe_by(family, UdpOffloads::ALL, &options(warn), way);
    let heard: &Mutex<_> = &heard;
    (result, std::mem::take(&mut heard.lock().unwrap()))
}

fn untouched(sink: UdpSink) -> Box<dyn ProtectedSink> {
    Box::new(sink)
}

#[test]
fn a_kernel_that_cuts_and_joins_passes_over_both_families_without_a_warning() {
    isolated(|| {
        for family in BOTH {
            let (result, heard) = probed(family, untouched);
            let proven = UdpProbe {
                segments: OffloadState::Proven,
                coalesces: OffloadState::Proven,
            };
            assert_eq!((result, heard), (proven, vec![]));
            assert_eq!(result.offloads(), UdpOffloads::ALL);
        }
    });
}

/// What a kernel does that knows the option and leaves the train uncut.
struct Uncut(UdpSink);

impl ProtectedSink for Uncut {
    fn deliver(&mut self, bursts: &[Burst<'_>]) -> io::Result<Sent> {
        let mut uncut = bursts.to_vec();
        for burst in &mut uncut {
            burst.stride = burst.bytes.len();
        }
        self.0.deliver(&uncut)
    }
}

/// What one does that sends the first packet of a train alone.
struct FirstAlone(UdpSink);

impl ProtectedSink for FirstAlone {
    fn deliver(&mut self, bursts: &[Burst<'_>]) -> io::Result<Sent> {
        let mut first = bursts.to_vec();
        for burst in &mut first {
            burst.bytes = &burst.bytes[..burst.stride];
        }
        self.0.deliver(&first)
    }
}

fn assert_failed((result, heard): (UdpProbe, Vec<String>)) {
    let failed = UdpProbe {
        segments: OffloadState::Failed,
        coalesces: OffloadState::Failed,
    };
    assert_eq!(result, failed, "{heard:?}");
    assert_eq!(result.offloads(), UdpOffloads::NONE);
    let warnings_of_failure = heard
        .iter()
        .filter(|words| words.contains("failed verification"));
    assert_eq!(
        (warnings_of_failure.count(), heard.len()),
        (2, 2),
        "{heard:?}"
    );
}

#[test]
fn trains_that_arrive_uncut_in_part_or_damaged_are_not_used_and_each_loss_is_reported_once() {
    isolated(|| {
        assert_failed(probed(Family::V4, |sink| Box::new(Uncut(sink))));
        assert_failed(probed(Family::V6, |sink| Box::new(FirstAlone(sink))));
        // By this seed the single packet passes and every train has a damaged one.
        let faults = Faults {
            seed: 3,
            damaged: 500,
            ..Faults::default()
        };
        assert_failed(probed(Family::V4, |sink| {
            Box::new(FaultySink::new(sink, faults))
        }));
    });
}

#[test]
fn where_the_host_loses_trains_packets_go_one_by_one_and_still_arrive() {
    isolated(|| {
        command("nft add table inet narrow");
        command("nft add chain inet narrow out { type filter hook output priority 0 ; }");
        command("nft add rule inet narrow out meta length gt 2000 drop");
        for family in BOTH {
            let (result, heard) = probed(family, untouched);
            assert_eq!(result.segments, OffloadState::Failed);
            assert_eq!(result.coalesces, OffloadState::Proven);
            assert!(
                heard.len() == 1 && heard[0].contains("packet by packet"),
                "{heard:?}"
            );
            // What the result leaves switched on carries a whole burst through the same host.
            let (warn, _) = warnings();
            let mut sockets =
                ProbeSockets::set_up(family, result.offloads(), &options(warn), untouched).unwrap();
            sockets
                .pass(TRAIN_PACKETS, ProbeSockets::gro_source)
                .unwrap();
        }
    });
}

#[test]
fn without_loopback_nothing_is_proven_and_the_kernels_offloads_are_used_without_a_warning() {
    isolated(|| {
        command("ip link set lo down");
        for family in BOTH {
            let (result, heard) = probed(family, untouched);
            assert_eq!((result, heard), (UdpProbe::of(UdpOffloads::ALL), vec![]));
            assert_eq!(result.offloads(), UdpOffloads::ALL);
        }
    });
}

#[test]
fn what_is_not_wished_for_is_not_tried() {
    isolated(|| {
        let (warn, heard) = warnings();
        let wish = UdpOffloads {
            segment: false,
            coalesce: true,
        };
        let result = probe(Family::V4, wish, &options(Arc::clone(&warn)));
        assert_eq!(result.segments, OffloadState::Absent);
        assert_eq!(result.offloads(), wish);
        let none = probe(Family::V4, UdpOffloads::NONE, &options(warn));
        assert_eq!(none.offloads(), UdpOffloads::NONE);
        assert!(heard.lock().unwrap().is_empty());
    });
}
