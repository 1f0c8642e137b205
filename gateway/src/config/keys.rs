//! The keys of each table. docs/ikev2-configuration.md describes all of them, which a test checks.

/// The tables of a file.
pub(super) const TOP: [&str; 2] = ["gateway", "peer"];

/// `[gateway]`: every option of `esplanade run` but the file itself, `files`, and the hooks of peers
/// that have none of their own.
pub(super) const GATEWAY: [&str; 30] = [
    "setkey",
    "files",
    "tun",
    "forward",
    "control",
    "workers",
    "plane",
    "batch",
    "poll_budget",
    "wake",
    "cpus",
    "priority",
    "fail_open",
    "mark",
    "table",
    "port",
    "zero_checksum",
    "no_offloads",
    "native_io",
    "outer_netns",
    "outer_device",
    "state",
    "no_state",
    "fresh_keys",
    "key_log",
    "user",
    "hook_user",
    "on_up",
    "on_down",
    "no_privilege_drop",
];

/// A peer, `[peer.NAME]`.
pub(super) const PEER: [&str; 39] = [
    "profile",
    "local",
    "remote",
    "remote_port",
    "local_id",
    "remote_id",
    "psk",
    "psk_file",
    "certificate",
    "key",
    "rsa_padding",
    "ca",
    "crl",
    "crl_required",
    "networks",
    "protocol",
    "ports",
    "mode",
    "interface",
    "routes",
    "ike",
    "esp",
    "ah",
    "start",
    "dpd",
    "rekey",
    "hard_lifetime",
    "jitter_percent",
    "replay_window",
    "retransmit",
    "retry",
    "encapsulation",
    "fragment_bytes",
    "childless",
    "window",
    "initial_contact",
    "on_up",
    "on_down",
    "child",
];

/// A child, `[peer.NAME.child.NAME]`; what it does not have is taken from its peer.
pub(super) const CHILD: [&str; 9] = [
    "networks",
    "protocol",
    "ports",
    "esp",
    "ah",
    "start",
    "rekey",
    "hard_lifetime",
    "replay_window",
];

/// `networks = { … }` and `ports = { … }`.
pub(super) const SIDES: [&str; 2] = ["local", "remote"];

/// `rekey = { … }` of a peer.
pub(super) const PEER_REKEY: [&str; 4] = ["ike", "child", "bytes", "packets"];

/// `rekey = { … }` of a child.
pub(super) const CHILD_REKEY: [&str; 3] = ["child", "bytes", "packets"];

/// `retransmit = { … }`.
pub(super) const RETRANSMIT: [&str; 3] = ["first", "longest", "repetitions"];

/// `retry = { … }`.
pub(super) const RETRY: [&str; 2] = ["first", "longest"];

/// Every key of every table.
pub(super) fn all() -> impl Iterator<Item = &'static str> {
    let tables: [&'static [&'static str]; 9] = [
        &TOP,
        &GATEWAY,
        &PEER,
        &CHILD,
        &SIDES,
        &PEER_REKEY,
        &CHILD_REKEY,
        &RETRANSMIT,
        &RETRY,
    ];
    tables.into_iter().flatten().copied()
}
