//! The two setkey files of a tunnel. They are results like the table: readable, and enough to repeat the tunnel by
//! hand.

use std::fs::File;
use std::io::Read;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crate::capture::EspKey;
use crate::contender::{Combine, Encapsulation, IpsecConfig, Mode};
use crate::fault::Fault;
use crate::gateway::Side;
use crate::testbed::Addresses;

/// Fresh keys for both directions, never used by another tunnel of any run.
pub(in crate::contender) struct Keys {
    to_right: Direction,
    to_left: Direction,
    /// Those that nothing uses, out and back.
    idle: Vec<[Direction; 2]>,
}

/// The keys of one direction.
pub(in crate::contender) struct Direction {
    spi: u32,
    cipher: String,
    hash: String,
    /// Of an AH whose hash is not the suite's; empty without one.
    ah: String,
}

/// One association of a direction.
pub(in crate::contender) struct Layer<'k> {
    /// `esp` or `ah`.
    pub protocol: &'static str,
    /// `tunnel` or `transport`.
    pub mode: &'static str,
    /// Its SPI.
    pub spi: u32,
    /// setkey's name of the cipher, if this layer has one.
    pub cipher: Option<&'static str>,
    /// Its key in hexadecimal.
    pub cipher_key: &'k str,
    /// setkey's name of the hash, if this layer has one.
    pub hash: Option<&'static str>,
    /// Its key in hexadecimal.
    pub hash_key: &'k str,
}

impl Keys {
    /// Draws keys from the system. SPIs begin at `spi + 1`.
    pub(crate) fn fresh(ipsec: &IpsecConfig, spi: u32) -> Result<Keys, Fault> {
        Ok(Keys {
            to_right: Direction::fresh(ipsec, spi + 1)?,
            to_left: Direction::fresh(ipsec, spi + 2)?,
            idle: (1..ipsec.associations)
                .map(|number| {
                    let spi = IDLE_SPI + 2 * number;
                    let out = Direction::fresh(ipsec, spi)?;
                    Ok([out, Direction::fresh(ipsec, spi + 1)?])
                })
                .collect::<Result<_, Fault>>()?,
        })
    }

    /// From where to where each direction goes.
    pub(crate) fn directions(&self, map: &Addresses) -> [(IpAddr, IpAddr, &Direction); 2] {
        [
            (map.left, map.right, &self.to_right),
            (map.right, map.left, &self.to_left),
        ]
    }

    /// The same for every association of one gateway, idle ones last: their peers do not exist.
    pub(crate) fn all(
        &self,
        side: Side,
        map: &Addresses,
    ) -> impl Iterator<Item = (IpAddr, IpAddr, &Direction)> {
        let own = match side {
            Side::Left => map.left,
            Side::Right => map.right,
        };
        let idle = self.idle.iter().zip(1..);
        let idle = idle.flat_map(move |([out, back], number)| {
            let peer = other_peer(own, number);
            [(own, peer, out), (peer, own, back)]
        });
        self.directions(map).into_iter().chain(idle)
    }

    /// The file of one gateway: both read the same SAs that carry, and mirrored policies.
    pub(crate) fn text(&self, ipsec: &IpsecConfig, side: Side, map: &Addresses) -> String {
        let (left, right) = (map.left, map.right);
        let (near, far) = (&map.left_network, &map.right_network);
        let (to_right, to_left) = match side {
            Side::Left => ("out", "in"),
            Side::Right => ("in", "out"),
        };
        let how = match (ipsec.suite.is_ah(), ipsec.encapsulation) {
            (true, _) => "",
            (_, Encapsulation::Udp) => "ESP in UDP, ",
            (_, Encapsulation::Native) => "ESP, ",
        };
        let (there, back) = (
            rule(ipsec, &format!("{left}-{right}")),
            rule(ipsec, &format!("{right}-{left}")),
        );
        let associations = self.all(side, map);
        let associations: String = associations
            .map(|(from, to, keys)| add(ipsec, &format!("{from} {to}"), keys))
            .collect();
        format!(
            "# The {} gateway: {near} and {far} are connected through {how}{}.\n\
             # Start it with: esplanade run --setkey THIS_FILE\n\
             {associations}\
             spdadd {near} {far} any -P {to_right} ipsec {there};\n\
             spdadd {far} {near} any -P {to_left} ipsec {back};\n",
            side.name(),
            ipsec.suite.label,
        )
    }

    /// What opens the capture, where an analyser can open it.
    pub(crate) fn wireshark_keys(&self, ipsec: &IpsecConfig, map: &Addresses) -> Vec<EspKey> {
        let Some(names) = ipsec.suite.wireshark.filter(|_| !ipsec.is_bundle()) else {
            return Vec::new();
        };
        let directions = self.directions(map).into_iter();
        directions
            .map(|(from, to, keys)| keys.wireshark_key(from.to_string(), to.to_string(), names))
            .collect()
    }
}

fn rule(ipsec: &IpsecConfig, ends: &str) -> String {
    let own = match ipsec.mode {
        Mode::Tunnel => format!("tunnel/{ends}/require"),
        Mode::Transport => "transport//require".into(),
    };
    let (compressing, own) = if ipsec.compression {
        (format!("ipcomp/{own} "), "transport//require".into())
    } else {
        (String::new(), own)
    };
    let protecting = match (ipsec.suite.is_ah(), ipsec.is_bundle()) {
        (true, _) => format!("ah/{own}"),
        (_, false) => format!("esp/{own}"),
        (_, true) => format!("esp/{own} ah/transport//require"),
    };
    compressing + &protecting
}

