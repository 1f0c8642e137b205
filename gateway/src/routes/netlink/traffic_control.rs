//! Traffic control: the qdisc `clsact`, whose hooks every packet of a device passes, and classic BPF filters in it
//! whose result is the verdict (`tc filter … bpf da bytecode`).

use super::Netlink;
use super::raw::{self, RawAnswer};
use crate::netlink_socket::attributes::{self, Attributes};
use crate::routes::device_filter::FilterHook;
use crate::routes::device_filter::assembler::Instruction;
use netlink_packet_core::{NLM_F_ACK, NLM_F_CREATE, NLM_F_DUMP, NLM_F_EXCL};
use std::io;

const RTM_NEWLINK: u16 = 16;
const RTM_GETLINK: u16 = 18;
const RTM_NEWQDISC: u16 = 36;
const RTM_DELQDISC: u16 = 37;
const RTM_GETQDISC: u16 = 38;
const RTM_NEWTFILTER: u16 = 44;
const RTM_DELTFILTER: u16 = 45;
const RTM_GETTFILTER: u16 = 46;

const CREATE_NEW: u16 = NLM_F_ACK | NLM_F_CREATE | NLM_F_EXCL;

/// TC_H_CLSACT, which equals TC_H_INGRESS, and the handle of either qdisc.
const CLSACT: u32 = 0xffff_fff1;
const CLSACT_HANDLE: u32 = 0xffff_0000;

/// Attributes: TCA_KIND and TCA_OPTIONS; of a filter TCA_BPF_OPS_LEN, TCA_BPF_OPS and TCA_BPF_FLAGS.
const KIND: u16 = 1;
const OPTIONS: u16 = 2;
const OPS_LEN: u16 = 4;
const OPS: u16 = 5;
const FLAGS: u16 = 8;

/// TCA_BPF_FLAG_ACT_DIRECT: the program's result is the verdict.
const DIRECT: u32 = 1;

/// Bytes of `struct ifinfomsg`, and of `struct tcmsg`.
const IFINFOMSG_LEN: usize = 16;
const TCMSG_LEN: usize = 20;

/// TCA_STATS2, in it TCA_STATS_QUEUE, and the offset of its count of drops.
const STATS: u16 = 7;
const STATS_QUEUE: u16 = 3;
const STATS_QUEUE_DROPS: usize = 8;

/// IFLA_IFNAME and IFLA_IFALIAS; IFLA_LINKINFO and in it IFLA_INFO_SLAVE_KIND.
const IFNAME: u16 = 3;
const IFALIAS: u16 = 20;
const LINKINFO: u16 = 18;
const SLAVE_KIND: u16 = 4;

/// Bytes of `struct sock_filter`.
const INSTRUCTION_LEN: usize = 8;

/// The properties of a device that filters depend on.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Device {
    /// Its index.
    pub index: u32,
    /// Its name.
    pub name: String,
    /// Its alias; empty without one.
    pub alias: String,
    /// ARPHRD_…: its link-layer type.
    pub hardware: u16,
    /// Whether it is a port of a bridge or switch of the host.
    pub is_bridged: bool,
}

/// A device's qdisc in the place of `clsact`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Discipline {
    /// The device's index.
    pub device: u32,
    /// `clsact`, or its predecessor `ingress`.
    pub kind: String,
    /// Packets that filters there have dropped, in both directions.
    pub drops: u32,
}

/// A filter of any program.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Filter {
    /// `bpf`, `u32`, …
    pub kind: String,
    /// Filters with smaller preferences run first.
    pub preference: u16,
    /// Its number among those of the same preference.
    pub handle: u32,
    /// Whether the program's result is the verdict.
    pub is_direct: bool,
    /// A program of classic BPF; empty for another filter.
    pub program: Vec<Instruction>,
}

/// Identifies a filter.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct FilterId {
    /// The device's index.
    pub device: u32,
    /// Direction of the packets.
    pub hook: FilterHook,
    /// The filter's preference.
    pub preference: u16,
    /// The filter's handle.
    pub handle: u32,
}

impl Netlink {
    fn ask_raw(&mut self, kind: u16, flags: u16, body: &[u8]) -> io::Result<Vec<RawAnswer>> {
        raw::ask(&mut self.socket, kind, flags, body)
    }

    /// All devices of this network namespace.
    pub(crate) fn devices(&mut self) -> io::Result<Vec<Device>> {
        let answers = self.ask_raw(RTM_GETLINK, NLM_F_DUMP, &[0; IFINFOMSG_LEN])?;
        let links = answers.iter().filter(|answer| answer.kind == RTM_NEWLINK);
        Ok(links.map(read_device).collect())
    }

