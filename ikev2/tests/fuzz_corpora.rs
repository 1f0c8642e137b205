//! The fuzzer's bodies over its corpora, on every toolchain: each file whole, cut short, and with bytes changed.
//! `fuzz/` holds the targets that search further.

#[path = "../../fuzz/replay.rs"]
mod replay;

use replay::replay;

#[test]
fn ike_messages_are_read_without_a_panic() {
    replay("ike_message", ikev2::message::fuzz_body::messages);
}

#[test]
fn certificates_are_read_and_judged_without_a_panic() {
    replay(
        "ike_certificate",
        ikev2::certificate::fuzz_body::certificates,
    );
}

#[test]
fn identities_are_read_and_written_without_a_panic() {
    replay("ike_identity", ikev2::identity::fuzz_body::identities);
}
