//! The two gateways of a testbed, and the processes on them that carry packets.

/// A process that carries packets.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Gateway {
    /// Which of the two.
    pub side: Side,
    /// Its process id there.
    pub pid: u32,
}

/// The two ends of the tunnel.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Side {
    /// The client's gateway.
    Left,
    /// The server's gateway.
    Right,
}

impl Side {
    /// Both, left first.
    pub const BOTH: [Side; 2] = [Side::Left, Side::Right];

    /// The name of the host it is on.
    pub fn name(self) -> &'static str {
        match self {
            Side::Left => "left",
            Side::Right => "right",
        }
    }
}
