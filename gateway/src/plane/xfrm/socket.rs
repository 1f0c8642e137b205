//! Sends one blocking request after the other to the kernel's XFRM, and explains the kernel's errors.

use super::zeroizing::ZeroizingMessage;
use netlink_packet_core::{
    Emitable, NLM_F_ACK, NLM_F_CREATE, NLM_F_DUMP, NLM_F_EXCL, NLM_F_MULTIPART, NLM_F_REQUEST,
    NetlinkDeserializable, NetlinkHeader, NetlinkSerializable,
};
use netlink_sys::protocols::NETLINK_XFRM;
use netlink_sys::{Socket, SocketAddr};
use std::fmt;
use std::io;
use zeroize::Zeroizing;

const ERROR: u16 = 2;
const DONE: u16 = 3;
const HEADER_LEN: usize = 16;
/// The kernel fills at most 32 KiB of a dump at a time.
const ANSWER_BYTES: usize = 1 << 16;
/// NLMSGERR_ATTR_MSG: the kernel's error text, if any.
const ERROR_TEXT_ATTRIBUTE: u16 = 1;

/// A connection to the kernel's XFRM.
pub(super) struct XfrmSocket {
    socket: Socket,
    sequence: u32,
    answer: Zeroizing<Vec<u8>>,
}

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
        let mut socket = Socket::new(NETLINK_XFRM)?;
        socket.bind_auto()?;
        socket.connect(&SocketAddr::new(0, 0))?;
        // With this option a refused request is not echoed with its keys. Kernels too old for extended ACKs send fewer
        // details.
        let _ = socket.set_cap_ack(true);
        let _ = socket.set_ext_ack(true);
        Ok(Self {
            socket,
            sequence: 0,
            answer: Zeroizing::new(vec![0; ANSWER_BYTES]),
        })
    }

    /// Changes or deletes an existing object.
    pub(super) fn change(&mut self, message: &ZeroizingMessage) -> Outcome<()> {
        self.exchange(message, NLM_F_ACK).map(drop)
    }

    /// Adds a new object; it is an error if it exists already.
    pub(super) fn create(&mut self, message: &ZeroizingMessage) -> Outcome<()> {
        let flags = NLM_F_ACK | NLM_F_CREATE | NLM_F_EXCL;
        self.exchange(message, flags).map(drop)
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
        self.sequence = self.sequence.wrapping_add(1);
        self.send(message, flags)?;
        let mut answers = Vec::new();
        while !self.receive(&mut answers, flags & NLM_F_ACK != 0)? {}
        Ok(answers)
    }

    fn send(&mut self, message: &ZeroizingMessage, flags: u16) -> Outcome<()> {
        let mut header = NetlinkHeader::default();
        header.length = (HEADER_LEN + NetlinkSerializable::buffer_len(&**message)) as u32;
        header.message_type = NetlinkSerializable::message_type(&**message);
        header.flags = NLM_F_REQUEST | flags;
        header.sequence_number = self.sequence;
        let mut bytes = Zeroizing::new(vec![0; header.length as usize]);
        header.emit(&mut bytes[..HEADER_LEN]);
        message.serialize(&mut bytes[HEADER_LEN..]);
        self.socket.send(&bytes, 0)?;
        Ok(())
    }

    /// Reads one datagram of answers; returns whether it was the last.
    fn receive(
        &mut self,
        answers: &mut Vec<ZeroizingMessage>,
        acknowledged: bool,
    ) -> Outcome<bool> {
        let len = self.socket.recv(&mut &mut self.answer[..], 0)?;
        let mut rest = &self.answer[..len.min(ANSWER_BYTES)];
        while let Some((header, payload, next)) = split(rest) {
            rest = next;
            // Answers to an abandoned query are skipped.
            if header.sequence_number != self.sequence {
                continue;
            }
            match header.message_type {
                DONE | ERROR => return verdict(payload).map(|()| true),
                _ => answers.push(read(&header, payload)?),
            }
            if header.flags & NLM_F_MULTIPART == 0 && !acknowledged {
                return Ok(true);
            }
        }
        Ok(false)
    }
}

