//! The fuzzer's bodies over their corpora, on every toolchain: each file whole, cut short, and with bytes changed.
//! `fuzz/` holds the targets that search further.

#[path = "../../fuzz/replay.rs"]
mod replay;

use replay::replay;

#[test]
fn captures_are_read_without_a_panic() {
    replay("capture_file", gateway::capture::check_any_file);
}

#[test]
fn nobody_is_believed_about_a_path_who_quotes_no_recent_packet() {
    replay("icmp_complaints", gateway::run::check_any_complaint);
}

#[test]
fn lines_of_the_control_socket_are_read_without_a_panic() {
    replay("control_lines", gateway::control::fuzz_body::lines);
}

#[test]
fn what_the_kernel_says_of_routes_is_read_without_a_panic() {
    replay(
        "netlink_answers",
        gateway::routes::netlink::fuzz_body::answers,
    );
}

#[test]
fn what_the_kernel_lists_of_nftables_is_read_without_a_panic() {
    replay(
        "nftables_answers",
        gateway::routes::nftables::fuzz_body::answers,
    );
}
