//! Parses a packet's headers into scratch memory: the link header, the addresses, and the upper-layer fields that
//! selectors match.
//!
//! Most packets of a host go to destinations that no policy of the program covers. So the destination of an untagged
//! frame is checked before anything is stored, and such packets leave the program there, after about six consecutive
//! instructions.
//!
//! A load beyond the packet's end makes classic BPF return 0, which lets the packet pass. So offsets after the fixed
//! part of the IP header are compared with the packet's length first. A packet shorter than its fixed header passes;
//! every receiver drops it.

use super::assembler::{Assembler, Label, Op, PASS, Test};
use super::search::{AddressField, AddressLocation, search};
use crate::routes::plan::Family;
use crate::routes::range::Range;

/// Which header a device's packets begin with.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(crate) enum LinkKind {
    /// An Ethernet header. The program reads its EtherType, not the protocol that a packet socket's owner has set.
    Ethernet,
    /// The IP header, or another that the kernel has parsed: the program reads the IP version.
    Other,
}

/// Scratch memory: where the IP header begins.
pub(super) const START: u32 = 1;
/// The protocol above IP, or [`UNKNOWN`].
pub(super) const PROTOCOL: u32 = 2;
/// How much is known of the header above IP: one of the three below.
pub(super) const KNOWLEDGE: u32 = 3;
/// Its first four bytes: ports, or type and code of ICMP.
pub(super) const PORTS: u32 = 4;
/// Where it begins.
pub(super) const UPPER: u32 = 5;
/// Where the packet ends.
const END: u32 = 6;
/// Its destination, in up to four words.
const DESTINATION: u32 = 8;
/// Its source.
const SOURCE: u32 = 12;

/// A later fragment: the header above IP was in the first one.
pub(super) const LATER: u32 = 0;
/// The first four bytes are there.
pub(super) const KNOWN: u32 = 1;
/// The packet ends before them, or its extension headers cannot be parsed.
pub(super) const SHORT: u32 = 2;

/// No protocol's number: the protocol could not be determined.
pub(super) const UNKNOWN: u32 = 256;

/// Extension headers that are parsed. RFC 8200 4.1 lists six, of which one may occur twice.
const MAX_EXTENSION_HEADERS: usize = 8;

/// VLAN tags inside an Ethernet frame that are parsed, in addition to the one that the kernel removes.
const MAX_INNER_TAGS: u32 = 2;

/// EtherTypes of IEEE 802.1Q, 802.1ad and its predecessor.
const TAGS: [u32; 3] = [0x8100, 0x88a8, 0x9100];

/// The address fields of a family.
pub(super) fn source(family: Family) -> AddressField {
    AddressField {
        place: AddressLocation::Scratch(SOURCE),
        words: words(family),
    }
}

/// The same for the destination.
pub(super) fn destination(family: Family) -> AddressField {
    AddressField {
        place: AddressLocation::Scratch(DESTINATION),
        words: words(family),
    }
}

/// 32-bit words of an address.
pub(super) fn words(family: Family) -> u32 {
    match family {
        Family::V4 => 1,
        Family::V6 => 4,
    }
}

/// Labels: where the code for each family begins, and where other packets go.
pub(super) struct Exits {
    /// IPv4, if it is judged.
    pub v4: Option<Judged>,
    /// IPv6, if it is judged.
    pub v6: Option<Judged>,
    /// For packets that this program does not judge.
    pub pass: Label,
    /// For packets with more VLAN tags than are parsed.
    pub drop: Label,
}

/// A family that a program judges.
pub(super) struct Judged {
    /// Where its code begins.
    pub body: Label,
    /// Destinations of packets that may be dropped, sorted: few ranges, which may also contain other addresses.
    pub destinations: Vec<Range>,
}

/// Finds the IP header and reads the addresses.
pub(super) fn begin(program: &mut Assembler, link: LinkKind, exits: &Exits) {
    match link {
        LinkKind::Ethernet => ethernet(program, exits),
        LinkKind::Other => by_version(program, exits),
    }
}

