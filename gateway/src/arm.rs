//! `esplanade arm`: installs the barriers of a file's policies at boot, before the network comes up and before a
//! gateway runs.
//!
//! ```text
//!   FILE, or its peers ──► policies ──► Plan ──► barriers      a gateway that starts later takes them over
//!              │
//!              └──► DIR/armed-esp0.setkey                what is armed again when FILE cannot be read whole
//! ```
//!
//! It needs no device and no name service, and of keys only that their files can be read. Only barriers are installed:
//! rules and routes that lead packets into the tunnel are the gateway's own. `esplanade down` removes the barriers.

mod peers;

use crate::apply;
use crate::argument::number;
use crate::config;
use crate::control::{self, Folder, SetkeyText};
use crate::failure::Failure;
use crate::memory;
use crate::output::print;
use crate::routes::installed::Installed;
use crate::routes::plan::Plan;
use crate::routes::record::{Record, inherit};
use crate::routes::{DEFAULT_MARK, DEFAULT_TUN, Site};
use clap::Args;
use dataplane::io::Warn;
use ipsec::database::{Database, Snapshot};
use ipsec::policy::Direction;
use ipsec::setkey;
use ipsec::setkey::ast::Statement;
use std::collections::BTreeSet;
use std::fs;
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use zeroize::Zeroizing;

/// What `esplanade arm` takes.
#[derive(Args, Clone, Debug)]
#[command(after_help = EXAMPLES)]
pub(crate) struct ArmOptions {
    /// Policies, in setkey syntax; associations are read too, but their keys are not used
    #[arg(value_name = "FILE", required_unless_present = "config")]
    file: Option<PathBuf>,
    /// A configuration: the networks of its peers, and the setkey files that it includes
    #[arg(long, value_name = "FILE", conflicts_with = "file")]
    config: Option<PathBuf>,
    /// The TUN device of the gateway that will run
    #[arg(long, value_name = "NAME", default_value = DEFAULT_TUN)]
    tun: String,
    /// The inner Ethernet device, for a gateway that will run with --forward
    #[arg(long, value_name = "DEVICE", conflicts_with = "tun")]
    forward: Option<String>,
    /// The control socket of the gateway that will run [default: $ESPLANADE_CONTROL or /run/esplanade/control.sock]
    #[arg(long, value_name = "PATH")]
    control: Option<PathBuf>,
    /// Folder for a copy of the policies, used when FILE cannot be read at boot
    #[arg(long, value_name = "DIR", default_value = "/var/lib/esplanade")]
    state: PathBuf,
    /// The mark bit of the gateway that will run
    #[arg(long, value_name = "N", default_value_t = DEFAULT_MARK, value_parser = number)]
    mark: u32,
    /// The routing table of the gateway that will run [default: 4500 for esp0]
    #[arg(long, value_name = "N")]
    table: Option<u32>,
    /// UDP port for ESP in UDP, in addition to those in associations
    #[arg(long, value_name = "PORT", default_value_t = 4500)]
    port: u16,
}

const EXAMPLES: &str = "\
Example:
  esplanade arm /etc/esplanade/tunnel.setkey
  esplanade arm --config /etc/esplanade/esplanade.toml

Traffic that the file's policies protect, or that belongs to the networks of its peers, then neither leaves nor enters unencrypted, even before `esplanade run` starts.
`esplanade down` removes the rules. packaging/systemd/esplanade-arm@.service runs this before the network comes up.";

/// Port of IKE, whose packets are exempt like those of ESP in UDP.
const IKE_PORT: u16 = 500;

