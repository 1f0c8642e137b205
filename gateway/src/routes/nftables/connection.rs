//! The socket to nf_tables. Tables created over it with the flag "owner" cannot be changed by other programs while it
//! is open.
//!
//! The kernel processes a request within the call that sends it, so the answers can be read without waiting when the
//! call returns.

use super::encoding::{self, ACK, Batch, Count, HEADER_LEN, message};
use super::{Ruleset, TableFamily};
use crate::netlink_socket::attributes::{self, Attributes};
use netlink_sys::protocols::NETLINK_NETFILTER;
use netlink_sys::{Socket, SocketAddr};
use rustix::net::sockopt::{set_socket_send_buffer_size, set_socket_send_buffer_size_force};
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

/// NFT_TABLE_F_OWNER (kernel 5.12): other tools' `flush ruleset` does not flush the table, and only this connection may
/// change it. NFT_TABLE_F_PERSIST (6.9): the table stays when the connection ends, and another may then own it. The
/// first is never set alone, because the kernel would then delete the table when the process ends.
pub(crate) const OWNED: u32 = 0x2 | 0x4;

const DUMP: u16 = libc::NLM_F_DUMP as u16;

/// NLM_F_DUMP_INTR: the objects have changed while they were listed.
const INTERRUPTED: u16 = 0x10;

const NLMSG_ERROR: u16 = 2;
const NLMSG_DONE: u16 = 3;

/// A connection to nf_tables.
pub(crate) struct Connection {
    socket: Socket,
    sequence: u32,
}

/// Why the kernel refused a request.
#[derive(Debug)]
pub(crate) struct Refused {
    /// The kernel's error.
    pub error: io::Error,
    /// The kind of the refused message; none if the error is not about a single one.
    pub message: Option<u8>,
}

impl Refused {
    /// An error that is not about a single message.
    pub(crate) fn whole(error: io::Error) -> Self {
        Self {
            error,
            message: None,
        }
    }

    /// Whether the kernel does not support tables with both flags: before 6.9 (EOPNOTSUPP), before 5.12 (EINVAL).
    pub(crate) fn is_about_flags(&self) -> bool {
        let code = self.error.raw_os_error();
        self.message == Some(message::NEW_TABLE)
            && matches!(code, Some(libc::EOPNOTSUPP | libc::EINVAL))
    }

    /// Describes what the refused message would have done.
    pub(crate) fn step(&self) -> &'static str {
        match self.message {
            None => "as a whole",
            Some(message::NEW_TABLE) => "making the table",
            Some(message::DELETE_TABLE) => "deleting the table",
            Some(message::NEW_CHAIN) => "making a chain",
            Some(message::NEW_RULE) => "making a rule",
            Some(message::NEW_OBJECT) => "making a counter",
            Some(_) => "making a set",
        }
    }
}

impl Connection {
    /// Opens one.
    pub(crate) fn open() -> io::Result<Self> {
        let mut socket = Socket::new(NETLINK_NETFILTER)?;
        socket.bind_auto()?;
        socket.connect(&SocketAddr::new(0, 0))?;
        socket.set_non_blocking(true)?;
        // Error messages need not contain the request.
        socket.set_cap_ack(true)?;
        Ok(Self {
            socket,
            sequence: 1,
        })
    }

    /// Replaces a table's contents atomically.
    pub(crate) fn replace(
        &mut self,
        ruleset: &Ruleset,
        table_flags: u32,
        counts: &[Count],
    ) -> Result<(), Refused> {
        let mut batch = Batch::begin(self.sequence);
        encoding::replace(&mut batch, ruleset, table_flags, counts);
        self.commit(batch.end())
    }

    /// Deletes a table, if it exists.
    pub(crate) fn remove(&mut self, family: TableFamily, table: &str) -> Result<(), Refused> {
        let mut batch = Batch::begin(self.sequence);
        encoding::remove(&mut batch, family, table);
        self.commit(batch.end())
    }

    /// The generation number, which changes whenever any program changes any table.
    pub(crate) fn generation(&mut self) -> io::Result<u32> {
        let answers = self.ask(message::GET_GENERATION, 0, 0, Attributes::default())?;
        let number = answers
            .first()
            .and_then(|body| attributes::find_u32(body, 1));
        number.ok_or_else(|| io::ErrorKind::InvalidData.into())
    }

