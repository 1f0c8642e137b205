//! `esplanade run`: starts a gateway from a setkey file, and stops it.
//!
//! ```text
//!   read the file ─► lock the socket ─► change the user ─► stored numbers ─► TUN device and sockets
//!                                                                                 │
//!            ready ◄─ threads ◄─ routes ◄─ drop rules ◄───────────────────────────┘
//!                       │
//!                       └─ notices ─► main thread: control socket, signals, a tick per second
//! ```
//!
//! Everything that can fail is tried before anything is changed, and a failed start undoes its changes. The main thread
//! is the only writer of the databases, so they need no lock.

mod devices;
mod forward;
mod host;
mod icmp_validation;
mod ike;
mod interface;
mod key_file;
mod main_loop;
mod nat_keepalives;
mod native;
mod options;
mod outer_network;
mod plane_choice;
mod rates;
mod removals;
mod replace;
mod senders;
mod signals;
mod sockets;
mod source;
mod user;
mod warnings;

#[cfg(any(test, fuzzing))]
pub use icmp_validation::fuzz_body;
pub(crate) use ike::network_selectors;
pub(crate) use options::{RESTART_EXAMPLES, RunOptions, key_log_warning};
pub(crate) use replace::restart;

use crate::apply;
use crate::config::{ConfiguredPeer, Mode};
use crate::control::{self, Folder, Server, SetkeyText};
use crate::failure::Failure;
use crate::handover::Inheritance;
use crate::ike::{ProcessOptions, Processes, Setup};
use crate::memory;
use crate::plane::OwnPlane;
use crate::privileges;
use crate::random::system_random;
use crate::routes::Site;
use crate::routes::record::{Record, inherit};
use crate::state;
use dataplane::pipeline::cpu_time;
use dataplane::pipeline::priority::Priority;
use dataplane::pipeline::wake::Wake;
use host::Host;
use ike::{Hooks, KeyExchange, KeyLog};
use main_loop::Gateway;
use plane_choice::ChosenPlane;
use source::Source;
use std::path::PathBuf;
use warnings::Warnings;

/// Runs a gateway until a signal or `down` ends it.
pub(crate) fn run(options: &RunOptions) -> Result<(), Failure> {
    begin(prepare(options)?, Inheritance::default())
}

/// What is read and checked before anything is changed, and before another gateway is stopped.
struct Prepared {
    options: RunOptions,
    peers: Option<Vec<ConfiguredPeer>>,
    site: Site,
    warnings: Warnings,
    chosen: user::Chosen,
    file: Source,
    text: SetkeyText,
    plane: ChosenPlane,
}

fn prepare(given: &RunOptions) -> Result<Prepared, Failure> {
    let (options, config) = source::options(given)?;
    check(&options)?;
    privileges::keep_keys_out_of_core_dumps();
    privileges::let_keys_be_locked();
    privileges::raise_descriptor_limit();
    dataplane::io::set_malloc_threshold();
    cpu_time::cache_clock_ticks();
    let site = site(&options)?;
    let warnings = Warnings::default();
    for warning in config.iter().flat_map(|config| &config.warnings) {
        eprint!("{warning}");
    }
    if let Some(folder) = &given.key_log {
        (warnings.warn())(&key_log_warning(folder));
    }
    let chosen = user::choose(&options)?;
    let file = Source::new(&options, config.as_ref(), &chosen.user)?;
    let text = memory::with_keys(|| -> Result<_, Failure> {
        let text = file.read(&warnings.warn())?;
        // Mistakes in the file are reported before anything is changed.
        apply::parse(&text)?;
        Ok(text)
    })?;
    let peers = config.map(|config| config.peers);
    let plane = memory::with_keys(|| {
        plane_choice::choose(&options, &text, peers.as_deref().unwrap_or_default())
    })?;
    if let Some(note) = plane.note_on_options(&options) {
        println!("esplanade: {note}");
    }
    Ok(Prepared {
        options,
        peers: peers.map(|peers| plane.serves(peers)),
        plane,
        site,
        warnings,
        chosen,
        file,
        text,
    })
}

