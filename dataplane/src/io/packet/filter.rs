//! Which packets a ring takes, and which a raw socket beside it leaves to the ring: two classic BPF programs, each the
//! other's complement, so that no packet arrives twice, with any firewall on the host.

use libc::{sock_filter, sock_fprog};
use std::collections::BTreeSet;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::os::fd::BorrowedFd;

/// The local addresses whose ESP is received through packet rings.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct RingAddresses {
    addresses: BTreeSet<IpAddr>,
}

/// Further addresses are left to raw sockets: the program would get long.
const MAX_ADDRESSES: usize = 32;

/// The number of ESP, and of IPv6's fragment header.
const ESP: u32 = 50;
const FRAGMENT: u32 = 44;

impl RingAddresses {
    /// As many of these addresses as a ring's program can have.
    pub fn of(addresses: impl IntoIterator<Item = IpAddr>) -> Self {
        Self {
            addresses: addresses.into_iter().take(MAX_ADDRESSES).collect(),
        }
    }

    /// The addresses.
    pub fn addresses(&self) -> impl Iterator<Item = IpAddr> + '_ {
        self.addresses.iter().copied()
    }

    fn v4(&self) -> impl Iterator<Item = Ipv4Addr> + '_ {
        self.addresses.iter().filter_map(|address| match address {
            IpAddr::V4(address) => Some(*address),
            IpAddr::V6(_) => None,
        })
    }

    fn v6(&self) -> impl Iterator<Item = Ipv6Addr> + '_ {
        self.addresses.iter().filter_map(|address| match address {
            IpAddr::V6(address) => Some(*address),
            IpAddr::V4(_) => None,
        })
    }

    /// The program of a packet socket that reads from the network header on.
    pub(super) fn for_ring(&self) -> Program {
        let mut program = Program::default();
        program.load(BYTE, ancillary(libc::SKF_AD_PKTTYPE));
        program.unless(u32::from(libc::PACKET_HOST), BpfVerdict::Reject);
        program.load(HALF, ancillary(libc::SKF_AD_PROTOCOL));
        let rest = program.branch(libc::ETH_P_IP as u32);
        self.match_v4(&mut program, 0, BpfVerdict::Accept);
        program.end(BpfVerdict::Reject);
        program.land(rest);
        program.unless(libc::ETH_P_IPV6 as u32, BpfVerdict::Reject);
        self.match_v6(&mut program, 0, BpfVerdict::Accept);
        program.end(BpfVerdict::Reject);
        program
    }

    /// The program of a raw socket beside rings on these devices.
    pub(in crate::io) fn for_raw(&self, devices: &BTreeSet<u32>, is_v4: bool) -> Program {
        let mut program = Program::default();
        program.load(WORD, ancillary(libc::SKF_AD_IFINDEX));
        for device in devices {
            let rest = program.branch(*device);
            if is_v4 {
                self.match_v4(&mut program, NETWORK, BpfVerdict::Reject);
            } else {
                self.match_v6(&mut program, NETWORK, BpfVerdict::Reject);
            }
            program.end(BpfVerdict::Accept);
            program.land(rest);
        }
        program.end(BpfVerdict::Accept);
        program
    }

    /// Ends with `verdict` if the packet is ESP to one of the addresses, whether or not it is a fragment.
    fn match_v4(&self, program: &mut Program, base: u32, verdict: BpfVerdict) {
        program.load(BYTE, base.wrapping_add(9));
        let other = program.branch(ESP);
        program.load(WORD, base.wrapping_add(16));
        for address in self.v4() {
            let next = program.branch(address.to_bits());
            program.end(verdict);
            program.land(next);
        }
        program.land(other);
    }

    /// The same for IPv6. Packets with other extension headers in front are left to the raw socket.
    fn match_v6(&self, program: &mut Program, base: u32, verdict: BpfVerdict) {
        program.load(BYTE, base.wrapping_add(6));
        let esp = program.branch_if_not(ESP);
        let other = program.branch(FRAGMENT);
        program.load(BYTE, base.wrapping_add(40));
        let fragment_of_other = program.branch(ESP);
        program.land(esp);
        for address in self.v6() {
            let words = address.octets();
            let nexts: Vec<_> = words
                .chunks_exact(4)
                .enumerate()
                .map(|(n, word)| {
                    program.load(WORD, base.wrapping_add(24 + 4 * n as u32));
                    program.branch(u32::from_be_bytes([word[0], word[1], word[2], word[3]]))
                })
                .collect();
            program.end(verdict);
            nexts.into_iter().for_each(|next| program.land(next));
        }
        program.land(other);
        program.land(fragment_of_other);
    }
}

