//! Two ways to run the programs: a small interpreter, and the kernel's, as a socket filter.

use super::super::LinkKind;
use super::super::assembler::DROP;
use super::super::assembler::Instruction;
use super::packet::Packet;
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixDatagram;

/// Whether any of the programs drops the packet; each must return PASS or DROP.
pub fn drops(programs: &[Vec<Instruction>], packet: &Packet, link: LinkKind) -> bool {
    let bytes = packet.on(link);
    let ends = programs
        .iter()
        .map(|program| run(program, &bytes, packet).0);
    ends.fold(false, |dropped, end| dropped | (end == DROP))
}

/// How many instructions of a program run for a packet.
pub fn cost(program: &[Instruction], packet: &Packet, link: LinkKind) -> usize {
    run(program, &packet.on(link), packet).1
}

/// Runs one program, and counts its instructions; a load beyond the packet's end gives 0.
fn run(program: &[Instruction], bytes: &[u8], packet: &Packet) -> (u32, usize) {
    let (mut a, mut x, mut memory, mut at) = (0u32, 0u32, [None; 16], 0);
    for done in 1.. {
        let Instruction {
            code,
            if_true,
            if_false,
            k,
        } = program[at];
        at += 1;
        let mut test = |holds: bool| at += usize::from(if holds { if_true } else { if_false });
        match code {
            0x00 => a = k,
            0x60 => a = memory[k as usize].expect("stored before"),
            0x61 => x = memory[k as usize].expect("stored before"),
            0x02 => memory[k as usize] = Some(a),
            0x07 => x = a,
            0x80 => a = bytes.len() as u32,
            0x20 | 0x28 | 0x30 | 0x40 | 0x48 | 0x50 => {
                let place = if code & 0x40 != 0 {
                    x.wrapping_add(k)
                } else {
                    k
                };
                let size = match code & 0x18 {
                    0x00 => 4,
                    0x08 => 2,
                    _ => 1,
                };
                match load(bytes, packet, place, size) {
                    Some(value) => a = value,
                    None => return (0, done),
                }
            }
            0x04 => a = a.wrapping_add(k),
            0x0c => a = a.wrapping_add(x),
            0x54 => a &= k,
            0x64 => a = a.checked_shl(k).unwrap_or(0),
            0x74 => a = a.checked_shr(k).unwrap_or(0),
            0x05 => at += k as usize,
            0x15 => test(a == k),
            0x25 => test(a > k),
            0x35 => test(a >= k),
            0x3d => test(a >= x),
            0x45 => test(a & k != 0),
            0x06 => return (k, done),
            _ => panic!("code {code:#x} is none of ours"),
        }
    }
    unreachable!("every program ends")
}

fn load(bytes: &[u8], packet: &Packet, place: u32, size: usize) -> Option<u32> {
    const MARK: u32 = (libc::SKF_AD_OFF + libc::SKF_AD_MARK) as u32;
    const KIND: u32 = (libc::SKF_AD_OFF + libc::SKF_AD_PKTTYPE) as u32;
    const NETWORK: u32 = libc::SKF_NET_OFF as u32;
    let start = match place {
        MARK => return Some(packet.mark),
        KIND => return Some(packet.kind),
        NETWORK.. => place - NETWORK,
        _ => place,
    } as usize;
    let bytes = bytes.get(start..start + size)?;
    Some(
        bytes
            .iter()
            .fold(0, |value, byte| value << 8 | u32::from(*byte)),
    )
}

/// A socket whose filter keeps as many bytes of a datagram as the program returns.
pub struct Kernel {
    sender: UnixDatagram,
    receiver: UnixDatagram,
}

impl Kernel {
    pub fn with(program: &[Instruction]) -> Self {
        let (sender, receiver) = UnixDatagram::pair().unwrap();
        let filter = libc::sock_fprog {
            len: program.len() as u16,
            filter: program.as_ptr() as *mut libc::sock_filter,
        };
        // SAFETY: `Instruction` has the layout of `sock_filter`, the kernel copies `len` of them and keeps no pointer.
        let outcome = unsafe {
            libc::setsockopt(
                receiver.as_raw_fd(),
                libc::SOL_SOCKET,
                libc::SO_ATTACH_FILTER,
                (&raw const filter).cast(),
                size_of::<libc::sock_fprog>() as u32,
            )
        };
        assert_eq!(outcome, 0, "{}", std::io::Error::last_os_error());
        receiver.set_nonblocking(true).unwrap();
        Self { sender, receiver }
    }

    pub fn drops(&self, frame: &[u8]) -> bool {
        self.sender.send(frame).unwrap();
        let mut buffer = [0; 2048];
        match self.receiver.recv(&mut buffer) {
            Ok(kept) if kept == frame.len() => false,
            Ok(kept) => {
                assert_eq!(kept as u32, DROP);
                true
            }
            // A load beyond the packet's end returns 0, so nothing is kept; in a filter that lets pass.
            Err(error) => {
                assert_eq!(error.kind(), std::io::ErrorKind::WouldBlock);
                false
            }
        }
    }
}
