//! Capture files: pcap and pcapng in, packet by packet; pcap of raw IP packets out.
//!
//! `pcap-file` reads only the outer structure of blocks. Lengths, link types and time resolutions are checked here, so
//! that every fault is reported with the number of its packet, counted from 1 as in Wireshark.

use pcap_file::pcap::{PcapHeader, PcapPacket, PcapReader, PcapWriter};
use pcap_file::pcapng::blocks::interface_description::InterfaceDescriptionOption;
use pcap_file::pcapng::{PcapNgReader, RawBlock};
use pcap_file::{DataLink, Endianness, PcapError, TsResolution};
use std::fmt;
use std::fs::{File, OpenOptions};
use std::io::{self, BufWriter, Chain, Cursor, Read, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// One packet of a capture.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Frame {
    /// Its number in the file, from 1.
    pub number: u64,
    /// When it was captured, since the Unix epoch.
    pub time: Duration,
    /// What it begins with: a number of the tcpdump registry.
    pub link: u32,
    /// The bytes, link header included.
    pub bytes: Vec<u8>,
}

/// Why a capture cannot be read any further.
#[derive(Debug)]
pub(crate) enum Fault {
    /// The file is neither pcap nor pcapng.
    NotACapture,
    /// The file ends inside this packet.
    Truncated(u64),
    /// The file's structure is broken at this packet.
    Corrupt(u64, String),
    /// The capture program stored only the first so many of so many bytes of this packet.
    Snapped(u64, usize, usize),
    /// This packet begins with a link header of an unsupported type.
    Link(u64, u32),
    /// The system could not read the file.
    Io(io::Error),
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotACapture => f.write_str("neither a pcap nor a pcapng file"),
            Self::Truncated(number) => write!(
                f,
                "the file ends within packet {number}: it is truncated; copy it again or repair it (pcapfix, editcap)"
            ),
            Self::Corrupt(number, what) => {
                write!(f, "packet {number} is damaged in the file: {what}")
            }
            Self::Snapped(number, kept, whole) => write!(
                f,
                "packet {number} was truncated to {kept} of {whole} bytes when captured; capture full packets \
                 (tcpdump -s 0)"
            ),
            Self::Link(number, link) => write!(
                f,
                "packet {number} has link type {link}; supported are Ethernet, raw IP and Linux cooked captures"
            ),
            Self::Io(error) => write!(f, "{error}"),
        }
    }
}

impl std::error::Error for Fault {}

type Rewound<R> = Chain<Cursor<Vec<u8>>, R>;

/// Reads a capture from its start.
pub(crate) struct Reader<R: Read> {
    form: Form<R>,
    number: u64,
}

enum Form<R: Read> {
    Pcap(PcapReader<Rewound<R>>),
    PcapNg(Box<PcapNgReader<Rewound<R>>>),
}

impl<R: Read> Reader<R> {
    /// Determines the file's format from its first bytes.
    pub(crate) fn new(mut file: R) -> Result<Self, Fault> {
        let mut magic = Vec::new();
        file.by_ref()
            .take(4)
            .read_to_end(&mut magic)
            .map_err(Fault::Io)?;
        let is_pcapng = magic == [0x0a, 0x0d, 0x0d, 0x0a];
        let whole = Cursor::new(magic).chain(file);
        let form = if is_pcapng {
            PcapNgReader::new(whole).map(|reader| Form::PcapNg(Box::new(reader)))
        } else {
            PcapReader::new(whole).map(Form::Pcap)
        };
        match form {
            Ok(form) => Ok(Self { form, number: 0 }),
            Err(PcapError::IoError(error)) if error.kind() != io::ErrorKind::UnexpectedEof => {
                Err(Fault::Io(error))
            }
            Err(_) => Err(Fault::NotACapture),
        }
    }

    /// The next packet, or none at the end.
    pub(crate) fn next_frame(&mut self) -> Result<Option<Frame>, Fault> {
        let number = self.number + 1;
        let frame = match &mut self.form {
            Form::Pcap(reader) => next_of_pcap(reader, number)?,
            Form::PcapNg(reader) => next_of_pcapng(reader, number)?,
        };
        self.number += u64::from(frame.is_some());
        Ok(frame)
    }
}

fn next_of_pcap<R: Read>(reader: &mut PcapReader<R>, number: u64) -> Result<Option<Frame>, Fault> {
    let header = reader.header();
    let Some(packet) = reader.next_raw_packet() else {
        return Ok(None);
    };
    let packet = packet.map_err(|error| fault(error, number))?;
    whole(number, packet.data.len(), packet.orig_len)?;
    let unit = match header.ts_resolution {
        TsResolution::MicroSecond => 1000,
        TsResolution::NanoSecond => 1,
    };
    let nanos = u64::from(packet.ts_frac) * unit;
    Ok(Some(Frame {
        number,
        time: Duration::from_secs(packet.ts_sec.into()) + Duration::from_nanos(nanos),
        link: u32::from(header.datalink) & 0xffff,
        bytes: packet.data.into_owned(),
    }))
}

const SIMPLE_PACKET: u32 = 3;
const ENHANCED_PACKET: u32 = 6;

