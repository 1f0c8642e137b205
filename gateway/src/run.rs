//! `esplanade run`: from a setkey file to traffic, and back to silence.
//!
//! ```text
//!   read the file ─► claim the socket ─► change the user ─► kept numbers ─► TUN device and sockets ─► drop rules ─► routes ─► threads ─► ready
//!                                                                                                   │
//!   main thread: control socket, signals, one tick a second ◄── notices ── data plane's threads ◄──┘
//! ```
//!
//! Everything that can fail is tried before anything is changed, and what a failed start has changed it takes back. The
//! main thread is the only writer of the databases, so none of this needs a lock.

mod devices;
mod forward;
mod hearsay;
mod host;
mod interface;
mod key_file;
mod losses;
mod main_loop;
mod native;
mod outside;
mod rates;
mod replace;
mod senders;
mod signals;
mod sockets;
mod user;

#[doc(hidden)]
pub use hearsay::check_any_complaint;
pub use replace::restart;

use crate::cli::Failure;
use crate::control::{self, Folder, Server, SetkeyText};
use crate::handover::Inheritance;
use crate::memory;
use crate::obey;
use crate::plane::OwnPlane;
use crate::privileges;
use crate::routes::record::Record;
use crate::routes::record::place::Whereabouts;
use crate::routes::{DEFAULT_MARK, DEFAULT_TUN, Site};
use crate::state;
use clap::Args;
use dataplane::io::Warn;
use dataplane::io::packet::NativeIo;
use dataplane::pipeline::governor::Workers;
use dataplane::pipeline::load;
use dataplane::pipeline::priority::Priority;
use dataplane::pipeline::wake::Wake;
use host::Host;
use key_file::KeyFile;
use main_loop::Gateway;
use std::path::PathBuf;
use std::sync::Arc;

