//! Kernel settings of the TUN device, and of the host where they decide whether anything can pass.

use crate::routes::record::Record;
use dataplane::io::Warn;
use std::fs;

/// Sets the reverse path check of the device. Packets from the tunnel may have any source address: policy has checked
/// that. The route back depends on routing rules, which a strict check does not follow, or leads elsewhere than through
/// the tunnel, which even a loose check does not allow on a device without an address. The kernel uses the larger of
/// this setting and that for all devices.
pub(super) fn prepare(tun: &str, warn: &Warn) {
    let checks = match read("net/ipv4/conf/all/rp_filter").as_deref() {
        Some("1" | "2") => "2",
        _ => "0",
    };
    if fs::write(format!("/proc/sys/net/ipv4/conf/{tun}/rp_filter"), checks).is_err()
        && read("net/ipv4/conf/all/rp_filter").as_deref() == Some("1")
    {
        warn(&format!(
            "/proc/sys cannot be written and net.ipv4.conf.all.rp_filter is 1: packets from {tun} will be dropped; set it \
             to 2"
        ));
    }
}

/// Warns if the kernel does not forward packets. Turning that on is the administrator's decision.
pub(super) fn warn_without_forwarding(ipv4: bool, ipv6: bool, warn: &Warn) {
    let ways = [
        (ipv4, "net/ipv4/ip_forward", "net.ipv4.ip_forward"),
        (
            ipv6,
            "net/ipv6/conf/all/forwarding",
            "net.ipv6.conf.all.forwarding",
        ),
    ];
    for (wanted, path, name) in ways {
        if wanted && read(path).as_deref() == Some("0") {
            warn(&format!(
                "{name} is 0: only this host's own traffic passes; to forward for other hosts: sysctl -w {name}=1"
            ));
        }
    }
}

/// Where the tunnel's outer addresses are themselves protected, the route back to the peer leads through the tunnel,
/// and a strict reverse path check would drop everything that arrives on `device`, even the peer's ARP. A loose one
/// does not. Records what was changed, for `down`.
pub(super) fn relax_rp_filter(device: &str, record: &mut Record, warn: &Warn) {
    let own = format!("net/ipv4/conf/{device}/rp_filter");
    let of_all = read("net/ipv4/conf/all/rp_filter");
    let Some(before) = read(&own) else {
        return;
    };
    if !is_strict(&before, of_all.as_deref()) {
        return;
    }
    match fs::write(format!("/proc/sys/{own}"), "2") {
        Ok(()) => record.settings.push((own, before)),
        Err(error) => warn(&format!(
            "rp_filter of {device} is strict and cannot be changed ({error}): packets of peers whose own address is \
             protected will be dropped; set net.ipv4.conf.{device}.rp_filter to 2"
        )),
    }
}

/// Whether the reverse path check of a device is strict; those that the gateway has relaxed are not.
pub(super) fn has_strict_rp_filter(device: &str) -> bool {
    let one = read(&format!("net/ipv4/conf/{device}/rp_filter"));
    let all = read("net/ipv4/conf/all/rp_filter");
    one.is_some_and(|one| is_strict(&one, all.as_deref()))
}

/// The kernel uses the larger of the two.
fn is_strict(one: &str, all: Option<&str>) -> bool {
    let values = [Some(one), all];
    values.contains(&Some("1")) && !values.contains(&Some("2"))
}

/// Devices whose reverse path check was relaxed and was set to strict again by another program.
pub(super) fn devices_with_strict_rp_filter(record: &Record) -> Vec<String> {
    let devices = record.settings.iter().filter_map(|(setting, _)| {
        let setting = setting.strip_prefix("net/ipv4/conf/")?;
        setting.strip_suffix("/rp_filter")
    });
    let strict = devices.filter(|device| has_strict_rp_filter(device));
    strict.map(str::to_owned).collect()
}

/// Relaxes it again; the record of its original value stays.
pub(super) fn relax_rp_filter_again(device: &str) -> std::io::Result<()> {
    fs::write(format!("/proc/sys/net/ipv4/conf/{device}/rp_filter"), "2")
}

/// Whether IPv6 was disabled on this device, and not on the whole host.
pub(super) fn lacks_ipv6(device: &str) -> bool {
    let off =
        |place: &str| read(&format!("net/ipv6/conf/{place}/disable_ipv6")).as_deref() == Some("1");
    off(device) && !off("all")
}

/// Enables it again.
pub(super) fn allow_ipv6(device: &str) -> std::io::Result<()> {
    fs::write(
        format!("/proc/sys/net/ipv6/conf/{device}/disable_ipv6"),
        "0",
    )
}

fn read(path: &str) -> Option<String> {
    let text = fs::read_to_string(format!("/proc/sys/{path}")).ok()?;
    Some(text.trim().to_owned())
}