/// The first message of a datagram: header, payload and what follows.
fn split(bytes: &[u8]) -> Option<(NetlinkHeader, &[u8], &[u8])> {
    let field = |at: usize| Some(u32::from_ne_bytes(bytes.get(at..at + 4)?.try_into().ok()?));
    let half = |at: usize| Some(u16::from_ne_bytes(bytes.get(at..at + 2)?.try_into().ok()?));
    let mut header = NetlinkHeader::default();
    header.length = field(0)?;
    header.message_type = half(4)?;
    header.flags = half(6)?;
    header.sequence_number = field(8)?;
    let len = header.length as usize;
    let payload = bytes.get(HEADER_LEN..len)?;
    let next = bytes.get(len.next_multiple_of(4)..).unwrap_or_default();
    Some((header, payload, next))
}

fn read(header: &NetlinkHeader, payload: &[u8]) -> Outcome<ZeroizingMessage> {
    let message = NetlinkDeserializable::deserialize(header, payload);
    message.map(ZeroizingMessage::new).map_err(|error| Refusal {
        errno: libc::EBADMSG,
        words: Some(error.to_string()),
    })
}

/// The result in an acknowledgement or at the end of a dump: a negated error number, the request's header, and optional
/// text.
fn verdict(payload: &[u8]) -> Outcome<()> {
    let code = payload
        .first_chunk()
        .map_or(0, |bytes| i32::from_ne_bytes(*bytes));
    match code {
        0.. => Ok(()),
        _ => Err(Refusal {
            errno: -code,
            words: words(payload.get(4 + HEADER_LEN..).unwrap_or_default()),
        }),
    }
}

/// The kernel's error text among the attributes of an error.
fn words(mut attributes: &[u8]) -> Option<String> {
    while let [l0, l1, k0, k1, ..] = *attributes {
        let (len, kind) = (u16::from_ne_bytes([l0, l1]), u16::from_ne_bytes([k0, k1]));
        let value = attributes.get(4..usize::from(len))?;
        if kind == ERROR_TEXT_ATTRIBUTE {
            let text = value.strip_suffix(&[0]).unwrap_or(value);
            return String::from_utf8(text.to_vec()).ok();
        }
        attributes = attributes.get(usize::from(len).next_multiple_of(4)..)?;
    }
    None
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

/// A sentence for the operator: what is wrong and what to do.
impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let sentence = match self.errno {
            libc::EPERM | libc::EACCES => {
                "changing or reading the kernel's associations needs CAP_NET_ADMIN; run as root"
            }
            libc::EPROTONOSUPPORT | libc::ENOPROTOOPT | libc::EAFNOSUPPORT => {
                "this kernel does not support the protocol: load the modules xfrm_user, esp4, esp6, ah4 and ah6 \
                 (`modprobe -a xfrm_user esp4 esp6 ah4 ah6`), or use `esplanade run` instead of `--plane kernel`"
            }
            libc::ENOSYS => {
                "this kernel lacks an algorithm of the association; load its module (/proc/crypto lists what is \
                 loaded), or use `esplanade run` instead"
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernels_own_words_are_found_behind_the_requests_header() {
        let mut payload = (-libc::EINVAL).to_ne_bytes().to_vec();
        payload.extend_from_slice(&[0; HEADER_LEN]);
        payload.extend_from_slice(&[8, 0, 2, 0, 1, 2, 3, 4]);
        payload.extend_from_slice(&[11, 0, 1, 0]);
        payload.extend_from_slice(b"no way\0\0");
        let refusal = verdict(&payload).unwrap_err();
        assert_eq!(refusal.errno, libc::EINVAL);
        assert!(refusal.to_string().contains("no way"), "{refusal}");
    }

    #[test]
    fn cut_answers_are_no_reason_to_panic() {
        let whole = [20, 0, 0, 0, 2, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
        for len in 0..whole.len() {
            assert!(split(&whole[..len]).is_none());
            let _ = (verdict(&whole[..len]), words(&whole[..len]));
        }
        assert_eq!(split(&whole).unwrap().1, [0; 4]);
    }
}
