//! A train: one IP packet, or one super-packet that stands for many segments of a flow (TSO, USO), as a TUN device
//! with a virtio header returns them.
//!
//! ```text
//!   super-packet + Offload ──► segments::Segments ──► packets for the wire        the payload stays where it lies
//!   packets from the wire  ──► merge::Merger ──► super-packet + Offload  only what cutting would undo exactly
//! ```

mod fields;
pub mod merge;
pub mod segments;

#[cfg(test)]
mod tests;

/// What still has to be done to a packet before it can be sent: the meaning of a virtio network header.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Offload {
    /// How the packet is segmented, if at all.
    pub segmentation: Segmentation,
    /// Where the transport checksum is still to be computed; none if it is finished.
    pub checksum: Option<ChecksumSpot>,
}

/// How a super-packet is segmented.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Segmentation {
    /// It is a single packet.
    #[default]
    None,
    /// TCP segments of `size` payload bytes, the last may be shorter.
    Tcp {
        /// Payload bytes of each segment.
        size: u16,
    },
    /// UDP datagrams of `size` payload bytes, the last may be shorter.
    Udp {
        /// Payload bytes of each datagram.
        size: u16,
    },
}

/// Kinds of train that a sink accepts or a source returns.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct TrainKinds {
    /// TCP over IPv4.
    pub tcp_v4: bool,
    /// TCP over IPv6.
    pub tcp_v6: bool,
    /// UDP over either.
    pub udp: bool,
}

/// Where a checksum starts and where it is written, as offsets from the IP header (start) and from there (field).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ChecksumSpot {
    /// First byte that is summed; the field already holds the pseudo-header's sum.
    pub start: u16,
    /// Offset of the field from `start`.
    pub offset: u16,
}