fn begin(prepared: Prepared, mut inheritance: Inheritance) -> Result<(), Failure> {
    let Prepared {
        options,
        peers,
        site,
        warnings,
        chosen,
        file,
        text,
        plane: chosen_plane,
    } = prepared;
    let options = &options;
    let control = control::path(options.control.clone());
    let folder = Folder::make_as(&control, chosen.new_owner()).map_err(Failure::new)?;
    let server = Server::bind(folder).map_err(Failure::new)?;
    chosen.become_it()?;
    if let Some(new_owner) = chosen.new_owner() {
        server.folder().hand_over(new_owner).map_err(Failure::new)?;
    }
    let signals = signals::Signals::block().map_err(Failure::new)?;
    if !chosen_plane.by_kernel {
        native::Native::check(options)?;
    }
    let outside = outer_network::OuterNetwork::of(options, &warnings.warn())?;
    inheritance.keep_only_of(&outer_network::requested(options));
    let ike = key_exchange(options, &site, &outside, peers, &mut inheritance, &warnings)?;
    let numbers = state::open(
        &state::Wanted {
            folder: state_folder(options).as_deref(),
            none: options.no_state,
            fresh_keys: options.fresh_keys,
            new_owner: chosen.new_owner(),
            control: &control,
            beside: server.folder(),
        },
        &warnings.warn(),
    )?;
    let also = privileges::needed_for(options.priority)?;
    if !options.no_privilege_drop {
        privileges::drop_to_needed(also, &warnings.warn()).map_err(Failure::new)?;
    }
    let left_over = inherit(server.folder(), &site, &warnings.warn())?;
    if !options.no_privilege_drop {
        let mut places = server.folder().places().map_err(Failure::new)?;
        file.stay_readable(&mut places).map_err(Failure::new)?;
        privileges::hold_to(places, &warnings.warn());
    }
    let host = Host::new(
        site.clone(),
        options,
        chosen_plane.by_kernel,
        outside,
        inheritance,
        &warnings.warn(),
    )?;
    let mut record = Record::of(&site).map_err(Failure::new)?;
    let is_first = left_over.is_none();
    record.settings = left_over.map(|record| record.settings).unwrap_or_default();
    let mut plane = OwnPlane::new(host, dataplane::clock::now, random(options.seed));
    plane.keep(numbers);
    plane.numbers().start().map_err(Failure::new)?;
    let gateway = Gateway::new(plane, server, signals, file, options, record, warnings);
    gateway
        .map_err(Failure::new)?
        .on_plane(chosen_plane)?
        .exchange_keys(ike)
        .start(text, is_first)?
        .serve()
}

/// What negotiates keys, for a gateway with a configuration; a reload can bring its first peer. It takes its part of
/// the inheritance.
fn key_exchange(
    options: &RunOptions,
    site: &Site,
    outside: &outer_network::OuterNetwork,
    peers: Option<Vec<ConfiguredPeer>>,
    inheritance: &mut Inheritance,
    warnings: &Warnings,
) -> Result<Option<KeyExchange>, Failure> {
    let Some(peers) = peers else {
        return Ok(None);
    };
    check_devices(&peers, site.forward())?;
    let process_options = ProcessOptions {
        no_privilege_drop: options.no_privilege_drop,
    };
    let hooks = Hooks::start(&peers, options.hook_user.as_deref(), process_options)?;
    let mut processes = Processes::prepare(Setup {
        mark: site.outside_mark(),
        opener: outside.opener.clone(),
        device: outside.device.as_ref().map(|(name, _)| name.clone()),
        coalesces: !options.no_offloads,
        no_privilege_drop: options.no_privilege_drop,
        warn: warnings.warn(),
    })?;
    let (sockets, passed) = inheritance.take_key_exchange(!peers.is_empty());
    if !sockets.is_empty() {
        processes.take_over(sockets);
    } else if !peers.is_empty() {
        processes.open_sockets(|family| inheritance.first_socket(family))?;
    }
    let key_log = options.key_log.as_deref().map(KeyLog::open).transpose()?;
    Ok(Some(KeyExchange::new(
        processes, peers, key_log, hooks, passed,
    )))
}

/// A gateway without a TUN device has none for a peer either.
fn check_devices(peers: &[ConfiguredPeer], forward: Option<&str>) -> Result<(), Failure> {
    let routed = |peer: &&ConfiguredPeer| matches!(peer.mode, Mode::Route { .. });
    match (forward, peers.iter().find(routed)) {
        (Some(forward), Some(peer)) => Err(Failure::new(format!(
            "peer {}: `mode = \"route\"`, the default, needs a TUN device, but --forward {forward} works without one: \
             write `mode = \"policy\"`, or remove --forward",
            peer.connection.name
        ))),
        _ => Ok(()),
    }
}

/// Threads that never sleep at real-time priority would starve all others.
fn check(options: &RunOptions) -> Result<(), Failure> {
    match (options.priority, options.wake) {
        (Priority::Realtime, Wake::Busy(None)) => Err(Failure::new(
            "--wake busy with --priority realtime would starve all other processes: use --wake busy:10, to poll for \
             10 µs before sleeping, or --priority normal",
        )),
        _ => Ok(()),
    }
}

/// The folder of `--state` or `ESPLANADE_STATE`, if given.
fn state_folder(options: &RunOptions) -> Option<PathBuf> {
    let environment = || std::env::var_os("ESPLANADE_STATE").map(PathBuf::from);
    options.state.clone().or_else(environment)
}

fn site(options: &RunOptions) -> Result<Site, Failure> {
    let (table, mark) = (options.table, options.mark);
    let site = match &options.forward {
        Some(device) => Site::forwarding(device, table, mark),
        None => Site::new(&options.tun, table, mark),
    };
    site.map_err(Failure::new)
}

/// Unpredictable bits, or with a seed always the same ones.
fn random(seed: Option<u64>) -> fn() -> u64 {
    match seed {
        None => system_random,
        Some(_) => || 0,
    }
}