fn add(ipsec: &IpsecConfig, ends: &str, direction: &Direction) -> String {
    let algorithm = |option: &str, name: Option<&str>, key: &str| match (name, key) {
        (None, _) => String::new(),
        (Some(name), "") => format!(" {option} {name}"),
        (Some(name), key) => format!(" {option} {name} 0x{key}"),
    };
    let esn = if ipsec.esn { " -o esn=yes" } else { "" };
    let layers = direction.layers(ipsec).into_iter();
    let line = |layer: Layer<'_>| {
        let protocol = match (layer.protocol, ipsec.encapsulation) {
            ("esp", Encapsulation::Udp) => "esp-udp",
            (protocol, _) => protocol,
        };
        format!(
            "add {ends} {protocol} 0x{:04x} -m {} -r {}{esn}{}{};\n",
            layer.spi,
            layer.mode,
            ipsec.window,
            algorithm("-E", layer.cipher, layer.cipher_key),
            algorithm("-A", layer.hash, layer.hash_key),
        )
    };
    let compressing = if ipsec.compression {
        format!(
            "add {ends} ipcomp 0x{:04x} -m {} -C deflate;\n",
            direction.spi + CPI,
            ipsec.mode.word()
        )
    } else {
        String::new()
    };
    compressing + &layers.map(line).collect::<String>()
}

impl Direction {
    fn fresh(ipsec: &IpsecConfig, spi: u32) -> Result<Direction, Fault> {
        Ok(Direction {
            spi,
            cipher: random_hex(ipsec.suite.cipher_key)?,
            hash: random_hex(ipsec.suite.hash_key)?,
            ah: match ipsec.combine {
                Combine::EspAuthInAhMd5 => random_hex(MD5_KEY_BYTES)?,
                Combine::EspAuth | Combine::EspAndAh => String::new(),
            },
        })
    }

    /// The associations of this direction, the inner one first.
    pub(crate) fn layers(&self, ipsec: &IpsecConfig) -> Vec<Layer<'_>> {
        let named = |name: &'static str| Some(name).filter(|name| !name.is_empty());
        let suite = ipsec.suite;
        // The tunnel is IPComp's, and what it makes is protected as it is.
        let mode = if ipsec.compression {
            Mode::Transport.word()
        } else {
            ipsec.mode.word()
        };
        let whole = Layer {
            protocol: if suite.is_ah() { "ah" } else { "esp" },
            mode,
            spi: self.spi,
            cipher: named(suite.cipher),
            cipher_key: &self.cipher,
            hash: named(suite.hash),
            hash_key: &self.hash,
        };
        match ipsec.combine {
            Combine::EspAuth => vec![whole],
            Combine::EspAndAh => {
                let inner = Layer {
                    hash: None,
                    hash_key: "",
                    ..whole
                };
                vec![inner, self.outer(suite.hash, &self.hash)]
            }
            Combine::EspAuthInAhMd5 => vec![whole, self.outer("hmac-md5", &self.ah)],
        }
    }

    /// The AH around the ESP of a bundle.
    fn outer<'k>(&self, hash: &'static str, hash_key: &'k str) -> Layer<'k> {
        Layer {
            protocol: "ah",
            mode: "transport",
            spi: self.spi + AH_SPI,
            cipher: None,
            cipher_key: "",
            hash: Some(hash),
            hash_key,
        }
    }

    fn wireshark_key(
        &self,
        source: String,
        destination: String,
        (cipher, hash): (&'static str, &'static str),
    ) -> EspKey {
        EspKey {
            source,
            destination,
            spi: self.spi,
            cipher,
            cipher_key: self.cipher.clone(),
            hash,
            hash_key: self.hash.clone(),
        }
    }
}

/// A peer of an idle association, with an address for benchmarks (RFC 2544 C.2.2, RFC 5180 8).
fn other_peer(own: IpAddr, number: u32) -> IpAddr {
    match own {
        IpAddr::V4(_) => {
            Ipv4Addr::from_bits(Ipv4Addr::new(198, 18, 0, 0).to_bits() + number).into()
        }
        IpAddr::V6(_) => {
            let first = Ipv6Addr::new(0x2001, 2, 0, 0, 0, 0, 0, 0);
            Ipv6Addr::from_bits(first.to_bits() + u128::from(number)).into()
        }
    }
}

/// Where the SPIs of idle associations begin: far above those of any run's contenders.
const IDLE_SPI: u32 = 0x10_0000;
/// Of the key of HMAC-MD5.
const MD5_KEY_BYTES: usize = 16;
/// How far the CPI of IPComp is from the SPI of what protects it.
const CPI: u32 = 0x40;
/// How far the SPI of a bundle's AH is from that of its ESP.
const AH_SPI: u32 = 0x80;

/// So many bytes from the system, in hexadecimal.
pub(super) fn random_hex(length: usize) -> Result<String, Fault> {
    let mut key = vec![0; length];
    File::open("/dev/urandom")
        .and_then(|mut source| source.read_exact(&mut key))
        .map_err(|error| Fault::failed(format!("cannot draw keys from /dev/urandom: {error}")))?;
    Ok(key.iter().map(|byte| format!("{byte:02x}")).collect())
}

#[cfg(test)]
mod tests;
