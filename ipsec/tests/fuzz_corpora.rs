//! The fuzzer's bodies over its corpora, on every toolchain: each file whole, cut short, and with bytes changed.
//! `fuzz/` holds the targets that search further.

#[path = "../../fuzz/replay.rs"]
mod replay;

use replay::replay;

#[test]
fn setkey_texts_are_parsed_without_a_panic() {
    replay("setkey_text", ipsec::setkey::check_any_text);
}

#[test]
fn headers_are_read_without_a_panic() {
    replay("wire_headers", ipsec::wire::fuzz_body::headers);
}

#[test]
fn fragments_are_joined_without_a_panic() {
    replay("fragments", ipsec::wire::fuzz_body::fragments);
}

#[test]
fn payloads_are_taken_apart_without_a_panic() {
    replay("aggfrag", ipsec::aggfrag::fuzz_body::payloads);
}

#[test]
fn packets_are_opened_without_a_panic() {
    replay("packet_open", ipsec::esp::fuzz_body::packets);
}

#[test]
fn packets_with_ah_are_checked_without_a_panic() {
    replay("ah_check", ipsec::ah::fuzz_body::packets);
}
