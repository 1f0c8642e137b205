//! The port that IKE and ESP in UDP share: which of their sockets gets a datagram.

use crate::io::OpenError;
use crate::io::socket::Socket;
use crate::io::socket_option::set_option_to;
use std::collections::BTreeSet;
use std::os::fd::{AsFd, BorrowedFd};

/// The port that IKE shares with ESP in UDP (RFC 3948 2).
pub(super) const SHARED_PORT: u16 = 4500;

/// Which of the two sockets of the shared port is bound first: the kernel numbers them in this order, from 0.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FirstSocket {
    /// That of key exchange.
    Ike,
    /// That of ESP in UDP.
    Esp,
}

impl FirstSocket {
    /// The numbers of the sockets of IKE and of ESP.
    fn numbers(self) -> (u32, u32) {
        match self {
            Self::Ike => (0, 1),
            Self::Esp => (1, 0),
        }
    }
}

/// Which ESP goes to a third socket of the port, by its SPI: the kernel's IPsec takes ESP from that one while our own
/// data plane reads from the second.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum EspOfThird {
    /// That with these SPIs.
    Only(BTreeSet<u32>),
    /// All but that with these.
    AllBut(BTreeSet<u32>),
}

impl EspOfThird {
    /// The third socket gets nothing, and may be closed.
    pub const NOTHING: Self = Self::Only(BTreeSet::new());
    /// It gets all ESP.
    pub const EVERYTHING: Self = Self::AllBut(BTreeSet::new());
}

/// The most SPIs by which ESP is given to the third socket: the kernel's limit of a program's size, by default
/// (`net.core.optmem_max`), holds about 1300.
pub const MAX_DIVIDED_SPIS: usize = 1000;

/// From now on ESP goes to the second and the third socket as `third` says. Any socket of the port may be given.
pub fn divide_esp(
    socket: BorrowedFd<'_>,
    first: FirstSocket,
    third: &EspOfThird,
) -> Result<(), OpenError> {
    attach(socket, &mut program(first, third))
}

/// Attaches the program that chooses between the first two sockets of the port.
///
/// Where the second socket does not exist, the kernel gives everything to the first.
pub(super) fn steer(socket: &Socket, first: FirstSocket) -> Result<(), OpenError> {
    attach(socket.as_fd(), &mut program(first, &EspOfThird::NOTHING))
}

fn attach(socket: BorrowedFd<'_>, program: &mut [libc::sock_filter]) -> Result<(), OpenError> {
    let program = libc::sock_fprog {
        len: program.len() as u16,
        filter: program.as_mut_ptr(),
    };
    set_option_to(
        socket,
        libc::SOL_SOCKET,
        libc::SO_ATTACH_REUSEPORT_CBPF,
        &program,
    )
    .map_err(OpenError::during("separate IKE from ESP on a UDP port"))
}

const LOAD_LENGTH: u32 = libc::BPF_LD | libc::BPF_W | libc::BPF_LEN;
const LOAD: u32 = libc::BPF_LD | libc::BPF_W | libc::BPF_ABS;
const IF_EQUAL: u32 = libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K;
const IF_AT_LEAST: u32 = libc::BPF_JMP | libc::BPF_JGE | libc::BPF_K;
const JUMP: u32 = libc::BPF_JMP | libc::BPF_JA;
const GIVE: u32 = libc::BPF_RET | libc::BPF_K;

fn statement(code: u32, k: u32) -> libc::sock_filter {
    jump(code, k, 0, 0)
}

fn jump(code: u32, k: u32, jt: u8, jf: u8) -> libc::sock_filter {
    libc::sock_filter {
        code: code as u16,
        jt,
        jf,
        k,
    }
}

