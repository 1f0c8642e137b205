//! What newer kernels have for an association in one direction: AGGFRAG mode (IPTFS, Linux 6.14), one for each
//! processor (6.13), and a network card that does a part of the work.

use super::direction::SaDirection;
use ipsec::aggfrag::Aggfrag;
use ipsec::sa::{Offload, OffloadKind, SaConfig};
use netlink_packet_core::{DefaultNla, Nla};
use netlink_packet_xfrm::{UserOffloadDev, XfrmAttrs};
use std::ffi::CString;

/// XFRM_MODE_IPTFS of `linux/xfrm.h`.
pub(super) const MODE_IPTFS: u8 = 5;

/// Attributes of `linux/xfrm.h`: XFRMA_SA_PCPU, and XFRMA_IPTFS_DROP_TIME to XFRMA_IPTFS_PKT_SIZE.
const CPU: u16 = 35;
const DROP_TIME: u16 = 36;
const REORDER_WINDOW: u16 = 37;
const DONT_FRAGMENT: u16 = 38;
const PACKET_SIZE: u16 = 41;

/// XFRM_OFFLOAD_INBOUND and XFRM_OFFLOAD_PACKET.
const OFFLOAD_INBOUND: u8 = 2;
const OFFLOAD_PACKET: u8 = 4;

const MICROSECONDS_IN_MILLISECOND: u32 = 1000;

/// The attributes of this direction.
pub(super) fn attributes(config: &SaConfig, direction: SaDirection) -> Vec<XfrmAttrs> {
    let mut attributes = match (&config.aggfrag, direction) {
        (Some(aggfrag), SaDirection::Outbound) => of_sender(aggfrag),
        (Some(aggfrag), SaDirection::Inbound) => of_receiver(aggfrag),
        (None, _) => Vec::new(),
    };
    // The receiver opens packets on the processor that they arrive at.
    let cpu = config.cpu.filter(|_| direction == SaDirection::Outbound);
    attributes.extend(cpu.map(|cpu| attribute(CPU, &u32::from(cpu).to_ne_bytes())));
    let offload = config.offload.as_ref();
    attributes.extend(offload.map(|offload| of_card(offload, direction)));
    attributes
}

fn of_sender(aggfrag: &Aggfrag) -> Vec<XfrmAttrs> {
    let size = attribute(PACKET_SIZE, &u32::from(aggfrag.size).to_ne_bytes());
    let whole = (!aggfrag.fragments).then(|| attribute(DONT_FRAGMENT, &[]));
    std::iter::once(size).chain(whole).collect()
}

fn of_receiver(aggfrag: &Aggfrag) -> Vec<XfrmAttrs> {
    let wait = u32::from(aggfrag.reorder_timeout_ms) * MICROSECONDS_IN_MILLISECOND;
    vec![
        attribute(DROP_TIME, &wait.to_ne_bytes()),
        attribute(REORDER_WINDOW, &aggfrag.reorder_window.to_ne_bytes()),
    ]
}

fn of_card(offload: &Offload, direction: SaDirection) -> XfrmAttrs {
    let inbound = match direction {
        SaDirection::Inbound => OFFLOAD_INBOUND,
        SaDirection::Outbound => 0,
    };
    device(offload, inbound | packet_flag(offload.kind))
}

/// The attribute by which a policy uses associations that a network card carries whole.
pub(super) fn of_policy(offload: &Offload) -> Option<XfrmAttrs> {
    (offload.kind == OffloadKind::Packet).then(|| device(offload, OFFLOAD_PACKET))
}

fn packet_flag(kind: OffloadKind) -> u8 {
    match kind {
        OffloadKind::Crypto => 0,
        OffloadKind::Packet => OFFLOAD_PACKET,
    }
}

/// The index of a device in the network namespace of this thread.
pub(super) fn index_of(device: &str) -> Option<i32> {
    let name = CString::new(device).ok()?;
    // SAFETY: the name ends with a zero byte and outlives the call.
    let index = unsafe { libc::if_nametoindex(name.as_ptr()) };
    i32::try_from(index).ok().filter(|index| *index > 0)
}

