//! The configuration of an IPsec tunnel: suite, mode, encapsulation, bundle; and the packet lengths that follow from
//! it.

use std::collections::BTreeMap;

use super::Protection;
use crate::suite::Suite;
use crate::testbed::Family;

/// The configuration of an IPsec tunnel.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IpsecConfig {
    /// Cipher and integrity.
    pub suite: &'static Suite,
    /// Tunnel or transport.
    pub mode: Mode,
    /// In UDP or on its own.
    pub encapsulation: Encapsulation,
    /// What authenticates.
    pub combine: Combine,
    /// Whether IPComp compresses before ESP or AH protects (RFC 3173), by DEFLATE.
    pub compression: bool,
    /// Anti-replay window in packets; 0 switches the check off.
    pub window: u32,
    /// Extended sequence numbers.
    pub esn: bool,
    /// Associations in each direction. One carries traffic, the others are idle.
    pub associations: u32,
}

/// IPsec modes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// A whole packet inside.
    Tunnel,
    /// The payload of a packet inside.
    Transport,
}

impl Mode {
    /// Its word in specs, records and the setkey language.
    pub const fn word(self) -> &'static str {
        match self {
            Mode::Tunnel => "tunnel",
            Mode::Transport => "transport",
        }
    }
}

/// What carries ESP.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Encapsulation {
    /// UDP on port 4500.
    Udp,
    /// IP itself.
    Native,
}

/// What authenticates where a suite has a cipher and a hash.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Combine {
    /// ESP, one association.
    EspAuth,
    /// AH around an ESP that only encrypts, as two associations.
    EspAndAh,
    /// ESP, and AH with HMAC-MD5 around it: the listing of the study of Roy and Pourzandi.
    EspAuthInAhMd5,
}

impl Combine {
    /// All of them.
    pub const ALL: [Combine; 3] = [Combine::EspAuth, Combine::EspAndAh, Combine::EspAuthInAhMd5];

    /// Its word in specs and records.
    pub const fn word(self) -> &'static str {
        match self {
            Combine::EspAuth => "esp-auth",
            Combine::EspAndAh => "esp+ah",
            Combine::EspAuthInAhMd5 => "esp-auth+ah-md5",
        }
    }
}

/// The anti-replay window of IKE and of Esplanade's samples.
pub const DEFAULT_REPLAY_WINDOW: u32 = 1024;

/// What the factor `compression` says where IPComp compresses.
pub const COMPRESSION_WORD: &str = "deflate";

const UDP_HEADER_BYTES: u32 = 8;
/// RFC 2403 2: HMAC-MD5 is cut to 96 bits.
const AH_MD5_ICV_BYTES: u32 = 12;

impl IpsecConfig {
    /// The differences from tunnel-mode ESP with default values, for ids; `usual` is the encapsulation that is not
    /// named.
    pub fn suffix(&self, usual: Encapsulation) -> String {
        self.differences(usual)
            .iter()
            .map(|word| format!("-{word}"))
            .collect()
    }

    /// The same for a reader.
    pub fn note(&self, usual: Encapsulation) -> String {
        self.differences(usual)
            .iter()
            .map(|word| format!(", {word}"))
            .collect()
    }

    fn differences(&self, usual: Encapsulation) -> Vec<String> {
        let mut words = Vec::new();
        let mut word = |condition: bool, word: &str| {
            if condition {
                words.push(word.to_owned());
            }
        };
        word(self.is_bundle(), self.combine.word());
        let other = self.encapsulation != usual && !self.uses_ah();
        word(
            other && self.encapsulation == Encapsulation::Native,
            "native",
        );
        word(other && self.encapsulation == Encapsulation::Udp, "udp");
        word(self.mode == Mode::Transport, "transport");
        word(self.compression, COMPRESSION_WORD);
        word(self.esn, "esn");
        word(
            self.window != DEFAULT_REPLAY_WINDOW,
            &format!("window-{}", self.window),
        );
        word(self.associations > 1, &format!("sas-{}", self.associations));
        words
    }

    /// Every factor of it, for the record.
    pub fn factors(&self) -> BTreeMap<String, String> {
        let word = |condition: bool, one: &str, other: &str| {
            if condition { one } else { other }.to_owned()
        };
        let mut all = BTreeMap::from([
            ("suite".into(), self.suite.name.into()),
            ("mode".into(), self.mode.word().into()),
            (
                "encapsulation".into(),
                word(self.encapsulation == Encapsulation::Udp, "udp", "native"),
            ),
            ("combine".into(), self.combine.word().into()),
            ("window".into(), self.window.to_string()),
            ("esn".into(), self.esn.to_string()),
        ]);
        if self.compression {
            all.insert("compression".into(), COMPRESSION_WORD.into());
        }
        all
    }

    /// Its declared protection on the wire.
    pub fn protection(&self) -> Protection {
        if self.suite.hides() {
            Protection::Secret
        } else {
            Protection::Readable
        }
    }

    /// Whether there are two associations, of ESP and of AH around it.
    pub fn is_bundle(&self) -> bool {
        self.combine != Combine::EspAuth
    }

    /// Whether AH is on the wire.
    pub fn uses_ah(&self) -> bool {
        self.is_bundle() || self.suite.is_ah()
    }

    /// The length on the wire, from the outer IP header on, of a packet of this length, padding and all. Transport mode
    /// keeps the packet's own header outside. What does not become shorter travels without an IPComp header, so this is
    /// the longest with compression.
    pub fn wrapped(&self, packet: u32, outer: Family) -> u32 {
        let udp = match self.encapsulation {
            Encapsulation::Udp => UDP_HEADER_BYTES,
            Encapsulation::Native => 0,
        };
        let ah = if self.uses_ah() { self.ah(outer) } else { 0 };
        let inside = match self.mode {
            Mode::Tunnel => packet,
            Mode::Transport => packet.saturating_sub(outer.header()),
        };
        let esp = if self.suite.is_ah() {
            inside
        } else {
            self.esp(inside)
        };
        outer.header() + udp + ah + esp
    }

    /// RFC 4302 2.6: a multiple of four bytes in IPv4, of eight in IPv6.
    fn ah(&self, outer: Family) -> u32 {
        let unit = match outer {
            Family::V4 => 4,
            Family::V6 => 8,
        };
        let icv = match self.combine {
            Combine::EspAuthInAhMd5 => AH_MD5_ICV_BYTES,
            Combine::EspAuth | Combine::EspAndAh => self.suite.hash_icv(),
        };
        (12 + icv).next_multiple_of(unit)
    }

    /// RFC 4303 2: SPI and sequence number, IV, payload, padding up to the cipher's block and to 4 bytes, pad length
    /// and next header, ICV.
    fn esp(&self, payload: u32) -> u32 {
        let hash_icv = match self.combine {
            Combine::EspAndAh => 0,
            Combine::EspAuth | Combine::EspAuthInAhMd5 => self.suite.hash_icv(),
        };
        let icv = self.suite.cipher_icv() + hash_icv;
        let padded = (payload + 2).next_multiple_of(self.suite.block().max(4));
        8 + self.suite.iv() + padded + icv
    }
}
