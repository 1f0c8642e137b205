//! What is asked of a TUN device, and what it turned out to be able to do.

use crate::train::TrainKinds;

/// What kind of TUN device is wanted.
#[derive(Clone, Debug)]
pub struct TunOptions {
    /// Its name; a `%d` in it lets the kernel choose a number.
    pub name: String,
    /// How many queues, at least one.
    pub queues: usize,
    /// Its MTU: routes lower it for each policy, the device itself never should.
    pub mtu: u16,
    /// Whether to use trains at all.
    pub offloads: bool,
    /// Whether it stays, with the routes that lead there, when nobody has it open: what is routed there is then lost.
    pub persistent: bool,
    /// Whether the kernel may speak on it by itself: link-local addresses, which routing daemons need.
    pub link_local: bool,
    /// What a device of this process, made in the same way, was able to do: then nothing is tried again. A trial ends with
    /// sockets that are closed, and for each the kernel waits until no processor looks at it any more, some 15 ms.
    pub known_offloads: Option<TunOffloads>,
}

impl TunOptions {
    /// One queue, trains, the largest MTU, nothing known.
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

/// What the device turned out to be able to do.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct TunOffloads {
    /// It hands over and takes packets with an unfinished checksum.
    pub checksum: bool,
    /// Trains that it hands over.
    pub read: TrainKinds,
    /// Trains that it takes.
    pub write: TrainKinds,
}