fn next_of_pcapng<R: Read>(
    reader: &mut PcapNgReader<R>,
    number: u64,
) -> Result<Option<Frame>, Fault> {
    loop {
        let block = match reader.next_raw_block() {
            None => return Ok(None),
            Some(block) => block.map_err(|error| fault(error, number))?,
        };
        let (kind, body) = (block.type_, owned_body(block));
        let big = reader.section().endianness == Endianness::Big;
        let fields = Fields { body: &body, big };
        let corrupt = |what: &str| Fault::Corrupt(number, what.to_owned());
        let short = || corrupt("its block is shorter than it says");
        let (interface, ticks, kept, original, start) = match kind {
            ENHANCED_PACKET => {
                let word = |at| fields.word(at).ok_or_else(short);
                let ticks = (u64::from(word(4)?) << 32) | u64::from(word(8)?);
                (word(0)?, ticks, word(12)?, word(16)?, 20)
            }
            SIMPLE_PACKET => {
                let original = fields.word(0).ok_or_else(short)?;
                let room = u32::try_from(body.len() - 4).unwrap_or(u32::MAX);
                (0, 0, original.min(room), original, 4)
            }
            _ => continue,
        };
        let bytes = body
            .get(start..)
            .and_then(|rest| rest.get(..kept as usize))
            .ok_or_else(short)?;
        let description = reader.interfaces().get(interface as usize);
        let description = description.ok_or_else(|| corrupt("its interface is not described"))?;
        whole(number, bytes.len(), original)?;
        return Ok(Some(Frame {
            number,
            time: time(ticks, &description.options),
            link: description.linktype.into(),
            bytes: bytes.to_vec(),
        }));
    }
}

fn owned_body(block: RawBlock<'_>) -> Vec<u8> {
    block.body.into_owned()
}

/// 32-bit words of a block in the section's byte order.
struct Fields<'a> {
    body: &'a [u8],
    big: bool,
}

impl Fields<'_> {
    fn word(&self, at: usize) -> Option<u32> {
        let bytes = self.body.get(at..at + 4)?.try_into().ok()?;
        Some(if self.big {
            u32::from_be_bytes(bytes)
        } else {
            u32::from_le_bytes(bytes)
        })
    }
}

/// Ticks are microseconds unless the interface has an `if_tsresol` option: 10^-n, or 2^-n with the highest bit set.
fn time(ticks: u64, options: &[InterfaceDescriptionOption<'_>]) -> Duration {
    let resolution = options.iter().find_map(|option| match option {
        InterfaceDescriptionOption::IfTsResol(resolution) => Some(*resolution),
        _ => None,
    });
    let resolution = resolution.unwrap_or(6);
    let exponent = u32::from(resolution & 0x7f);
    let base: u128 = if resolution & 0x80 == 0 { 10 } else { 2 };
    let Some(per_second) = base.checked_pow(exponent) else {
        return Duration::ZERO;
    };
    let ticks = u128::from(ticks);
    let nanos = (ticks % per_second).saturating_mul(1_000_000_000) / per_second;
    Duration::new((ticks / per_second) as u64, nanos as u32)
}

fn whole(number: u64, kept: usize, original: u32) -> Result<(), Fault> {
    if kept < original as usize {
        return Err(Fault::Snapped(number, kept, original as usize));
    }
    Ok(())
}

fn fault(error: PcapError, number: u64) -> Fault {
    match error {
        PcapError::IncompleteBuffer => Fault::Truncated(number),
        PcapError::IoError(error) if error.kind() == io::ErrorKind::UnexpectedEof => {
            Fault::Truncated(number)
        }
        PcapError::IoError(error) => Fault::Io(error),
        other => Fault::Corrupt(number, other.to_string()),
    }
}

/// Writes raw IP packets. The file appears under its name only when it is complete.
pub(crate) struct Writer {
    inner: Option<PcapWriter<BufWriter<File>>>,
    draft: PathBuf,
    path: PathBuf,
}

impl Writer {
    /// Begins a capture at `path`. Without `force` an existing file is refused.
    pub(crate) fn create(path: &Path, force: bool) -> io::Result<Self> {
        if !force && path.exists() {
            return Err(io::Error::new(
                io::ErrorKind::AlreadyExists,
                "the file exists already; choose another name, or overwrite it with --force",
            ));
        }
        let mut name = path.file_name().unwrap_or_default().to_owned();
        name.push(".part");
        let draft = path.with_file_name(name);
        let file = OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(true)
            .open(&draft)?;
        let header = PcapHeader {
            datalink: DataLink::RAW,
            ts_resolution: TsResolution::NanoSecond,
            endianness: Endianness::native(),
            snaplen: 262_144,
            ..PcapHeader::default()
        };
        let inner = PcapWriter::with_header(BufWriter::new(file), header).map_err(io_error)?;
        Ok(Self {
            inner: Some(inner),
            draft,
            path: path.to_owned(),
        })
    }

    /// Adds a packet.
    pub(crate) fn add(&mut self, time: Duration, packet: &[u8]) -> io::Result<()> {
        // The format's 32-bit seconds end in 2106; a later time wraps around.
        let time = Duration::new(time.as_secs() & u64::from(u32::MAX), time.subsec_nanos());
        let len = packet.len() as u32;
        let Some(inner) = &mut self.inner else {
            return Ok(());
        };
        inner
            .write_packet(&PcapPacket::new(time, len, packet))
            .map(drop)
            .map_err(io_error)
    }

    /// Gives the file its name.
    pub(crate) fn finish(mut self) -> io::Result<()> {
        if let Some(mut inner) = self.inner.take().map(PcapWriter::into_writer) {
            inner.flush()?;
            std::fs::rename(&self.draft, &self.path)?;
        }
        Ok(())
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        // The draft no longer exists if the file was finished; otherwise an error cannot be reported here.
        let _ = std::fs::remove_file(&self.draft);
    }
}

fn io_error(error: PcapError) -> io::Error {
    match error {
        PcapError::IoError(error) => error,
        other => io::Error::other(other.to_string()),
    }
}
