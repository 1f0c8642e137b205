//! From words to things: a cell's settings become a contender, the ground it stands on and the load that fills it.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use super::factor::Settings;
use super::{Cell, Spec, imix};
use crate::contender::{
    BORINGTUN, Contender, Encapsulation, Esplanade, FLAGS, KernelLibipsec, KernelWireguard,
    KernelXfrm, Manner, Mode, OpenVpn, Plain, USUAL_WINDOW, UserSpaceWireguard, WIREGUARD_GO,
    Wrapping,
};
use crate::experiment::Case;
use crate::fault::Fault;
use crate::ideal::{self, Layers};
use crate::load::{
    Asked, Direction, Frames, Iperf3, Load, LoadedRoundTrip, Protocol, RoundTrip, Search,
};
use crate::suite::{self, SUITES, Suite};
use crate::testbed::{Families, Ground, Impairment, Path, Receiving, Shape, Tcp, Topology};

/// Where our own programs are.
#[derive(Debug, Clone, Default)]
pub struct Programs {
    /// `esplanade`, if it was found.
    pub esplanade: Option<PathBuf>,
    /// `esplanade-lab` itself, whose small tools run on the hosts.
    pub lab: PathBuf,
}

/// A contender with everything that tells it from its neighbours.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Kind {
    Plain,
    Esplanade { wrapping: Wrapping, manner: Manner },
    KernelLibipsec { wrapping: Wrapping },
    KernelXfrm { wrapping: Wrapping, pcrypt: bool },
    WireguardGo,
    Boringtun,
    KernelWireguard,
    OpenVpn { suite: &'static Suite },
}

/// Something that cannot exist, and because of which factor.
pub(super) struct Impossible {
    pub factor: &'static str,
    pub what: String,
    pub advice: String,
}

impl Kind {
    pub fn new(kind: &str, settings: &Settings, load: &str) -> Result<Kind, Impossible> {
        possible_ground(kind, settings)?;
        possible_load(settings, load)?;
        Ok(match kind {
            "esplanade" => Kind::Esplanade {
                wrapping: wrapping(kind, settings)?,
                manner: Manner {
                    flags: FLAGS
                        .iter()
                        .filter_map(|(name, _)| Some((*name, settings.get(name)?.clone())))
                        .collect(),
                    rekey: number(settings, "rekey_ms").map(|ms| Duration::from_millis(ms as u64)),
                },
            },
            "kernel-libipsec" => Kind::KernelLibipsec {
                wrapping: libipsec(wrapping(kind, settings)?)?,
            },
            "kernel-xfrm" => Kind::KernelXfrm {
                wrapping: wrapping(kind, settings)?,
                pcrypt: pcrypt(settings)?,
            },
            "wireguard-go" => Kind::WireguardGo,
            "boringtun" => Kind::Boringtun,
            "kernel-wireguard" => Kind::KernelWireguard,
            "openvpn" => Kind::OpenVpn {
                suite: openvpn(settings)?,
            },
            _ => Kind::Plain,
        })
    }

