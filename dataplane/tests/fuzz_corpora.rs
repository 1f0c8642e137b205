//! The fuzzer's bodies over their corpora, on every toolchain: each file whole, cut short, and with bytes changed.
//! `fuzz/` holds the targets that search further.
#![cfg(not(loom))]

#[path = "../../fuzz/replay.rs"]
mod replay;

use dataplane::io::fuzz_body;
use replay::replay;

#[test]
fn headers_of_a_tun_device_are_read_without_a_panic() {
    replay("tun_headers", fuzz_body::tun_headers);
}

#[test]
fn frames_of_a_packet_ring_are_read_without_a_panic() {
    replay("ring_frames", fuzz_body::ring_frames);
}

#[test]
fn what_a_socket_tells_beside_a_packet_is_read_without_a_panic() {
    replay("control_messages", fuzz_body::control_messages);
}
