//! Devices with associations of their own.

use super::super::SaIndex;
use super::super::choices::Choices;
use super::super::interfaces::Interface;
use super::{Decision, Snapshot};
use crate::Dropped;
use crate::packet::Outline;
use crate::policy::Selector;

impl Snapshot {
    /// The devices that have associations of their own.
    pub fn interfaces(&self) -> &[Interface] {
        self.interfaces.all()
    }

    /// The number of the device out of which what comes through this association goes; 0 for the one that policies use.
    pub fn interface_of(&self, sa: SaIndex) -> u32 {
        self.interfaces.of(sa)
    }

    /// The associations by which the packets of a device leave, in the order in which they are tried, and which packets
    /// each was negotiated for: all, without a selector.
    pub fn choices_of(
        &self,
        interface: u32,
    ) -> impl Iterator<Item = (Option<Selector>, SaIndex)> + use<'_> {
        let choices = self.interfaces.choices(interface).into_iter();
        choices.flat_map(Choices::each)
    }

    /// The decision about a packet that was routed into a device. A device with associations of its own needs no
    /// policy, unless policies lead into it; while it has no association for a packet the packet is dropped.
    pub fn outbound_via(&self, interface: u32, packet: &Outline) -> Decision<'_> {
        if interface == 0 || self.interfaces.follows_policies(interface) {
            return self.outbound(packet);
        }
        let choices = self.interfaces.choices(interface);
        match choices.and_then(|choices| choices.for_packet(packet)) {
            Some(sas) => Decision::Protect(sas),
            None => Decision::Drop(Dropped::Acquire),
        }
    }
}
