//! Reading and writing settings: files of the kernel, and features of devices by `ethtool`.

use std::fmt;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

/// One thing that can be read, and perhaps written.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Target {
    /// A file, by its whole path.
    File(String),
    /// A feature of a device, by `ethtool`'s name.
    Feature {
        /// The device.
        device: String,
        /// The feature.
        name: String,
    },
}

impl Target {
    pub(super) fn file(path: String) -> Self {
        Self::File(path)
    }

    pub(super) fn of_device(device: &str, file: &str) -> Self {
        Self::File(format!("/sys/class/net/{device}/{file}"))
    }

    /// The reverse of `Display`.
    pub(super) fn parse(text: &str) -> Option<Self> {
        if text.starts_with('/') {
            return Some(Self::File(text.to_owned()));
        }
        let (device, name) = text.strip_prefix("ethtool ")?.split_once(' ')?;
        Some(Self::Feature {
            device: device.to_owned(),
            name: name.to_owned(),
        })
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File(path) => f.write_str(path),
            Self::Feature { device, name } => write!(f, "ethtool {device} {name}"),
        }
    }
}

/// What was found at a target.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Reading {
    /// Its value, in the normal form in which values are compared.
    Value(String),
    /// A value that nothing can change.
    Fixed(String),
    /// This kernel or this device has none.
    Absent,
    /// It may exist; why it cannot be read.
    Unreadable(String),
}

/// A host whose settings are read and written.
pub(super) trait Host {
    fn read(&self, target: &Target) -> Reading;
    fn write(&self, target: &Target, value: &str) -> io::Result<()>;
    /// The names in a folder; none where there is no such folder.
    fn list(&self, folder: &str) -> Vec<String>;
    /// The network namespace that the files and features belong to.
    fn network(&self) -> String;
}

/// This machine, or a tree of files that looks like one.
pub(super) struct Machine {
    /// In front of every path.
    pub root: PathBuf,
    /// The program `ethtool`.
    pub ethtool: PathBuf,
}

impl Machine {
    pub(super) fn this() -> Self {
        Self {
            root: PathBuf::from("/"),
            ethtool: PathBuf::from("ethtool"),
        }
    }

    fn path(&self, path: &str) -> PathBuf {
        self.root.join(path.trim_start_matches('/'))
    }

    fn features(&self, device: &str) -> io::Result<String> {
        let output = Command::new(&self.ethtool).args(["-k", device]).output()?;
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }
}

impl Host for Machine {
    fn read(&self, target: &Target) -> Reading {
        match target {
            Target::File(path) => read_file(&self.path(path)),
            Target::Feature { device, name } => match self.features(device) {
                Ok(text) => feature(&text, name),
                Err(error) => Reading::Unreadable(without_ethtool(&error)),
            },
        }
    }

    fn write(&self, target: &Target, value: &str) -> io::Result<()> {
        match target {
            Target::File(path) => {
                // Never creates a file: a setting that no longer exists is not created.
                let mut file = fs::File::options()
                    .write(true)
                    .truncate(true)
                    .open(self.path(path))?;
                io::Write::write_all(&mut file, value.as_bytes())
            }
            Target::Feature { device, name } => {
                let words = ["-K", device, option(name), value];
                let output = Command::new(&self.ethtool).args(words).output()?;
                if output.status.success() {
                    Ok(())
                } else {
                    Err(said(&output.stderr))
                }
            }
        }
    }

    fn list(&self, folder: &str) -> Vec<String> {
        let entries = fs::read_dir(self.path(folder)).into_iter().flatten();
        entries
            .flatten()
            .map(|entry| entry.file_name().to_string_lossy().into_owned())
            .collect()
    }

    fn network(&self) -> String {
        let link = fs::read_link(self.path("/proc/self/ns/net"));
        link.map_or_else(|_| String::new(), |link| link.display().to_string())
    }
}

fn read_file(path: &Path) -> Reading {
    use io::ErrorKind::{InvalidInput, NotFound, Unsupported};
    match fs::read_to_string(path) {
        Ok(text) => Reading::Value(one_form(&text)),
        // Files of devices may exist and return EINVAL or EOPNOTSUPP: no value.
        Err(error) if matches!(error.kind(), NotFound | InvalidInput | Unsupported) => {
            Reading::Absent
        }
        Err(error) => Reading::Unreadable(error.to_string()),
    }
}

/// Single blanks between words; sets of processors without leading zeros.
pub(super) fn one_form(text: &str) -> String {
    let words: Vec<&str> = text.split_whitespace().collect();
    let text = words.join(" ");
    let is_mask = |text: &str| {
        let hex = |c: char| c.is_ascii_hexdigit();
        text.contains(',') && text.chars().all(|c| hex(c) || c == ',')
            || text.len() > 1 && text.starts_with('0') && text.chars().all(hex)
    };
    if !is_mask(&text) {
        return text;
    }
    match text.trim_start_matches(['0', ',']) {
        "" => "0".to_owned(),
        rest => rest.to_owned(),
    }
}

/// The line of a feature in what `ethtool -k` prints.
pub(super) fn feature(text: &str, name: &str) -> Reading {
    let line = text.lines().find_map(|line| {
        let (found, value) = line.trim().split_once(": ")?;
        (found == name).then_some(value)
    });
    match line {
        None => Reading::Absent,
        Some(value) => match value.split_once(" [") {
            Some((value, "fixed]")) => Reading::Fixed(value.to_owned()),
            Some((value, _)) => Reading::Value(value.to_owned()),
            None => Reading::Value(value.to_owned()),
        },
    }
}

/// The name for `ethtool -K` of a feature that `ethtool -k` shows: `-K` does not accept some of the long names.
fn option(name: &str) -> &str {
    match name {
        "rx-checksumming" => "rx",
        "tx-checksumming" => "tx",
        "scatter-gather" => "sg",
        "tcp-segmentation-offload" => "tso",
        "generic-segmentation-offload" => "gso",
        "generic-receive-offload" => "gro",
        other => other,
    }
}

fn without_ethtool(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::NotFound => "ethtool is missing: apt-get install ethtool".to_owned(),
        _ => format!("ethtool: {error}"),
    }
}

/// The error of a program that failed: the last line it wrote, and whether a privilege is missing.
fn said(stderr: &[u8]) -> io::Error {
    let text = String::from_utf8_lossy(stderr);
    let last = text.lines().last().unwrap_or("ethtool refused").trim();
    let kind = if text.contains("not permitted") {
        io::ErrorKind::PermissionDenied
    } else {
        io::ErrorKind::Other
    };
    io::Error::new(kind, last.to_owned())
}

/// The devices of the default routes, which usually lead to other gateways.
pub(super) fn outer_devices(host: &Machine) -> Vec<String> {
    let read = |path: &str| fs::read_to_string(host.path(path)).unwrap_or_default();
    let (v4, v6) = (read("/proc/net/route"), read("/proc/net/ipv6_route"));
    let v4 = v4.lines().skip(1).filter_map(|line| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        (fields.get(1)? == &"00000000" && fields.get(7)? == &"00000000").then(|| fields[0])
    });
    let v6 = v6.lines().filter_map(|line| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        let device = *fields.get(9)?;
        (fields[0].bytes().all(|c| c == b'0') && fields[1] == "00" && device != "lo")
            .then_some(device)
    });
    let mut devices: Vec<String> = Vec::new();
    for device in v4.chain(v6) {
        if !devices.iter().any(|known| known == device) {
            devices.push(device.to_owned());
        }
    }
    devices
}