/// What `esplanade run` takes.
#[derive(Args, Clone, Debug)]
#[command(after_help = EXAMPLES)]
pub struct Options {
    /// Associations and policies, in the language of setkey
    #[arg(long, value_name = "FILE")]
    pub setkey: PathBuf,
    /// The TUN device; its name keeps several gateways of one host apart
    #[arg(long, value_name = "NAME", default_value = DEFAULT_TUN)]
    pub tun: String,
    /// Forward for the hosts behind this Ethernet device without a TUN device: more small packets a second, but no way
    /// into the tunnel for this host itself
    #[arg(long, value_name = "DEVICE", conflicts_with = "tun")]
    pub forward: Option<String>,
    /// The control socket [default: $ESPLANADE_CONTROL or /run/esplanade/control.sock]
    #[arg(long, value_name = "PATH")]
    pub control: Option<PathBuf>,
    /// Threads that encrypt and decrypt, beside the two that read; 0 does everything on those two; auto measures what
    /// the ciphers cost, and has workers while those bring more
    #[arg(long, value_name = "auto|N", default_value_t)]
    pub workers: Workers,
    /// Packets or trains that are read at a time
    #[arg(long, value_name = "N", default_value_t = 64, value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub batch: u16,
    /// Batches in a row after which a reading thread lets others have the processor; 0 for never
    #[arg(long, value_name = "N", default_value_t = 64)]
    pub poll_budget: u32,
    /// What a thread with nothing to do does: sleep; look again for a moment if processors are to spare; or be busy
    #[arg(long, value_name = "sleep|adaptive[:µs]|busy[:µs]", default_value_t)]
    pub wake: Wake,
    /// Where all of them may run, such as 0-3,8
    #[arg(long, value_name = "LIST", value_parser = cpu_list)]
    pub cpus: Option<CpuList>,
    /// How the threads that carry packets stand among all others; realtime gives them the processor as soon as a packet
    /// comes, which shortens the slowest round trips on a busy machine
    #[arg(long, value_name = "normal|realtime", default_value_t)]
    pub priority: Priority,
    /// Take the drop rules away when the gateway stops, so that protected traffic then passes IN CLEAR
    #[arg(long)]
    pub fail_open: bool,
    /// The mark bit of packets that must not enter the tunnel; the next higher bit is used too
    #[arg(long, value_name = "N", default_value_t = DEFAULT_MARK, value_parser = number)]
    pub mark: u32,
    /// The routing table that leads to the TUN device [default: 4500 for esp0]
    #[arg(long, value_name = "N")]
    pub table: Option<u32>,
    /// The UDP port of ESP in UDP, beside those that associations name
    #[arg(long, value_name = "PORT", default_value_t = 4500)]
    pub port: u16,
    /// Send the UDP checksum 0 over IPv4, as RFC 3948 prefers; costs the trains of both ends
    #[arg(long)]
    pub zero_checksum: bool,
    /// Do without trains and checksum offloads, for broken drivers
    #[arg(long)]
    pub no_offloads: bool,
    /// How native ESP goes: raw sockets, a packet ring and a packet socket, or a packet ring and AF_XDP
    #[arg(long, value_name = "raw|packet|xdp|auto", default_value_t)]
    pub native_io: NativeIo,
    /// Send and receive protected packets in this network namespace (a name of `ip netns`, or a path)
    #[arg(long, value_name = "NAME|PATH")]
    pub outer_netns: Option<String>,
    /// Send and receive protected packets by this device alone, such as a VRF
    #[arg(long, value_name = "DEV")]
    pub outer_device: Option<String>,
    /// The folder in which sequence numbers, replay windows and lifetimes are kept across restarts [default:
    /// $ESPLANADE_STATE, or one below /var/lib/esplanade for each control socket]
    #[arg(long, value_name = "DIR")]
    pub state: Option<PathBuf>,
    /// Keep none: after a restart peers refuse what is sent, and recorded packets are accepted again
    #[arg(long, conflicts_with = "state")]
    pub no_state: bool,
    /// Begin anew where the kept numbers cannot be trusted: says that no key of the file was ever used before
    #[arg(long, conflicts_with = "no_state")]
    pub fresh_keys: bool,
    /// The user that the gateway is once it has started, by name or number, with its own group or another one [default: as
    /// root, $ESPLANADE_USER or `esplanade` if the host has it; otherwise whoever starts it]
    #[arg(
        long,
        value_name = "USER[:GROUP]",
        conflicts_with = "no_privilege_drop"
    )]
    pub user: Option<String>,
    /// Keep all capabilities, system calls and files
    #[arg(long)]
    pub no_privilege_drop: bool,
    /// Make IVs of CBC suites and the start of counters repeatable; for tests alone, and never twice with one key
    #[arg(long, value_name = "N", hide = true)]
    pub seed: Option<u64>,
}

const EXAMPLES: &str = "\
Examples:
  esplanade run --setkey tunnel.conf
  esplanade run --setkey branch.conf --tun esp1 --control /run/esplanade/branch.sock
  esplanade run --setkey tunnel.conf --forward eth1
  esplanade run --setkey tunnel.conf --cpus 2-5 --workers 2
  esplanade run --setkey tunnel.conf --state /var/lib/esplanade/tunnel

SIGHUP has it read its file again, as `esplanade reload` does. SIGTERM or SIGINT stop it. The drop rules stay, so that nothing protected leaves in clear: `esplanade down` takes them away.";

/// What `esplanade restart --help` shows.
pub const RESTART_EXAMPLES: &str = "\
Examples:
  esplanade restart --setkey tunnel.conf
  /opt/new/esplanade restart --setkey branch.conf --tun esp1 --control /run/esplanade/branch.sock

It takes the options of `esplanade run`: those of the gateway that runs, or others. File and options are checked while that
one still carries; then it stops, nothing passes in clear, and this process goes on by the numbers that are kept. A gateway
that systemd started is restarted by `systemctl restart`.";

/// Numbers of processors.
pub type CpuList = Arc<[usize]>;

/// Runs a gateway until a signal or `down` ends it.
pub fn run(options: &Options) -> Result<(), Failure> {
    begin(options, prepare(options)?, Inheritance::default())
}

/// What can be known before anything is touched, and before another gateway gives way.
struct Prepared {
    site: Site,
    warnings: Warnings,
    chosen: user::Chosen,
    file: KeyFile,
    text: SetkeyText,
}

