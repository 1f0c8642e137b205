//! What passes although a policy would drop it: checked last, so that it costs other packets nothing.

use super::FilterHook;
use super::assembler::{Assembler, Label, Op, Test};
use super::headers::{self, KNOWLEDGE, KNOWN, LATER, PORTS, PROTOCOL, START, UPPER};
use super::policies::MARK;
use super::search::search;
use super::task::{Ends, Task};
use crate::routes::plan::{Family, IKE_PORTS};
use crate::routes::range::Range;

/// Offset at which the kernel returns the packet type.
const PACKET_TYPE: u32 = (libc::SKF_AD_OFF + libc::SKF_AD_PKTTYPE) as u32;

/// PACKET_HOST: at egress a packet that this host has routed or sent itself.
const HOST: u32 = 0;

/// PACKET_OTHERHOST.
const OTHER_HOST: u32 = 3;

/// Jumps to `pass` for packets that are exempt, to `drop` or onward for all others. `is_read`: whether the header
/// above IP has been read.
pub(super) fn write(task: &Task, program: &mut Assembler, ends: Ends, is_read: bool) {
    task.exceptions(program, ends, is_read);
}

impl Task {
    fn exceptions(&self, program: &mut Assembler, ends: Ends, is_read: bool) {
        if self.target.hook == FilterHook::Ingress {
            // This host does not process a frame for another station; if a bridge forwards it, it is not this host's.
            program.run(&[Op::Word(PACKET_TYPE)]);
            program.go_if(Test::Equal(OTHER_HOST), ends.pass);
        }
        if self.target.is_bridged && self.target.hook == FilterHook::Egress {
            program.run(&[Op::Word(PACKET_TYPE)]);
            program.go_unless(Test::Equal(HOST), ends.pass);
        }
        if self.target.delivers && self.target.hook == FilterHook::Egress {
            program.run(&[Op::Word(MARK)]);
            program.go_if(Test::HasBit(self.target.mark), ends.pass);
        }
        if !is_read {
            headers::read_upper(program, self.family, self.target.link);
        }
        if self.family == Family::V6 {
            neighbours(program, ends.pass);
        }
        groups(program, self.family, ends.pass);
        leases(program, self.family, ends.pass);
        match self.target.hook {
            FilterHook::Egress => self.our_own(program, ends),
            FilterHook::Ingress => self.for_us(program, ends),
        }
    }

    /// The gateway's own outer packets: marked, of a protocol that it sends, and between addresses of an SA; or IKE.
    fn our_own(&self, program: &mut Assembler, ends: Ends) {
        if self.outer.is_empty() && !self.exchanges_keys {
            return;
        }
        let (ours, udp) = (program.label(), program.label());
        program.run(&[Op::Word(MARK)]);
        program.go_unless(Test::HasBit(self.target.mark), ends.drop);
        self.is_protected(program, (ours, udp, ours), ends.drop);
        program.bind(udp);
        if self.exchanges_keys {
            program.run(&[Op::Recall(PORTS), Op::ShiftRight(16)]);
            for port in IKE_PORTS {
                program.go_if(Test::Equal(port.into()), ends.pass);
            }
        }
        for shift in [16, 0] {
            self.has_port(program, shift, ours);
        }
        program.jump(ends.drop);
        program.bind(ours);
        let rules = self.outer.iter();
        let mut pairs: Vec<_> = rules.map(|rule| (rule.destination, rule.source)).collect();
        pairs.sort_unstable();
        self.is_pair(program, &pairs, ends);
    }

    /// Packets for the gateway's sockets: protected packets, and "too big" about outer packets.
    fn for_us(&self, program: &mut Assembler, ends: Ends) {
        let (udp, later, other) = (program.label(), program.label(), program.label());
        self.is_protected(program, (ends.pass, udp, later), other);
        program.bind(later);
        self.is_for_us(program, ends);
        program.bind(udp);
        self.has_port(program, 0, ends.pass);
        program.jump(ends.drop);
        program.bind(other);
        self.path_mtu(program, ends);
    }

    /// Sorts packets: ESP or AH; UDP whose ports are known; and, if UDP carries ESP at all, a later fragment of UDP,
    /// which has no ports.
    fn is_protected(
        &self,
        program: &mut Assembler,
        (yes, udp, later): (Label, Label, Label),
        no: Label,
    ) {
        program.run(&[Op::Recall(PROTOCOL)]);
        program.go_if(Test::Equal(50), yes);
        program.go_if(Test::Equal(51), yes);
        program.go_unless(Test::Equal(17), no);
        program.run(&[Op::Recall(KNOWLEDGE)]);
        if !self.udp_ports.is_empty() {
            program.go_if(Test::Equal(LATER), later);
        }
        program.branch(Test::Equal(KNOWN), udp, no);
    }

    fn has_port(&self, program: &mut Assembler, shift: u32, yes: Label) {
        program.run(&[Op::Recall(PORTS), Op::ShiftRight(shift), Op::And(0xffff)]);
        for port in &self.udp_ports {
            program.go_if(Test::Equal((*port).into()), yes);
        }
    }