    /// The counts of a table's named counters.
    pub(crate) fn counts(
        &mut self,
        family: TableFamily,
        table: &str,
        names: &[&'static str],
    ) -> io::Result<Vec<Count>> {
        let mut which = Attributes::default();
        which
            .put_text(1, table)
            .put_u32(3, super::expression::COUNTER);
        let found = self.list(message::GET_OBJECT, family, which)?;
        let counts = found.iter();
        Ok(counts
            .filter_map(|body| count_in(body, table, names))
            .collect())
    }

    /// All objects that the kernel lists for a request.
    pub(super) fn list(
        &mut self,
        kind: u8,
        family: TableFamily,
        which: Attributes,
    ) -> io::Result<Vec<Vec<u8>>> {
        self.ask(kind, DUMP, family.number(), which)
    }

    /// One object, if it exists.
    pub(super) fn get(
        &mut self,
        kind: u8,
        family: TableFamily,
        which: Attributes,
    ) -> io::Result<Option<Vec<u8>>> {
        match self.ask(kind, 0, family.number(), which) {
            Err(error) if error.raw_os_error() == Some(libc::ENOENT) => Ok(None),
            answers => Ok(answers?.into_iter().next()),
        }
    }

    /// Sends a request and returns the attributes of each answer.
    fn ask(
        &mut self,
        kind: u8,
        flags: u16,
        family: u8,
        which: Attributes,
    ) -> io::Result<Vec<Vec<u8>>> {
        let number = self.take_numbers(1);
        let question = encoding::request(kind, flags | ACK, family, number, &which.into_bytes());
        self.socket.send(&question, 0)?;
        let (mut answers, mut interrupted) = (Vec::new(), false);
        loop {
            for answer in self.receive()? {
                if answer.number != number {
                    continue;
                }
                interrupted |= answer.flags & INTERRUPTED != 0;
                match answer.kind {
                    NLMSG_ERROR => answer.outcome()?,
                    NLMSG_DONE => {}
                    _ => {
                        answers.push(answer.attributes());
                        continue;
                    }
                }
                return if interrupted {
                    Err(io::ErrorKind::Interrupted.into())
                } else {
                    Ok(answers)
                };
            }
        }
    }

    /// Sends a batch and reads until its last message is acknowledged, or the batch is refused as a whole.
    fn commit(&mut self, batch: Batch) -> Result<(), Refused> {
        let _ = self.take_numbers(batch.next().wrapping_sub(self.sequence));
        let whole = Refused::whole;
        self.make_room(batch.bytes().len()).map_err(whole)?;
        self.socket.send(batch.bytes(), 0).map_err(whole)?;
        let mut refusal = None;
        loop {
            let answers = match self.receive() {
                // More errors than the receive buffer holds: only the first one is needed.
                Err(error) if error.raw_os_error() == Some(libc::ENOBUFS) => continue,
                Err(error) => return Err(refusal.unwrap_or_else(|| whole(error))),
                Ok(answers) => answers,
            };
            for answer in answers.iter().filter(|answer| answer.kind == NLMSG_ERROR) {
                let Some(message) = batch.kind(answer.number) else {
                    continue;
                };
                let outcome = answer.outcome();
                if let Err(error) = outcome {
                    refusal.get_or_insert(Refused { error, message });
                }
                if message.is_none() || answer.number == batch.acknowledged() {
                    return refusal.map_or(Ok(()), Err);
                }
            }
        }
    }

    fn take_numbers(&mut self, many: u32) -> u32 {
        let first = self.sequence;
        self.sequence = first.wrapping_add(many);
        first
    }

    /// Enlarges the send buffer: the socket takes a batch as one message, which must fit.
    fn make_room(&self, len: usize) -> io::Result<()> {
        // SAFETY: the socket lives as long as this borrow of its descriptor.
        let socket = unsafe { BorrowedFd::borrow_raw(self.socket.as_raw_fd()) };
        let room = len + 1024;
        if set_socket_send_buffer_size_force(socket, room).is_err() {
            set_socket_send_buffer_size(socket, room)?;
        }
        Ok(())
    }

    fn receive(&self) -> io::Result<Vec<Answer>> {
        let (datagram, _) = self.socket.recv_from_full()?;
        Ok(Answer::all_in(&datagram))
    }
}

/// The count of one of the named counters of a table.
pub(super) fn count_in(body: &[u8], table: &str, names: &[&'static str]) -> Option<Count> {
    let name = attributes::find_text(body, 2)?;
    let name = names.iter().copied().find(|known| *known == name)?;
    let data = attributes::find(body, 4)?;
    let [bytes, packets] = [1, 2].map(|kind| attributes::find_u64(data, kind));
    (attributes::find_text(body, 1)? == table).then_some((name, packets?, bytes?))
}

/// One message from the kernel.
pub(super) struct Answer {
    kind: u16,
    flags: u16,
    number: u32,
    /// What follows netlink's header.
    body: Vec<u8>,
}

impl Answer {
    /// The messages of a datagram, up to the first incomplete one.
    pub(super) fn all_in(datagram: &[u8]) -> Vec<Self> {
        let (mut rest, mut answers) = (datagram, Vec::new());
        while let Some((answer, len)) = Self::read(rest) {
            answers.push(answer);
            rest = rest.get(len.next_multiple_of(4)..).unwrap_or_default();
        }
        answers
    }

    fn read(bytes: &[u8]) -> Option<(Self, usize)> {
        let header = bytes.first_chunk::<16>()?;
        let word = |at: usize| [header[at], header[at + 1], header[at + 2], header[at + 3]];
        let len = u32::from_ne_bytes(word(0)) as usize;
        let answer = Self {
            kind: u16::from_ne_bytes([header[4], header[5]]),
            flags: u16::from_ne_bytes([header[6], header[7]]),
            number: u32::from_ne_bytes(word(8)),
            body: bytes.get(16..len)?.to_vec(),
        };
        Some((answer, len))
    }

    /// The attributes, which follow nfnetlink's header.
    pub(super) fn attributes(&self) -> Vec<u8> {
        self.body
            .get(HEADER_LEN - 16..)
            .unwrap_or_default()
            .to_vec()
    }

    /// The result in an acknowledgement: 0, or a negated error number.
    pub(super) fn outcome(&self) -> io::Result<()> {
        let code = self
            .body
            .first_chunk()
            .map(|code| i32::from_ne_bytes(*code));
        match code {
            Some(0) => Ok(()),
            Some(code) => Err(io::Error::from_raw_os_error(code.wrapping_neg())),
            None => Err(io::ErrorKind::InvalidData.into()),
        }
    }
}
