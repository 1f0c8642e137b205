//! Settings of devices that decide whether XFRM policies are checked: not on the tunnel's devices, on all others. The
//! kernel sends no notifications about them, so they are read each second.

use std::fs;
use std::io;

/// Settings that exempt packets that arrive or leave by a device from XFRM policies. IPv6 has no `disable_xfrm`.
const SETTINGS: [(&str, &str); 3] = [
    ("ipv4", "disable_policy"),
    ("ipv4", "disable_xfrm"),
    ("ipv6", "disable_policy"),
];

/// Exempts packets of the tunnel's device from XFRM policies.
pub(super) fn exempt(device: &str) -> io::Result<()> {
    for (family, name) in SETTINGS {
        let path = path(family, device, name);
        match is_set(&path) {
            // Without the setting the kernel lacks this family, and checks none of its packets.
            Some(true) | None => {}
            Some(false) => fs::write(&path, "1")?,
        }
    }
    Ok(())
}

/// Whether the exemption is still set.
pub(super) fn is_exempt(device: &str) -> bool {
    let mut settings = SETTINGS.iter();
    settings.all(|(family, name)| is_set(&path(family, device, name)) != Some(false))
}

/// Settings of `devices`, or of all, that disable this barrier, as a text with what to do.
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
