//! The ID by which the kernel ties associations and policies to an XFRM interface.

use netlink_packet_xfrm::XfrmAttrs;

/// People and other programs number their interfaces from 1 on.
const MIN_ID: u32 = 1 << 16;

/// The ID of the device of this name, the same in every process: a gateway finds what an earlier one has left. It is
/// the name's 32-bit FNV-1a hash. Two names with the same ID are possible; the kernel then refuses the second device.
pub(crate) fn interface_id(name: &str) -> u32 {
    const OFFSET_BASIS: u32 = 0x811c_9dc5;
    const PRIME: u32 = 0x0100_0193;
    let hash = name.bytes().fold(OFFSET_BASIS, |hash, byte| {
        (hash ^ u32::from(byte)).wrapping_mul(PRIME)
    });
    match hash {
        ..MIN_ID => hash + MIN_ID,
        _ => hash,
    }
}

/// The attribute of an association or policy that has a device.
pub(super) fn of_device(name: Option<&str>) -> Option<XfrmAttrs> {
    name.map(|name| XfrmAttrs::IfId(interface_id(name)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hash_is_fnv_1a() {
        // Test vectors of draft-eastlake-fnv, appendix C.
        assert_eq!(interface_id("a"), 0xe40c_292c);
        assert_eq!(interface_id("foobar"), 0xbf9c_f968);
    }

    #[test]
    fn no_device_has_an_id_that_people_choose() {
        let names = (0..100_000).map(|number| format!("ike-{number}"));
        assert!(names.map(|name| interface_id(&name)).all(|id| id >= MIN_ID));
    }
}
