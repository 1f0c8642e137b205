//! wireguard-go: ChaCha20-Poly1305, with GSO and GRO on TUN and UDP.

use super::wireguard::Implementation;

/// wireguard-go.
pub const WIREGUARD_GO: Implementation = Implementation {
    name: "wireguard-go",
    programs: &["wireguard-go", "wireguard"],
    home_folder: "go/bin",
    remedy: "go install golang.zx2c4.com/wireguard@latest (or apt-get install wireguard-go, an older one)",
    foreground: &["-f"],
};
