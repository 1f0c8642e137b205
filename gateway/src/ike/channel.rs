//! Messages over a stream socket between two processes: four bytes of length, then the message.
//!
//! Neither end ever waits for the other. What does not fit into the socket waits in a queue that is bounded, and the
//! room for a message grows with the bytes that arrive, not with the length that it announces.

use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, recv, send};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;

/// The longest message: a report of a hundred thousand peers.
const MAX_MESSAGE_BYTES: usize = 64 << 20;

/// Bytes that may wait for the other end.
const MAX_QUEUED_BYTES: usize = 128 << 20;

/// Bytes of one read.
const READ_BYTES: usize = 64 << 10;

/// Room that is kept for the next message.
const KEPT_BYTES: usize = 1 << 20;

/// Bytes of a message's length.
const LENGTH_BYTES: usize = 4;

/// The other end does not read: its queue is full.
#[derive(Debug)]
pub(crate) struct QueueFull;

/// One end.
pub(crate) struct Channel {
    stream: UnixStream,
    /// What has arrived, and how much of it is used up.
    arrived: (Vec<u8>, usize),
    /// What waits to be sent, and how much of the first one has been.
    waiting: (VecDeque<Vec<u8>>, usize),
    waiting_bytes: usize,
}

impl Channel {
    /// Over a connected stream.
    pub(crate) fn new(stream: UnixStream) -> io::Result<Self> {
        stream.set_nonblocking(true)?;
        Ok(Self {
            stream,
            arrived: (Vec::new(), 0),
            waiting: (VecDeque::new(), 0),
            waiting_bytes: 0,
        })
    }

    /// Queues a message; [`Channel::flush`] sends it.
    pub(crate) fn push<T: Serialize>(&mut self, message: &T) -> Result<(), QueueFull> {
        let mut frame = vec![0; LENGTH_BYTES];
        // The types that are sent here can always be written.
        frame = postcard::to_extend(message, frame).map_err(|_| QueueFull)?;
        let len = frame.len() - LENGTH_BYTES;
        if len > MAX_MESSAGE_BYTES || self.waiting_bytes + frame.len() > MAX_QUEUED_BYTES {
            return Err(QueueFull);
        }
        frame[..LENGTH_BYTES].copy_from_slice(&(len as u32).to_le_bytes());
        self.waiting_bytes += frame.len();
        self.waiting.0.push_back(frame);
        Ok(())
    }

