//! `esplanade down`: a gateway that runs takes its own things away; after one that died we do it, where its note says.

use super::{Outcome, Socket, strange};
use crate::argument::number;
use crate::control::folder::BadFolder;
use crate::control::{self, Answer, Client, Folder, NoAnswer, Request};
use crate::failure::Failure;
use crate::output::print;
use crate::routes::installed::Installed;
use crate::routes::record::Record;
use crate::routes::record::place::Whereabouts;
use crate::routes::{DEFAULT_MARK, DEFAULT_TUN, Site};
use clap::Args;
use std::path::Path;

/// What to take away.
#[derive(Args)]
pub(crate) struct Down {
    #[command(flatten)]
    socket: Socket,
    /// Take away what stands in this network namespace under the names that are given, though no note says whose it is
    #[arg(long)]
    force: bool,
    /// With --force: the TUN device of the gateway that left it
    #[arg(long, value_name = "NAME", requires = "force")]
    tun: Option<String>,
    /// With --force: the device that it forwarded for instead
    #[arg(
        long,
        value_name = "DEVICE",
        requires = "force",
        conflicts_with = "tun"
    )]
    forward: Option<String>,
    /// With --force: its routing table
    #[arg(long, value_name = "N", requires = "force")]
    table: Option<u32>,
    /// With --force: its mark
    #[arg(long, value_name = "N", requires = "force", value_parser = number)]
    mark: Option<u32>,
}

pub(crate) const DOWN_EXAMPLES: &str = "\
Examples:
  esplanade down
  esplanade down --control /run/esplanade/branch.sock
  esplanade down --force --tun esp1      what a gateway left whose note is lost or about another place";

/// Returns when the rules are gone and the process has ended, so that another can start at once.
pub(crate) fn down(mut down: Down) -> Outcome {
    let path = control::path(down.socket.control.take());
    match Client::connect(&path).and_then(|client| client.ask_to_end(&Request::Down)) {
        Ok(Answer::Done) => print("the gateway has stopped and its rules are gone\n"),
        Ok(Answer::Refused(why)) => Err(Failure::new(why)),
        Ok(_) => Err(strange()),
        Err(NoAnswer::Nobody(_)) => clear(&path, &down),
        Err(error) => Err(Failure::new(error)),
    }
}

fn clear(control: &Path, down: &Down) -> Outcome {
    // Whoever says a name means that one, whatever is noted here.
    if down.tun.is_some() || down.forward.is_some() {
        return force(None, None, down);
    }
    let folder = match Folder::open(control) {
        Err(BadFolder::Absent(_)) if down.force => return force(None, None, down),
        Err(BadFolder::Absent(_)) => return nothing(control),
        folder => folder.map_err(Failure::new)?,
    };
    // No gateway starts meanwhile.
    let _lock = folder.lock().map_err(Failure::new)?;
    let record = match Record::load(&folder) {
        Err(_) if down.force => None,
        record => record.map_err(Failure::new)?,
    };
    let Some(record) = record else {
        return match down.force {
            true => force(None, Some(&folder), down),
            false => nothing(control),
        };
    };
    match record.whereabouts().map_err(Failure::new)? {
        Whereabouts::Here => finish(&record, &folder),
        _ if down.force => force(Some(&record), Some(&folder), down),
        Whereabouts::Elsewhere { name, enter } => Err(Failure::new(format!(
            "no gateway answers at {0}, and what the last one left stands in another network namespace, {name}: nothing \
             was changed. Take it away there: {enter} esplanade down --control {0}",
            control.display()
        ))),
        Whereabouts::BeforeBoot => forget(
            &folder,
            "the host has been started again since, which took its rules away",
        ),
        Whereabouts::Gone(name) => forget(
            &folder,
            &format!(
                "it was in network namespace {name}, which no process is in and no mount holds any more"
            ),
        ),
    }
}

/// What the last gateway left here.
fn finish(record: &Record, folder: &Folder) -> Outcome {
    remove(record.site().map_err(Failure::new)?)?;
    for name in record.restore() {
        eprintln!(
            "esplanade: the gateway's note names {name}, which no gateway changes: left alone"
        );
    }
    clean(folder)?;
    print(&format!(
        "no gateway was running; what the last one left for {} is gone\n",
        record.tun
    ))
}

/// What stands here under the names that were given, or else those of a note that is about another place.
fn force(record: Option<&Record>, folder: Option<&Folder>, down: &Down) -> Outcome {
    let site = named(record, down)?;
    if let Some(tun) = site.tun().filter(|tun| lives(tun)) {
        return Err(Failure::new(format!(
            "a gateway lives here that has device {tun}, and these are its rules: ask it by its own control socket \
             (`esplanade down --control PATH`)"
        )));
    }
    let name = site.name().to_owned();
    remove(site)?;
    if let Some(folder) = folder {
        clean(folder)?;
    }
    print(&format!(
        "whatever a gateway left here for {name} is gone\n"
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

/// A TUN device goes with the process that has it open.
fn lives(tun: &str) -> bool {
    Path::new("/proc/sys/net/ipv4/conf").join(tun).exists()
}

fn remove(site: Site) -> Result<(), Failure> {
    let name = site.name().to_owned();
    let removed = Installed::new(site).and_then(|mut installed| installed.remove());
    removed.map_err(|error| {
        Failure::new(format!(
            "cannot take away what the gateway of {name} left: {error}"
        ))
    })
}

fn forget(folder: &Folder, why: &str) -> Outcome {
    clean(folder)?;
    print(&format!(
        "no gateway was running, and nothing is left of the last one: {why}\n"
    ))
}

/// The note, and the socket of a gateway that was killed, which is of no use to anybody.
fn clean(folder: &Folder) -> Outcome {
    Record::remove(folder).map_err(Failure::new)?;
    let _ = folder.remove_socket();
    Ok(())
}

fn nothing(control: &Path) -> Outcome {
    print(&format!(
        "no gateway answers at {} and nothing is left of one\n",
        control.display()
    ))
}
