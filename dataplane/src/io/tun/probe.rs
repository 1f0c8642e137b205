//! Which offloads really work: they are requested from the kernel, then each is probed with a real packet.
//!
//! The request is not enough: kernels near 6.6.44 grant TSO and refuse every train that is written. The packets of the
//! probe do no harm: the stack drops those that are written, IPv4 for a wrong header checksum, IPv6 because a loopback
//! address may not arrive from outside (RFC 4291 2.5.3); those that are read end here.

mod packets;
mod reads;

use super::ioctl;
use super::options::TunOffloads;
use super::sink::TunSink;
use crate::io::{Delivery, OpenError, Warn};
use crate::train::{Offload, TrainKinds};
use libc::{TUN_F_CSUM, TUN_F_TSO_ECN, TUN_F_TSO4, TUN_F_TSO6, TUN_F_USO4, TUN_F_USO6};
use packets::{TCP_TRAIN, UDP_TRAIN, over_v4, over_v6, train};
use reads::try_reads;
use rustix::io::{Errno, dup};
use std::io::IoSlice;
use std::os::fd::OwnedFd;
use std::sync::Arc;

/// Sets of offloads to request, the largest first: kernels before 6.2 have no USO.
const WISHES: [(u32, TunOffloads); 3] = [
    (TCP | TUN_F_USO4 | TUN_F_USO6, offloads(true, true)),
    (TCP, offloads(true, false)),
    (TUN_F_CSUM, offloads(false, false)),
];
const TCP: u32 = TUN_F_CSUM | TUN_F_TSO4 | TUN_F_TSO6 | TUN_F_TSO_ECN;

const fn offloads(tcp: bool, udp: bool) -> TunOffloads {
    let takes = TrainKinds {
        tcp_v4: tcp,
        tcp_v6: tcp,
        udp,
    };
    TunOffloads {
        checksum: true,
        read: takes,
        write: takes,
    }
}

/// Enables what the kernel grants and what then passes its probe, for the device of this name and index.
pub(super) fn try_offloads(
    queues: &[OwnedFd],
    (name, index): (&str, u32),
    warn: &Warn,
) -> Result<TunOffloads, OpenError> {
    let queue = &queues[0];
    let granted = WISHES
        .iter()
        .find(|(wish, _)| ioctl::set_offloads(queue, *wish).is_ok());
    let Some((_, granted)) = granted else {
        warn(&format!(
            "{name}: this kernel's TUN device has no offloads: throughput will be much lower"
        ));
        return without_offloads(queue);
    };
    if !granted.read.udp {
        warn(&format!(
            "{name}: this kernel's TUN device has no UDP segmentation offload: inner UDP passes packet by packet"
        ));
    }
    let write =
        try_writes(queue, granted.write).map_err(OpenError::during("try the TUN device"))?;
    warn_of(granted.write, write, |kind| {
        warn(&format!(
            "{name}: this kernel refuses GSO buffers of {kind}: they are written packet by packet (slower)"
        ));
    });
    // Without the right to open a packet socket the kernel's answer is all there is.
    let Ok(reads) = try_reads(queues, index, granted.read) else {
        return Ok(TunOffloads { write, ..*granted });
    };
    if reads.lossy {
        warn(&format!(
            "{name}: this kernel loses GSO buffers sent to the device: GSO is disabled, packets are read one by one (slower)"
        ));
        ioctl::set_offloads(queue, TUN_F_CSUM)
            .map_err(OpenError::during("switch off the TUN device's offloads"))?;
        return Ok(TunOffloads {
            write,
            ..offloads(false, false)
        });
    }
    warn_of(granted.read, reads.whole, |kind| {
        warn(&format!(
            "{name}: this kernel delivers no GSO buffers of {kind}: they are read packet by packet (slower)"
        ));
    });
    Ok(TunOffloads {
        read: reads.whole,
        write,
        ..*granted
    })
}

/// Enables what an earlier probe has shown to work, without another one.
pub(super) fn switch_on(queue: &OwnedFd, known: TunOffloads) -> Result<TunOffloads, OpenError> {
    // They control what the kernel passes to the queue; what it accepts needs no setting.
    let wish = match (known.checksum, known.read) {
        (false, _) => 0,
        (true, read) if read.udp => WISHES[0].0,
        (true, read) if read != TrainKinds::default() => WISHES[1].0,
        (true, _) => WISHES[2].0,
    };
    ioctl::set_offloads(queue, wish)
        .map_err(OpenError::during("switch on the TUN device's offloads"))?;
    Ok(known)
}

/// Warns of what was granted and does not work.
fn warn_of(granted: TrainKinds, works: TrainKinds, warn: impl Fn(&str)) {
    for (kind, was, is) in [
        ("TCP segments over IPv4", granted.tcp_v4, works.tcp_v4),
        ("TCP segments over IPv6", granted.tcp_v6, works.tcp_v6),
        ("UDP datagrams", granted.udp, works.udp),
    ] {
        if was && !is {
            warn(kind);
        }
    }
}

/// Single packets with finished checksums only.
pub(super) fn without_offloads(queue: &OwnedFd) -> Result<TunOffloads, OpenError> {
    ioctl::set_offloads(queue, 0)
        .map_err(OpenError::during("switch off the TUN device's offloads"))?;
    Ok(TunOffloads::default())
}

fn try_writes(queue: &OwnedFd, hoped: TrainKinds) -> Result<TrainKinds, Errno> {
    let sink = TunSink {
        device: Arc::new(dup(queue)?),
        takes: hoped,
    };
    let works = |packet: &[u8], offload: Offload| {
        sink.write(&Delivery {
            offload,
            pieces: &[IoSlice::new(packet)],
        })
        .is_ok()
    };
    Ok(TrainKinds {
        tcp_v4: hoped.tcp_v4 && works(&over_v4(6), train(TCP_TRAIN, 20, 16)),
        tcp_v6: hoped.tcp_v6 && works(&over_v6(6), train(TCP_TRAIN, 40, 16)),
        udp: hoped.udp
            && works(&over_v4(17), train(UDP_TRAIN, 20, 6))
            && works(&over_v6(17), train(UDP_TRAIN, 40, 6)),
    })
}
