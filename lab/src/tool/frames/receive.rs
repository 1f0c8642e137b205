//! The receiver: many datagrams in one call, each of which goes to the tally.

use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::os::fd::AsRawFd;
use std::time::Duration;

use super::answers::Answering;
use super::counter::{Arrival, DatagramCounter, Received};
use super::stamp::{END_NUMBER, now};
use super::{LISTENING, bind};
use crate::socket::set;

/// Options of the receiver.
#[derive(Debug, clap::Args)]
pub struct Receive {
    /// Where to listen
    pub(super) listen: SocketAddr,
    /// Milliseconds without a datagram after which it stops
    #[arg(long, default_value_t = 3000)]
    pub(super) patience: u64,
    /// Run number: other datagrams are ignored
    #[arg(long)]
    pub(super) run: u32,
    /// Where the sender reads answers: it has another clock, so no time of its stamps is read here
    #[arg(long, value_name = "ADDRESS")]
    pub(super) answer_to: Option<SocketAddr>,
    /// Answer one in so many datagrams; 0: only the last
    #[arg(long, value_name = "N", default_value_t = 0, requires = "answer_to")]
    pub(super) answer_one_in: u64,
}

impl Receive {
    pub(in crate::tool) fn run(self) -> io::Result<Received> {
        let socket = bind(self.listen)?;
        socket.set_read_timeout(Some(Duration::from_millis(self.patience)))?;
        // More room lets the receiver be late without a loss; where it is not allowed, the usual room has to do.
        let _ = set(&socket, libc::SOL_SOCKET, libc::SO_RCVBUFFORCE, 32 << 20)
            .or_else(|_| set(&socket, libc::SOL_SOCKET, libc::SO_RCVBUF, 4 << 20));
        println!("{LISTENING}");
        let mut answering = self.answer_to.map(|to| Answering {
            to,
            one_in: self.answer_one_in,
            sent: 0,
        });
        let mut counter = DatagramCounter::new(answering.is_none());
        let mut batch = ReceiveBatch::new();
        loop {
            match batch.next(&socket) {
                Ok(count) => {
                    let at = now();
                    for datagram in (0..count).map(|place| batch.datagram(place)) {
                        let arrival = counter.record(datagram, self.run, at);
                        let number = match arrival {
                            Arrival::First(number) => number,
                            Arrival::End => END_NUMBER,
                            Arrival::Other => continue,
                        };
                        if let Some(answering) = &mut answering {
                            answering.answer(&socket, datagram, number);
                        }
                        if arrival == Arrival::End {
                            return Ok(counter.end(answered(&answering)));
                        }
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error)
                    if matches!(
                        error.kind(),
                        io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut
                    ) =>
                {
                    return Ok(counter.end(answered(&answering)));
                }
                Err(error) => return Err(error),
            }
        }
    }
}

fn answered(answering: &Option<Answering>) -> u64 {
    answering.as_ref().map_or(0, |answering| answering.sent)
}

const DATAGRAMS_PER_CALL: usize = 64;
const MAX_DATAGRAM_BYTES: usize = 66_000;

/// Many datagrams in one call.
struct ReceiveBatch {
    buffers: Vec<Vec<u8>>,
    lengths: Vec<usize>,
}

impl ReceiveBatch {
    fn new() -> ReceiveBatch {
        ReceiveBatch {
            buffers: vec![vec![0; MAX_DATAGRAM_BYTES]; DATAGRAMS_PER_CALL],
            lengths: vec![0; DATAGRAMS_PER_CALL],
        }
    }

    /// Waits for the first and takes what else is there.
    fn next(&mut self, socket: &UdpSocket) -> io::Result<usize> {
        let mut parts: Vec<libc::iovec> = Vec::with_capacity(DATAGRAMS_PER_CALL);
        parts.extend(self.buffers.iter_mut().map(|buffer| libc::iovec {
            iov_base: buffer.as_mut_ptr().cast(),
            iov_len: buffer.len(),
        }));
        // SAFETY: all-zero headers are valid; each points at one iovec, which points at a buffer; all of them live for
        // the call and their sizes are correct.
        let count = unsafe {
            let mut headers: Vec<libc::mmsghdr> = (0..DATAGRAMS_PER_CALL)
                .map(|_| std::mem::zeroed())
                .collect();
            for (header, part) in headers.iter_mut().zip(&mut parts) {
                header.msg_hdr.msg_iov = part;
                header.msg_hdr.msg_iovlen = 1;
            }
            let count = libc::recvmmsg(
                socket.as_raw_fd(),
                headers.as_mut_ptr(),
                DATAGRAMS_PER_CALL as libc::c_uint,
                libc::MSG_WAITFORONE as _,
                std::ptr::null_mut(),
            );
            for (length, header) in self.lengths.iter_mut().zip(&headers) {
                *length = header.msg_len as usize;
            }
            count
        };
        usize::try_from(count).map_err(|_| io::Error::last_os_error())
    }

    fn datagram(&self, place: usize) -> &[u8] {
        &self.buffers[place][..self.lengths[place].min(MAX_DATAGRAM_BYTES)]
    }
}
