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
                "`{}` joins networks, and this testbed has two hosts alone",
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
            what: "a path that narrows and an impaired one need the same place in the wire".into(),
            advice: "give each a [[part]] of its own".into(),
        });
    }
    if asked("imix") && asked("frame_bytes") {
        return Err(Impossible {
            factor: "imix",
            what: "frames have one size (`frame_bytes`) or a mix of sizes (`imix`), not both"
                .into(),
            advice: "give each a [[part]] of its own".into(),
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
            "the lab sets strongSwan's kernel-libipsec up for IPv4 alone".into(),
            "`families = \"4in4\"`",
        )
    } else if narrows {
        impossible(
            "the router of a path that narrows knows IPv4 alone".into(),
            "`families = \"4in4\"`",
        )
    } else if !asked.are_one() && kind == ContenderKind::Plain {
        impossible(
            "plain IP is of one family, on the wire as inside".into(),
            "`families = \"4in4\"` or \"6in6\"",
        )
    } else if !asked.are_one() && is_pair(settings) {
        impossible(
            "two hosts alone have one family, on the wire as inside".into(),
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

/// Whom no quota holds back.
fn possible_share(kind: ContenderKind, settings: &Settings) -> Result<(), Impossible> {
    if settings.contains_key("share") && !USER_SPACE_CONTENDERS.contains(&kind) {
        Err(Impossible {
            factor: "share",
            what: format!(
                "`{}` is carried by the kernel, mostly in softirqs, and no share of a processor holds these back",
                kind.name()
            ),
            advice: format!(
                "give `share` to the [[contender]] of one whose packets a process carries: {}",
                USER_SPACE_CONTENDERS.map(Named::name).join(", ")
            ),
        })
    } else {
        Ok(())
    }
}

/// The longest datagram over IPv4.
const MAX_DATAGRAM_BYTES: f64 = 65_507.0;

/// What a load cannot be told.
pub(super) fn possible_load(settings: &Settings, load: LoadKind) -> Result<(), Impossible> {
    let of_datagrams = matches!(load, LoadKind::Iperf3Udp | LoadKind::NetperfUdp);
    if of_datagrams
        && number(settings, "message_bytes").is_some_and(|bytes| bytes > MAX_DATAGRAM_BYTES)
    {
        return Err(Impossible {
            factor: "message_bytes",
            what: format!("a datagram holds at most {MAX_DATAGRAM_BYTES} bytes"),
            advice: "one that fits the path is not cut to pieces: `message_bytes = 1200`".into(),
        });
    }
    let both = settings.get("direction").is_some_and(|way| way == "both");
    if both && !matches!(load, LoadKind::Iperf3 | LoadKind::Iperf3Udp) {
        Err(Impossible {
            factor: "direction",
            what: format!("the load `{}` goes one way at a time", load.name()),
            advice: "`direction = \"forward\"` or \"reverse\", or a load of iperf3".into(),
        })
    } else {
        Ok(())
    }
}
