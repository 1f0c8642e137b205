//! The contender of a cell with its configuration.

use std::time::Duration;

use super::possible::{Impossible, is_pair, possible_load, possible_topology};
use crate::contender::{
    BORINGTUN, COMPRESSION_WORD, Combine, Contender, DEFAULT_REPLAY_WINDOW, Encapsulation,
    Esplanade, FLAGS, FLAGS_OF_THREADS, IpsecConfig, KernelLibipsec, KernelWireguard, KernelXfrm,
    Keying, Mode, OpenVpn, Plain, RunOptions, UserSpaceWireguard, WIREGUARD_GO, cannot_negotiate,
};
use crate::fault::Fault;
use crate::ideal::Layers;
use crate::spec::Programs;
use crate::spec::kinds::{ContenderKind, LoadKind, Named};
use crate::spec::settings::{Settings, flag, number};
use crate::suite::{self, SUITES, Suite};

/// A contender with its configuration.
#[derive(Debug, Clone, PartialEq)]
pub(in crate::spec) enum Kind {
    Plain,
    Esplanade {
        ipsec: IpsecConfig,
        options: RunOptions,
    },
    KernelLibipsec {
        ipsec: IpsecConfig,
    },
    KernelXfrm {
        ipsec: IpsecConfig,
        pcrypt: bool,
    },
    WireguardGo,
    Boringtun,
    KernelWireguard,
    OpenVpn {
        suite: &'static Suite,
    },
}

impl Kind {
    pub(crate) fn new(
        kind: ContenderKind,
        settings: &Settings,
        load: LoadKind,
    ) -> Result<Kind, Impossible> {
        possible_topology(kind, settings)?;
        possible_load(settings, load)?;
        Ok(match kind {
            ContenderKind::Esplanade => esplanade(ipsec(kind, settings)?, settings)?,
            ContenderKind::KernelLibipsec => Kind::KernelLibipsec {
                ipsec: libipsec(ipsec(kind, settings)?)?,
            },
            ContenderKind::KernelXfrm => Kind::KernelXfrm {
                ipsec: ipsec(kind, settings)?,
                pcrypt: pcrypt(settings)?,
            },
            ContenderKind::WireguardGo => Kind::WireguardGo,
            ContenderKind::Boringtun => Kind::Boringtun,
            ContenderKind::KernelWireguard => Kind::KernelWireguard,
            ContenderKind::OpenVpn => Kind::OpenVpn {
                suite: openvpn(settings)?,
            },
            ContenderKind::Plain => Kind::Plain,
        })
    }

    /// The contender's id; disabled offloads of the wire are part of it.
    pub(crate) fn id(&self, settings: &Settings) -> String {
        let name = match self {
            Kind::Plain => "plain".into(),
            Kind::Esplanade { ipsec, options } => Esplanade::name(ipsec, options),
            Kind::KernelLibipsec { ipsec } => format!("kernel-libipsec-{}", ipsec.suite.name),
            Kind::KernelXfrm { ipsec, pcrypt } => KernelXfrm::name(ipsec, *pcrypt),
            Kind::WireguardGo => "wireguard-go".into(),
            Kind::Boringtun => "boringtun".into(),
            Kind::KernelWireguard => "kernel-wireguard".into(),
            Kind::OpenVpn { suite } => OpenVpn::name(suite),
        };
        match flag(settings, "offloads") {
            Some(false) => name + "-no-offloads",
            _ => name,
        }
    }

    pub(super) fn contender(
        &self,
        programs: &Programs,
        order: usize,
    ) -> Result<Box<dyn Contender>, Fault> {
        Ok(match self {
            Kind::Plain => Box::new(Plain),
            Kind::Esplanade { ipsec, options } => {
                let (program, ipsec) = (programs.esplanade.clone(), ipsec.clone());
                let options = options.clone();
                Box::new(Esplanade::new(
                    program,
                    &programs.lab,
                    ipsec,
                    options,
                    order,
                )?)
            }
            Kind::KernelLibipsec { ipsec } => {
                Box::new(KernelLibipsec::new(ipsec.suite).ok_or_else(|| {
                    Fault::failed("the suite is not supported; this is a bug of the lab")
                })?)
            }
            Kind::KernelXfrm { ipsec, pcrypt } => {
                let lab = &programs.lab;
                Box::new(KernelXfrm::new(ipsec.clone(), *pcrypt, lab, order)?)
            }
            Kind::WireguardGo => Box::new(UserSpaceWireguard::find(&WIREGUARD_GO, &programs.lab)),
            Kind::Boringtun => Box::new(UserSpaceWireguard::find(&BORINGTUN, &programs.lab)),
            Kind::KernelWireguard => Box::new(KernelWireguard),
            Kind::OpenVpn { suite } => Box::new(OpenVpn::new(suite).ok_or_else(|| {
                Fault::failed("the suite is not supported; this is a bug of the lab")
            })?),
        })
    }

