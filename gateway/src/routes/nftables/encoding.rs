//! Encodes a table's whole contents, or other values of its sets, as one transaction: all of it takes effect at once,
//! or nothing changes.

use super::expression::{self, COUNTER};
use super::set::{NAME_OF_ANY_SET, Set, SetContent};
use super::{Chain, Hook, NamedSet, Ruleset, TableFamily};
use crate::netlink_socket::attributes::Attributes;
use crate::netlink_socket::message::header;
use netlink_packet_core::{NLM_F_ACK, NLM_F_APPEND, NLM_F_CREATE, NLM_F_REQUEST};

/// Kinds of messages, as nf_tables numbers them.
pub(super) mod message {
    pub(crate) const NEW_TABLE: u8 = 0;
    pub(crate) const GET_TABLE: u8 = 1;
    pub(crate) const DELETE_TABLE: u8 = 2;
    pub(crate) const NEW_CHAIN: u8 = 3;
    pub(crate) const GET_CHAIN: u8 = 4;
    pub(crate) const NEW_RULE: u8 = 6;
    pub(crate) const GET_RULE: u8 = 7;
    pub(crate) const NEW_SET: u8 = 9;
    pub(crate) const NEW_SET_ELEMENTS: u8 = 12;
    pub(crate) const GET_SET_ELEMENTS: u8 = 13;
    pub(crate) const DELETE_SET_ELEMENTS: u8 = 14;
    pub(crate) const GET_GENERATION: u8 = 16;
    pub(crate) const NEW_OBJECT: u8 = 18;
    pub(crate) const GET_OBJECT: u8 = 19;
}

/// NFNL_SUBSYS_NFTABLES: the high byte of a message's type.
pub(super) const SUBSYSTEM: u16 = 10;

/// NFNL_MSG_BATCH_BEGIN and NFNL_MSG_BATCH_END.
const BATCH_BEGIN: u16 = 0x10;
const BATCH_END: u16 = 0x11;

/// Bytes of nfnetlink's header, which follows netlink's.
pub(super) const FAMILY_HEADER_BYTES: usize = 4;

/// NFT_SET_ANONYMOUS and NFT_SET_CONSTANT; NFT_SET_INTERVAL.
const OF_ONE_TERM: u32 = 1 | 2;
const HAS_RANGES: u32 = 4;

/// NFT_SET_ELEM_INTERVAL_END: the first value after a range.
const BEHIND_A_RANGE: u32 = 1;

/// Each element has at most 52 bytes, and an attribute less than 65 536.
const ELEMENTS_PER_MESSAGE: usize = 1024;