    /// The contender's id, as it says it itself; offloads of the wire are told apart by it too, because they are part of
    /// the question.
    pub fn id(&self, settings: &Settings) -> String {
        let name = match self {
            Kind::Plain => "plain".into(),
            Kind::Esplanade { wrapping, manner } => Esplanade::name(wrapping, manner),
            Kind::KernelLibipsec { wrapping } => format!("kernel-libipsec-{}", wrapping.suite.name),
            Kind::KernelXfrm { wrapping, pcrypt } => KernelXfrm::name(wrapping, *pcrypt),
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

    fn contender(&self, programs: &Programs, order: usize) -> Result<Box<dyn Contender>, Fault> {
        Ok(match self {
            Kind::Plain => Box::new(Plain),
            Kind::Esplanade { wrapping, manner } => {
                let (program, wrapping) = (programs.esplanade.clone(), wrapping.clone());
                let manner = manner.clone();
                Box::new(Esplanade::new(
                    program,
                    &programs.lab,
                    wrapping,
                    manner,
                    order,
                )?)
            }
            Kind::KernelLibipsec { wrapping } => Box::new(
                KernelLibipsec::new(wrapping.suite)
                    .ok_or_else(|| Fault::failed("a spec let an impossible suite through"))?,
            ),
            Kind::KernelXfrm { wrapping, pcrypt } => {
                let lab = &programs.lab;
                Box::new(KernelXfrm::new(wrapping.clone(), *pcrypt, lab, order)?)
            }
            Kind::WireguardGo => Box::new(UserSpaceWireguard::find(&WIREGUARD_GO, &programs.lab)),
            Kind::Boringtun => Box::new(UserSpaceWireguard::find(&BORINGTUN, &programs.lab)),
            Kind::KernelWireguard => Box::new(KernelWireguard),
            Kind::OpenVpn { suite } => Box::new(
                OpenVpn::new(suite)
                    .ok_or_else(|| Fault::failed("a spec let an impossible suite through"))?,
            ),
        })
    }

    fn layers(&self) -> Layers<'_> {
        match self {
            Kind::Plain => Layers::Plain,
            Kind::Esplanade { wrapping, .. }
            | Kind::KernelLibipsec { wrapping }
            | Kind::KernelXfrm { wrapping, .. } => Layers::Ipsec(wrapping),
            Kind::WireguardGo | Kind::Boringtun | Kind::KernelWireguard => Layers::Wireguard,
            Kind::OpenVpn { .. } => Layers::OpenVpn,
        }
    }
}

fn wrapping(kind: &str, settings: &Settings) -> Result<Wrapping, Impossible> {
    let names = || SUITES.map(|suite| suite.name).join(", ");
    let suite = settings.get("suite").and_then(|name| suite::find(name));
    let suite = suite.ok_or_else(|| Impossible {
        factor: "suite",
        what: format!("this contender (`{kind}`) needs a suite"),
        advice: format!("add `suite = \"aes-128-gcm\"`, or another of {}", names()),
    })?;
    let word = |name| settings.get(name).map(String::as_str);
    let wrapping = Wrapping {
        suite,
        mode: match word("mode") {
            Some("transport") => Mode::Transport,
            None if is_pair(settings) => Mode::Transport,
            _ => Mode::Tunnel,
        },
        encapsulation: match (word("encapsulation"), kind) {
            (Some("native"), _) => Encapsulation::Native,
            (None, "kernel-xfrm") => Encapsulation::Native,
            _ => Encapsulation::Udp,
        },
        bundle: word("combine") == Some("esp+ah"),
        window: number(settings, "window").map_or(USUAL_WINDOW, |window| window as u32),
        associations: number(settings, "sas").map_or(1, |sas| sas as u32),
        esn: flag(settings, "esn").unwrap_or(false),
    };
    let wrapping = match (wrapping.uses_ah(), word("encapsulation")) {
        (true, Some("udp")) => {
            return Err(Impossible {
                factor: "encapsulation",
                what: format!("AH does not go in UDP: {}", wrapping.suite.name),
                advice: "`encapsulation = \"native\"`".into(),
            });
        }
        (true, _) => Wrapping {
            encapsulation: Encapsulation::Native,
            ..wrapping
        },
        _ => wrapping,
    };
    if wrapping.mode == Mode::Transport && !is_pair(settings) {
        return Err(Impossible {
            factor: "mode",
            what: "transport mode protects two hosts, and this testbed has a gateway before each"
                .into(),
            advice: "`mode = \"tunnel\"`, or `kind = \"pair\"` in [testbed]".into(),
        });
    }
    if wrapping.bundle && (suite.hash.is_empty() || suite.cipher.is_empty()) {
        return Err(Impossible {
            factor: "combine",
            what: format!(
                "a bundle is a cipher and a hash, and `{}` is not both",
                suite.name
            ),
            advice: "`combine = \"esp-auth\"`, or a suite such as \"aes-128-cbc-sha1\"".into(),
        });
    }
    Ok(wrapping)
}

fn is_pair(settings: &Settings) -> bool {
    settings.get("testbed").is_some_and(|kind| kind == "pair")
}

/// Grounds that no contender, or not this one, can stand on.
fn possible_ground(kind: &str, settings: &Settings) -> Result<(), Impossible> {
    let joins_networks = !matches!(kind, "plain" | "esplanade" | "kernel-xfrm");
    if is_pair(settings) && joins_networks {
        return Err(Impossible {
            factor: "testbed",
            what: format!("`{kind}` joins networks, and this testbed has two hosts alone"),
            advice: "`kind = \"gateways\"` in [testbed]".into(),
        });
    }
    possible_families(kind, settings)?;
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

fn families(settings: &Settings) -> Families {
    let written = settings.get("families");
    written
        .and_then(|word| Families::read(word))
        .unwrap_or_default()
}

/// Who cannot carry one family in another, or IPv6 at all.
fn possible_families(kind: &str, settings: &Settings) -> Result<(), Impossible> {
    let asked = families(settings);
    let impossible = |what: String, advice: &str| {
        Err(Impossible {
            factor: "families",
            what,
            advice: advice.into(),
        })
    };
    let narrows = settings.keys().any(|name| name.starts_with("path."));
    match asked == Families::default() {
        true => Ok(()),
        false if kind == "kernel-libipsec" => impossible(
            "the lab sets strongSwan's kernel-libipsec up for IPv4 alone".into(),
            "`families = \"4in4\"`",
        ),
        false if narrows => impossible(
            "the router of a path that narrows knows IPv4 alone".into(),
            "`families = \"4in4\"`",
        ),
        false if !asked.are_one() && kind == "plain" => impossible(
            "plain IP is of one family, on the wire as inside".into(),
            "`families = \"4in4\"` or \"6in6\"",
        ),
        false if !asked.are_one() && is_pair(settings) => impossible(
            "two hosts alone have one family, on the wire as inside".into(),
            "`families = \"4in4\"` or \"6in6\", or `kind = \"gateways\"` in [testbed]",
        ),
        false => Ok(()),
    }
}

/// What a load cannot be told.
fn possible_load(settings: &Settings, load: &str) -> Result<(), Impossible> {
    let both = settings.get("direction").is_some_and(|way| way == "both");
    match both && !matches!(load, "iperf3" | "iperf3-udp") {
        false => Ok(()),
        true => Err(Impossible {
            factor: "direction",
            what: format!("the load `{load}` goes one way at a time"),
            advice: "`direction = \"forward\"` or \"reverse\", or a load of iperf3".into(),
        }),
    }
}

fn libipsec(wrapping: Wrapping) -> Result<Wrapping, Impossible> {
    if wrapping.suite.strongswan.is_some() {
        return Ok(wrapping);
    }
    let able = SUITES.iter().filter(|suite| suite.strongswan.is_some());
    let able: Vec<&str> = able.map(|suite| suite.name).collect();
    let name = wrapping.suite.name;
    Err(Impossible {
        factor: "suite",
        what: format!("strongSwan's kernel-libipsec cannot do `{name}`"),
        advice: format!("it can do {}", able.join(", ")),
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
            advice: "`pcrypt = false`, or a suite of ESP".into(),
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
        what: format!("OpenVPN cannot do `{name}` here"),
        advice: format!("it can do {}", able.join(", ")),
    })
}

impl Spec {
    /// What is measured, ready to start.
    pub fn cases(&self, programs: &Programs) -> Result<Vec<Case>, Fault> {
        let cells = self.cells.iter().enumerate();
        cells
            .map(|(order, cell)| {
                let contender = cell.kind.contender(programs, order)?;
                Ok(Case {
                    id: cell.id.clone(),
                    label: cell.label(contender.label()),
                    ideal_bps: cell.ideal_bps(),
                    contender,
                    ground: cell.ground(programs),
                    load: cell.load(programs),
                    duration: cell.duration.unwrap_or(self.duration),
                    factors: cell.factors(),
                })
            })
            .collect()
    }
}

impl Cell {
    /// Every factor of it, for the record.
    pub fn factors(&self) -> BTreeMap<String, String> {
        let settings = self.settings.iter();
        let mut factors: BTreeMap<String, String> = settings
            .map(|(name, value)| ((*name).to_owned(), value.clone()))
            .collect();
        factors.entry("mtu".into()).or_insert_with(|| "1500".into());
        factors.insert("load".into(), self.load.clone());
        if let Some(part) = &self.part {
            factors.insert("part".into(), part.clone());
        }
        factors
    }

    /// Whether it stands on two hosts alone.
    pub(super) fn is_of_a_pair(&self) -> bool {
        is_pair(&self.settings)
    }

    fn number(&self, name: &str) -> Option<f64> {
        number(&self.settings, name)
    }

    fn ground(&self, programs: &Programs) -> Ground {
        Ground {
            topology: match is_pair(&self.settings) {
                true => Topology::Pair,
                false => Topology::Gateways,
            },
            families: families(&self.settings),
            mtu: self.number("mtu").map_or(1500, |mtu| mtu as u32),
            wire_offloads: flag(&self.settings, "offloads").unwrap_or(true),
            shape: self.number("link.rate_mbit").map(|rate| Shape {
                bits_per_second: rate * 1e6,
                burst_bytes: self.number("link.burst_bytes").map(|burst| burst as u32),
                latency_ms: self.number("link.latency_ms"),
            }),
            tcp: Tcp {
                timestamps: flag(&self.settings, "tcp.timestamps"),
                window_scaling: flag(&self.settings, "tcp.window_scaling"),
                sack: flag(&self.settings, "tcp.sack"),
                buffer_bytes: self.number("tcp.buffer_bytes").map(|bytes| bytes as u64),
            },
            gro_flush_timeout_ns: self.number("gro_flush_timeout_ns").map(|ns| ns as u64),
            napi_defer_hard_irqs: self.number("napi_defer_hard_irqs").map(|irqs| irqs as u32),
            receiving: Receiving {
                early_demux: flag(&self.settings, "ip_early_demux"),
                udp_gro_forwarding: flag(&self.settings, "rx_udp_gro_forwarding"),
                gro_list: flag(&self.settings, "rx_gro_list"),
                steered_to: self.settings.get("rps_cpus").cloned(),
            },
            impairment: self.impairment(programs),
            path: self.number("path.mtu").map(|mtu| Path {
                mtu: mtu as u32,
                after_s: self.number("path.after_s").unwrap_or(1.0),
                answers: flag(&self.settings, "path.answers").unwrap_or(true),
            }),
            processors: self.settings.get("cpus").cloned(),
        }
    }

    fn impairment(&self, programs: &Programs) -> Option<Impairment> {
        let share = |name| self.number(name).unwrap_or(0.0) / 100.0;
        let asked = self.settings.keys().any(|name| name.starts_with("impair."));
        asked.then(|| Impairment {
            program: programs.lab.clone(),
            delay_ms: self.number("impair.delay_ms").unwrap_or(0.0),
            loss: share("impair.loss_percent"),
            duplicate: share("impair.duplicate_percent"),
            reorder: share("impair.reorder_percent"),
            seed: self.number("impair.seed").map_or(1, |seed| seed as u64),
        })
    }

    fn load(&self, programs: &Programs) -> Box<dyn Load> {
        let number =
            |name: &str, usual: u32| self.number(name).map_or(usual, |number| number as u32);
        let request = number("request_bytes", 64);
        let direction = self.direction();
        let stream = Iperf3 {
            protocol: match self.load.as_str() {
                "iperf3-udp" => Protocol::Udp {
                    offered_mbit: self.number("offered_mbit").unwrap_or(100.0),
                },
                _ => Protocol::Tcp,
            },
            warm_up_megabytes: number("warm_up_megabytes", 8),
            message_bytes: self.number("message_bytes").map(|bytes| bytes as u32),
            nodelay: flag(&self.settings, "nodelay").unwrap_or(false),
            streams: number("streams", 1),
            direction,
        };
        match self.load.as_str() {
            "round-trip" => Box::new(RoundTrip::new(&programs.lab, request, Asked::ByDatagram)),
            "connections" => Box::new(RoundTrip::new(&programs.lab, request, Asked::ByConnection)),
            "loaded-round-trip" => Box::new(LoadedRoundTrip::new(&programs.lab, request, stream)),
            "frames" | "steady" => Box::new(Frames {
                program: programs.lab.clone(),
                direction,
                frame_bytes: match self.settings.get("imix") {
                    Some(genome) => imix::sizes(genome),
                    None => vec![number("frame_bytes", 1518)],
                },
                search: match self.settings.get("search").map(String::as_str) {
                    _ if self.load == "steady" => {
                        Search::Steady(self.number("rate_pps").unwrap_or(1000.0))
                    }
                    Some("pdr") => Search::Pdr,
                    _ => Search::Ndr,
                },
            }),
            _ => Box::new(stream),
        }
    }

    fn direction(&self) -> Direction {
        match self.settings.get("direction").map(String::as_str) {
            Some("reverse") => Direction::Reverse,
            Some("both") => Direction::Both,
            _ => Direction::Forward,
        }
    }

    fn label(&self, contender: &str) -> String {
        match flag(&self.settings, "offloads") {
            Some(false) => format!("{contender}, offloads off on the wire"),
            _ => contender.to_owned(),
        }
    }

    /// The bits of user data per second that this cell could carry at most, where its link has a rate.
    pub fn ideal_bps(&self) -> Option<f64> {
        let link = self.number("link.rate_mbit")? * 1e6;
        let mtu = self.number("mtu").map_or(1500, |mtu| mtu as u32);
        let timestamps = flag(&self.settings, "tcp.timestamps").unwrap_or(true);
        let ways = match self.direction() {
            Direction::Both => 2.0,
            Direction::Forward | Direction::Reverse => 1.0,
        };
        match self.load.as_str() {
            // The link carries its rate each way.
            "iperf3" => {
                let families = families(&self.settings);
                ideal::tcp(self.kind.layers(), families, mtu, timestamps, link)
                    .map(|one| one * ways)
            }
            _ => None,
        }
    }
}

fn number(settings: &Settings, name: &str) -> Option<f64> {
    settings.get(name)?.parse().ok()
}

fn flag(settings: &Settings, name: &str) -> Option<bool> {
    settings.get(name)?.parse().ok()
}
