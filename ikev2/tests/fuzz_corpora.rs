//! The bodies of the fuzz targets over their corpora, on every toolchain: each file whole, cut short, and with bytes
//! changed. `fuzz/run` searches further.

#[path = "../../fuzz/bodies/ike_certificate.rs"]
mod ike_certificate;
#[path = "../../fuzz/bodies/ike_endpoint.rs"]
mod ike_endpoint;
#[path = "../../fuzz/bodies/ike_identity.rs"]
mod ike_identity;
#[path = "../../fuzz/bodies/ike_message.rs"]
mod ike_message;
#[path = "../../fuzz/replay.rs"]
mod replay;

use replay::replay;

#[test]
fn ike_messages_are_read_without_a_panic() {
    replay("ike_message", ike_message::check);
}

#[test]
fn certificates_are_read_and_judged_without_a_panic() {
    replay("ike_certificate", ike_certificate::check);
}

#[test]
fn identities_are_read_and_written_without_a_panic() {
    replay("ike_identity", ike_identity::check);
}

#[test]
fn endpoints_survive_what_peers_and_strangers_send() {
    replay("ike_endpoint", ike_endpoint::check);
}
