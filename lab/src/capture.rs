//! Frames captured on an interface, and the small capture that is part of the results: a pcap of the wire between the
//! gateways and a Wireshark profile with the keys. The keys were generated for one run in namespaces that no longer
//! exist, so they can be published.

mod frame;
mod pcap;
mod segments;

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use crate::fault::Fault;

pub use frame::Frame;
pub use segments::to_wire_frames;

/// What a packet analyser must know to read one direction of a tunnel.
#[derive(Clone, PartialEq, Eq)]
pub struct EspKey {
    /// Outer source address.
    pub source: String,
    /// Outer destination address.
    pub destination: String,
    /// Security parameter index.
    pub spi: u32,
    /// The analyser's name of the cipher.
    pub cipher: &'static str,
    /// Key in hexadecimal, without `0x`; with the salt for counter modes.
    pub cipher_key: String,
    /// The analyser's name of the integrity algorithm.
    pub hash: &'static str,
    /// Key in hexadecimal.
    pub hash_key: String,
}

impl EspKey {
    /// The line of Wireshark's `esp_sa` table.
    fn table_line(&self) -> String {
        let hex = |key: &str| {
            if key.is_empty() {
                String::new()
            } else {
                format!("0x{key}")
            }
        };
        format!(
            "\"IPv4\",\"{}\",\"{}\",\"0x{:08x}\",\"{}\",\"{}\",\"{}\",\"{}\"\n",
            self.source,
            self.destination,
            self.spi,
            self.cipher,
            hex(&self.cipher_key),
            self.hash,
            hex(&self.hash_key),
        )
    }
}

/// Writes packets of the wire between the gateways, up to a limit in total and for each contender.
pub struct CaptureWriter {
    pcap: pcap::Writer<File>,
    keys: PathBuf,
    limit: usize,
    share: usize,
    taken: BTreeMap<String, usize>,
}

/// Name of the capture among the results.
pub const CAPTURE_FILE: &str = "capture.pcap";
/// Name of the Wireshark profile among the results.
pub const WIRESHARK_FOLDER: &str = "wireshark";

const WIRESHARK_PREFERENCES: &str =
    "# Lets Wireshark decrypt ESP with the keys in esp_sa, and check its ICVs.
esp.enable_encryption_decode: TRUE
esp.enable_authentication_check: TRUE
";

impl CaptureWriter {
    /// Creates a capture in `folder` of at most `limit` packets, with an equal share for each of the `contenders`.
    pub fn create(folder: &Path, limit: usize, contenders: usize) -> io::Result<CaptureWriter> {
        let profile = folder.join(WIRESHARK_FOLDER);
        fs::create_dir_all(&profile)?;
        fs::write(profile.join("preferences"), WIRESHARK_PREFERENCES)?;
        Ok(CaptureWriter {
            pcap: pcap::Writer::begin(File::create_new(folder.join(CAPTURE_FILE))?)?,
            keys: profile.join("esp_sa"),
            limit,
            share: limit / contenders.max(1),
            taken: BTreeMap::new(),
        })
    }

    /// Whether nothing of this contender is in it yet.
    pub fn wants(&self, contender: &str) -> bool {
        !self.taken.contains_key(contender)
    }

    /// Adds the first frames as a wire would carry them, and the keys that open them.
    pub fn add(&mut self, contender: &str, frames: &[Frame], keys: &[EspKey]) -> Result<(), Fault> {
        let room = self.limit.saturating_sub(self.taken.values().sum());
        let sent: Vec<Frame> = frames
            .iter()
            .flat_map(to_wire_frames)
            .take(self.share.min(room))
            .collect();
        self.taken.insert(contender.into(), sent.len());
        self.store(&sent, keys).map_err(|error| {
            Fault::failed(format!("cannot save the packets of {contender}: {error}"))
        })
    }

    fn store(&mut self, frames: &[Frame], keys: &[EspKey]) -> io::Result<()> {
        frames.iter().try_for_each(|frame| self.pcap.add(frame))?;
        let mut table = File::options().append(true).create(true).open(&self.keys)?;
        let lines: String = keys.iter().map(EspKey::table_line).collect();
        table.write_all(lines.as_bytes())
    }
}
