//! The choice of `--native-io`.

use std::fmt;
use std::str::FromStr;

/// How native packets are sent and received.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum NativeIo {
    /// The fastest of the others that passes its probe.
    #[default]
    Auto,
    /// Raw sockets only: all packets pass the host's firewall, qdiscs and captures.
    Raw,
    /// A packet ring to receive, a packet socket to send.
    Packet,
    /// A packet ring to receive, AF_XDP to send.
    Xdp,
}

impl FromStr for NativeIo {
    type Err = String;

    fn from_str(word: &str) -> Result<Self, String> {
        match word {
            "auto" => Ok(Self::Auto),
            "raw" => Ok(Self::Raw),
            "packet" => Ok(Self::Packet),
            "xdp" => Ok(Self::Xdp),
            _ => Err("raw, packet, xdp or auto is expected".to_owned()),
        }
    }
}

impl fmt::Display for NativeIo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Auto => "auto",
            Self::Raw => "raw",
            Self::Packet => "packet",
            Self::Xdp => "xdp",
        })
    }
}
