//! What the guest boots: Debian's kernel with its modules, kept in the user's cache, and behind it the programs of this
//! machine that the lab and its contenders need, put together anew for every boot and in memory only.

use std::fs::{self, File};
use std::io::{self, Write};
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::absence::Absence;
use crate::fault::Fault;
use crate::host::program;
use crate::testbed::process;

/// The builder, which the tests with the kernel as a peer share.
const BUILDER: &str = include_str!("../../../guest/initramfs.py");
/// The guest's first process.
const INIT: &str = include_str!("../../../guest/init");

/// Programs, folders and files that the lab, its loads and its contenders use. What is not here is not there either,
/// and its contender is reported as absent.
#[rustfmt::skip]
const NEEDED: [&str; 33] = [
    "ip", "tc", "ss", "ping", "ethtool", "nft", "iperf3", "netserver", "netperf", "taskset", "timeout", "sha256sum", "perf", "strace", "setkey",
    "wg", "wireguard-go", "wireguard", "boringtun-cli", "boringtun", "openvpn", "openssl", "swanctl",
    "/usr/lib/ipsec", "/etc/strongswan.conf", "/etc/swanctl/swanctl.conf", "/etc/ssl/openssl.cnf", "/usr/lib/ssl/openssl.cnf",
    "/etc/passwd", "/etc/group", "/etc/nsswitch.conf", "/etc/protocols", "/etc/os-release",
];
/// Where the tools of languages install programs in the user's home.
const AT_HOME: [&str; 4] = [
    "go/bin/wireguard-go",
    "go/bin/wireguard",
    ".cargo/bin/boringtun-cli",
    ".cargo/bin/boringtun",
];

/// What is missing for a guest, if something is.
pub fn absence() -> Option<Absence> {
    const TOOLS: [(&str, &str); 5] = [
        ("qemu-system-x86_64", "qemu-system-x86"),
        ("busybox", "busybox-static"),
        ("python3", "python3"),
        ("ldd", "libc-bin"),
        (
            "apt-get",
            "apt (the guest's kernel is one of Debian's packages)",
        ),
    ];
    if std::env::consts::ARCH != "x86_64" {
        return Some(Absence::new(
            "the guest is an x86-64 machine and runs programs of this machine, which is not one",
            "run the lab on an x86-64 machine",
        ));
    }
    let missing = TOOLS.iter().find(|(name, _)| program(name).is_none());
    missing.map(|(name, package)| {
        Absence::new(
            format!("{name} is missing; the guest needs it"),
            format!("apt-get install {package}"),
        )
    })
}

/// A kernel and its file system, ready to boot.
pub(super) struct Image {
    kernel: String,
    files: File,
    console: File,
}

impl Image {
    /// `programs`: where each is here, and there.
    pub(super) fn make(programs: &[(PathBuf, &str)]) -> Result<Image, Fault> {
        let folder = cache();
        let cannot = |error: io::Error| {
            Fault::failed(format!(
                "cannot write the guest's kernel to {}: {error}. Set XDG_CACHE_HOME to use another folder",
                folder.display()
            ))
        };
        fs::create_dir_all(&folder).map_err(cannot)?;
        let (builder, init) = (folder.join("initramfs.py"), folder.join("init"));
        write_whole(&builder, BUILDER)
            .and_then(|()| write_whole(&init, INIT))
            .map_err(cannot)?;
        let (kernel, base) = base(&builder, &folder, &init)?;
        let files = memory("files")?;
        io::copy(&mut File::open(&base).map_err(cannot)?, &mut &files).map_err(cannot)?;
        add(&builder, &files, programs)?;
        let console = memory("console")?;
        Ok(Image {
            kernel,
            files,
            console,
        })
    }

    pub(super) fn kernel(&self) -> &str {
        &self.kernel
    }

    pub(super) fn files(&self) -> String {
        fd_path(&self.files)
    }

    /// Where the kernel's messages go.
    pub(super) fn console(&self) -> String {
        fd_path(&self.console)
    }

    /// The last of them.
    pub(super) fn last_message(&self) -> String {
        let said = process::contents(&self.console);
        let last = said.lines().rfind(|line| !line.trim().is_empty());
        last.unwrap_or("nothing").trim().to_owned()
    }
}

fn memory(name: &str) -> Result<File, Fault> {
    process::memory(name).map_err(|error| Fault::failed(format!("no memory for a guest: {error}")))
}

/// The path by which other programs of this user can open an anonymous file of this process.
fn fd_path(file: &File) -> String {
    format!("/proc/{}/fd/{}", std::process::id(), file.as_raw_fd())
}

fn cache() -> PathBuf {
    let named = std::env::var_os("XDG_CACHE_HOME").filter(|path| !path.is_empty());
    let home = || PathBuf::from(std::env::var_os("HOME").unwrap_or_else(|| "/root".into()));
    let cache = named.map_or_else(|| home().join(".cache"), PathBuf::from);
    let folder = cache.join("esplanade-lab/guest");
    std::path::absolute(&folder).unwrap_or(folder)
}

/// Two labs that start at once never see half of it.
fn write_whole(place: &Path, text: &str) -> io::Result<()> {
    if fs::read_to_string(place).is_ok_and(|there| there == text) {
        return Ok(());
    }
    let half = place.with_extension(format!("half-{}", std::process::id()));
    fs::write(&half, text)?;
    fs::rename(&half, place)
}

/// Kernel and first file system, made now if they are not there yet.
fn base(builder: &Path, folder: &Path, init: &Path) -> Result<(String, String), Fault> {
    let mut build = python(builder);
    build.arg("base").arg(folder).arg(init);
    let built = build.output().map_err(cannot_start)?;
    let said = String::from_utf8_lossy(&built.stdout).into_owned();
    let mut lines = said.lines();
    match (built.status.success(), lines.next(), lines.next()) {
        (true, Some(kernel), Some(files)) => Ok((kernel.into(), files.into())),
        _ => Err(complaint(
            "cannot prepare the guest's kernel",
            &built.stderr,
        )),
    }
}

/// Adds programs behind what is there: the kernel unpacks one archive after another.
fn add(builder: &Path, files: &File, programs: &[(PathBuf, &str)]) -> Result<(), Fault> {
    let mut add = python(builder);
    add.arg("add").args(NEEDED);
    if let Some(home) = std::env::var_os("HOME") {
        add.args(AT_HOME.map(|path| Path::new(&home).join(path)));
    }
    for (here, there) in programs {
        add.arg(format!("{}={there}", here.display()));
    }
    let output = files.try_clone().map_err(cannot_start)?;
    let added = add.stdout(Stdio::from(output)).stderr(Stdio::piped());
    let added = added.spawn().and_then(|child| child.wait_with_output());
    let added = added.map_err(cannot_start)?;
    let mut flushed = files;
    flushed.flush().map_err(cannot_start)?;
    if added.status.success() {
        Ok(())
    } else {
        Err(complaint("cannot pack the guest's programs", &added.stderr))
    }
}

fn python(builder: &Path) -> Command {
    let mut python = Command::new("python3");
    python.arg("-B").arg(builder).stdin(Stdio::null());
    python
}

fn cannot_start(error: io::Error) -> Fault {
    Fault::failed(format!("cannot start python3: {error}"))
}

fn complaint(what: &str, said: &[u8]) -> Fault {
    let said = String::from_utf8_lossy(said);
    let last = said.lines().rfind(|line| !line.trim().is_empty());
    Fault::failed(format!(
        "{what}: {}",
        last.unwrap_or("python3 said nothing")
    ))
}