/// The program of a packet socket that reads what is sent to this host's MAC address: IPv4 and IPv6 outside VLANs.
pub(super) fn for_router() -> Program {
    let mut program = Program::default();
    program.load(BYTE, ancillary(libc::SKF_AD_PKTTYPE));
    program.unless(u32::from(libc::PACKET_HOST), BpfVerdict::Reject);
    program.load(BYTE, ancillary(libc::SKF_AD_VLAN_TAG_PRESENT));
    program.unless(0, BpfVerdict::Reject);
    program.load(HALF, ancillary(libc::SKF_AD_PROTOCOL));
    let rest = program.branch(libc::ETH_P_IP as u32);
    program.end(BpfVerdict::Accept);
    program.land(rest);
    program.unless(libc::ETH_P_IPV6 as u32, BpfVerdict::Reject);
    program.end(BpfVerdict::Accept);
    program
}

/// The program of a packet socket that reads from the network header on: ESP that leaves with one of these SPIs, native
/// or in UDP. IPv4 with options is not looked at.
pub(super) fn departing_esp(spis: &[u32]) -> Program {
    let mut program = Program::default();
    program.load(BYTE, ancillary(libc::SKF_AD_PKTTYPE));
    program.unless(u32::from(libc::PACKET_OUTGOING), BpfVerdict::Reject);
    program.load(HALF, ancillary(libc::SKF_AD_PROTOCOL));
    let rest = program.branch(libc::ETH_P_IP as u32);
    program.load(BYTE, 0);
    program.unless(IPV4_WITHOUT_OPTIONS, BpfVerdict::Reject);
    program.match_spis(9, 20, spis);
    program.land(rest);
    program.unless(libc::ETH_P_IPV6 as u32, BpfVerdict::Reject);
    program.match_spis(6, 40, spis);
    program
}

/// The first byte of such a header.
const IPV4_WITHOUT_OPTIONS: u32 = 0x45;

const UDP: u32 = 17;
const UDP_HEADER_BYTES: u32 = 8;

const WORD: u32 = libc::BPF_W;
const HALF: u32 = libc::BPF_H;
const BYTE: u32 = libc::BPF_B;

/// The offset of the network header, for a socket whose packets have lost it.
const NETWORK: u32 = libc::SKF_NET_OFF as u32;

fn ancillary(which: i32) -> u32 {
    (libc::SKF_AD_OFF + which) as u32
}

#[derive(Clone, Copy)]
enum BpfVerdict {
    Accept,
    Reject,
}

/// A classic BPF program.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(in crate::io) struct Program(Vec<Instruction>);

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Instruction {
    code: u16,
    yes: u8,
    no: u8,
    value: u32,
}

/// A jump whose target is not known yet: a long one behind the comparison, whose own jumps are short.
struct Jump(usize);

impl Program {
    fn put(&mut self, code: u32, yes: u8, no: u8, value: u32) {
        self.0.push(Instruction {
            code: code as u16,
            yes,
            no,
            value,
        });
    }

    fn load(&mut self, size: u32, at: u32) {
        self.put(libc::BPF_LD | size | libc::BPF_ABS, 0, 0, at);
    }

