//! Processes a capture file with the data plane: `open` decrypts protected packets, `seal` encrypts plain ones, and
//! every drop is reported with its reason.
//!
//! ```text
//!   IN ──► file (pcap, pcapng) ──► link ──► IP packet ──► engine ──► IP packets ──► OUT (pcap, raw IP)
//!                                              │            the gateway's own pumps, one packet at a time
//!                                              └─ not named by an association, policy or device: passed by
//! ```

mod any_path;
mod engine;
pub(crate) mod file;
#[cfg(any(test, fuzzing))]
pub mod fuzz_body;
pub(crate) mod link;
mod operation;
mod report;
mod routed;

use crate::apply;
use crate::control::SetkeyText;
use crate::failure::Failure;
use clap::{Args, Subcommand};
use engine::Engine;
use file::{Fault, Frame, Reader, Writer};
use ipsec::database::Database;
use link::FrameContent;
use operation::Operation;
use report::Report;
use routed::Routed;
use std::fs::File;
use std::io::BufReader;
use std::path::PathBuf;
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use zeroize::Zeroizing;

/// What `esplanade capture` takes.
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct CaptureOptions {
    #[command(subcommand)]
    verb: Command,
}

const EXAMPLES: &str = "\
Examples:
  esplanade capture open --sa tunnel.setkey wire.pcap inside.pcap
  esplanade capture seal --sa tunnel.setkey --seed 7 inside.pcapng wire.pcap";

#[derive(Subcommand)]
enum Command {
    /// Decrypt the ESP and AH packets of a capture with the associations of a setkey file, and check its policies if it
    /// has any
    #[command(
        after_help = "Example:\n  esplanade capture open --sa tunnel.setkey wire.pcap inside.pcap"
    )]
    Open(Files),
    /// Encrypt the packets of a capture according to the `out` policies of a setkey file, or its `-o interface=`
    #[command(
        after_help = "Examples:\n  esplanade capture seal --sa tunnel.setkey inside.pcap wire.pcap\n  \
                      esplanade capture seal --sa routed.setkey --interface vpn0 --local 192.0.2.1 inside.pcap wire.pcap"
    )]
    Seal {
        #[command(flatten)]
        files: Files,
        #[command(flatten)]
        routed: Routed,
    },
}

#[derive(Args)]
struct Files {
    /// Associations and policies, in setkey syntax; without any policy `open` accepts what the associations open
    #[arg(long, value_name = "FILE")]
    sa: PathBuf,
    /// Make IVs reproducible: equal seeds give equal packets. Never send such packets
    #[arg(long, value_name = "NUMBER")]
    seed: Option<u64>,
    /// Overwrite OUT if it exists
    #[arg(long)]
    force: bool,
    /// A pcap or pcapng file: Ethernet, raw IP or Linux cooked
    #[arg(value_name = "IN")]
    input: PathBuf,
    /// The pcap file to write: raw IP
    #[arg(value_name = "OUT")]
    output: PathBuf,
}

/// Runs the command. It succeeds only if every packet that an association or policy selects was processed.
pub(crate) fn run(options: &CaptureOptions) -> Result<(), Failure> {
    let (operation, files, routed) = match &options.verb {
        Command::Open(files) => (Operation::Open, files, None),
        Command::Seal { files, routed } => (Operation::Seal, files, Some(routed)),
    };
    let mut engine = engine(operation, files, routed)?;
    let report = process(&mut engine, files)?;
    println!("{}", report.text(operation));
    if report.is_complete() {
        Ok(())
    } else {
        Err(Failure::new(format!(
            "{} of {} packets were dropped; the others are in {}",
            report.lost(),
            report.named(),
            files.output.display()
        )))
    }
}

