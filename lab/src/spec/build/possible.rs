//! What cannot exist, and because of which factor.

use crate::spec::kinds::{ContenderKind, LoadKind, Named};
use crate::spec::settings::{Settings, number};
use crate::testbed::Families;

/// Something that cannot exist, and because of which factor.
pub(in crate::spec) struct Impossible {
    pub factor: &'static str,
    pub what: String,
    pub advice: String,
}

pub(super) fn is_pair(settings: &Settings) -> bool {
    settings.get("testbed").is_some_and(|kind| kind == "pair")
}

/// Topologies that no contender, or not this one, can stand on.
pub(super) fn possible_topology(
    kind: ContenderKind,
    settings: &Settings,
) -> Result<(), Impossible> {
    let joins_networks = !matches!(
        kind,
        ContenderKind::Plain | ContenderKind::Esplanade | ContenderKind::KernelXfrm
    );
    if is_pair(settings) && joins_networks {
        return Err(Impossible {
            factor: "testbed",
            what: format!(
                "`{}` connects networks; this testbed has only two hosts",
                kind.name()
            ),
            advice: "`kind = \"gateways\"` in [testbed]".into(),
        });
    }
    possible_families(kind, settings)?;
    possible_share(kind, settings)?;
    let asked = |word: &str| settings.keys().any(|name| name.starts_with(word));
    if asked("path.") && asked("impair.") {
        return Err(Impossible {
            factor: "path.mtu",
            what: "`path` and `impair` cannot be combined: both need the middle of the wire".into(),
            advice: "use a separate [[part]] for each".into(),
        });
    }
    if asked("imix") && asked("frame_bytes") {
        return Err(Impossible {
            factor: "imix",
            what: "`frame_bytes` and `imix` cannot be combined: use one, not both".into(),
            advice: "use a separate [[part]] for each".into(),
        });
    }
    Ok(())
}

pub(super) fn families(settings: &Settings) -> Families {
    let written = settings.get("families");
    written
        .and_then(|word| Families::read(word))
        .unwrap_or_default()
}

/// Who cannot carry one family in another, or IPv6 at all.
fn possible_families(kind: ContenderKind, settings: &Settings) -> Result<(), Impossible> {
    let asked = families(settings);
    let impossible = |what: String, advice: &str| {
        Err(Impossible {
            factor: "families",
            what,
            advice: advice.into(),
        })
    };
    let narrows = settings.keys().any(|name| name.starts_with("path."));
    if asked == Families::default() {
        Ok(())
    } else if kind == ContenderKind::KernelLibipsec {
        impossible(
            "the lab configures strongSwan's kernel-libipsec for IPv4 only".into(),
            "`families = \"4in4\"`",
        )
    } else if narrows {
        impossible("`path` supports IPv4 only".into(), "`families = \"4in4\"`")
    } else if !asked.are_one() && kind == ContenderKind::Plain {
        impossible(
            "plain IP has the same family inside and on the wire".into(),
            "`families = \"4in4\"` or \"6in6\"",
        )
    } else if !asked.are_one() && is_pair(settings) {
        impossible(
            "two hosts without gateways have the same family inside and on the wire".into(),
            "`families = \"4in4\"` or \"6in6\", or `kind = \"gateways\"` in [testbed]",
        )
    } else {
        Ok(())
    }
}

/// Contenders whose packets are carried by processes, which are all that a quota holds back.
const USER_SPACE_CONTENDERS: [ContenderKind; 5] = [
    ContenderKind::Esplanade,
    ContenderKind::KernelLibipsec,
    ContenderKind::WireguardGo,
    ContenderKind::Boringtun,
    ContenderKind::OpenVpn,
];

/// Refuses `share` for contenders that a quota does not limit.
fn possible_share(kind: ContenderKind, settings: &Settings) -> Result<(), Impossible> {
    if settings.contains_key("share") && !USER_SPACE_CONTENDERS.contains(&kind) {
        Err(Impossible {
            factor: "share",
            what: format!(
                "`{}` runs in the kernel, mostly in softirqs, which no CPU quota limits",
                kind.name()
            ),
            advice: format!(
                "set `share` in the [[contender]] of a user-space program: {}",
                USER_SPACE_CONTENDERS.map(Named::name).join(", ")
            ),
        })
    } else {
        Ok(())
    }
}

/// The longest datagram over IPv4.
const MAX_DATAGRAM_BYTES: f64 = 65_507.0;

/// Combinations that a load does not support.
pub(super) fn possible_load(settings: &Settings, load: LoadKind) -> Result<(), Impossible> {
    let of_datagrams = matches!(load, LoadKind::Iperf3Udp | LoadKind::NetperfUdp);
    if of_datagrams
        && number(settings, "message_bytes").is_some_and(|bytes| bytes > MAX_DATAGRAM_BYTES)
    {
        return Err(Impossible {
            factor: "message_bytes",
            what: format!("a datagram holds at most {MAX_DATAGRAM_BYTES} bytes"),
            advice: "use a size that needs no fragmentation, as `message_bytes = 1200`".into(),
        });
    }
    let both = settings.get("direction").is_some_and(|way| way == "both");
    if both && !matches!(load, LoadKind::Iperf3 | LoadKind::Iperf3Udp) {
        Err(Impossible {
            factor: "direction",
            what: format!("the load `{}` runs in one direction at a time", load.name()),
            advice: "`direction = \"forward\"` or \"reverse\", or an iperf3 load".into(),
        })
    } else {
        Ok(())
    }
}