/// Installs the barriers of a file, or, if it cannot be read completely, those that were armed last.
pub(crate) fn run(options: &ArmOptions) -> Result<(), Failure> {
    let site = match &options.forward {
        Some(device) => Site::forwarding(device, options.table, options.mark),
        None => Site::new(&options.tun, options.table, options.mark),
    };
    let site = site.map_err(Failure::new)?;
    let kept = options.state.join(format!("armed-{}.setkey", site.name()));
    let control = control::path(options.control.clone());
    let folder = Folder::make(&control).map_err(Failure::new)?;
    let lock = folder.lock().map_err(Failure::new)?;
    let file = options.config.as_ref().or(options.file.as_ref());
    let file = file.ok_or_else(|| Failure::with_code("give FILE or --config FILE", 2))?;
    let armed = match &options.config {
        Some(config) => Armed::of_config(config, options.port),
        None => Armed::read(file, options.port, Optional::AsWritten),
    };
    match armed {
        Ok(armed) => {
            armed.put_up(&site, &folder)?;
            armed
                .keep(&kept)
                .map_err(|error| cannot_keep(&kept, &error))?;
            drop(lock);
            armed.report(file)
        }
        Err(failure) => fall_back(&failure, &kept, options.port, &site, &folder),
    }
}

fn cannot_keep(path: &Path, error: &io::Error) -> Failure {
    Failure::new(format!(
        "the drop rules are installed, but the copy of the policies for the next boot cannot be written to {}: {error}",
        path.display()
    ))
}

/// If the file cannot be read completely, arms the policies that were armed last, in this boot or an earlier one.
fn fall_back(
    why: &Failure,
    kept: &Path,
    port: u16,
    site: &Site,
    folder: &Folder,
) -> Result<(), Failure> {
    if !kept.exists() {
        return Err(Failure::new(format!(
            "{why}\nNothing was armed, and there is no copy of earlier policies in {}: correct the file",
            kept.display()
        )));
    }
    // A user who may write to the folder would decide which traffic is dropped.
    Folder::make_for(kept, "--state", None).map_err(|untrusted| {
        Failure::new(format!(
            "{why}\nNothing was armed: the copy of earlier policies is not trusted, because {untrusted}"
        ))
    })?;
    let armed = Armed::read(kept, port, Optional::Closed)?;
    armed.put_up(site, folder)?;
    Err(Failure::new(format!(
        "{why}\nThe {} policies armed last ({}) are in force instead; correct the file and run `esplanade arm` again",
        armed.policies,
        kept.display()
    )))
}

/// What to arm for one file.
struct Armed {
    plan: Plan,
    policies: usize,
    /// The file's policies alone: no keys.
    text: Zeroizing<Vec<u8>>,
    /// What is not armed of a file that could be read, and why.
    left_out: Vec<String>,
}

impl Armed {
    fn read(path: &Path, port: u16, optional: Optional) -> Result<Self, Failure> {
        let name = path.display().to_string();
        let text =
            fs::read(path).map_err(|error| Failure::new(format!("cannot read {name}: {error}")))?;
        let request = SetkeyText {
            name,
            text: Zeroizing::new(text),
            ..SetkeyText::default()
        };
        Self::of(&request, port, optional)
    }

    /// The peers of a configuration, behind the policies of the setkey files that it includes. No name is looked up.
    fn of_config(path: &Path, port: u16) -> Result<Self, Failure> {
        let config = memory::with_keys(|| config::load_without_lookup(path))?;
        let mut parts = Vec::new();
        for included in &config.gateway.setkey {
            let name = included.display().to_string();
            let text = fs::read(included)
                .map_err(|error| Failure::new(format!("cannot read {name}: {error}")))?;
            let text = SetkeyText {
                name,
                text: Zeroizing::new(text),
                ..SetkeyText::default()
            };
            apply::parse(&text)?;
            parts.push(without_end(&text.text));
        }
        let (statements, left_out) = peers::statements(&config)?;
        parts.push(Zeroizing::new(statements.into_bytes()));
        let length = parts.iter().map(|part| part.len() + 1).sum();
        let mut text = Zeroizing::new(Vec::with_capacity(length));
        for part in &parts {
            text.extend_from_slice(part);
            text.push(b'\n');
        }
        let request = SetkeyText {
            name: path.display().to_string(),
            text,
            ..SetkeyText::default()
        };
        Ok(Self {
            left_out,
            ..Self::of(&request, port, Optional::AsWritten)?
        })
    }

