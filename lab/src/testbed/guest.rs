//! A machine in QEMU, whose kernel has what the one that runs here may lack: ESP, AH, pcrypt, WireGuard. The whole lab
//! runs inside it, in namespaces as anywhere else, so that nothing is measured across the emulated processor's border:
//!
//! ```text
//!   lab ── standard input and output ── qemu ── virtio port ── agent ── lab ── client, left, right, server
//! ```
//!
//! The agent is the same as on hosts reached by SSH. When the lab ends, the port hangs up and the guest powers off;
//! QEMU dies with a killed lab. Only the kernel is on the disk: it is downloaded once and cached.
//!
//! Processors are emulated even where /dev/kvm exists, because a stock kernel hangs under nested virtualisation of some
//! clouds. Such a run checks correctness; its figures are not comparable to real machines.

mod image;

use std::path::PathBuf;
use std::time::Duration;

use super::process;
use super::ssh::connection::{Connection, REPLY_TIMEOUT};
use super::ssh::protocol::{Bytes, Request, Response};
use crate::absence::Absence;
use crate::fault::Fault;
use crate::host::Command;
use crate::stop::Stop;
use image::Image;

pub use image::absence;

/// How the testbed of such a run is described in its records.
pub const EMULATED: &str = "inside a guest of QEMU with emulated processors";
/// Where the lab is in the guest.
pub const LAB: &str = "/usr/local/bin/esplanade-lab";
/// Where `esplanade` is in the guest.
pub const ESPLANADE: &str = "/usr/local/bin/esplanade";

/// From the emulated power button to the agent: 4 s on a quiet machine.
const BOOT_TIMEOUT: Duration = Duration::from_secs(300);
/// More than the largest set of contenders takes.
const MEMORY: &str = "1024M";

/// A guest that is up.
pub struct Guest {
    connection: Connection,
}

impl Guest {
    /// Boots it, with these programs in it: where each is here, and there.
    pub fn boot(programs: &[(PathBuf, &str)], stop: Stop) -> Result<Guest, Fault> {
        if let Some(Absence { why, remedy }) = absence() {
            return Err(Fault::failed(format!("{why}. Fix: {remedy}")));
        }
        let image = Image::make(programs)?;
        let mut qemu = std::process::Command::new("qemu-system-x86_64");
        qemu.args(arguments(&image));
        process::die_with_parent(&mut qemu);
        let name = "the guest in QEMU".to_owned();
        let mut connection = Connection::over(qemu, name, stop)
            .map_err(|error| Fault::failed(format!("cannot start QEMU: {error}")))?;
        connection
            .wait_until_ready(BOOT_TIMEOUT)
            .map_err(|fault| match fault {
                Fault::Interrupted => fault,
                _ => Fault::failed(format!(
                    "{fault}; last line of the console: {}",
                    image.last_message()
                )),
            })?;
        Ok(Guest { connection })
    }

    /// Writes a file into a folder that goes with the guest; where it is there.
    pub fn write_file(&self, name: &str, text: String) -> Result<PathBuf, Fault> {
        let name = name.into();
        match self.ask(Request::WriteFile { name, text })? {
            Response::Text(path) => Ok(path.into()),
            other => Err(unexpected(&other)),
        }
    }

    /// Starts a program; its number.
    pub fn start(&self, command: Command) -> Result<u64, Fault> {
        match self.ask(Request::Start { command })? {
            Response::Started(process, _) => Ok(process),
            other => Err(unexpected(&other)),
        }
    }

    /// Its exit code, once it has ended, and its output.
    pub fn state(&self, process: u64) -> Result<(Option<i32>, String), Fault> {
        match self.ask(Request::State { process })? {
            Response::State(code, said) => Ok((code, said)),
            other => Err(unexpected(&other)),
        }
    }

    /// Asks it to end, and waits.
    pub fn stop(&self, process: u64, grace: Duration) -> Result<(), Fault> {
        let ask = Request::Stop { process, grace };
        self.connection
            .ask(ask, grace + REPLY_TIMEOUT, false)
            .map(drop)
    }

    /// The bytes of a file from an offset on; empty if it does not exist.
    pub fn fetch(&self, path: PathBuf, from: u64) -> Result<Vec<u8>, Fault> {
        match self.ask(Request::Fetch { path, from })? {
            Response::Bytes(Bytes(bytes)) => Ok(bytes),
            other => Err(unexpected(&other)),
        }
    }

    /// Every file below a folder.
    pub fn files(&self, folder: &str) -> Result<Vec<PathBuf>, Fault> {
        let command = Command::line("find").arg(folder).arg("-type").arg("f");
        let limit = REPLY_TIMEOUT;
        match self.ask(Request::Run { command, limit })? {
            Response::Finished(Some(found)) => {
                Ok(found.stdout.lines().map(PathBuf::from).collect())
            }
            other => Err(unexpected(&other)),
        }
    }

    /// Not interruptible: results must be copied even when the user stops.
    fn ask(&self, ask: Request) -> Result<Response, Fault> {
        self.connection.ask(ask, 2 * REPLY_TIMEOUT, false)
    }
}

fn unexpected(answer: &Response) -> Fault {
    Fault::failed(format!("unexpected response from the guest: {answer:?}"))
}

/// As many processors as there are, two at most: more emulated ones than real ones only wait for each other.
fn arguments(image: &Image) -> Vec<String> {
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    let words = format!(
        "-accel tcg,thread=multi -cpu max -smp {} -m {MEMORY} -nodefaults -no-reboot -display none \
         -kernel {} -initrd {} -serial file:{} -device virtio-rng-pci -device virtio-serial-pci \
         -chardev stdio,id=lab,signal=off -device virtserialport,chardev=lab,name=lab",
        processors.min(2),
        image.kernel(),
        image.files(),
        image.console(),
    );
    let words = words.split_whitespace().map(str::to_owned);
    words
        .chain(["-append", "console=ttyS0 quiet panic=-1 mitigations=off"].map(str::to_owned))
        .collect()
}