    /// The qdiscs in the place of `clsact`, of all devices.
    pub(crate) fn disciplines(&mut self) -> io::Result<Vec<Discipline>> {
        let answers = self.ask_raw(RTM_GETQDISC, NLM_F_DUMP, &header(0, 0, 0, 0))?;
        let there = answers.iter().filter_map(|answer| {
            let [_, device, handle, ..] = words(answer);
            let kind = text(answer.find(TCMSG_LEN, KIND)?);
            let is_there = answer.kind == RTM_NEWQDISC && handle == CLSACT_HANDLE;
            is_there.then(|| Discipline {
                device,
                kind,
                drops: read_drops(answer).unwrap_or(0),
            })
        });
        Ok(there.collect())
    }

    /// Adds `clsact`, which must not exist yet.
    pub(crate) fn add_clsact(&mut self, device: u32) -> io::Result<()> {
        let body = with_kind(header(device, CLSACT_HANDLE, CLSACT, 0), "clsact");
        self.ask_raw(RTM_NEWQDISC, CREATE_NEW, &body).map(drop)
    }

    /// Deletes `clsact` with all filters in it.
    pub(crate) fn delete_clsact(&mut self, device: u32) -> io::Result<()> {
        let body = with_kind(header(device, CLSACT_HANDLE, CLSACT, 0), "clsact");
        self.ask_raw(RTM_DELQDISC, NLM_F_ACK, &body).map(drop)
    }

    /// All filters of one direction.
    pub(crate) fn filters(&mut self, device: u32, hook: FilterHook) -> io::Result<Vec<Filter>> {
        let body = header(device, 0, parent(hook), 0);
        let answers = match self.ask_raw(RTM_GETTFILTER, NLM_F_DUMP, &body) {
            // A device that was deleted has none.
            Err(error) if error.raw_os_error() == Some(libc::ENODEV) => return Ok(Vec::new()),
            answers => answers?,
        };
        let filters = answers
            .iter()
            .filter(|answer| answer.kind == RTM_NEWTFILTER);
        Ok(filters.filter_map(read_filter).collect())
    }

    /// Adds a program whose result is the verdict; a filter with this handle must not exist yet.
    pub(crate) fn add_filter(&mut self, id: FilterId, program: &[Instruction]) -> io::Result<()> {
        let mut attributes = Attributes::default();
        let ops: Vec<u8> = program.iter().flat_map(bytes).collect();
        attributes.put_text(KIND, "bpf").nest(OPTIONS, |options| {
            options
                .put(OPS_LEN, &(program.len() as u16).to_ne_bytes())
                .put(OPS, &ops)
                .put(FLAGS, &DIRECT.to_ne_bytes());
        });
        let body = [&filter_header(id)[..], &attributes.into_bytes()].concat();
        self.ask_raw(RTM_NEWTFILTER, CREATE_NEW, &body).map(drop)
    }

    /// Deletes one filter.
    pub(crate) fn delete_filter(&mut self, id: FilterId) -> io::Result<()> {
        let body = with_kind(filter_header(id), "bpf");
        self.ask_raw(RTM_DELTFILTER, NLM_F_ACK, &body).map(drop)
    }
}

/// TC_H_MAKE of TC_H_CLSACT and TC_H_MIN_INGRESS or TC_H_MIN_EGRESS.
fn parent(hook: FilterHook) -> u32 {
    CLSACT_HANDLE
        | match hook {
            FilterHook::Ingress => 0xfff2,
            FilterHook::Egress => 0xfff3,
        }
}

/// The header of a filter for all protocols: the program itself parses VLAN tags.
fn filter_header(id: FilterId) -> [u8; TCMSG_LEN] {
    let every = u32::from((libc::ETH_P_ALL as u16).to_be());
    let info = u32::from(id.preference) << 16 | every;
    header(id.device, id.handle, parent(id.hook), info)
}

/// `struct tcmsg`.
fn header(device: u32, handle: u32, parent: u32, info: u32) -> [u8; TCMSG_LEN] {
    let mut bytes = [0; TCMSG_LEN];
    for (place, word) in bytes
        .chunks_exact_mut(4)
        .zip([0, device, handle, parent, info])
    {
        place.copy_from_slice(&word.to_ne_bytes());
    }
    bytes
}