/// The engine with a setkey file's databases.
fn engine(operation: Operation, files: &Files, routed: Option<&Routed>) -> Result<Engine, Failure> {
    let mut database = database(files)?;
    refuse_rates(operation, &database)?;
    if operation == Operation::Open && any_path::has_no_policies(&database.snapshot()) {
        let accepted = database.apply(&any_path::policies(), 0, &mut || 0);
        accepted.map_err(|refused| Failure::new(refused.reason))?;
    }
    let device = match routed {
        Some(routed) => routed.device(&mut database)?,
        None => 0,
    };
    Engine::new(operation, (database.snapshot(), device), files.seed)
        .map_err(|error| Failure::new(format!("cannot start the engine: {error}")))
}

/// Refuses constant-rate associations: a capture has no clock.
fn refuse_rates(operation: Operation, database: &Database) -> Result<(), Failure> {
    let snapshot = database.snapshot();
    let is_paced = snapshot
        .sas()
        .filter_map(|sa| sa.config.aggfrag)
        .any(|aggfrag| aggfrag.rate > 0);
    match operation {
        Operation::Seal if is_paced => Err(Failure::new(
            "a capture cannot be sealed at a constant rate: remove `-o aggfrag-rate`".to_owned(),
        )),
        Operation::Seal | Operation::Open => Ok(()),
    }
}

/// The databases of a setkey file. Prints the warnings about it.
fn database(files: &Files) -> Result<Database, Failure> {
    let name = files.sa.display().to_string();
    let text = std::fs::read(&files.sa)
        .map_err(|error| Failure::new(format!("cannot read {name}: {error}")))?;
    let request = SetkeyText {
        name,
        text: Zeroizing::new(text),
        ..SetkeyText::default()
    };
    let lowered = apply::parse(&request)?;
    for warning in apply::warnings(&lowered, &request) {
        eprintln!("{}", warning.trim_end());
    }
    let now = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default()
        .as_secs();
    let mut random = random_bits(files.seed);
    let mut database = Database::default();
    match database.apply(&lowered.commands, now, &mut random) {
        Ok(_) => Ok(database),
        Err(refused) => Err(Failure::new(apply::blame(&refused, &lowered, &request))),
    }
}

/// Bits for the start of IV counters: the system's, or repeatable ones (SplitMix64).
fn random_bits(seed: Option<u64>) -> impl FnMut() -> u64 {
    let mut state = seed.unwrap_or_else(crate::random::system_random);
    move || {
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = state;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }
}

fn process(engine: &mut Engine, files: &Files) -> Result<Report, Failure> {
    let in_name = files.input.display();
    let of_input = |fault: Fault| Failure::new(format!("{in_name}: {fault}"));
    let of_output =
        |error| Failure::new(format!("cannot write {}: {error}", files.output.display()));
    let input = File::open(&files.input)
        .map_err(|error| Failure::new(format!("cannot read {in_name}: {error}")))?;
    let mut reader = Reader::new(BufReader::new(input)).map_err(of_input)?;
    let mut writer = Writer::create(&files.output, files.force).map_err(of_output)?;
    let mut report = Report::default();
    let mut latest = Duration::ZERO;
    while let Some(frame) = reader.next_frame().map_err(of_input)? {
        let Some(packet) = ip_packet(&frame).map_err(of_input)? else {
            report.pass_by(frame.number);
            continue;
        };
        latest = frame.time;
        for carried in engine
            .process(packet, frame.time, frame.number, &mut report)
            .map_err(of_output)?
        {
            writer.add(frame.time, &carried).map_err(of_output)?;
        }
    }
    for carried in engine.finish(&mut report).map_err(of_output)? {
        writer.add(latest, &carried).map_err(of_output)?;
    }
    writer.finish().map_err(of_output)?;
    Ok(report)
}

/// The IP packet of a frame; none if it carries something else.
fn ip_packet(frame: &Frame) -> Result<Option<&[u8]>, Fault> {
    match link::content(frame.link, &frame.bytes) {
        FrameContent::Ip(offset) => Ok(frame.bytes.get(offset..)),
        FrameContent::Other | FrameContent::Short => Ok(None),
        FrameContent::Unknown => Err(Fault::Link(frame.number, frame.link)),
    }
}

#[cfg(test)]
mod tests;
