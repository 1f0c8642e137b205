//! The receiving half that UDP and raw sockets share: read, sleep, and keep the error queue empty.

use super::messages::{Received, Receiver};
use super::socket::Socket;
use super::waker::sleep_on;
use super::{Intake, LARGEST, Wait, Waker};
use std::io;
use std::ops::Range;
use std::os::fd::AsFd;
use std::sync::Arc;

/// How many errors in a row a read shrugs off; they belong to packets sent before, and there can be several.
const PATIENCE: usize = 16;

pub(super) struct Inlet {
    pub socket: Arc<Socket>,
    pub waker: Option<Waker>,
    receiver: Receiver,
}

impl Inlet {
    pub fn new(socket: Arc<Socket>) -> Self {
        Self {
            socket,
            waker: None,
            receiver: Receiver::new(),
        }
    }

    /// Whether packets were received that no intake had room for yet.
    pub fn has_backlog(&self) -> bool {
        self.receiver.has_parked()
    }

    /// The whole of a source's `fill`, but for what becomes of each packet.
    pub fn fill<Note>(
        &mut self,
        intake: &mut Intake<Note>,
        wait: Wait,
        mut enter: impl FnMut(&mut Intake<Note>, Range<usize>, Received<'_>),
    ) -> io::Result<usize> {
        if intake.bytes.len() < LARGEST {
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                "the intake has no room for one train",
            ));
        }
        let before = intake.items.len();
        self.read(intake, &mut enter)?;
        if intake.items.is_empty() && sleep_on(self.socket.as_fd(), self.waker.as_ref(), wait)? {
            self.read(intake, &mut enter)?;
            if intake.items.is_empty() {
                // Perhaps it was the error queue that ended the sleep; it would end the next one as well.
                self.socket.drain_errors();
            }
        }
        Ok(intake.items.len() - before)
    }

    fn read<Note>(
        &mut self,
        intake: &mut Intake<Note>,
        enter: &mut impl FnMut(&mut Intake<Note>, Range<usize>, Received<'_>),
    ) -> io::Result<()> {
        let before = intake.items.len();
        for _ in 1..PATIENCE {
            match self
                .receiver
                .receive(self.socket.as_fd(), intake, &mut *enter)
            {
                Ok(()) => return Ok(()),
                // What was received is delivered first.
                Err(_) if intake.items.len() > before => return Ok(()),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                // With errors reported, a read may return one that an earlier packet met on its way.
                Err(_) => self.socket.drain_errors(),
            }
        }
        self.receiver.receive(self.socket.as_fd(), intake, enter)
    }
}