    /// A later fragment for one of the gateway's outer addresses passes: it is useless without the first fragment,
    /// which is judged by its port.
    fn is_for_us(&self, program: &mut Assembler, ends: Ends) {
        let mut places: Vec<_> = self.outer.iter().map(|rule| rule.destination).collect();
        places.sort_unstable();
        places.dedup();
        let ranges: Vec<_> = places.into_iter().map(|range| (range, ends.pass)).collect();
        search(
            program,
            headers::destination(self.family),
            &ranges,
            ends.drop,
        );
    }

    fn is_pair(&self, program: &mut Assembler, pairs: &[(Range, Range)], ends: Ends) {
        let groups: Vec<_> = pairs.chunk_by(|one, next| one.0 == next.0).collect();
        let labels: Vec<_> = groups.iter().map(|_| program.label()).collect();
        let ranges: Vec<_> = groups
            .iter()
            .zip(&labels)
            .map(|(group, label)| (group[0].0, *label))
            .collect();
        search(
            program,
            headers::destination(self.family),
            &ranges,
            ends.drop,
        );
        for (group, label) in groups.iter().zip(labels) {
            program.bind(label);
            let sources: Vec<_> = group
                .iter()
                .map(|(_, source)| (*source, ends.pass))
                .collect();
            search(program, headers::source(self.family), &sources, ends.drop);
        }
    }

    /// RFC 4301 8.2.1: "too big" about the gateway's outer packets must reach it. The header of the outer packet
    /// follows the 8 bytes of ICMP: its protocol, then its source port.
    fn path_mtu(&self, program: &mut Assembler, ends: Ends) {
        let (number, shift, message, protocol, port) = match self.family {
            Family::V4 => (1, 16, 0x0304, 17, 28),
            Family::V6 => (58, 24, 2, 14, 48),
        };
        program.run(&[Op::Recall(PROTOCOL)]);
        program.go_unless(Test::Equal(number), ends.drop);
        program.run(&[Op::Recall(PORTS), Op::ShiftRight(shift)]);
        program.go_unless(Test::Equal(message), ends.drop);
        headers::unless_within(program, port + 2, ends.drop);
        program.run(&[Op::RecallX(UPPER), Op::ByteAtX(protocol)]);
        program.go_if(Test::Equal(50), ends.pass);
        program.go_if(Test::Equal(51), ends.pass);
        program.go_unless(Test::Equal(17), ends.drop);
        program.run(&[Op::HalfAtX(port)]);
        for udp in &self.udp_ports {
            program.go_if(Test::Equal((*udp).into()), ends.pass);
        }
    }
}

/// Neighbour discovery is IPv6's ARP: it never leaves the link, and outer packets need it.
fn neighbours(program: &mut Assembler, pass: Label) {
    let (other, kind) = (program.label(), program.label());
    program.run(&[Op::RecallX(START), Op::HalfAtX(6)]);
    program.go_unless(Test::Equal(58 << 8 | 255), other);
    program.run(&[Op::Recall(PORTS), Op::ShiftRight(24)]);
    program.branch(Test::AtLeast(133), kind, other);
    program.bind(kind);
    program.branch(Test::Greater(137), other, pass);
    program.bind(other);
}

/// Multicast group reports stay on the link: no router forwards a hop limit of 1 (RFC 3376 4, RFC 3810 5).
fn groups(program: &mut Assembler, family: Family, pass: Label) {
    let other = program.label();
    let (protocol, hops, shift, group) = match family {
        Family::V4 => (2, 8, 28, 0xe),
        Family::V6 => (58, 7, 24, 0xff),
    };
    program.run(&[Op::Recall(PROTOCOL)]);
    program.go_unless(Test::Equal(protocol), other);
    program.run(&[Op::RecallX(START), Op::ByteAtX(hops)]);
    program.go_unless(Test::Equal(1), other);
    program.run(&[headers::destination(family).load(), Op::ShiftRight(shift)]);
    program.go_unless(Test::Equal(group), other);
    match family {
        Family::V4 => program.jump(pass),
        Family::V6 => {
            program.run(&[Op::Recall(PORTS), Op::ShiftRight(24)]);
            for kind in [130, 131, 132, 143] {
                program.go_if(Test::Equal(kind), pass);
            }
        }
    }
    program.bind(other);
}

/// DHCP: a client requests a lease before it has an address that a policy could match (RFC 2131 4.1), or on the link
/// only (RFC 8415 16).
fn leases(program: &mut Assembler, family: Family, pass: Label) {
    let (asks, other) = (program.label(), program.label());
    let ports: [u32; 2] = match family {
        Family::V4 => [68 << 16 | 67, 67 << 16 | 68],
        Family::V6 => [546 << 16 | 547, 547 << 16 | 546],
    };
    program.run(&[Op::Recall(PROTOCOL)]);
    program.go_unless(Test::Equal(17), other);
    program.run(&[Op::Recall(PORTS)]);
    for ports in ports {
        program.go_if(Test::Equal(ports), asks);
    }
    program.jump(other);
    program.bind(asks);
    program.run(&[headers::source(family).load()]);
    match family {
        Family::V4 => {
            program.go_if(Test::Equal(0), pass);
            program.run(&[headers::destination(family).load()]);
            program.go_if(Test::Equal(u32::MAX), pass);
        }
        Family::V6 => {
            program.run(&[Op::ShiftRight(22)]);
            program.go_if(Test::Equal(0xfe80 >> 6), pass);
        }
    }
    program.bind(other);
}
