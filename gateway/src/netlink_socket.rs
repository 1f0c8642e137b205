//! Requests to the kernel by netlink and their answers, the same for routes, filters, nftables and XFRM.
//!
//! ```text
//!   body ──► header, number ──► kernel ──► datagrams ──► messages ──► values
//!                                 │  sender, length      │  number, error, end of the list
//!                                 │                      └─ the list has changed meanwhile: request it again
//!                                 └─ processes a request within the call that sends it
//! ```
//!
//! So answers are read without waiting: one that is missing when the call returns will never arrive.

pub(crate) mod attributes;
pub(crate) mod message;

use message::{ExchangeError, KernelMessage, KernelMessages, messages, request, truncated};
use netlink_packet_core::{
    NLM_F_ACK, NLM_F_DUMP, NLM_F_DUMP_INTR, NLM_F_MULTIPART, NLMSG_DONE, NLMSG_ERROR,
    NetlinkSerializable,
};
use netlink_sys::{Socket, SocketAddr};
use rustix::net::sockopt::{set_socket_send_buffer_size, set_socket_send_buffer_size_force};
use std::io;
use std::os::fd::AsFd;
use zeroize::Zeroizing;

/// Size of the receive buffer. The kernel sends at most 32 KiB at once, and only after reads with a buffer of that
/// size.
const MAX_DATAGRAM_BYTES: usize = 64 << 10;

/// How often a list is requested that other programs change while it is read.
const MAX_LIST_ATTEMPTS: u32 = 10;

/// NLMSG_MIN_TYPE: messages of smaller kinds are netlink's own.
const FIRST_PROTOCOL_KIND: u16 = 0x10;

/// A socket that asks one of the kernel's protocols.
pub(crate) struct NetlinkSocket {
    socket: Socket,
    port: u32,
    next_number: u32,
    /// What was received last: answers of XFRM contain keys.
    datagram: Zeroizing<Vec<u8>>,
}

impl NetlinkSocket {
    /// Opens a socket for one protocol (NETLINK_ROUTE, NETLINK_XFRM, …).
    pub(crate) fn open(protocol: isize) -> io::Result<Self> {
        let mut socket = Socket::new(protocol)?;
        let port = socket.bind_auto()?.port_number();
        socket.connect(&SocketAddr::new(0, 0))?;
        // A refused request is not sent back with its keys. Kernels too old for explanations send none.
        let _ = socket.set_cap_ack(true);
        let _ = socket.set_ext_ack(true);
        Ok(Self {
            socket,
            port,
            next_number: 1,
            datagram: Zeroizing::new(vec![0; MAX_DATAGRAM_BYTES]),
        })
    }

    /// The number by which the kernel's notifications name what this socket has changed. While the socket is open no
    /// other of the same protocol has it.
    pub(crate) fn port(&self) -> u32 {
        self.port
    }

    /// Sends a request and reads each message of its answer. A list that changes meanwhile is requested again; if it
    /// never stays as it is, the error is [`io::ErrorKind::Interrupted`].
    pub(crate) fn exchange<T, E: From<ExchangeError>>(
        &mut self,
        kind: u16,
        flags: u16,
        body: &[u8],
        mut read: impl FnMut(&KernelMessage<'_>) -> Result<T, E>,
    ) -> Result<Vec<T>, E> {
        for _ in 0..MAX_LIST_ATTEMPTS {
            let number = self.take_numbers(1);
            self.send(&request(kind, flags, number, body))?;
            let mut answer = PendingAnswer::new(number, flags);
            while !answer.take(self.receive()?, &mut read)? {}
            if let Some(values) = answer.into_values()? {
                return Ok(values);
            }
        }
        Err(ExchangeError::from(io::Error::from(io::ErrorKind::Interrupted)).into())
    }

    /// As [`Self::exchange`], with messages of a library's types.
    pub(crate) fn exchange_typed<M: NetlinkSerializable, T, E: From<ExchangeError>>(
        &mut self,
        message: &M,
        flags: u16,
        read: impl FnMut(&KernelMessage<'_>) -> Result<T, E>,
    ) -> Result<Vec<T>, E> {
        let mut body = Zeroizing::new(vec![0; message.buffer_len()]);
        message.serialize(&mut body);
        self.exchange(message.message_type(), flags, &body, read)
    }

    /// Sends one or several messages as one datagram.
    pub(crate) fn send(&self, bytes: &[u8]) -> Result<(), ExchangeError> {
        self.socket.send(bytes, 0)?;
        Ok(())
    }

    /// The messages of the next datagram from the kernel.
    pub(crate) fn receive(&mut self) -> Result<KernelMessages<'_>, ExchangeError> {
        let flags = libc::MSG_TRUNC | libc::MSG_DONTWAIT;
        let len = loop {
            match self.socket.recv_from(&mut &mut self.datagram[..], flags) {
                // Another program's port: only the kernel has number 0.
                Ok((_, sender)) if sender.port_number() != 0 => {}
                Ok((len, _)) => break len,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    return Err(io::Error::other("the kernel's answer is incomplete").into());
                }
                Err(error) => return Err(error.into()),
            }
        };
        let datagram = self.datagram.get(..len).ok_or_else(truncated)?;
        Ok(messages(datagram))
    }