    /// Ends, and accepts ESP with one of these SPIs alone: the header's protocol is at `protocol_at`, what it carries
    /// begins at `payload_at`.
    fn match_spis(&mut self, protocol_at: u32, payload_at: u32, spis: &[u32]) {
        for (protocol, spi_at) in [(ESP, payload_at), (UDP, payload_at + UDP_HEADER_BYTES)] {
            self.load(BYTE, protocol_at);
            let other = self.branch(protocol);
            self.load(WORD, spi_at);
            for spi in spis {
                let next = self.branch(*spi);
                self.end(BpfVerdict::Accept);
                self.land(next);
            }
            self.end(BpfVerdict::Reject);
            self.land(other);
        }
        self.end(BpfVerdict::Reject);
    }

    fn end(&mut self, verdict: BpfVerdict) {
        let len = match verdict {
            BpfVerdict::Accept => u32::MAX,
            BpfVerdict::Reject => 0,
        };
        self.put(libc::BPF_RET | libc::BPF_K, 0, 0, len);
    }

    /// Ends here unless the loaded value is `value`.
    fn unless(&mut self, value: u32, verdict: BpfVerdict) {
        self.put(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, 1, 0, value);
        self.end(verdict);
    }

    /// Continues if the loaded value is `value`, and jumps otherwise.
    fn branch(&mut self, value: u32) -> Jump {
        self.put(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, 1, 0, value);
        self.jump()
    }

    /// Jumps if the loaded value is `value`, and continues otherwise.
    fn branch_if_not(&mut self, value: u32) -> Jump {
        self.put(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, 0, 1, value);
        self.jump()
    }

    fn jump(&mut self) -> Jump {
        self.put(libc::BPF_JMP | libc::BPF_JA, 0, 0, 0);
        Jump(self.0.len() - 1)
    }

    /// Sets a jump's target to the next instruction.
    fn land(&mut self, jump: Jump) {
        self.0[jump.0].value = (self.0.len() - jump.0 - 1) as u32;
    }

    /// Attaches the program to a socket, in place of an earlier one.
    pub(in crate::io) fn attach(&self, socket: BorrowedFd<'_>) -> io::Result<()> {
        let mut program: Vec<_> = self
            .0
            .iter()
            .map(|each| sock_filter {
                code: each.code,
                jt: each.yes,
                jf: each.no,
                k: each.value,
            })
            .collect();
        let program = sock_fprog {
            len: program.len() as u16,
            filter: program.as_mut_ptr(),
        };
        crate::io::socket_option::set_option_to(
            socket,
            libc::SOL_SOCKET,
            libc::SO_ATTACH_FILTER,
            &program,
        )
    }

    /// What the kernel's interpreter returns for a packet whose network header is at its start.
    #[cfg(test)]
    pub(super) fn accepts(&self, packet: &[u8], device: u32, protocol: u16) -> bool {
        let (mut at, mut loaded) = (0, 0u32);
        loop {
            let step = self.0[at];
            at += 1;
            match u32::from(step.code) & 0x07 {
                libc::BPF_LD if step.value == ancillary(libc::SKF_AD_IFINDEX) => loaded = device,
                libc::BPF_LD if step.value == ancillary(libc::SKF_AD_PKTTYPE) => loaded = 0,
                libc::BPF_LD if step.value == ancillary(libc::SKF_AD_PROTOCOL) => {
                    loaded = protocol.into();
                }
                libc::BPF_LD => {
                    let start = if step.value >= NETWORK {
                        step.value - NETWORK
                    } else {
                        step.value
                    } as usize;
                    let len = match u32::from(step.code) & 0x18 {
                        WORD => 4,
                        HALF => 2,
                        _ => 1,
                    };
                    let Some(bytes) = packet.get(start..start + len) else {
                        return false;
                    };
                    loaded = bytes
                        .iter()
                        .fold(0, |sum, byte| sum << 8 | u32::from(*byte));
                }
                libc::BPF_RET => return step.value > 0,
                _ if u32::from(step.code) & 0xf0 == libc::BPF_JA => at += step.value as usize,
                _ => {
                    at += usize::from(if loaded == step.value {
                        step.yes
                    } else {
                        step.no
                    })
                }
            }
        }
    }
}