fn prepare(options: &Options) -> Result<Prepared, Failure> {
    considerate(options)?;
    privileges::keep_keys_out_of_core_dumps();
    privileges::let_keys_be_locked();
    dataplane::io::leave_rooms_untouched();
    load::learn_ticks();
    let site = site(options)?;
    let warnings = Warnings::default();
    let chosen = user::choose(options)?;
    let file = KeyFile::new(&options.setkey, &chosen.user)?;
    let text = memory::with_keys(|| {
        let text = file.read(&warnings.warn())?;
        // Mistakes in the file are told before anything is touched.
        obey::read(&text).map_err(Failure::new)?;
        Ok(text)
    })?;
    Ok(Prepared {
        site,
        warnings,
        chosen,
        file,
        text,
    })
}

fn begin(options: &Options, prepared: Prepared, inheritance: Inheritance) -> Result<(), Failure> {
    let Prepared {
        site,
        warnings,
        chosen,
        file,
        text,
    } = prepared;
    let control = control::path(options.control.clone());
    let folder = Folder::make_as(&control, chosen.heir()).map_err(Failure::new)?;
    let server = Server::bind(folder).map_err(Failure::new)?;
    chosen.become_it()?;
    if let Some(heir) = chosen.heir() {
        server.folder().hand_over(heir).map_err(Failure::new)?;
    }
    let signals = signals::Signals::block().map_err(Failure::new)?;
    native::Native::check(options)?;
    let outside = outside::Outside::of(options, &warnings.warn())?;
    let numbers = state::open(
        &state::Wanted {
            folder: state_folder(options).as_deref(),
            none: options.no_state,
            fresh_keys: options.fresh_keys,
            heir: chosen.heir(),
            control: &control,
            noted: Record::noted_in_this_boot(server.folder()),
        },
        &warnings.warn(),
    )?;
    let also = privileges::needed_for(options.priority).map_err(Failure::new)?;
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
        outside,
        inheritance,
        &warnings.warn(),
    )?;
    let mut record = Record::of(&site).map_err(Failure::new)?;
    let is_first = left_over.is_none();
    record.settings = left_over.map(|record| record.settings).unwrap_or_default();
    record.numbers = numbers.boot_record();
    let mut plane = OwnPlane::new(host, now, random(options.seed));
    plane.keep(numbers);
    plane.numbers().start().map_err(Failure::new)?;
    let gateway = Gateway::new(plane, server, signals, file, options, record, warnings);
    gateway
        .map_err(Failure::new)?
        .start(text, is_first)?
        .serve()
}

/// Threads that never sleep and stand before all others would leave them nothing.
fn considerate(options: &Options) -> Result<(), Failure> {
    match (options.priority, options.wake) {
        (Priority::Realtime, Wake::Busy(None)) => Err(Failure::new(
            "--wake busy together with --priority realtime would leave the processor to nobody else: say --wake busy:10, \
             for looking again for 10 µs before sleeping, or --priority normal",
        )),
        _ => Ok(()),
    }
}

/// The one that is asked for, if one is.
fn state_folder(options: &Options) -> Option<PathBuf> {
    let environment = || std::env::var_os("ESPLANADE_STATE").map(PathBuf::from);
    options.state.clone().or_else(environment)
}

fn site(options: &Options) -> Result<Site, Failure> {
    let (table, mark) = (options.table, options.mark);
    let site = match &options.forward {
        Some(device) => Site::forwarding(device, table, mark),
        None => Site::new(&options.tun, table, mark),
    };
    site.map_err(Failure::new)
}

