//! boringtun, WireGuard in Rust: one packet at a time through TUN and UDP, with its default number of threads.

use super::wireguard::Implementation;

/// boringtun.
pub const BORINGTUN: Implementation = Implementation {
    name: "boringtun",
    programs: &["boringtun-cli", "boringtun"],
    home_folder: ".cargo/bin",
    remedy: "cargo install boringtun-cli",
    foreground: &["--foreground", "--disable-drop-privileges"],
};
