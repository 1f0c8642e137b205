//! What a gateway that is replaced passes on of its devices and sockets.

use super::Host;
use crate::handover::{self, PassedDescriptors};
use crate::run::{RunOptions, outer_network};
use dataplane::io::udp::FirstSocket;
use std::os::fd::OwnedFd;

impl Host {
    /// The descriptors that the next gateway can use, once the threads have stopped.
    pub(in crate::run) fn descriptors_to_pass(
        &self,
        options: &RunOptions,
    ) -> (PassedDescriptors, Vec<OwnedFd>) {
        let (mut descriptors, mut sockets) = (Vec::new(), Vec::new());
        let tun = self.plaintext.share().map(|(queue, abilities)| {
            descriptors.push(queue);
            abilities.into()
        });
        for (need, socket) in self.sockets.hand_over() {
            sockets.push(need);
            descriptors.push(socket);
        }
        let mut devices = Vec::new();
        for (name, queue, offloads) in self.devices.share() {
            devices.push((name, offloads.into()));
            descriptors.push(queue);
        }
        let order = self.sockets.order().iter();
        let passed = PassedDescriptors {
            format: handover::FORMAT,
            tun,
            sockets,
            esp_is_first: order
                .map(|(v6, first)| (*v6, *first == FirstSocket::Esp))
                .collect(),
            devices,
            outer: outer_network::requested(options),
            key_exchange: None,
        };
        (passed, descriptors)
    }
}
