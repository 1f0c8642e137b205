//! `esplanade restart`: a new process replaces the running one.
//!
//! ```text
//!   old gateway carries ────────────────────┐ stops, rules stay      ┌── new gateway carries
//!   new process: file, options, device, user ┴► asks it to leave ──► waits for its end ──► starts by its state
//! ```
//!
//! Everything that can be checked in advance is checked while the old process still carries traffic. From its end to
//! the start of the new one nothing passes unencrypted: rules, filters and drop rules stay in place, and the new
//! process takes them over. Packets wait meanwhile in the TUN device and the sockets, which the old process passes to
//! the new one (`handover`).

use super::native::Native;
use super::{Prepared, RunOptions, control};
use crate::apply::{blame, parse};
use crate::config::ConfiguredPeer;
use crate::control::{Answer, Client, NoAnswer, Request, UNKNOWN_REQUEST};
use crate::failure::Failure;
use crate::handover::Inheritance;
use crate::memory;
use crate::plane::{Plane, Recorder};
use crate::privileges;
use crate::routes::Site;
use crate::status::Status;
use std::os::fd::OwnedFd;
use std::path::Path;

/// Replaces the gateway at the control socket, and runs until a signal or `down` ends it.
pub(crate) fn restart(options: &RunOptions) -> Result<(), Failure> {
    let prepared = super::prepare(options)?;
    memory::with_keys(|| rehearse(&prepared))?;
    let options = prepared.options.clone();
    Native::check(&options)?;
    privileges::needed_for(options.priority)?;
    if options.no_state {
        return Err(kept(
            "with --no-state sequence numbers would start at 1, and the peers would drop the packets as replayed",
        ));
    }
    let path = control::path(options.control.clone());
    let ask = |request: &Request| Client::connect(&path).and_then(|client| client.ask(request));
    let old = match ask(&Request::Status).map_err(|error| unanswered(&path, error))? {
        Answer::Status(old) => old,
        Answer::Refused(why) => return Err(kept(why)),
        _ => return Err(kept("its answer is not valid")),
    };
    keeps_place(&old, &prepared.site)?;
    let change = change_of_plane(&old, prepared.plane.by_kernel);
    if let Some(change) = change.as_ref().filter(|_| has_peers(&prepared)) {
        println!("esplanade: {change}");
    }
    // The answer has the keys of child SAs.
    let left = memory::with_keys(|| leave(&path, &prepared, change.is_none()));
    match left.map_err(Failure::new)? {
        (Answer::Left(passed), descriptors) => {
            let inheritance = Inheritance::of(passed, descriptors);
            super::begin(prepared, inheritance)
        }
        (Answer::Refused(why), _) => Err(kept(why)),
        _ => Err(kept("its answer is not valid")),
    }
}

/// Asks the gateway to leave. A gateway of an earlier version passes on nothing of key exchange, and a gateway of the
/// other plane (`is_same_plane`: false) has nothing that could go on here.
fn leave(
    path: &Path,
    prepared: &Prepared,
    is_same_plane: bool,
) -> Result<(Answer, Vec<OwnedFd>), NoAnswer> {
    let ask =
        |request: &Request| Client::connect(path).and_then(|client| client.ask_to_leave(request));
    let peers = prepared.peers.as_ref().filter(|_| is_same_plane);
    let Some(peers) = peers else {
        return ask(&Request::Leave);
    };
    let by_kernel = prepared.plane.by_kernel;
    let named = |peer: &ConfiguredPeer| {
        let fingerprint = peer.fingerprint(by_kernel)?;
        Some((peer.connection.name.clone(), fingerprint))
    };
    match ask(&Request::LeaveTo(peers.iter().filter_map(named).collect()))? {
        (Answer::Refused(why), _) if why.starts_with(UNKNOWN_REQUEST) => ask(&Request::Leave),
        answer => Ok(answer),
    }
}