/// What an earlier gateway left here is taken over, never doubled.
pub(crate) fn inherit(
    folder: &Folder,
    site: &Site,
    warn: &Warn,
) -> Result<Option<Record>, Failure> {
    let control = folder.socket().display();
    let Some(record) = Record::load(folder).map_err(Failure::new)? else {
        return Ok(None);
    };
    match record.whereabouts().map_err(Failure::new)? {
        Whereabouts::Here => {}
        Whereabouts::BeforeBoot => return Ok(None),
        Whereabouts::Gone(name) => {
            warn(&format!(
                "the last gateway of {control} left its rules in network namespace {name}, which is nowhere to be seen any \
                 more: its note is replaced"
            ));
            return Ok(None);
        }
        Whereabouts::Elsewhere { name, enter } => {
            return Err(Failure::new(format!(
                "the last gateway of {control} left its rules in another network namespace, {name}: take them away there \
                 ({enter} esplanade down --control {control}), or choose another socket with --control"
            )));
        }
    }
    if record.site().map_err(Failure::new)? != *site {
        return Err(Failure::new(format!(
            "an earlier gateway at {control} left rules for device {} and table {}: take them away with `esplanade down \
             --control {control}`, or start this one with the same --tun or --forward, --table and --mark",
            record.tun, record.table
        )));
    }
    Ok(Some(record))
}

/// What lifetimes count by: seconds since the Unix epoch, whatever the date is set to meanwhile.
fn now() -> u64 {
    dataplane::clock::now()
}

/// Unpredictable bits, or with a seed always the same ones.
fn random(seed: Option<u64>) -> fn() -> u64 {
    match seed {
        None => system_random,
        Some(_) => || 0,
    }
}

/// Unpredictable bits.
pub fn system_random() -> u64 {
    let mut bytes = [0; 8];
    let mut filled = 0;
    while filled < bytes.len() {
        // The system's generator is ready since boot and only fails when interrupted.
        filled +=
            rustix::rand::getrandom(&mut bytes[filled..], rustix::rand::GetRandomFlags::empty())
                .unwrap_or(0);
    }
    u64::from_ne_bytes(bytes)
}

/// Warnings: told on standard error at once, and kept for `status`.
#[derive(Clone, Default)]
struct Warnings(Arc<std::sync::Mutex<Vec<String>>>);

impl Warnings {
    fn warn(&self) -> Warn {
        let kept = Arc::clone(&self.0);
        Arc::new(move |text: &str| {
            eprintln!("esplanade: warning: {text}");
            let mut kept = kept
                .lock()
                .unwrap_or_else(std::sync::PoisonError::into_inner);
            // A gateway runs for years; the first hundred say what is wrong with it.
            if kept.len() < 100 && !kept.iter().any(|known| known == text) {
                kept.push(text.to_owned());
            }
        })
    }

    /// The same, but what is known already is not told again.
    fn warn_once(&self) -> Warn {
        let (known, warn) = (self.clone(), self.warn());
        Arc::new(move |text: &str| {
            if !known.list().iter().any(|known| known == text) {
                warn(text);
            }
        })
    }

    fn list(&self) -> Vec<String> {
        self.0
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner)
            .clone()
    }
}

/// A number, decimal or hexadecimal.
pub(crate) fn number(word: &str) -> Result<u32, String> {
    let parsed = match word.strip_prefix("0x") {
        Some(digits) => u32::from_str_radix(digits, 16),
        None => word.parse(),
    };
    parsed.map_err(|_| "a number is expected, such as 0x10000000".to_owned())
}

fn cpu_list(word: &str) -> Result<CpuList, String> {
    let wrong = || format!("`{word}` is no list of processors; an example is 0-3,8");
    let mut cpus = Vec::new();
    for part in word.split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let first: usize = first.parse().map_err(|_| wrong())?;
        let last: usize = last.parse().map_err(|_| wrong())?;
        if first > last || last >= 1024 {
            return Err(wrong());
        }
        cpus.extend(first..=last);
    }
    Ok(cpus.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processors_are_listed_one_by_one_and_in_ranges() {
        assert_eq!(*cpu_list("0-3,8").unwrap(), [0, 1, 2, 3, 8]);
        for wrong in ["", "a", "3-1", "1-", "0-99999", "1,,2"] {
            assert!(cpu_list(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn marks_are_decimal_or_hexadecimal() {
        assert_eq!(number("0x10000000"), Ok(DEFAULT_MARK));
        assert_eq!(number("16"), Ok(16));
        assert!(number("0xg").is_err());
    }
}
