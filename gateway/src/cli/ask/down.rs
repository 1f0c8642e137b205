//! `esplanade down`: a running gateway removes its own rules; after one that was killed, this command removes what its
//! record lists.

use super::{Outcome, Socket, strange};
use crate::argument::number;
use crate::control::folder::BadFolder;
use crate::control::{self, Answer, Client, Folder, NoAnswer, Request};
use crate::failure::Failure;
use crate::output::print;
use crate::plane::KernelDatabases;
use crate::routes::firewall;
use crate::routes::installed::Installed;
use crate::routes::record::Record;
use crate::routes::record::network_namespace::NamespaceState;
use crate::routes::{DEFAULT_MARK, DEFAULT_TUN, Site};
use clap::Args;
use std::path::Path;

/// Options of `esplanade down`.
#[derive(Args)]
pub(crate) struct Down {
    /// Take only this peer down, until `up`, `reload` or a restart; its networks stay closed
    #[arg(value_name = "NAME", conflicts_with = "force")]
    name: Option<String>,
    #[command(flatten)]
    socket: Socket,
    /// Remove rules of the given device, table and mark from this network namespace even without a record of them
    #[arg(long)]
    force: bool,
    /// With --force: the gateway's TUN device
    #[arg(long, value_name = "NAME", requires = "force")]
    tun: Option<String>,
    /// With --force: the gateway's --forward device instead
    #[arg(
        long,
        value_name = "DEVICE",
        requires = "force",
        conflicts_with = "tun"
    )]
    forward: Option<String>,
    /// With --force: the gateway's routing table
    #[arg(long, value_name = "N", requires = "force")]
    table: Option<u32>,
    /// With --force: the gateway's mark
    #[arg(long, value_name = "N", requires = "force", value_parser = number)]
    mark: Option<u32>,
}

pub(crate) const DOWN_EXAMPLES: &str = "\
Examples:
  esplanade down
  esplanade down office                  one peer of the configuration; the gateway goes on
  esplanade down --control /run/esplanade/branch.sock
  esplanade down --force --tun esp1      rules left by a gateway whose record is lost";

/// Returns when the rules are gone and the process has ended, so that another can start at once.
pub(crate) fn down(mut down: Down) -> Outcome {
    if let Some(name) = down.name {
        return super::peer::text(down.socket, &Request::DownPeer(name));
    }
    let path = control::path(down.socket.control.take());
    match Client::connect(&path).and_then(|client| client.ask_to_end(&Request::Down)) {
        Ok(Answer::Done) => print("the gateway has stopped and its rules are gone\n"),
        Ok(Answer::Refused(why)) => Err(Failure::new(why)),
        Ok(_) => Err(strange()),
        Err(NoAnswer::NotRunning(_)) => clear(&path, &down),
        Err(error) => Err(Failure::new(error)),
    }
}

fn clear(control: &Path, down: &Down) -> Outcome {
    // A name on the command line takes precedence over the record.
    if down.tun.is_some() || down.forward.is_some() {
        return force(None, None, down);
    }
    let folder = match Folder::open(control) {
        Err(BadFolder::Absent(_)) if down.force => return force(None, None, down),
        Err(BadFolder::Absent(_)) => return nothing(control),
        folder => folder.map_err(Failure::new)?,
    };
    // The lock keeps a gateway from starting meanwhile.
    let _lock = folder.lock().map_err(Failure::new)?;
    let record = match Record::load(&folder) {
        Err(_) if down.force => None,
        record => record.map_err(Failure::new)?,
    };
    let Some(record) = record else {
        return if down.force {
            force(None, Some(&folder), down)
        } else {
            nothing(control)
        };
    };
    match record.whereabouts().map_err(Failure::new)? {
        NamespaceState::Here => finish(&record, &folder),
        _ if down.force => force(Some(&record), Some(&folder), down),
        NamespaceState::Elsewhere { name, enter } => Err(Failure::new(format!(
            "no gateway is running at {0}, and the last one left its rules in another network namespace, {name}: \
             nothing was changed. Remove them there: {enter} esplanade down --control {0}",
            control.display()
        ))),
        NamespaceState::BeforeBoot => forget(
            &folder,
            "the host has rebooted since, which removed its rules",
        ),
        NamespaceState::Gone(name) => forget(
            &folder,
            &format!("its network namespace {name} no longer exists"),
        ),
    }
}

/// Removes what the record of the last gateway lists.
fn finish(record: &Record, folder: &Folder) -> Outcome {
    remove(record.site().map_err(Failure::new)?)?;
    for name in record.restore() {
        eprintln!(
            "esplanade: the gateway's record names {name}, which a gateway never changes: ignored"
        );
    }
    clean(folder)?;
    print(&format!(
        "no gateway was running; removed what the last one left for {}\n",
        record.tun
    ))
}

/// Removes what exists here under the given names, or else under those of a record from another namespace.
fn force(record: Option<&Record>, folder: Option<&Folder>, down: &Down) -> Outcome {
    let site = named(record, down)?;
    let name = site.name().to_owned();
    if site.tun().is_some_and(lives) || firewall::is_in_use(&site) {
        return Err(Failure::new(format!(
            "a running gateway owns device {name} and these rules: stop it through its own control socket (`esplanade \
             down --control PATH`)"
        )));
    }
    remove(site)?;
    if let Some(folder) = folder {
        clean(folder)?;
    }
    print(&format!(
        "removed everything that a gateway left here for {name}\n"
    ))
}

fn named(record: Option<&Record>, down: &Down) -> Result<Site, Failure> {
    let mark = down.mark.unwrap_or(DEFAULT_MARK);
    let site = match (&down.forward, &down.tun, record) {
        (Some(device), _, _) => Site::forwarding(device, down.table, mark),
        (None, None, Some(record)) => record.site(),
        (None, tun, _) => Site::new(tun.as_deref().unwrap_or(DEFAULT_TUN), down.table, mark),
    };
    site.map_err(Failure::new)
}

/// Whether the device exists: a TUN device is removed with the process that has it open.
fn lives(tun: &str) -> bool {
    Path::new("/proc/sys/net/ipv4/conf").join(tun).exists()
}

fn remove(site: Site) -> Result<(), Failure> {
    let name = site.name().to_owned();
    let removed = Installed::new(site.clone())
        .and_then(|mut installed| installed.remove())
        .and_then(|()| match KernelDatabases::open(&site) {
            Ok(mut left) => left.remove_all(),
            // A kernel without XFRM has nothing.
            Err(_) => Ok(()),
        });
    removed.map_err(|error| {
        Failure::new(format!(
            "cannot remove what the gateway of {name} left: {error}"
        ))
    })
}

fn forget(folder: &Folder, why: &str) -> Outcome {
    clean(folder)?;
    print(&format!(
        "no gateway was running; nothing to clean up: {why}\n"
    ))
}

/// Removes the record, and the socket that a killed gateway left behind.
fn clean(folder: &Folder) -> Outcome {
    Record::remove(folder).map_err(Failure::new)?;
    let _ = folder.remove_socket();
    Ok(())
}

fn nothing(control: &Path) -> Outcome {
    print(&format!(
        "no gateway is running at {}; nothing to clean up\n",
        control.display()
    ))
}