    pub(super) fn compresses(&self) -> bool {
        matches!(self, Kind::Esplanade { ipsec, .. } if ipsec.compression)
    }

    pub(super) fn layers(&self) -> Layers<'_> {
        match self {
            Kind::Plain => Layers::Plain,
            Kind::Esplanade { ipsec, .. }
            | Kind::KernelLibipsec { ipsec }
            | Kind::KernelXfrm { ipsec, .. } => Layers::Ipsec(ipsec),
            Kind::WireguardGo | Kind::Boringtun | Kind::KernelWireguard => Layers::Wireguard,
            Kind::OpenVpn { .. } => Layers::OpenVpn,
        }
    }
}

fn esplanade(ipsec: IpsecConfig, settings: &Settings) -> Result<Kind, Impossible> {
    let flags = FLAGS
        .iter()
        .filter_map(|(name, _)| Some((*name, settings.get(name)?.clone())));
    let flags: Vec<_> = flags.collect();
    possible_plane(&flags, settings)?;
    let options = RunOptions {
        flags,
        keying: keying(&ipsec, settings)?,
        rekey: number(settings, "rekey_ms").map(|ms| Duration::from_millis(ms as u64)),
    };
    Ok(Kind::Esplanade { ipsec, options })
}

/// The most packets of the replay check that the kernel has.
const MAX_KERNEL_WINDOW: f64 = 4096.0;

