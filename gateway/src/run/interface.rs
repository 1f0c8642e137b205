//! Kernel settings of the TUN device, and of the host where they decide whether anything can pass.

use crate::routes::record::Record;
use dataplane::io::Warn;
use std::fs;

/// The device neither asks for IPv6 routers nor makes up addresses, and takes packets from wherever the tunnel's far end
/// says they come from (their way back leads by rules, which a strict reverse path check would not follow).
pub(super) fn prepare(tun: &str, warn: &Warn) {
    // addr_gen_mode 1: no link-local address. Turning IPv6 off and on takes away one that is already there.
    let v6 = [
        ("addr_gen_mode", "1"),
        ("accept_ra", "0"),
        ("autoconf", "0"),
        ("disable_ipv6", "1"),
        ("disable_ipv6", "0"),
    ];
    for (name, value) in v6 {
        // A kernel without IPv6 has no such settings; nothing is lost then.
        let _ = fs::write(format!("/proc/sys/net/ipv6/conf/{tun}/{name}"), value);
    }
    if fs::write(format!("/proc/sys/net/ipv4/conf/{tun}/rp_filter"), "2").is_err()
        && read("net/ipv4/conf/all/rp_filter").as_deref() == Some("1")
    {
        warn(&format!(
            "/proc/sys cannot be written and net.ipv4.conf.all.rp_filter is 1: packets from {tun} will be dropped; set it \
             to 2"
        ));
    }
}

/// Whether packets between other hosts are forwarded at all. Turning that on is the administrator's decision.
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
                "{name} is 0: only this host's own traffic passes; to forward for others: sysctl -w {name}=1"
            ));
        }
    }
}

/// Where the tunnel's outer addresses are themselves protected, the reverse path of arriving outer packets leads by the
/// tunnel unless their mark is looked at. Notes what was changed, for `down`.
pub(super) fn look_at_marks(record: &mut Record) {
    const PATH: &str = "net/ipv4/conf/all/src_valid_mark";
    if read(PATH).as_deref() == Some("0") && fs::write(format!("/proc/sys/{PATH}"), "1").is_ok() {
        record.settings.push((PATH.to_owned(), "0".to_owned()));
    }
}

fn read(path: &str) -> Option<String> {
    let text = fs::read_to_string(format!("/proc/sys/{path}")).ok()?;
    Some(text.trim().to_owned())
}