    fn of(request: &SetkeyText, port: u16, optional: Optional) -> Result<Self, Failure> {
        let lowered = apply::parse(request)?;
        let mut database = Database::default();
        let mut spi = 0x100;
        let mut next_spi = || {
            spi += 1;
            spi
        };
        database
            .apply(&lowered.commands, 0, &mut next_spi)
            .map_err(|refused| Failure::new(apply::blame(&refused, &lowered, request)))?;
        let snapshot = database.snapshot();
        Ok(Self {
            plan: plan(&snapshot, port, optional),
            policies: DIRECTIONS
                .iter()
                .map(|way| snapshot.policies(*way).count())
                .sum(),
            text: policies_alone(&request.text),
            left_out: Vec::new(),
        })
    }

    /// The record is written first, so that everything installed can be found and removed later.
    fn put_up(&self, site: &Site, folder: &Folder) -> Result<(), Failure> {
        let warn: Warn = Arc::new(|text: &str| eprintln!("esplanade: warning: {text}"));
        let record = match inherit(folder, site, &warn)? {
            Some(record) => record,
            None => Record::of(site).map_err(Failure::new)?,
        };
        record.save(folder).map_err(Failure::new)?;
        let armed =
            Installed::new(site.clone()).and_then(|mut installed| installed.arm(&self.plan));
        armed.map_err(|error| Failure::new(format!("cannot install the drop rules: {error}")))
    }
}

impl Armed {
    /// Saves the policies atomically, for a boot at which the file cannot be read.
    fn keep(&self, path: &Path) -> io::Result<()> {
        let folder = path.parent().unwrap_or(Path::new("/"));
        fs::DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(folder)?;
        let draft = path.with_extension("new");
        // A draft with this name was left by a crash and is removed; `create_new` never writes through an existing
        // file.
        let _ = fs::remove_file(&draft);
        let mut file = fs::OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(&draft)?;
        file.write_all(&self.text)?;
        file.sync_all()?;
        fs::rename(&draft, path)
    }

    fn report(&self, file: &Path) -> Result<(), Failure> {
        print(&format!(
            "{} policies of {} are armed; `esplanade down` removes the drop rules\n",
            self.policies,
            file.display()
        ))?;
        if self.left_out.is_empty() {
            Ok(())
        } else {
            Err(Failure::new(self.left_out.join("\n")))
        }
    }
}

/// What happens to traffic whose policy has the level `use`, which passes unencrypted where no association exists.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Optional {
    /// It is dropped where the file has an association for it, as with a running gateway.
    AsWritten,
    /// It is dropped: the policies were kept without their associations.
    Closed,
}

const DIRECTIONS: [Direction; 3] = [Direction::Out, Direction::In, Direction::Fwd];

/// The plan: which traffic must be dropped if it is not encrypted.
fn plan(snapshot: &Snapshot, port: u16, optional: Optional) -> Plan {
    let mut plan = Plan {
        udp_ports: BTreeSet::from([IKE_PORT, port]),
        ..Plan::default()
    };
    for (policy, paths) in snapshot.outbound_paths() {
        let mut paths = paths.filter(|path| !path.is_empty());
        plan.push(
            policy,
            optional == Optional::Closed || paths.next().is_some(),
            None,
        );
    }
    for direction in &DIRECTIONS[1..] {
        for (_, policy) in snapshot.policies(*direction) {
            plan.push(policy, false, None);
        }
    }
    plan
}

/// The text without what stands behind `exit`, printed again.
fn without_end(text: &[u8]) -> Zeroizing<Vec<u8>> {
    let mut file = setkey::parse(text).file;
    let end = file
        .statements
        .iter()
        .position(|statement| matches!(statement.node, Statement::Exit));
    file.statements.truncate(end.unwrap_or(usize::MAX));
    setkey::print(&file)
}

/// The policy statements alone, printed again.
fn policies_alone(text: &[u8]) -> Zeroizing<Vec<u8>> {
    let mut file = setkey::parse(text).file;
    file.statements.retain(|statement| {
        matches!(
            statement.node,
            Statement::SpdAdd(_)
                | Statement::SpdUpdate(_)
                | Statement::SpdDelete(_)
                | Statement::SpdFlush
                | Statement::Exit
        )
    });
    setkey::print(&file)
}

#[cfg(test)]
mod tests;
