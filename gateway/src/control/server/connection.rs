//! One client of the control socket: the received part of its request, and the unsent part of its answer.

use super::super::MAX_REQUEST_BYTES;
use super::super::message::Answer;
use std::io::{ErrorKind, Read, Write};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};
use zeroize::{Zeroize, Zeroizing};

/// How long a client may take for the next part of its request or of its answer. If it has read a part meanwhile, the
/// time starts anew: while the gateway is busy with a change, it does not send the rest of a large answer.
const CLIENT_TIMEOUT: Duration = Duration::from_secs(10);

/// How long a client has the gateway's main thread to itself: from when it connects until its request has come, and
/// while it reads an answer in parts, so that each part follows at once.
const MAX_PREFERRED_TIME: Duration = Duration::from_millis(20);

/// A connection. It serves one request; a listener stays for events.
pub(super) struct Client {
    pub stream: UnixStream,
    incoming: Zeroizing<Vec<u8>>,
    outgoing: Zeroizing<Vec<u8>>,
    written: usize,
    pub deadline: Option<Instant>,
    connected_at: Instant,
    /// When the answer was made.
    answered_at: Option<Instant>,
    asked: bool,
    pub listens: bool,
    pub closed: bool,
}

impl Client {
    /// A client that has sent no request yet.
    pub(super) fn new(stream: UnixStream) -> Self {
        let now = Instant::now();
        Self {
            stream,
            incoming: Zeroizing::default(),
            outgoing: Zeroizing::default(),
            written: 0,
            deadline: Some(now + CLIENT_TIMEOUT),
            connected_at: now,
            answered_at: None,
            asked: false,
            listens: false,
            closed: false,
        }
    }

    /// Part of an answer has not been sent yet.
    pub(super) fn has_to_say(&self) -> bool {
        self.written < self.outgoing.len()
    }

    /// Until when it should have asked, or have the rest of its answer, before other work goes on. One that waits for
    /// what other work brings holds nothing back.
    pub(super) fn preferred_until(&self) -> Option<Instant> {
        let reads = self.has_to_say() && !self.listens;
        let since = if self.asked {
            self.answered_at.filter(|_| reads)
        } else {
            Some(self.connected_at)
        };
        since.map(|at| at + MAX_PREFERRED_TIME)
    }

    /// Reads what has arrived; returns the request once its line is complete. A connection carries one request.
    pub(super) fn read(&mut self) -> Option<Zeroizing<Vec<u8>>> {
        let mut room = Zeroizing::new([0; 16384]);
        loop {
            match self.stream.read(&mut room[..]) {
                Ok(0) => {
                    self.closed |= !self.has_to_say();
                    return None;
                }
                Ok(_) if self.asked => {}
                Ok(count) => {
                    self.goes_on();
                    grow(&mut self.incoming, &room[..count]);
                    if room[..count].contains(&b'\n') {
                        return Some(self.take_line());
                    }
                    if self.incoming.len() > MAX_REQUEST_BYTES {
                        self.asked = true;
                        self.say(&Answer::Refused("the request is too large".to_owned()));
                        return None;
                    }
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => return None,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(_) => {
                    self.closed = true;
                    return None;
                }
            }
        }
    }

    fn goes_on(&mut self) {
        let later = self.deadline.map(|_| Instant::now() + CLIENT_TIMEOUT);
        self.deadline = later;
    }

    /// Bytes of answers that have not been sent yet.
    pub(super) fn unsent(&self) -> usize {
        self.outgoing.len() - self.written
    }

    fn take_line(&mut self) -> Zeroizing<Vec<u8>> {
        self.asked = true;
        // The answer is being made; from here on only its delivery is timed.
        self.deadline = None;
        let mut line = std::mem::take(&mut self.incoming);
        let end = line.iter().position(|&byte| byte == b'\n');
        if let Some(end) = end {
            line.truncate(end);
        }
        line
    }

    /// Queues an answer, and sends as much as the socket takes now.
    pub(super) fn say(&mut self, answer: &Answer) {
        let Ok(line) = serde_json::to_vec(answer) else {
            self.closed = true;
            return;
        };
        let line = Zeroizing::new(line);
        if !self.has_to_say() {
            self.outgoing.zeroize();
            self.written = 0;
        }
        grow(&mut self.outgoing, &line);
        self.outgoing.push(b'\n');
        if !self.listens {
            let now = Instant::now();
            self.deadline = Some(now + CLIENT_TIMEOUT);
            self.answered_at = Some(now);
        }
        self.write();
    }

    /// Sends queued bytes, as many as the socket takes.
    pub(super) fn write(&mut self) {
        while self.has_to_say() {
            match self.stream.write(&self.outgoing[self.written..]) {
                Ok(count) => {
                    self.written += count;
                    self.goes_on();
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => return,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(_) => {
                    self.closed = true;
                    return;
                }
            }
        }
        let answered = self.asked && !self.outgoing.is_empty();
        self.closed |= answered && !self.listens;
    }
}

/// Appends without leaving copies of keys behind in freed memory.
fn grow(to: &mut Zeroizing<Vec<u8>>, more: &[u8]) {
    // One byte of room stays for the line's end.
    if to.capacity() < to.len() + more.len() + 1 {
        let mut larger = Vec::with_capacity((2 * to.capacity()).max(to.len() + more.len() + 1));
        larger.extend_from_slice(to);
        *to = Zeroizing::new(larger);
    }
    to.extend_from_slice(more);
}
