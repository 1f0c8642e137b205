use super::*;
use crate::io::LARGEST;
use crate::io::namespaces::{command, isolated, warnings};
use crate::io::tun::TunOptions;
use std::io::IoSlice;
use std::net::UdpSocket;

const SECOND: Wait = Wait::AtMost(Duration::from_secs(1));

/// A device with the address 10.9.0.1, into which 10.9.0.2 is routed.
fn dressed() -> Tun {
    let tun = Tun::open(&TunOptions::named("first0"), &warnings().0).unwrap();
    command("ip addr add 10.9.0.1/24 dev first0");
    tun
}

/// What comes out of the source until a packet of this length does.
fn awaits(source: &mut TunnelSource, len: usize) -> bool {
    let mut intake = Intake::with_room(4 * LARGEST, 64);
    for _ in 0..20 {
        intake.clear();
        source.fill(&mut intake, SECOND).unwrap();
        if intake.items.iter().any(|(range, _)| range.len() == len) {
            return true;
        }
    }
    false
}

fn says(bytes: usize) {
    let socket = UdpSocket::bind("10.9.0.1:0").unwrap();
    socket.send_to(&vec![7; bytes], "10.9.0.2:9").unwrap();
}

#[test]
fn the_first_device_may_be_deleted_and_made_again_while_its_ends_are_in_use() {
    isolated(|| {
        let first = dressed();
        let tunnels = Tunnels::default();
        let (source, sink) = first.ends().next().unwrap();
        let mut source = tunnels.source(source, Waker::new().unwrap());
        let mut sink = tunnels.sink(sink);
        says(100);
        assert!(
            awaits(&mut source, 128),
            "the control failed: the first device carries nothing"
        );
        assert_eq!(first.name_now().as_deref(), Some("first0"));

        command("ip link del first0");
        assert_eq!(first.name_now(), None);
        let mut intake = Intake::with_room(4 * LARGEST, 64);
        for _ in 0..3 {
            let wait = Wait::AtMost(Duration::from_millis(1));
            assert_eq!(source.fill(&mut intake, wait).unwrap(), 0);
        }
        let packet = [0x45; 20];
        let delivery = || [IoSlice::new(&packet)];
        let deliver = |sink: &mut TunnelSink, pieces: &[IoSlice<'_>]| {
            let offload = Offload::default();
            sink.deliver(&[Delivery { offload, pieces }])
        };
        assert!(deliver(&mut sink, &delivery()).is_err());

        tunnels.set(FIRST, Some(Arc::new(dressed())));
        says(200);
        assert!(
            awaits(&mut source, 228),
            "the second device carries nothing"
        );
        deliver(&mut sink, &delivery()).unwrap();
    });
}