/// Its packet starts behind the UDP header; what it returns is the number of a socket.
fn program(first: FirstSocket, third: &EspOfThird) -> Vec<libc::sock_filter> {
    let (ike, esp) = first.numbers();
    let (spis, listed, others) = match third {
        EspOfThird::Only(spis) => (spis, THIRD, esp),
        EspOfThird::AllBut(spis) => (spis, esp, THIRD),
    };
    let mut program = vec![
        // A load behind the end of the packet would end the program with 0.
        statement(LOAD_LENGTH, 0),
        jump(IF_AT_LEAST, 4, 1, 0),
        statement(GIVE, esp),
        statement(LOAD, 0),
        jump(IF_EQUAL, 0, 0, 1),
        statement(GIVE, ike),
    ];
    let spis: Vec<_> = spis.iter().copied().collect();
    search(&spis, listed, others, &mut program);
    program
}

/// The number of the third socket.
const THIRD: u32 = 2;

/// How many SPIs are compared one after the other: a conditional jump leads at most 255 instructions on.
const MAX_SPIS_IN_A_ROW: usize = 64;

/// Appends the search for what was loaded among `spis`, which are sorted.
fn search(spis: &[u32], listed: u32, others: u32, program: &mut Vec<libc::sock_filter>) {
    if spis.len() > MAX_SPIS_IN_A_ROW {
        let (lower, upper) = spis.split_at(spis.len() / 2);
        let mut below = Vec::new();
        search(lower, listed, others, &mut below);
        program.push(jump(IF_AT_LEAST, upper[0], 0, 1));
        program.push(statement(JUMP, below.len() as u32));
        program.append(&mut below);
        return search(upper, listed, others, program);
    }
    for (number, spi) in spis.iter().enumerate() {
        let over = spis.len() - number;
        program.push(jump(IF_EQUAL, *spi, over as u8, 0));
    }
    program.push(statement(GIVE, others));
    if !spis.is_empty() {
        program.push(statement(GIVE, listed));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What the program returns for a datagram with this content.
    fn run(program: &[libc::sock_filter], datagram: &[u8]) -> u32 {
        let (mut at, mut loaded) = (0, 0);
        loop {
            let libc::sock_filter { code, jt, jf, k } = program[at];
            at += 1;
            let mut branch = |holds: bool| at += usize::from(if holds { jt } else { jf });
            match u32::from(code) {
                LOAD_LENGTH => loaded = datagram.len() as u32,
                LOAD => loaded = u32::from_be_bytes(*datagram[k as usize..].first_chunk().unwrap()),
                IF_EQUAL => branch(loaded == k),
                IF_AT_LEAST => branch(loaded >= k),
                JUMP => at += k as usize,
                GIVE => return k,
                other => panic!("{other}"),
            }
        }
    }

    #[test]
    fn the_third_socket_gets_esp_by_its_spi_alone() {
        for count in [0, 1, 2, 63, 64, 65, 200, MAX_DIVIDED_SPIS] {
            // Every other number, spread over all of them.
            let step = u32::MAX / (count as u32 + 1);
            let spis: BTreeSet<u32> = (1..=count as u32).map(|number| number * step).collect();
            for first in [FirstSocket::Ike, FirstSocket::Esp] {
                let (ike, esp) = first.numbers();
                let only = program(first, &EspOfThird::Only(spis.clone()));
                let all_but = program(first, &EspOfThird::AllBut(spis.clone()));
                assert!(only.len() < 4096 && all_but.len() < 4096);
                let goes = |datagram: &[u8]| (run(&only, datagram), run(&all_but, datagram));
                for spi in &spis {
                    assert_eq!(goes(&spi.to_be_bytes()), (THIRD, esp), "{spi} of {count}");
                    for other in [spi - 1, spi + 1] {
                        assert_eq!(goes(&other.to_be_bytes()), (esp, THIRD), "{other}");
                    }
                }
                assert_eq!(goes(&u32::MAX.to_be_bytes()), (esp, THIRD));
                assert_eq!(goes(&[0; 5]), (ike, ike), "the non-ESP marker");
                assert_eq!(goes(&[0xff]), (esp, esp), "a keepalive");
            }
        }
    }
}