fn ethernet(program: &mut Assembler, exits: &Exits) {
    for tags in 0..=MAX_INNER_TAGS {
        let start = 14 + 4 * tags;
        program.run(&[Op::Half(start - 2)]);
        let (v4, v6) = (program.label(), program.label());
        let tagged = if tags == MAX_INNER_TAGS {
            exits.drop
        } else {
            program.label()
        };
        program.go_if(Test::Equal(0x0800), v4);
        program.go_if(Test::Equal(0x86dd), v6);
        for tag in TAGS {
            program.go_if(Test::Equal(tag), tagged);
        }
        program.jump(exits.pass);
        for (family, label, exit) in [(Family::V4, v4, &exits.v4), (Family::V6, v6, &exits.v6)] {
            program.bind(label);
            let Some(judged) = exit else {
                program.jump(exits.pass);
                continue;
            };
            if tags == 0 {
                elsewhere(program, family, start, &judged.destinations);
            }
            addresses(program, family, start, judged.body);
        }
        if tags < MAX_INNER_TAGS {
            program.bind(tagged);
        }
    }
}

/// Without a known link header, the first four bits of the network header are the IP version.
fn by_version(program: &mut Assembler, exits: &Exits) {
    let start = libc::SKF_NET_OFF as u32;
    program.run(&[Op::Byte(start), Op::ShiftRight(4)]);
    let (v4, v6) = (program.label(), program.label());
    program.go_if(Test::Equal(4), v4);
    program.branch(Test::Equal(6), v6, exits.pass);
    for (family, label, exit) in [(Family::V4, v4, &exits.v4), (Family::V6, v6, &exits.v6)] {
        program.bind(label);
        match exit {
            Some(judged) => addresses(program, family, start, judged.body),
            None => program.jump(exits.pass),
        }
    }
}

/// Lets packets to other destinations than these pass, and continues with the rest.
fn elsewhere(program: &mut Assembler, family: Family, start: u32, destinations: &[Range]) {
    let field = AddressField {
        place: AddressLocation::Packet(start + destination_at(family)),
        words: words(family),
    };
    if destinations == [Range::all(family)] {
        return;
    }
    let (inside, outside) = (program.label(), program.label());
    let ranges: Vec<_> = destinations.iter().map(|range| (*range, inside)).collect();
    search(program, field, &ranges, outside);
    program.bind(outside);
    program.finish_with(PASS);
    program.bind(inside);
}

/// Where the destination lies in the IP header.
fn destination_at(family: Family) -> u32 {
    match family {
        Family::V4 => 16,
        Family::V6 => 24,
    }
}

fn addresses(program: &mut Assembler, family: Family, start: u32, exit: Label) {
    let at = match family {
        Family::V4 => [(12, SOURCE), (destination_at(family), DESTINATION)],
        Family::V6 => [(8, SOURCE), (destination_at(family), DESTINATION)],
    };
    program.run(&[Op::Constant(start), Op::Store(START)]);
    for (offset, slot) in at {
        for n in 0..words(family) {
            let place = start.wrapping_add(offset + 4 * n);
            program.run(&[Op::Word(place), Op::Store(slot + n)]);
        }
    }
    program.jump(exit);
}

/// Reads protocol, and ports or type and code, into scratch memory.
pub(super) fn read_upper(program: &mut Assembler, family: Family, link: LinkKind) {
    find_end(program, family, link);
    program.run(&[Op::Constant(0), Op::Store(PORTS)]);
    let (upper, done) = (program.label(), program.label());
    match family {
        Family::V4 => v4_upper(program, upper, done),
        Family::V6 => v6_upper(program, upper, done),
    }
    program.bind(upper);
    let short = program.label();
    unless_within(program, 4, short);
    program.run(&[
        Op::RecallX(UPPER),
        Op::WordAtX(0),
        Op::Store(PORTS),
        Op::Constant(KNOWN),
        Op::Store(KNOWLEDGE),
    ]);
    program.jump(done);
    program.bind(short);
    program.run(&[Op::Constant(SHORT), Op::Store(KNOWLEDGE)]);
    program.bind(done);
}

/// With an Ethernet header the end is the frame's length. Otherwise it is not known how many bytes precede the IP
/// header, so the length field of the IP header is used; a receiver drops a packet shorter than that. A length of 0
/// stands for a packet longer than the field can hold if it is TCP, or in IPv6 begins with hop-by-hop options
/// (RFC 2675 2).
fn find_end(program: &mut Assembler, family: Family, link: LinkKind) {
    if link == LinkKind::Ethernet {
        return program.run(&[Op::Length, Op::Store(END)]);
    }
    let (length, fixed, next, long) = match family {
        Family::V4 => (2, 0, 9, 6),
        Family::V6 => (4, 40, 6, 0),
    };
    let (zero, jumbo, short, done) = (
        program.label(),
        program.label(),
        program.label(),
        program.label(),
    );
    program.run(&[Op::RecallX(START), Op::HalfAtX(length)]);
    program.branch(Test::Equal(0), zero, short);
    program.bind(zero);
    program.run(&[Op::ByteAtX(next)]);
    program.go_if(Test::Equal(long), jumbo);
    program.run(&[Op::Constant(0)]);
    program.bind(short);
    program.run(&[Op::Add(fixed), Op::AddX, Op::Store(END)]);
    program.jump(done);
    program.bind(jumbo);
    program.run(&[Op::Constant(u32::MAX), Op::Store(END)]);
    program.bind(done);
}

