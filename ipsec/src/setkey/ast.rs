//! The syntax tree of a text, with the place of every part that can be wrong.
//!
//! The tree keeps what was written (a name stays a name, a quoted key stays quoted); whether it is valid is checked by
//! the lowering. Equality ignores places, so that a text and its canonical print compare equal. Keys are [`Secret`]s:
//! zeroed when dropped, never printed by `Debug`.

use std::net::IpAddr;

use super::Span;
use crate::suite::Secret;

mod policy;

pub use policy::*;

/// Something with the place where it was written. Places do not take part in comparisons.
#[derive(Clone, Copy, Debug)]
pub struct At<T> {
    /// The thing.
    pub node: T,
    /// Where it stands.
    pub span: Span,
}

impl<T> At<T> {
    /// `node`, written at `span`.
    pub fn new(node: T, span: Span) -> Self {
        Self { node, span }
    }

    /// Another thing at the same place.
    pub fn map<U>(self, change: impl FnOnce(T) -> U) -> At<U> {
        At::new(change(self.node), self.span)
    }
}

impl<T: PartialEq> PartialEq for At<T> {
    fn eq(&self, other: &Self) -> bool {
        self.node == other.node
    }
}

impl<T: Eq> Eq for At<T> {}

/// A whole text.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct File {
    /// Its statements in order.
    pub statements: Vec<At<Statement>>,
}

/// One statement, up to its `;`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Statement {
    /// `add`: a new security association.
    Add(Box<SaEntry>),
    /// `update`: an existing security association gets this configuration.
    Update(Box<SaEntry>),
    /// `getspi`: reserve an SPI.
    GetSpi(Box<SaName>),
    /// `get`: show one security association.
    Get(Box<SaName>),
    /// `delete`: remove one security association.
    Delete(Box<SaName>),
    /// `deleteall`: remove all security associations between two addresses.
    DeleteAll(Box<SaGroup>),
    /// `flush`: remove all security associations, or those of one protocol.
    Flush(Option<At<ProtocolWord>>),
    /// `dump`: show all security associations, or those of one protocol.
    Dump(Option<At<ProtocolWord>>),
    /// `spdadd`: a new policy.
    SpdAdd(Box<PolicyEntry>),
    /// `spdupdate`: a policy replaces the one with its selector and direction.
    SpdUpdate(Box<PolicyEntry>),
    /// `spddelete`: remove one policy.
    SpdDelete(Box<PolicyEntry>),
    /// `spdget`: show one policy.
    SpdGet(Box<PolicyEntry>),
    /// `spdflush`: remove all policies.
    SpdFlush,
    /// `spddump`: show all policies.
    SpdDump,
    /// `exit`, `quit` or `bye`: what follows is not read.
    Exit,
}

/// `-4`, `-6`, `-n`: how host names are looked up.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Lookup {
    /// Only addresses of this family.
    pub family: Option<Family>,
    /// No names at all.
    pub numeric: bool,
}

/// A family of addresses.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Family {
    /// IPv4.
    V4,
    /// IPv6.
    V6,
}

impl Family {
    /// The family of `address`.
    pub fn of(address: IpAddr) -> Self {
        if address.is_ipv4() {
            Self::V4
        } else {
            Self::V6
        }
    }
}

/// An address or the name of a host.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Host {
    /// A numeric address.
    Address(IpAddr),
    /// An address that only means something on one link, as `fe80::1%eth0`.
    Scoped(IpAddr, String),
    /// A name.
    Name(String),
}

/// What stands in the square brackets behind an address.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Port {
    /// `[any]`, as if there were no brackets.
    Any,
    /// A number.
    Number(u16),
    /// The name of a service.
    Service(String),
}

/// An address with an optional port.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Endpoint {
    /// The address.
    pub host: At<Host>,
    /// The port, where one is written.
    pub port: Option<At<Port>>,
}

