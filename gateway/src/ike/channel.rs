//! Messages over a stream socket between two processes: four bytes of length, then the message.
//!
//! Neither end ever waits for the other. What does not fit into the socket waits in a queue that is bounded, and the
//! room for a message grows with the bytes that arrive, not with the length that it announces.

use rustix::buffer::spare_capacity;
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, recv, send};
use serde::Serialize;
use serde::de::DeserializeOwned;
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
    /// What waits to be sent, and how much of it has been.
    waiting: (Vec<u8>, usize),
}

/// Appends what is written.
struct Appending<'a>(&'a mut Vec<u8>);

impl Extend<u8> for Appending<'_> {
    fn extend<I: IntoIterator<Item = u8>>(&mut self, bytes: I) {
        self.0.extend(bytes);
    }
}

impl Channel {
    /// Over a connected stream.
    pub(crate) fn new(stream: UnixStream) -> io::Result<Self> {
        stream.set_nonblocking(true)?;
        Ok(Self {
            stream,
            arrived: (Vec::new(), 0),
            waiting: (Vec::new(), 0),
        })
    }

    /// Queues a message; [`Channel::flush`] sends it, together with others.
    pub(crate) fn push<T: Serialize>(&mut self, message: &T) -> Result<(), QueueFull> {
        let waits = self.waiting_bytes();
        let queue = &mut self.waiting.0;
        let begin = queue.len();
        queue.extend_from_slice(&[0; LENGTH_BYTES]);
        let written = postcard::to_extend(message, Appending(queue)).is_ok();
        let len = queue.len() - begin - LENGTH_BYTES;
        // The types that are sent here can always be written.
        if !written || len > MAX_MESSAGE_BYTES || waits + LENGTH_BYTES + len > MAX_QUEUED_BYTES {
            queue.truncate(begin);
            return Err(QueueFull);
        }
        let length = (len as u32).to_le_bytes();
        if let Some(place) = queue.get_mut(begin..begin + LENGTH_BYTES) {
            place.copy_from_slice(&length);
        }
        Ok(())
    }

    /// Sends what the socket takes.
    pub(crate) fn flush(&mut self) -> io::Result<()> {
        let (queue, sent) = &mut self.waiting;
        while *sent < queue.len() {
            let rest = queue.get(*sent..).unwrap_or_default();
            match send(&self.stream, rest, SendFlags::NOSIGNAL) {
                Ok(more) => *sent += more,
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => break,
                Err(error) => return Err(error.into()),
            }
        }
        if *sent == queue.len() {
            queue.clear();
            queue.shrink_to(KEPT_BYTES);
            *sent = 0;
        } else if *sent > queue.len() / 2 {
            queue.drain(..*sent);
            *sent = 0;
        }
        Ok(())
    }

    /// Bytes that wait for the other end.
    pub(crate) fn waiting_bytes(&self) -> usize {
        self.waiting.0.len() - self.waiting.1
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
        bytes.reserve(READ_BYTES);
        let outcome = loop {
            match recv(&self.stream, spare_capacity(bytes), RecvFlags::empty()) {
                Err(Errno::INTR) => {}
                outcome => break outcome.map(|(filled, _)| filled),
            }
        };
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