/// What the kernel's plane cannot have.
fn possible_plane(flags: &[(&'static str, String)], settings: &Settings) -> Result<(), Impossible> {
    let by_kernel = ("plane", "kernel".to_owned());
    if !flags.contains(&by_kernel) {
        return Ok(());
    }
    let impossible = |factor: &'static str, what: &str, advice: &str| {
        Err(Impossible {
            factor,
            what: what.into(),
            advice: format!("{advice}, or `plane = \"user\"`"),
        })
    };
    let of_threads = |(name, _): &&(&'static str, String)| FLAGS_OF_THREADS.contains(name);
    if let Some((name, _)) = flags.iter().find(of_threads) {
        return impossible(
            name,
            "on the kernel's plane no thread of the gateway carries packets",
            &format!("leave `{name}` out"),
        );
    }
    if settings.contains_key("share") {
        return impossible(
            "share",
            "on the kernel's plane packets are carried mostly in softirqs, which no CPU quota limits",
            "leave `share` out",
        );
    }
    if number(settings, "window").is_some_and(|window| window > MAX_KERNEL_WINDOW) {
        return impossible(
            "window",
            "the kernel's replay windows have at most 4096 packets",
            "`window = 4096`",
        );
    }
    Ok(())
}

fn keying(ipsec: &IpsecConfig, settings: &Settings) -> Result<Keying, Impossible> {
    let negotiated = settings.get("keying").is_some_and(|word| word == "ike");
    match cannot_negotiate(ipsec).filter(|_| negotiated) {
        Some((factor, what)) => Err(Impossible {
            factor,
            what,
            advice: "`keying = \"hand\"`, or a suite such as \"aes-128-gcm\" alone".into(),
        }),
        None if negotiated => Ok(Keying::Ike),
        None => Ok(Keying::Hand),
    }
}

fn ipsec(kind: ContenderKind, settings: &Settings) -> Result<IpsecConfig, Impossible> {
    let names = || SUITES.map(|suite| suite.name).join(", ");
    let suite = settings.get("suite").and_then(|name| suite::find(name));
    let suite = suite.ok_or_else(|| Impossible {
        factor: "suite",
        what: format!("this contender (`{}`) needs a suite", kind.name()),
        advice: format!("add `suite = \"aes-128-gcm\"`, or another of {}", names()),
    })?;
    let word = |name| settings.get(name).map(String::as_str);
    let ipsec = IpsecConfig {
        suite,
        mode: match word("mode") {
            Some("transport") => Mode::Transport,
            None if is_pair(settings) => Mode::Transport,
            _ => Mode::Tunnel,
        },
        encapsulation: match (word("encapsulation"), kind) {
            (Some("native"), _) => Encapsulation::Native,
            (None, ContenderKind::KernelXfrm) => Encapsulation::Native,
            _ => Encapsulation::Udp,
        },
        combine: Combine::ALL
            .into_iter()
            .find(|combine| word("combine") == Some(combine.word()))
            .unwrap_or(Combine::EspAuth),
        window: number(settings, "window").map_or(DEFAULT_REPLAY_WINDOW, |window| window as u32),
        associations: number(settings, "sas").map_or(1, |sas| sas as u32),
        esn: flag(settings, "esn").unwrap_or(false),
        compression: kind == ContenderKind::Esplanade
            && word("compression") == Some(COMPRESSION_WORD),
    };
    if let Some(with) = ["sas", "rekey_ms"]
        .into_iter()
        .find(|with| ipsec.compression && settings.get(*with).is_some_and(|value| value != "1"))
    {
        return Err(Impossible {
            factor: "compression",
            what: format!("the lab does not compress with `{with}`"),
            advice: format!("`compression = \"none\"`, or leave `{with}` out"),
        });
    }
    let ipsec = match (ipsec.uses_ah(), word("encapsulation")) {
        (true, Some("udp")) => {
            return Err(Impossible {
                factor: "encapsulation",
                what: format!("AH cannot be encapsulated in UDP: {}", ipsec.suite.name),
                advice: "`encapsulation = \"native\"`".into(),
            });
        }
        (true, _) => IpsecConfig {
            encapsulation: Encapsulation::Native,
            ..ipsec
        },
        _ => ipsec,
    };
    if ipsec.mode == Mode::Transport && !is_pair(settings) {
        return Err(Impossible {
            factor: "mode",
            what: "transport mode is between two hosts; this testbed has gateways in front of the hosts"
                .into(),
            advice: "`mode = \"tunnel\"`, or `kind = \"pair\"` in [testbed]".into(),
        });
    }
    if ipsec.is_bundle() && (suite.hash.is_empty() || suite.cipher.is_empty()) {
        return Err(Impossible {
            factor: "combine",
            what: format!(
                "a bundle needs a cipher and a hash; `{}` is not both",
                suite.name
            ),
            advice: "`combine = \"esp-auth\"`, or a suite such as \"aes-128-cbc-sha1\"".into(),
        });
    }
    Ok(ipsec)
}

fn libipsec(ipsec: IpsecConfig) -> Result<IpsecConfig, Impossible> {
    if ipsec.suite.strongswan.is_some() {
        return Ok(ipsec);
    }
    let able = SUITES.iter().filter(|suite| suite.strongswan.is_some());
    let able: Vec<&str> = able.map(|suite| suite.name).collect();
    let name = ipsec.suite.name;
    Err(Impossible {
        factor: "suite",
        what: format!("strongSwan's kernel-libipsec does not support `{name}`"),
        advice: format!("it supports {}", able.join(", ")),
    })
}

fn pcrypt(settings: &Settings) -> Result<bool, Impossible> {
    let asked = flag(settings, "pcrypt").unwrap_or(false);
    let suite = settings.get("suite").and_then(|name| suite::find(name));
    match suite.filter(|suite| asked && suite.is_ah()) {
        None => Ok(asked),
        Some(suite) => Err(Impossible {
            factor: "pcrypt",
            what: format!(
                "pcrypt runs ciphers in parallel, and `{}` has none",
                suite.name
            ),
            advice: "`pcrypt = false`, or an ESP suite".into(),
        }),
    }
}

/// OpenVPN has a suite of its own choice, which is AES-128-GCM here.
fn openvpn(settings: &Settings) -> Result<&'static Suite, Impossible> {
    let name = settings.get("suite").map_or("aes-128-gcm", String::as_str);
    let able = OpenVpn::suites();
    let suite = suite::find(name).filter(|suite| able.contains(&suite.name));
    suite.ok_or_else(|| Impossible {
        factor: "suite",
        what: format!("OpenVPN does not support `{name}`"),
        advice: format!("it supports {}", able.join(", ")),
    })
}