/// The protocol of a security association.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ProtocolWord {
    /// ESP.
    Esp,
    /// ESP as it was before 1998 (RFC 1827).
    EspOld,
    /// ESP in UDP (RFC 3948), with the original address of a peer behind NAT where one is given.
    EspUdp(Option<At<Host>>),
    /// AH.
    Ah,
    /// AH as it was before 1998 (RFC 1826).
    AhOld,
    /// IP payload compression.
    IpComp,
    /// TCP segments signed with MD5 (RFC 2385).
    Tcp,
}

/// The addresses, protocol and SPI that identify one security association, and the options that may follow them.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SaName {
    /// How names are looked up.
    pub lookup: Lookup,
    /// The sender.
    pub source: Endpoint,
    /// The receiver.
    pub destination: Endpoint,
    /// The protocol.
    pub protocol: At<ProtocolWord>,
    /// The security parameter index.
    pub spi: At<u32>,
    /// `-m` and the other options before the algorithms.
    pub extensions: Extensions,
}

/// A security association with its algorithms.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SaEntry {
    /// Everything but the algorithms.
    pub name: SaName,
    /// `-E`.
    pub encryption: Option<At<Algorithm>>,
    /// `-A`.
    pub integrity: Option<At<Algorithm>>,
    /// `-C`.
    pub compression: Option<At<Compression>>,
}

/// All security associations of one protocol between two addresses.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SaGroup {
    /// How names are looked up.
    pub lookup: Lookup,
    /// The sender.
    pub source: Endpoint,
    /// The receiver.
    pub destination: Endpoint,
    /// The protocol.
    pub protocol: At<ProtocolWord>,
}

/// The options of a security association.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Extensions {
    /// `-m`.
    pub mode: Option<At<ModeWord>>,
    /// `-r`: the replay window.
    pub replay: Option<At<u64>>,
    /// `-u`: the identifier N of policies of level `unique:N`.
    pub reqid: Option<At<u64>>,
    /// `-f` with the content of the padding.
    pub padding: Option<At<Padding>>,
    /// `-f nocyclic-seq`.
    pub nocyclic: Option<At<()>>,
    /// `-lh`: seconds until the association expires.
    pub hard_seconds: Option<At<u64>>,
    /// `-ls`: seconds until it should be replaced.
    pub soft_seconds: Option<At<u64>>,
    /// `-bh`: bytes until the association expires.
    pub hard_bytes: Option<At<u64>>,
    /// `-bs`: bytes until it should be replaced.
    pub soft_bytes: Option<At<u64>>,
    /// `-ctx`: a security label.
    pub label: Option<At<Label>>,
    /// `-o`: settings that ipsec-tools does not have.
    pub options: Vec<At<NamedOption>>,
}

/// The argument of `-m`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ModeWord {
    /// Between the two addresses.
    Transport,
    /// For whole packets of others.
    Tunnel,
    /// Either.
    Any,
}

/// What ESP padding is made of.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Padding {
    /// Zeroes.
    Zero,
    /// Anything.
    Random,
    /// 1, 2, 3 …, the only one that RFC 4303 knows.
    Sequential,
}

/// A label of a Linux security module.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Label {
    /// The domain of interpretation.
    pub domain: u64,
    /// Which module made it.
    pub algorithm: u64,
    /// The label.
    pub text: String,
}

/// `-o name=value`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NamedOption {
    /// What stands before the equals sign.
    pub name: String,
    /// What stands behind it.
    pub value: Option<String>,
}

/// An algorithm and its key.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Algorithm {
    /// The name as written.
    pub name: At<String>,
    /// The key, where one is written.
    pub key: Option<At<Key>>,
}

/// A key as written.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Key {
    /// Digits behind `0x`. An odd number of digits means a zero in front.
    Hexadecimal(Secret),
    /// Characters in double quotes, each its own byte.
    Quoted(Secret),
}

impl Key {
    /// The key itself.
    pub fn secret(&self) -> &Secret {
        match self {
            Key::Hexadecimal(secret) | Key::Quoted(secret) => secret,
        }
    }
}

/// A compression algorithm.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Compression {
    /// The name as written.
    pub name: At<String>,
    /// `-R`: the SPI is the index on the wire.
    pub raw: bool,
}