/// Name, packets and bytes of a counter.
pub(crate) type Count = (&'static str, u64, u64);

/// Messages that take effect together.
pub(super) struct Batch {
    bytes: Vec<u8>,
    first: u32,
    /// The kind of each message, from the first on; none for begin and end.
    kinds: Vec<Option<u8>>,
    last_at: usize,
}

impl Batch {
    /// Begins a batch whose messages are numbered from `first` on.
    pub(super) fn begin(first: u32) -> Self {
        let mut batch = Self {
            bytes: Vec::new(),
            first,
            kinds: Vec::new(),
            last_at: 0,
        };
        batch.frame(BATCH_BEGIN);
        batch
    }

    /// Appends a message.
    fn add(&mut self, kind: u8, flags: u16, family: TableFamily, attributes: Attributes) {
        self.last_at = self.bytes.len();
        let number = self.next();
        let body = attributes.into_bytes();
        self.bytes
            .extend(request(kind, flags, family, number, &body));
        self.kinds.push(Some(kind));
    }

    /// Ends the batch. An acknowledgement is requested for the last message only: it stands for all.
    pub(super) fn end(mut self) -> Self {
        // The flags follow the length and the type.
        if let Some(low) = self.bytes.get_mut(self.last_at + 6) {
            *low |= NLM_F_ACK as u8;
        }
        self.frame(BATCH_END);
        self
    }

    /// The number after the last one.
    pub(super) fn next(&self) -> u32 {
        self.first.wrapping_add(self.kinds.len() as u32)
    }

    /// The number of the message that is acknowledged.
    pub(super) fn acknowledged(&self) -> u32 {
        self.next().wrapping_sub(2)
    }

    /// Whether a number is one of this batch, and the kind of that message.
    pub(super) fn kind(&self, number: u32) -> Option<Option<u8>> {
        let place = number.wrapping_sub(self.first) as usize;
        self.kinds.get(place).copied()
    }

    /// The bytes.
    pub(super) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    fn frame(&mut self, kind: u16) {
        let number = self.next();
        // AF_UNSPEC, version 0, and the subsystem.
        let body = [&[0, 0][..], &SUBSYSTEM.to_be_bytes()].concat();
        self.bytes.extend(
            header(kind, NLM_F_REQUEST, number, body.len())
                .into_iter()
                .chain(body),
        );
        self.kinds.push(None);
    }
}

/// One message of nf_tables.
fn request(kind: u8, flags: u16, family: TableFamily, number: u32, attributes: &[u8]) -> Vec<u8> {
    let kind = SUBSYSTEM << 8 | u16::from(kind);
    let body_len = FAMILY_HEADER_BYTES + attributes.len();
    let header = header(kind, NLM_F_REQUEST | flags, number, body_len);
    let family = family_header(family.number());
    [&header[..], &family, attributes].concat()
}

/// nfnetlink's header of a message about one table's family; version and resource id are zero.
pub(super) fn family_header(family: u8) -> [u8; FAMILY_HEADER_BYTES] {
    [family, 0, 0, 0]
}

/// Deletes the table. It is created first, so that deleting succeeds if it did not exist.
pub(super) fn remove(batch: &mut Batch, family: TableFamily, table: &str) {
    for kind in [message::NEW_TABLE, message::DELETE_TABLE] {
        let mut attributes = Attributes::default();
        attributes.put_text(1, table);
        batch.add(kind, create(kind), family, attributes);
    }
}

fn create(kind: u8) -> u16 {
    if kind == message::NEW_TABLE {
        NLM_F_CREATE
    } else {
        0
    }
}

/// Replaces the table's contents. Its counters continue from `counts`.
pub(super) fn replace(batch: &mut Batch, ruleset: &Ruleset, table_flags: u32, counts: &[Count]) {
    remove(batch, ruleset.family, &ruleset.table);
    let mut attributes = Attributes::default();
    attributes
        .put_text(1, &ruleset.table)
        .put_u32(2, table_flags);
    batch.add(message::NEW_TABLE, NLM_F_CREATE, ruleset.family, attributes);
    for name in &ruleset.counters {
        let count = counts.iter().find(|(known, ..)| known == name);
        counter(batch, ruleset, count.copied().unwrap_or((name, 0, 0)));
    }
    let mut next_set = 1;
    for set in &ruleset.sets {
        fill_set(batch, ruleset, &Set::named(set, next_set));
        next_set += 1;
    }
    for chain in &ruleset.chains {
        open_chain(batch, ruleset, chain);
        for rule in &chain.rules {
            let mut sets = Vec::new();
            let expressions = expression::of_rule(rule, &mut next_set, &mut sets);
            for set in &sets {
                fill_set(batch, ruleset, set);
            }
            let mut attributes = Attributes::default();
            attributes
                .put_text(1, &ruleset.table)
                .put_text(2, &chain.name);
            attributes.nest(4, |list| *list = expressions);
            batch.add(
                message::NEW_RULE,
                NLM_F_CREATE | NLM_F_APPEND,
                ruleset.family,
                attributes,
            );
        }
    }
}

/// Gives the sets of a table, which has `ruleset`, these values.
pub(super) fn change_values(batch: &mut Batch, ruleset: &Ruleset, sets: &[NamedSet]) {
    for (old, new) in ruleset.sets.iter().zip(sets) {
        for (kind, values) in [
            (
                message::NEW_SET_ELEMENTS,
                new.values.difference(&old.values),
            ),
            (
                message::DELETE_SET_ELEMENTS,
                old.values.difference(&new.values),
            ),
        ] {
            let values: Vec<_> = values.map(|value| (value, 0)).collect();
            put_elements(batch, ruleset, kind, (new.name, None), &values);
        }
    }
}

fn counter(batch: &mut Batch, ruleset: &Ruleset, (name, packets, bytes): Count) {
    let mut attributes = Attributes::default();
    attributes.put_text(1, &ruleset.table).put_text(2, name);
    attributes.put_u32(3, COUNTER);
    attributes.nest(4, |data| {
        data.put(1, &bytes.to_be_bytes());
        data.put(2, &packets.to_be_bytes());
    });
    batch.add(
        message::NEW_OBJECT,
        NLM_F_CREATE,
        ruleset.family,
        attributes,
    );
}

/// Adds a chain whose policy is to accept (NF_ACCEPT).
fn open_chain(batch: &mut Batch, ruleset: &Ruleset, chain: &Chain) {
    let mut attributes = Attributes::default();
    attributes
        .put_text(1, &ruleset.table)
        .put_text(3, &chain.name);
    attributes.nest(4, |hook| {
        hook.put_u32(1, chain.hook.number());
        hook.put(2, &chain.priority.to_be_bytes());
        if let Hook::Ingress(device) = &chain.hook {
            hook.put_text(3, device);
        }
    });
    attributes.put_u32(5, 1).put_text(7, chain.kind);
    batch.add(message::NEW_CHAIN, NLM_F_CREATE, ruleset.family, attributes);
}

fn fill_set(batch: &mut Batch, ruleset: &Ruleset, set: &Set) {
    let mut attributes = Attributes::default();
    attributes.put_text(1, &ruleset.table).put_text(2, set.name);
    let (kind, elements) = elements(&set.content);
    let is_of_one_term = set.name == NAME_OF_ANY_SET;
    let lasts = if is_of_one_term { OF_ONE_TERM } else { 0 };
    attributes.put_u32(3, lasts | kind);
    attributes.put_u32(4, set.data_type);
    attributes.put_u32(5, set.key_len).put_u32(10, set.id);
    if is_of_one_term {
        // The most elements that the kernel makes room for.
        attributes.nest(9, |described| {
            described.put_u32(1, elements.len() as u32);
        });
    }
    // User data, which only `nft` reads: kind, length, and 1 for host byte order or 2 for network byte order.
    let order: u32 = if set.is_in_host_order { 1 } else { 2 };
    attributes.put(13, &[&[0, 4][..], &order.to_ne_bytes()].concat());
    batch.add(message::NEW_SET, NLM_F_CREATE, ruleset.family, attributes);
    put_elements(
        batch,
        ruleset,
        message::NEW_SET_ELEMENTS,
        (set.name, Some(set.id)),
        &elements,
    );
}

/// Adds elements to a set or deletes them; `id` is its number in the transaction that makes it.
fn put_elements(
    batch: &mut Batch,
    ruleset: &Ruleset,
    kind: u8,
    (name, id): (&str, Option<u32>),
    elements: &[(&Vec<u8>, u32)],
) {
    for some in elements.chunks(ELEMENTS_PER_MESSAGE) {
        let mut attributes = Attributes::default();
        attributes.put_text(1, &ruleset.table).put_text(2, name);
        if let Some(id) = id {
            attributes.put_u32(4, id);
        }
        attributes.nest(3, |list| {
            for (value, flags) in some {
                list.nest(1, |element| {
                    element.nest(1, |key| {
                        key.put(1, value);
                    });
                    if *flags != 0 {
                        element.put_u32(3, *flags);
                    }
                });
            }
        });
        batch.add(kind, NLM_F_CREATE, ruleset.family, attributes);
    }
}

/// The set's flag for the kind of its elements, and each element with its own flags.
fn elements(content: &SetContent) -> (u32, Vec<(&Vec<u8>, u32)>) {
    match content {
        SetContent::Values(values) => (0, values.iter().map(|value| (value, 0)).collect()),
        SetContent::Ranges(ranges) => {
            let both = ranges.iter().flat_map(|(first, behind)| {
                let behind = behind.iter().map(|value| (value, BEHIND_A_RANGE));
                [(first, 0)].into_iter().chain(behind)
            });
            (HAS_RANGES, both.collect())
        }
    }
}
