//! Sends one blocking request after the other to the kernel's XFRM, and explains the kernel's errors.

use super::zeroizing::ZeroizingMessage;
use crate::netlink_socket::NetlinkSocket;
use crate::netlink_socket::message::{ExchangeError, KernelMessage};
use netlink_packet_core::{NLM_F_ACK, NLM_F_CREATE, NLM_F_DUMP, NLM_F_EXCL, NLM_F_REPLACE};
use netlink_sys::protocols::NETLINK_XFRM;
use std::fmt;
use std::io;

/// A connection to the kernel's XFRM.
pub(super) struct XfrmSocket(NetlinkSocket);

/// Why the kernel did not do something.
#[derive(Debug)]
pub(super) struct Refusal {
    /// The error number, positive.
    pub errno: i32,
    /// The kernel's own explanation (extended ACK), if any.
    pub words: Option<String>,
}

type Outcome<T> = Result<T, Refusal>;

impl XfrmSocket {
    pub(super) fn open() -> Outcome<Self> {
        Ok(Self(NetlinkSocket::open(NETLINK_XFRM)?))
    }

    /// The number by which the kernel's notifications name what this socket has changed.
    pub(super) fn port(&self) -> u32 {
        self.0.port()
    }

    /// Changes or deletes an existing object.
    pub(super) fn change(&mut self, message: &ZeroizingMessage) -> Outcome<()> {
        self.put(message, NLM_F_ACK)
    }

    /// Replaces part of an existing object, such as its window.
    pub(super) fn replace(&mut self, message: &ZeroizingMessage) -> Outcome<()> {
        self.exchange(message, NLM_F_ACK | NLM_F_REPLACE).map(drop)
    }

    /// Adds a new object; it is an error if it exists already.
    pub(super) fn create(&mut self, message: &ZeroizingMessage) -> Outcome<()> {
        self.put(message, NLM_F_ACK | NLM_F_CREATE | NLM_F_EXCL)
    }

    fn put(&mut self, message: &ZeroizingMessage, flags: u16) -> Outcome<()> {
        let outcome = self.exchange(message, flags).map(drop);
        match outcome {
            Err(Refusal {
                errno: libc::EPROTONOSUPPORT | libc::EINVAL,
                ..
            }) => match message.in_own_family() {
                Some(own) => self.exchange(&own, flags).map(drop),
                None => outcome,
            },
            _ => outcome,
        }
    }

    /// Queries one object.
    pub(super) fn ask(&mut self, message: &ZeroizingMessage) -> Outcome<ZeroizingMessage> {
        let answers = self.exchange(message, 0)?;
        answers.into_iter().next().ok_or(Refusal::of(libc::ENOENT))
    }

    /// Requests a dump and reverses it to oldest first: the kernel sends the newest first.
    pub(super) fn list(&mut self, message: &ZeroizingMessage) -> Outcome<Vec<ZeroizingMessage>> {
        let mut answers = self.exchange(message, NLM_F_DUMP)?;
        answers.reverse();
        Ok(answers)
    }

    fn exchange(
        &mut self,
        message: &ZeroizingMessage,
        flags: u16,
    ) -> Outcome<Vec<ZeroizingMessage>> {
        self.0.exchange_typed(&**message, flags, read)
    }
}

fn read(message: &KernelMessage<'_>) -> Outcome<ZeroizingMessage> {
    let parsed = message.parse();
    parsed.map(ZeroizingMessage::new).map_err(|error| Refusal {
        errno: libc::EBADMSG,
        words: Some(error.to_string()),
    })
}

impl Refusal {
    pub(super) fn of(errno: i32) -> Self {
        Self { errno, words: None }
    }
}

impl From<io::Error> for Refusal {
    fn from(error: io::Error) -> Self {
        Self::of(error.raw_os_error().unwrap_or(libc::EIO))
    }
}

impl From<ExchangeError> for Refusal {
    fn from(ExchangeError { error, text }: ExchangeError) -> Self {
        Self {
            words: text,
            ..error.into()
        }
    }
}

/// A sentence for the operator: what is wrong and what to do.
impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let sentence = match self.errno {
            libc::EPERM | libc::EACCES => {
                "changing or reading the kernel's associations needs CAP_NET_ADMIN; run as root"
            }
            libc::EPROTONOSUPPORT | libc::ENOPROTOOPT | libc::EAFNOSUPPORT => {
                "this kernel does not support the protocol: load the modules xfrm_user, esp4, esp6, ah4 and ah6 \
                 (`modprobe -a xfrm_user esp4 esp6 ah4 ah6`), or use `esplanade run --plane user`"
            }
            libc::ENOSYS => {
                "this kernel lacks an algorithm of the association; load its module (/proc/crypto lists what is \
                 loaded), or use `esplanade run --plane user`"
            }
            libc::EEXIST => {
                "it exists already in the kernel, perhaps in a form that setkey cannot express; see `ip xfrm state` \
                 and `ip xfrm policy`"
            }
            libc::ESRCH | libc::ENOENT => "it does not exist in the kernel",
            libc::ENOBUFS | libc::ENOMEM => "the kernel is out of memory",
            errno => {
                let error = io::Error::from_raw_os_error(errno);
                return match &self.words {
                    Some(words) => write!(f, "the kernel refused it: {words} ({error})"),
                    None => write!(f, "the kernel refused it: {error}"),
                };
            }
        };
        match &self.words {
            Some(words) => write!(f, "{sentence} (kernel: {words})"),
            None => f.write_str(sentence),
        }
    }
}