    /// The number of the next message.
    pub(crate) fn next_number(&self) -> u32 {
        self.next_number
    }

    /// Numbers of so many messages; returns the first.
    pub(crate) fn take_numbers(&mut self, count: u32) -> u32 {
        let first = self.next_number;
        self.next_number = first.wrapping_add(count);
        first
    }

    /// Enlarges the send buffer, into which a datagram must fit as a whole.
    pub(crate) fn make_room(&self, datagram_bytes: usize) -> io::Result<()> {
        let (socket, room) = (self.socket.as_fd(), datagram_bytes + 1024);
        if set_socket_send_buffer_size_force(socket, room).is_err() {
            set_socket_send_buffer_size(socket, room)?;
        }
        Ok(())
    }

    /// Whether lists are filtered by all fields of their requests (kernel 4.20).
    pub(crate) fn set_strict_check(&self, is_strict: bool) -> io::Result<()> {
        self.socket.set_netlink_get_strict_chk(is_strict)
    }
}

/// A socket that receives the notifications of these multicast groups, without waiting.
pub(crate) fn listen(protocol: isize, groups: &[u32]) -> io::Result<Socket> {
    let mut socket = Socket::new(protocol)?;
    let mask = groups.iter().fold(0, |mask, group| mask | 1 << (group - 1));
    socket.bind(&SocketAddr::new(0, mask))?;
    socket.set_non_blocking(true)?;
    Ok(socket)
}

/// The answer to one request, as far as it has arrived.
pub(crate) struct PendingAnswer<T, E> {
    number: u32,
    /// The last message is an acknowledgement, or the end of a list; otherwise the first is.
    has_end: bool,
    has_changed: bool,
    values: Vec<T>,
    /// Of the first message that could not be read. The rest is received all the same, because the kernel refuses the
    /// next list until this one has been received.
    failure: Option<E>,
}

impl<T, E: From<ExchangeError>> PendingAnswer<T, E> {
    /// The answer to the request of this number and these flags.
    pub(crate) fn new(number: u32, flags: u16) -> Self {
        Self {
            number,
            has_end: flags & NLM_F_ACK != 0 || flags & NLM_F_DUMP == NLM_F_DUMP,
            has_changed: false,
            values: Vec::new(),
            failure: None,
        }
    }

    /// Reads the messages of a datagram; returns whether the last one was among them.
    pub(crate) fn take(
        &mut self,
        mut datagram: KernelMessages<'_>,
        read: &mut impl FnMut(&KernelMessage<'_>) -> Result<T, E>,
    ) -> Result<bool, E> {
        for message in datagram.by_ref() {
            // An answer to a request that was abandoned.
            if message.number != self.number {
                continue;
            }
            self.has_changed |= message.flags & NLM_F_DUMP_INTR != 0;
            match message.kind {
                NLMSG_DONE | NLMSG_ERROR => {
                    message.outcome()?;
                    return Ok(true);
                }
                ..FIRST_PROTOCOL_KIND => continue,
                _ if self.failure.is_some() => {}
                _ => match read(&message) {
                    Ok(value) => self.values.push(value),
                    Err(error) => self.failure = Some(error),
                },
            }
            if !self.has_end && message.flags & NLM_F_MULTIPART == 0 {
                return Ok(true);
            }
        }
        if datagram.is_empty() {
            Ok(false)
        } else {
            Err(ExchangeError::from(truncated()).into())
        }
    }

    /// What was read; none if the list has changed while it was read.
    fn into_values(self) -> Result<Option<Vec<T>>, E> {
        match self.failure {
            _ if self.has_changed => Ok(None),
            Some(error) => Err(error),
            None => Ok(Some(self.values)),
        }
    }
}

#[cfg(test)]
mod tests;
