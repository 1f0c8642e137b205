//! The socket to nf_tables. Tables created over it with the flag "owner" cannot be changed by other programs while it
//! is open.

use super::encoding::{self, Batch, Count, FAMILY_HEADER_BYTES, message};
use super::{NamedSet, Ruleset, TableFamily};
use crate::netlink_socket::NetlinkSocket;
use crate::netlink_socket::attributes::{self, Attributes};
use crate::netlink_socket::message::{ExchangeError, KernelMessage};
use netlink_packet_core::{NLM_F_ACK, NLM_F_DUMP, NLMSG_ERROR};
use netlink_sys::protocols::NETLINK_NETFILTER;
use std::io;

/// NFT_TABLE_F_OWNER (kernel 5.12): other tools' `flush ruleset` does not flush the table, and only this connection may
/// change it. NFT_TABLE_F_PERSIST (6.9): the table stays when the connection ends, and another may then own it. The
/// first is never set alone, because the kernel would then delete the table when the process ends.
pub(crate) const OWNED: u32 = 0x2 | 0x4;

/// NFTA_TABLE_OWNER: the connection that owns a table; absent when it has ended.
const TABLE_OWNER: u16 = 7;

/// A connection to nf_tables.
pub(crate) struct Connection(NetlinkSocket);

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
        Ok(Self(NetlinkSocket::open(NETLINK_NETFILTER)?))
    }

    /// The number by which notifications name what it has changed.
    pub(crate) fn port(&self) -> u32 {
        self.0.port()
    }

    /// Replaces a table's contents atomically.
    pub(crate) fn replace(
        &mut self,
        ruleset: &Ruleset,
        table_flags: u32,
        counts: &[Count],
    ) -> Result<(), Refused> {
        let mut batch = Batch::begin(self.0.next_number());
        encoding::replace(&mut batch, ruleset, table_flags, counts);
        self.commit(batch.end())
    }

    /// Gives the sets of a table, which has `ruleset`, these values, atomically.
    pub(crate) fn change_values(
        &mut self,
        ruleset: &Ruleset,
        sets: &[NamedSet],
    ) -> Result<(), Refused> {
        let mut batch = Batch::begin(self.0.next_number());
        encoding::change_values(&mut batch, ruleset, sets);
        self.commit(batch.end())
    }

    /// Deletes a table, if it exists.
    pub(crate) fn remove(&mut self, family: TableFamily, table: &str) -> Result<(), Refused> {
        let mut batch = Batch::begin(self.0.next_number());
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

    /// Whether a running process owns a table.
    pub(crate) fn has_owner(&mut self, family: TableFamily, table: &str) -> io::Result<bool> {
        let mut which = Attributes::default();
        which.put_text(1, table);
        let found = self.get(message::GET_TABLE, family, which)?;
        Ok(found.is_some_and(|body| attributes::find_u32(&body, TABLE_OWNER).is_some()))
    }

    /// All objects that the kernel lists for a request.
    pub(super) fn list(
        &mut self,
        kind: u8,
        family: TableFamily,
        which: Attributes,
    ) -> io::Result<Vec<Vec<u8>>> {
        self.ask(kind, NLM_F_DUMP, family.number(), which)
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
        let kind = encoding::SUBSYSTEM << 8 | u16::from(kind);
        let body = [&encoding::family_header(family)[..], &which.into_bytes()].concat();
        let read = |answer: &KernelMessage<'_>| Ok(attributes_of(answer).to_vec());
        self.0.exchange(kind, flags | NLM_F_ACK, &body, read)
    }

    /// Sends a batch and reads until its last message is acknowledged, or the batch is refused as a whole.
    fn commit(&mut self, batch: Batch) -> Result<(), Refused> {
        self.0
            .take_numbers(batch.next().wrapping_sub(self.0.next_number()));
        let whole = |error: ExchangeError| Refused::whole(error.into());
        let room = self.0.make_room(batch.bytes().len());
        room.map_err(Refused::whole)?;
        self.0.send(batch.bytes()).map_err(whole)?;
        let mut refusal = None;
        loop {
            let answers = match self.0.receive() {
                // More errors than the receive buffer holds: only the first one is needed.
                Err(failed) if failed.error.raw_os_error() == Some(libc::ENOBUFS) => continue,
                Err(failed) => return Err(refusal.unwrap_or_else(|| whole(failed))),
                Ok(answers) => answers,
            };
            for answer in answers.filter(|answer| answer.kind == NLMSG_ERROR) {
                let Some(message) = batch.kind(answer.number) else {
                    continue;
                };
                if let Err(failed) = answer.outcome() {
                    let error = failed.into();
                    refusal.get_or_insert(Refused { error, message });
                }
                if message.is_none() || answer.number == batch.acknowledged() {
                    return refusal.map_or(Ok(()), Err);
                }
            }
        }
    }
}

/// The attributes of a message, which follow nfnetlink's header.
pub(super) fn attributes_of<'a>(message: &KernelMessage<'a>) -> &'a [u8] {
    message.body.get(FAMILY_HEADER_BYTES..).unwrap_or_default()
}

/// The count of one of the named counters of a table.
pub(super) fn count_in(body: &[u8], table: &str, names: &[&'static str]) -> Option<Count> {
    let name = attributes::find_text(body, 2)?;
    let name = names.iter().copied().find(|known| *known == name)?;
    let data = attributes::find(body, 4)?;
    let [bytes, packets] = [1, 2].map(|kind| attributes::find_u64(data, kind));
    (attributes::find_text(body, 1)? == table).then_some((name, packets?, bytes?))
}
