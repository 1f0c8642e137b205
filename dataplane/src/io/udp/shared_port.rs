//! The port that IKE and ESP in UDP share: which of their sockets gets a datagram.

use crate::io::OpenError;
use crate::io::socket::Socket;
use crate::io::socket_option::set_option_to;
use std::os::fd::AsFd;

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

/// Attaches the program that chooses between the sockets of the port. Its packet starts behind the UDP header.
///
/// Where the second socket does not exist, the kernel gives everything to the first.
pub(super) fn steer(socket: &Socket, first: FirstSocket) -> Result<(), OpenError> {
    let (ike, esp) = first.numbers();
    let statement = |code: u32, k| libc::sock_filter {
        code: code as u16,
        jt: 0,
        jf: 0,
        k,
    };
    let jump = |code: u32, k, jt, jf| libc::sock_filter {
        code: code as u16,
        jt,
        jf,
        k,
    };
    let (load, jumps, give) = (libc::BPF_LD, libc::BPF_JMP, libc::BPF_RET);
    let mut program = [
        // A load behind the end of the packet would end the program with 0.
        statement(load | libc::BPF_W | libc::BPF_LEN, 0),
        jump(jumps | libc::BPF_JGE | libc::BPF_K, 4, 0, 3),
        statement(load | libc::BPF_W | libc::BPF_ABS, 0),
        jump(jumps | libc::BPF_JEQ | libc::BPF_K, 0, 0, 1),
        statement(give | libc::BPF_K, ike),
        statement(give | libc::BPF_K, esp),
    ];
    let program = libc::sock_fprog {
        len: program.len() as u16,
        filter: program.as_mut_ptr(),
    };
    set_option_to(
        socket.as_fd(),
        libc::SOL_SOCKET,
        libc::SO_ATTACH_REUSEPORT_CBPF,
        &program,
    )
    .map_err(OpenError::during("separate IKE from ESP on a UDP port"))
}
