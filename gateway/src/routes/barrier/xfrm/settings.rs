//! Settings of devices that decide whether XFRM is asked at all: on the tunnel's devices it must not be, elsewhere it
//! must. The kernel sends no news of them, so they are read each second.

use std::fs;
use std::io;

/// What keeps XFRM from being asked about packets that come by a device, or leave by it. IPv6 has no `disable_xfrm`.
const SETTINGS: [(&str, &str); 3] = [
    ("ipv4", "disable_policy"),
    ("ipv4", "disable_xfrm"),
    ("ipv6", "disable_policy"),
];

/// Has XFRM not asked about packets of the tunnel's device.
pub(super) fn exempt(device: &str) -> io::Result<()> {
    for (family, name) in SETTINGS {
        let path = path(family, device, name);
        match is_set(&path) {
            // A kernel without this family asks about none of its packets.
            Some(true) | None => {}
            Some(false) => fs::write(&path, "1")?,
        }
    }
    Ok(())
}

/// Whether no other program has taken that back.
pub(super) fn is_exempt(device: &str) -> bool {
    let mut settings = SETTINGS.iter();
    settings.all(|(family, name)| is_set(&path(family, device, name)) != Some(false))
}

/// Settings that open this barrier, for one of `devices` or for all, in words that say what to do.
pub(super) fn opened<'a>(devices: impl Iterator<Item = &'a str>) -> Vec<String> {
    let places = ["all"].into_iter().chain(devices);
    let set = places.flat_map(|place| {
        let here = SETTINGS.iter();
        here.filter(move |(family, name)| is_set(&path(family, place, name)) == Some(true))
            .map(move |(family, name)| format!("net.{family}.conf.{place}.{name}"))
    });
    let set: Vec<_> = set.collect();
    if set.is_empty() {
        Vec::new()
    } else {
        vec![format!(
            "policies are not checked: set {} to 0",
            set.join(", ")
        )]
    }
}

fn path(family: &str, place: &str, name: &str) -> String {
    format!("/proc/sys/net/{family}/conf/{place}/{name}")
}

fn is_set(path: &str) -> Option<bool> {
    Some(fs::read_to_string(path).ok()?.trim() != "0")
}
