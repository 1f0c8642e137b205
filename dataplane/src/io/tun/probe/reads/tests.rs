use super::*;
use crate::io::memory::ALL_TRAINS;
use crate::io::namespaces::{command, isolated, warnings};
use crate::io::tun::ioctl::set_offloads;
use crate::io::tun::{Tun, TunOffloads, TunOptions};

fn device(queues: usize) -> (Tun, Vec<OwnedFd>) {
    let options = TunOptions {
        queues,
        // A child that another test is just starting may keep an earlier device open for a moment.
        ..TunOptions::named(&format!("espt{queues}"))
    };
    let tun = Tun::open(&options, &warnings().0).unwrap();
    let copies = tun.queues.iter().map(|queue| dup(queue).unwrap()).collect();
    (tun, copies)
}

#[test]
fn what_the_kernel_hands_over_is_seen_as_it_is_switched_whole_or_cut() {
    isolated(|| {
        for queues in [1, 3] {
            let (tun, copies) = device(queues);
            let tried = || try_reads(&copies, tun.index, ALL_TRAINS).unwrap();
            assert_eq!(tried().whole, ALL_TRAINS);
            // What a kernel does that grants an offload and does not use it.
            set_offloads(&copies[0], libc::TUN_F_CSUM).unwrap();
            let none = Reads {
                whole: TrainKinds::default(),
                lossy: false,
            };
            assert_eq!(tried(), none);
            set_offloads(&copies[0], libc::TUN_F_CSUM | libc::TUN_F_TSO4).unwrap();
            let only = TrainKinds {
                tcp_v4: true,
                ..TrainKinds::default()
            };
            assert_eq!(tried().whole, only);
        }
    });
}

/// Opens a persistent device whose egress hook drops the packets that match `rule`. Returns its offloads and the
/// warnings.
fn lossy(name: &str, rule: &str) -> (TunOffloads, Vec<String>) {
    command(&format!("ip tuntap add {name} mode tun vnet_hdr"));
    command(&format!("nft add table netdev {name}"));
    command(&format!(
        "nft add chain netdev {name} out {{ type filter hook egress device {name} priority 0 ; }}"
    ));
    command(&format!("nft add rule netdev {name} out {rule} drop"));
    let (warn, heard) = warnings();
    let tun = Tun::open(&TunOptions::named(name), &warn).unwrap();
    let heard = heard.lock().unwrap().clone();
    (tun.offloads, heard)
}

#[test]
fn a_device_that_loses_trains_is_used_without_and_one_that_loses_everything_proves_nothing() {
    isolated(|| {
        let (offloads, heard) = lossy("espt0", "ip protocol tcp");
        assert_eq!(
            (offloads.read, offloads.write),
            (TrainKinds::default(), ALL_TRAINS)
        );
        assert!(
            heard.len() == 1 && heard[0].contains("loses GSO buffers"),
            "{heard:?}"
        );
        let (offloads, heard) = lossy("espt1", "");
        assert_eq!((offloads.read, heard), (ALL_TRAINS, vec![]));
    });
}
