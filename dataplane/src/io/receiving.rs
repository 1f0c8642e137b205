//! Receiving by UDP and raw sockets: read, sleep, and keep the error queue empty.

use super::messages::{MessageReceiver, Received};
use super::socket::Socket;
use super::waker::wait_readable;
use super::{MAX_ITEM_BYTES, ReceiveBuffer, Wait, Waker};
use std::io;
use std::ops::Range;
use std::os::fd::AsFd;
use std::sync::Arc;

/// How many errors in a row a read ignores: they belong to packets sent earlier, and there can be several.
const MAX_ERRORS_PER_READ: usize = 16;

pub(super) struct SocketReceiver {
    pub socket: Arc<Socket>,
    pub waker: Option<Waker>,
    messages: MessageReceiver,
}

impl SocketReceiver {
    pub fn new(socket: Arc<Socket>) -> Self {
        Self::with_headroom(socket, 0)
    }

    /// Keeps `headroom` bytes free in front of each packet.
    pub fn with_headroom(socket: Arc<Socket>, headroom: usize) -> Self {
        Self {
            socket,
            waker: None,
            messages: MessageReceiver::new(headroom),
        }
    }

    /// Whether packets were received that have not fitted into a buffer yet.
    pub fn has_backlog(&self) -> bool {
        self.messages.has_parked()
    }

    /// A source's `fill`; `enter` decides what becomes of each packet.
    pub fn fill<Meta>(
        &mut self,
        buffer: &mut ReceiveBuffer<Meta>,
        wait: Wait,
        mut enter: impl FnMut(&mut ReceiveBuffer<Meta>, Range<usize>, Received<'_>),
    ) -> io::Result<usize> {
        if buffer.bytes.len() < MAX_ITEM_BYTES {
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                "the buffer has no room for one train",
            ));
        }
        let before = buffer.items.len();
        self.read(buffer, &mut enter)?;
        if buffer.items.is_empty() && wait_readable(self.socket.as_fd(), self.waker.as_ref(), wait)?
        {
            self.read(buffer, &mut enter)?;
            if buffer.items.is_empty() {
                // An entry in the error queue may have ended the sleep; it would end the next one as well.
                self.socket.drain_errors();
            }
        }
        Ok(buffer.items.len() - before)
    }

    fn read<Meta>(
        &mut self,
        buffer: &mut ReceiveBuffer<Meta>,
        enter: &mut impl FnMut(&mut ReceiveBuffer<Meta>, Range<usize>, Received<'_>),
    ) -> io::Result<()> {
        let before = buffer.items.len();
        for _ in 1..MAX_ERRORS_PER_READ {
            match self
                .messages
                .receive(self.socket.as_fd(), buffer, &mut *enter)
            {
                Ok(()) => return Ok(()),
                // What was received is delivered first.
                Err(_) if buffer.items.len() > before => return Ok(()),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                // A read may return an error of a packet sent earlier.
                Err(_) => {
                    self.socket.drain_errors();
                }
            }
        }
        match self.messages.receive(self.socket.as_fd(), buffer, enter) {
            Err(error) if !is_fatal(&error) => Ok(()),
            outcome => outcome,
        }
    }
}

/// Whether the socket itself is unusable. All other errors come from the network: any sender of ICMP can cause them as
/// fast as they are read, and must not be able to stop a gateway.
fn is_fatal(error: &io::Error) -> bool {
    let ours = [libc::EBADF, libc::ENOTSOCK, libc::EINVAL, libc::EFAULT];
    error
        .raw_os_error()
        .is_none_or(|number| ours.contains(&number))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_message_from_the_network_ends_a_source() {
        // All that the kernel makes of ICMP and ICMPv6 (its tables of `icmp_err_convert` and `tab_unreach`).
        let from_the_network = [
            libc::ENETUNREACH,
            libc::EHOSTUNREACH,
            libc::ENOPROTOOPT,
            libc::ECONNREFUSED,
            libc::EMSGSIZE,
            libc::EOPNOTSUPP,
            libc::EHOSTDOWN,
            libc::ENONET,
            libc::EPROTO,
            libc::EACCES,
        ];
        for number in from_the_network {
            assert!(!is_fatal(&io::Error::from_raw_os_error(number)), "{number}");
        }
        assert!(is_fatal(&io::Error::from_raw_os_error(libc::EBADF)));
    }
}
