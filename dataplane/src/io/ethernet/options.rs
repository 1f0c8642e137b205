//! Options of the device.

use crate::io::packet::NativeIo;
use crate::train::TrainKinds;

/// Options of the device.
#[derive(Clone, Debug)]
pub struct EthernetOptions {
    /// Its name.
    pub name: String,
    /// Its index.
    pub device: u32,
    /// The largest IP packet it takes.
    pub mtu: u32,
    /// The mark of packets that go through a raw socket.
    pub mark: u32,
    /// How packets are sent, where it works: AF_XDP, or else a packet socket.
    pub native_io: NativeIo,
    /// Whether trains are sent whole (GSO).
    pub offloads: bool,
}

/// Every kind of train.
pub(super) const ALL: TrainKinds = TrainKinds {
    tcp_v4: true,
    tcp_v6: true,
    udp: true,
};

impl EthernetOptions {
    pub(super) fn takes(&self) -> TrainKinds {
        if self.offloads {
            ALL
        } else {
            TrainKinds::default()
        }
    }
}
