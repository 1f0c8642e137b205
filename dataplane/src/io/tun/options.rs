//! The options of a TUN device, and the offloads that it has.

use crate::train::TrainKinds;

/// Options of a TUN device.
#[derive(Clone, Debug)]
pub struct TunOptions {
    /// Its name; a `%d` in it lets the kernel choose a number.
    pub name: String,
    /// How many queues, at least one.
    pub queues: usize,
    /// Its MTU: left at the largest, since routes have an MTU for each policy.
    pub mtu: u16,
    /// Whether to use segmentation and checksum offloads.
    pub offloads: bool,
    /// Whether it stays, with the routes to it, while no process has it open; packets routed to it are then lost.
    pub persistent: bool,
    /// Whether the device gets IPv6 link-local addresses, which routing daemons need.
    pub link_local: bool,
    /// The offloads of an earlier device that was made in the same way: then nothing is probed again. A probe ends with
    /// closing sockets, for each of which the kernel waits some 15 ms until no processor uses it any more.
    pub known_offloads: Option<TunOffloads>,
}

impl TunOptions {
    /// One queue, all offloads, the largest MTU, nothing known.
    pub fn named(name: &str) -> Self {
        Self {
            name: name.to_owned(),
            queues: 1,
            mtu: u16::MAX,
            offloads: true,
            persistent: false,
            link_local: false,
            known_offloads: None,
        }
    }
}

/// The offloads that work.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct TunOffloads {
    /// Packets with an unfinished checksum are read and written.
    pub checksum: bool,
    /// Trains that are read from it.
    pub read: TrainKinds,
    /// Trains that can be written to it.
    pub write: TrainKinds,
}