fn with_kind(header: [u8; TCMSG_LEN], kind: &str) -> Vec<u8> {
    let mut attributes = Attributes::default();
    attributes.put_text(KIND, kind);
    [&header[..], &attributes.into_bytes()].concat()
}

fn words(answer: &RawAnswer) -> [u32; 5] {
    let fixed = answer.fixed::<TCMSG_LEN>();
    let mut words = [0; 5];
    for (word, bytes) in words.iter_mut().zip(fixed.as_chunks::<4>().0) {
        *word = u32::from_ne_bytes(*bytes);
    }
    words
}

fn text(value: &[u8]) -> String {
    String::from_utf8_lossy(value)
        .trim_end_matches('\0')
        .to_owned()
}

fn read_device(answer: &RawAnswer) -> Device {
    let fixed = answer.fixed::<IFINFOMSG_LEN>();
    let named = |kind| answer.find(IFINFOMSG_LEN, kind).map(text);
    let info = answer.find(IFINFOMSG_LEN, LINKINFO).unwrap_or_default();
    let port = attributes::find(info, SLAVE_KIND).map(text);
    Device {
        index: u32::from_ne_bytes([fixed[4], fixed[5], fixed[6], fixed[7]]),
        name: named(IFNAME).unwrap_or_default(),
        alias: named(IFALIAS).unwrap_or_default(),
        hardware: u16::from_ne_bytes([fixed[2], fixed[3]]),
        is_bridged: matches!(port.as_deref(), Some("bridge" | "openvswitch")),
    }
}

fn read_drops(answer: &RawAnswer) -> Option<u32> {
    let queue = attributes::find(answer.find(TCMSG_LEN, STATS)?, STATS_QUEUE)?;
    let drops = queue.get(STATS_QUEUE_DROPS..)?.first_chunk()?;
    Some(u32::from_ne_bytes(*drops))
}

/// Parses a filter; none for the head of a preference, which the kernel lists like a filter.
fn read_filter(answer: &RawAnswer) -> Option<Filter> {
    let [_, _, handle, _, info] = words(answer);
    let options = answer.find(TCMSG_LEN, OPTIONS)?;
    let number = |kind| {
        Some(u32::from_ne_bytes(
            attributes::find(options, kind)?.try_into().ok()?,
        ))
    };
    let kind = text(answer.find(TCMSG_LEN, KIND)?);
    let is_bpf = kind == "bpf";
    let ops = attributes::find(options, OPS).filter(|_| is_bpf);
    Some(Filter {
        kind,
        preference: (info >> 16) as u16,
        handle,
        is_direct: is_bpf && number(FLAGS).is_some_and(|flags| flags & DIRECT != 0),
        program: ops.map(instructions).unwrap_or_default(),
    })
}

fn bytes(instruction: &Instruction) -> [u8; INSTRUCTION_LEN] {
    let [a, b] = instruction.code.to_ne_bytes();
    let [c, d, e, f] = instruction.k.to_ne_bytes();
    [a, b, instruction.if_true, instruction.if_false, c, d, e, f]
}

fn instructions(bytes: &[u8]) -> Vec<Instruction> {
    let each = bytes.as_chunks::<INSTRUCTION_LEN>().0.iter();
    let read = |[a, b, if_true, if_false, c, d, e, f]: &[u8; INSTRUCTION_LEN]| Instruction {
        code: u16::from_ne_bytes([*a, *b]),
        if_true: *if_true,
        if_false: *if_false,
        k: u32::from_ne_bytes([*c, *d, *e, *f]),
    };
    each.map(read).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_is_read_as_it_was_written() {
        let program: Vec<_> = (0..9)
            .map(|n| Instruction {
                code: 0x1500 + n,
                if_true: n as u8,
                if_false: 255,
                k: u32::from(n) << 20,
            })
            .collect();
        let written: Vec<u8> = program.iter().flat_map(bytes).collect();
        assert_eq!(instructions(&written), program);
        assert_eq!(instructions(&written[..15]).len(), 1);
    }

    #[test]
    fn headers_of_filters_name_both_directions_and_the_preference() {
        let id = FilterId {
            device: 7,
            hook: FilterHook::Egress,
            preference: 9,
            handle: 0x4500_0001,
        };
        let bytes = filter_header(id);
        assert_eq!(bytes[12..16], 0xffff_fff3u32.to_ne_bytes());
        assert_eq!(
            bytes[16..],
            (9 << 16 | u32::from(3u16.to_be())).to_ne_bytes()
        );
    }
}