    /// Sends what the socket takes.
    pub(crate) fn flush(&mut self) -> io::Result<()> {
        while let Some(frame) = self.waiting.0.front() {
            let rest = frame.get(self.waiting.1..).unwrap_or_default();
            match send(&self.stream, rest, SendFlags::NOSIGNAL) {
                Ok(sent) if sent == rest.len() => {
                    self.waiting_bytes -= frame.len();
                    self.waiting.0.pop_front();
                    self.waiting.1 = 0;
                }
                Ok(sent) => self.waiting.1 += sent,
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => return Ok(()),
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    /// Bytes that wait for the other end.
    pub(crate) fn waiting_bytes(&self) -> usize {
        self.waiting_bytes
    }

    /// The next message, or `None` if it is not complete yet.
    ///
    /// An error means that no further message can be read: the other end has gone (`UnexpectedEof`), or what it sent
    /// is none (`InvalidData`).
    pub(crate) fn receive<T: DeserializeOwned>(&mut self) -> io::Result<Option<T>> {
        loop {
            if let Some(message) = self.complete()? {
                return Ok(Some(message));
            }
            if !self.read()? {
                return Ok(None);
            }
        }
    }

    fn complete<T: DeserializeOwned>(&mut self) -> io::Result<Option<T>> {
        let (bytes, used) = &mut self.arrived;
        let rest = bytes.get(*used..).unwrap_or_default();
        let Some((length, rest)) = rest.split_first_chunk::<LENGTH_BYTES>() else {
            return Ok(None);
        };
        let length = u32::from_le_bytes(*length) as usize;
        if length > MAX_MESSAGE_BYTES {
            return Err(io::ErrorKind::InvalidData.into());
        }
        let Some(message) = rest.get(..length) else {
            return Ok(None);
        };
        let message = match postcard::take_from_bytes(message) {
            Ok((message, [])) => message,
            _ => return Err(io::ErrorKind::InvalidData.into()),
        };
        *used += LENGTH_BYTES + length;
        if *used == bytes.len() {
            bytes.clear();
            bytes.shrink_to(KEPT_BYTES);
            *used = 0;
        }
        Ok(Some(message))
    }

    /// Whether something arrived.
    fn read(&mut self) -> io::Result<bool> {
        let (bytes, used) = &mut self.arrived;
        bytes.drain(..*used);
        *used = 0;
        let before = bytes.len();
        bytes.resize(before + READ_BYTES, 0);
        let room = bytes.get_mut(before..).unwrap_or_default();
        let outcome = loop {
            match recv(&self.stream, &mut *room, RecvFlags::empty()) {
                Err(Errno::INTR) => {}
                outcome => break outcome.map(|(filled, _)| filled),
            }
        };
        bytes.truncate(before + outcome.unwrap_or(0));
        match outcome {
            Ok(0) | Err(Errno::CONNRESET) => Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(_) => Ok(true),
            Err(Errno::AGAIN) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }
}

impl AsFd for Channel {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.stream.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::io::Write;

    fn pair() -> (Channel, Channel) {
        let (one, other) = UnixStream::pair().unwrap();
        (Channel::new(one).unwrap(), Channel::new(other).unwrap())
    }

    #[test]
    fn messages_arrive_whole_and_in_order_though_the_socket_holds_only_part_of_them() {
        let (mut here, mut there) = pair();
        let sent: Vec<Vec<u8>> = (0..40).map(|n| vec![n; usize::from(n) * 30_000]).collect();
        for message in &sent {
            here.push(message).unwrap();
        }
        let mut received: Vec<Vec<u8>> = Vec::new();
        while received.len() < sent.len() {
            here.flush().unwrap();
            while let Some(message) = there.receive().unwrap() {
                received.push(message);
            }
        }
        assert!(received == sent && here.waiting_bytes() == 0);
    }

    #[test]
    fn a_queue_that_is_full_refuses_and_stays_usable() {
        let (mut here, mut there) = pair();
        let message = vec![1u8; 60 << 20];
        here.push(&message).unwrap();
        here.push(&message).unwrap();
        assert!(here.push(&message).is_err());
        here.flush().unwrap();
        let too_long = vec![1u8; MAX_MESSAGE_BYTES + 1];
        assert!(there.push(&too_long).is_err());
        there.push(&7u32).unwrap();
        there.flush().unwrap();
        assert_eq!(here.receive::<u32>().unwrap(), Some(7));
    }

    #[test]
    fn the_end_of_the_other_process_is_an_error_after_its_last_message() {
        let (mut here, mut there) = pair();
        there.push(&7u32).unwrap();
        there.flush().unwrap();
        drop(there);
        assert_eq!(here.receive::<u32>().unwrap(), Some(7));
        let end = here.receive::<u32>().unwrap_err();
        assert_eq!(end.kind(), io::ErrorKind::UnexpectedEof);
    }

    proptest! {
        #[test]
        fn no_bytes_make_it_panic_or_hand_out_a_message_that_was_not_sent(
            bytes in proptest::collection::vec(any::<u8>(), 0..300),
            cut in 0usize..40,
        ) {
            let (one, other) = UnixStream::pair().unwrap();
            let mut here = Channel::new(one).unwrap();
            (&other).write_all(&bytes).unwrap();
            drop(other);
            while let Ok(Some(_)) = here.receive::<(u32, String, Vec<u8>)>() {}
            // A message that is cut anywhere is never complete.
            let whole = postcard::to_allocvec(&(1u32, "text", vec![0u8; 40])).unwrap();
            let (one, other) = UnixStream::pair().unwrap();
            let mut here = Channel::new(one).unwrap();
            (&other).write_all(&(whole.len() as u32).to_le_bytes()).unwrap();
            (&other).write_all(&whole[..cut.min(whole.len() - 1)]).unwrap();
            drop(other);
            let end = here.receive::<(u32, String, Vec<u8>)>().err().map(|end| end.kind());
            prop_assert_eq!(end, Some(io::ErrorKind::UnexpectedEof));
        }
    }
}