fn v4_upper(program: &mut Assembler, upper: Label, done: Label) {
    program.run(&[Op::RecallX(START), Op::ByteAtX(9), Op::Store(PROTOCOL)]);
    program.run(&[
        Op::ByteAtX(0),
        Op::And(0xf),
        Op::ShiftLeft(2),
        Op::AddX,
        Op::Store(UPPER),
    ]);
    program.run(&[Op::HalfAtX(6)]);
    program.go_unless(Test::HasBit(0x1fff), upper);
    program.run(&[Op::Constant(LATER), Op::Store(KNOWLEDGE)]);
    program.jump(done);
}

fn v6_upper(program: &mut Assembler, upper: Label, done: Label) {
    program.run(&[Op::RecallX(START), Op::ByteAtX(6), Op::Store(PROTOCOL)]);
    program.run(&[Op::Constant(40), Op::AddX, Op::Store(UPPER)]);
    let (riddle, later, nothing) = (program.label(), program.label(), program.label());
    for _ in 0..MAX_EXTENSION_HEADERS {
        let (extension, fragment, next) = (program.label(), program.label(), program.label());
        program.run(&[Op::Recall(PROTOCOL)]);
        is_extension(program, extension, fragment);
        program.branch(Test::Equal(59), nothing, upper);
        program.bind(extension);
        unless_within(program, 8, riddle);
        program.run(&[Op::RecallX(UPPER), Op::ByteAtX(0), Op::Store(PROTOCOL)]);
        program.run(&[
            Op::ByteAtX(1),
            Op::Add(1),
            Op::ShiftLeft(3),
            Op::AddX,
            Op::Store(UPPER),
        ]);
        program.jump(next);
        program.bind(fragment);
        unless_within(program, 8, riddle);
        program.run(&[
            Op::RecallX(UPPER),
            Op::ByteAtX(0),
            Op::Store(PROTOCOL),
            Op::HalfAtX(2),
        ]);
        program.go_if(Test::HasBit(0xfff8), later);
        program.run(&[Op::Constant(8), Op::AddX, Op::Store(UPPER)]);
        program.bind(next);
    }
    // The last extension header that was parsed may have been the packet's last one.
    program.run(&[Op::Recall(PROTOCOL)]);
    is_extension(program, riddle, riddle);
    program.branch(Test::Equal(59), nothing, upper);
    // A fragment header names the next header, which is the upper-layer protocol only if no extension header follows.
    program.bind(later);
    program.run(&[
        Op::Constant(LATER),
        Op::Store(KNOWLEDGE),
        Op::Recall(PROTOCOL),
    ]);
    let any = program.label();
    is_extension(program, any, any);
    program.jump(done);
    program.bind(any);
    program.run(&[Op::Constant(UNKNOWN), Op::Store(PROTOCOL)]);
    program.jump(done);
    program.bind(riddle);
    program.run(&[Op::Constant(UNKNOWN), Op::Store(PROTOCOL)]);
    program.bind(nothing);
    program.run(&[Op::Constant(SHORT), Op::Store(KNOWLEDGE)]);
    program.jump(done);
}

/// Hop-by-hop, routing, destination, mobility, HIP and shim6 headers have the same format; a fragment header another.
fn is_extension(program: &mut Assembler, extension: Label, fragment: Label) {
    for number in [0, 43, 60, 135, 139, 140] {
        program.go_if(Test::Equal(number), extension);
    }
    program.go_if(Test::Equal(44), fragment);
}

/// Jumps to `short` if the packet ends before so many bytes of the header above IP.
pub(super) fn unless_within(program: &mut Assembler, bytes: u32, short: Label) {
    program.run(&[Op::Recall(UPPER), Op::Add(bytes), Op::ToX, Op::Recall(END)]);
    program.go_unless(Test::AtLeastX, short);
}