/// What the attribute says. A device that is gone has an index that no device has: the kernel refuses it.
fn device(offload: &Offload, flags: u8) -> XfrmAttrs {
    let ifindex = index_of(&offload.device).unwrap_or(i32::MAX);
    XfrmAttrs::OffloadDevice(UserOffloadDev { ifindex, flags })
}

/// Whether an attribute is one of these, as the gateway writes them.
pub(super) fn is_extension(attribute: &XfrmAttrs) -> bool {
    const WRITTEN: [u16; 5] = [CPU, DROP_TIME, REORDER_WINDOW, DONT_FRAGMENT, PACKET_SIZE];
    match attribute {
        XfrmAttrs::OffloadDevice(_) => true,
        XfrmAttrs::Other(other) => WRITTEN.contains(&other.kind()),
        _ => false,
    }
}

fn attribute(kind: u16, value: &[u8]) -> XfrmAttrs {
    XfrmAttrs::Other(DefaultNla::new(kind, value.to_vec()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use ipsec::command::Command;
    use ipsec::setkey::{Forwarding, NoNames, compile};
    use netlink_packet_core::Emitable;

    /// Kinds and contents of the attributes.
    fn written(options: &str, direction: SaDirection) -> Vec<(u16, Vec<u8>)> {
        let text = format!(
            "add 192.0.2.1 192.0.2.2 esp 0x1001 -m tunnel -r 64 {options} \
             -E aes-gcm-16 0x000102030405060708090a0b0c0d0e0f10111213;"
        );
        let commands = compile(text.as_bytes(), Forwarding::AsWritten, &mut NoNames).unwrap();
        let [Command::AddSa(config)] = &commands.commands[..] else {
            panic!("{options}");
        };
        let attributes = attributes(config, direction);
        assert!(attributes.iter().all(is_extension));
        let each = attributes.iter().map(|attribute| {
            let mut bytes = vec![0; attribute.buffer_len()];
            attribute.emit(&mut bytes);
            let len = usize::from(u16::from_ne_bytes([bytes[0], bytes[1]]));
            (attribute.kind(), bytes[4..len].to_vec())
        });
        each.collect()
    }

    #[test]
    fn aggregation_has_the_options_of_its_direction() {
        let options =
            "-o aggfrag -o aggfrag-size=1400 -o dont-frag -o aggfrag-window=8 -o aggfrag-wait=200";
        assert_eq!(
            written(options, SaDirection::Outbound),
            [
                (PACKET_SIZE, 1400_u32.to_ne_bytes().to_vec()),
                (DONT_FRAGMENT, Vec::new())
            ]
        );
        assert_eq!(
            written(options, SaDirection::Inbound),
            [
                (DROP_TIME, 200_000_u32.to_ne_bytes().to_vec()),
                (REORDER_WINDOW, 8_u16.to_ne_bytes().to_vec())
            ]
        );
    }

    #[test]
    fn a_processor_is_of_the_sender_alone() {
        let sent = written("-o cpu=3", SaDirection::Outbound);
        assert_eq!(sent, [(CPU, 3_u32.to_ne_bytes().to_vec())]);
        assert_eq!(written("-o cpu=3", SaDirection::Inbound), []);
    }

    #[test]
    fn a_card_knows_the_direction_and_how_much_it_does() {
        let flags = |kind: &str, direction| {
            let attributes = written(&format!("-o offload={kind}:lo"), direction);
            let (kind, value) = attributes.into_iter().next().unwrap();
            assert_eq!(
                (kind, &value[..4]),
                (28, &index_of("lo").unwrap().to_ne_bytes()[..])
            );
            value[4]
        };
        assert_eq!(flags("crypto", SaDirection::Outbound), 0);
        assert_eq!(flags("crypto", SaDirection::Inbound), 2);
        assert_eq!(flags("packet", SaDirection::Outbound), 4);
        assert_eq!(flags("packet", SaDirection::Inbound), 6);
    }
}
