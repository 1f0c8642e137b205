//! Which kinds of native I/O work here: each is tried with a real packet over the loopback device.

use super::egress::Egress;
use super::ethernet_header::{ETHERNET_HEADER_BYTES, ethertype};
use super::filter::RingAddresses;
use super::native_io::NativeIo;
use super::ring::Ring;
use crate::io::Warn;
use std::io;
use std::net::IpAddr;
use std::time::{Duration, Instant};

/// How long a packet of the probe may take over the loopback device, where it normally arrives at once.
const PROBE_TIMEOUT: Duration = Duration::from_millis(200);

/// Probes the candidates in order and returns the first that works; each failure is reported to `warn`.
pub fn probe(wish: NativeIo, warn: &Warn) -> NativeIo {
    let order: &[NativeIo] = match wish {
        NativeIo::Auto => &[NativeIo::Xdp, NativeIo::Packet],
        NativeIo::Xdp => &[NativeIo::Xdp, NativeIo::Packet],
        NativeIo::Packet => &[NativeIo::Packet],
        NativeIo::Raw => &[],
    };
    for candidate in order {
        match send_probe(*candidate) {
            Ok(()) => return *candidate,
            Err(why) => warn(&format!(
                "native ESP by `{candidate}` does not work here ({why}): using a slower path"
            )),
        }
    }
    NativeIo::Raw
}

/// Sends an empty ESP packet from 127.0.0.1 to itself, which no receiver can mistake for traffic.
fn send_probe(native_io: NativeIo) -> io::Result<()> {
    const SIZE: u32 = 1500;
    let here = IpAddr::from([127, 0, 0, 1]);
    let device = device_index(c"lo")?;
    let mut ring = Ring::open(device, SIZE, &RingAddresses::of([here]))?;
    let mut egress = Egress::open(native_io, device, SIZE)?;
    let packet = probe_packet(here);
    egress.send_one(&[0; ETHERNET_HEADER_BYTES - 2], &packet)?;
    let came = arrives(&mut ring, &packet[2..]);
    close_aside((ring, egress));
    if came {
        Ok(())
    } else {
        Err(io::Error::other("a packet of the probe was lost"))
    }
}

/// Whether a packet comes in time.
fn arrives(ring: &mut Ring, packet: &[u8]) -> bool {
    let end = Instant::now() + PROBE_TIMEOUT;
    while Instant::now() < end {
        let mut came = false;
        let is_any = ring.take(|bytes| {
            came = bytes == packet;
            true
        });
        if is_any && came {
            return true;
        }
    }
    false
}

/// Closes what the probe has opened on a thread of its own: the kernel takes some milliseconds to free the ring, for
/// which a running gateway does not wait. Without a thread it is closed here.
fn close_aside(opened: (Ring, Egress)) {
    let closing = std::thread::Builder::new().name("probe".to_owned());
    // A thread that cannot be started drops what it was given.
    drop(closing.spawn(move || drop(opened)));
}

/// The end of an Ethernet header, and an IPv4 header.
fn probe_packet(here: IpAddr) -> [u8; 22] {
    let outer = ipsec::tunnel::Outer {
        source: here,
        destination: here,
        protocol: 50,
        ports: None,
        traffic_class: 0,
        dont_fragment: true,
        hop_limit: 1,
        emitted_len: 0,
    };
    let mut packet = [0; 22];
    packet[..2].copy_from_slice(&ethertype(here));
    outer.emit(0, 0, &mut packet[2..]);
    packet
}

pub(super) fn device_index(name: &std::ffi::CStr) -> io::Result<u32> {
    // SAFETY: the name ends with a zero byte and is only read.
    match unsafe { libc::if_nametoindex(name.as_ptr()) } {
        0 => Err(io::Error::last_os_error()),
        index => Ok(index),
    }
}