fn has_peers(prepared: &Prepared) -> bool {
    prepared
        .peers
        .as_ref()
        .is_some_and(|peers| !peers.is_empty())
}

/// What a restart means for peers where it leads from one plane to the other; none where it does not. A gateway of a
/// version without planes says nothing of its own.
fn change_of_plane(old: &Status, by_kernel: bool) -> Option<String> {
    let was_by_kernel = old.plane == "kernel";
    let name = |by_kernel| if by_kernel { "kernel" } else { "user" };
    (was_by_kernel != by_kernel).then(|| {
        format!(
            "this restart leads from the {} plane to the {} plane: what was negotiated with peers cannot go on there. \
             Each peer gets a Delete, and is negotiated anew; until then its networks are closed. `--plane {}` passes \
             it on",
            name(was_by_kernel),
            name(by_kernel),
            name(was_by_kernel),
        )
    })
}

fn unanswered(path: &Path, error: NoAnswer) -> Failure {
    if error.is_not_running() {
        Failure::new(format!(
            "no gateway is running at {}, so there is none to replace: start one with `esplanade run`",
            path.display()
        ))
    } else {
        Failure::new(error)
    }
}

fn kept(why: impl std::fmt::Display) -> Failure {
    Failure::new(format!("the running gateway was not replaced: {why}"))
}

/// Applies the file in memory: errors such as two associations of one name are found before anything stops.
fn rehearse(prepared: &Prepared) -> Result<(), Failure> {
    let lowered = parse(&prepared.text).map_err(Failure::new)?;
    let outcome = Recorder::default().apply(&lowered.commands);
    outcome
        .map(drop)
        .map_err(|refused| kept(blame(&refused, &lowered, &prepared.text)))
}

/// The rules and routes of the old device must be those of the new one.
fn keeps_place(old: &Status, site: &Site) -> Result<(), Failure> {
    let device = old.forward.as_deref().unwrap_or(&old.tun);
    let same = device == site.name()
        && old.forward.is_some() == site.forward().is_some()
        && (old.table, old.mark) == (site.table(), site.outside_mark());
    if same {
        Ok(())
    } else {
        Err(kept(format!(
            "it uses device {device}, table {} and mark {:#x}, and this one would use {}, {} and {:#x}: give the \
             same options as at its start, or use `esplanade down` and `esplanade run`",
            old.table,
            old.mark,
            site.name(),
            site.table(),
            site.outside_mark(),
        )))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::routes::DEFAULT_MARK;

    #[test]
    fn a_restart_to_the_other_plane_says_what_it_means_for_peers() {
        let on = |plane: &str| Status {
            plane: plane.to_owned(),
            ..Status::default()
        };
        for (before, by_kernel) in [("user", false), ("", false), ("kernel", true)] {
            assert_eq!(change_of_plane(&on(before), by_kernel), None, "{before}");
        }
        for (before, by_kernel, option) in [("user", true, "user"), ("kernel", false, "kernel")] {
            let told = change_of_plane(&on(before), by_kernel).unwrap();
            let named = told.contains("Delete") && told.contains(&format!("`--plane {option}`"));
            assert!(named, "{told}");
        }
    }

    #[test]
    fn another_device_table_or_mark_is_refused_before_anything_stops() {
        let site = Site::new("esp0", None, DEFAULT_MARK).ok().unwrap();
        let same = Status {
            tun: "esp0".to_owned(),
            table: site.table(),
            mark: DEFAULT_MARK,
            ..Status::default()
        };
        assert!(keeps_place(&same, &site).is_ok());
        let others = [
            Status {
                tun: "esp1".to_owned(),
                ..same.clone()
            },
            Status {
                forward: Some("esp0".to_owned()),
                ..same.clone()
            },
            Status {
                table: 7,
                ..same.clone()
            },
            Status { mark: 7, ..same },
        ];
        for other in others {
            let why = keeps_place(&other, &site).err().unwrap().to_string();
            assert!(why.contains("was not replaced"), "{why}");
        }
    }
}
