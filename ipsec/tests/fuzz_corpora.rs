//! The bodies of the fuzz targets over their corpora, on every toolchain: each file whole, cut short, and with bytes
//! changed. `fuzz/run` searches further.

#[path = "../../fuzz/bodies/aggfrag.rs"]
mod aggfrag;
#[path = "../../fuzz/bodies/ah_check.rs"]
mod ah_check;
#[path = "../../fuzz/bodies/fragments.rs"]
mod fragments;
#[path = "../../fuzz/bodies/packet_open.rs"]
mod packet_open;
#[path = "../../fuzz/replay.rs"]
mod replay;
#[path = "../../fuzz/bodies/setkey_text.rs"]
mod setkey_text;
#[path = "../../fuzz/bodies/wire_headers.rs"]
mod wire_headers;

use replay::replay;

#[test]
fn setkey_texts_are_parsed_without_a_panic() {
    replay("setkey_text", setkey_text::check);
}

#[test]
fn headers_are_read_without_a_panic() {
    replay("wire_headers", wire_headers::check);
}

#[test]
fn fragments_are_joined_without_a_panic() {
    replay("fragments", fragments::check);
}

#[test]
fn payloads_are_taken_apart_without_a_panic() {
    replay("aggfrag", aggfrag::check);
}

#[test]
fn packets_are_opened_without_a_panic() {
    replay("packet_open", packet_open::check);
}

#[test]
fn packets_with_ah_are_checked_without_a_panic() {
    replay("ah_check", ah_check::check);
}
