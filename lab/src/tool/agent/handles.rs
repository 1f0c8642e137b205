//! What an agent keeps for its lab, by number: processes, sniffers and sockets. A number is never reused.

use std::collections::BTreeMap;
use std::net::UdpSocket;
use std::os::fd::{AsFd, BorrowedFd};

use super::sniffer::Sniffer;
use crate::testbed::process::Running;

/// One of them.
pub(super) enum Handle {
    Process(Running),
    Sniffer(Sniffer),
    Socket(UdpSocket),
}

impl Handle {
    /// What becomes readable when something happened to it.
    pub(super) fn event(&self) -> Option<BorrowedFd<'_>> {
        match self {
            Handle::Process(process) => Some(process.end()),
            Handle::Socket(socket) => Some(socket.as_fd()),
            Handle::Sniffer(_) => None,
        }
    }
}

/// All of them. Dropping a process kills it.
#[derive(Default)]
pub(super) struct Handles {
    all: BTreeMap<u64, Handle>,
    given: u64,
}

impl Handles {
    pub(super) fn keep(&mut self, handle: Handle) -> u64 {
        self.given += 1;
        self.all.insert(self.given, handle);
        self.given
    }

    pub(super) fn get(&self, number: u64) -> Option<&Handle> {
        self.all.get(&number)
    }

    pub(super) fn close(&mut self, number: u64) {
        self.all.remove(&number);
    }

    pub(super) fn process(&mut self, number: u64) -> Result<&mut Running, String> {
        match self.all.get_mut(&number) {
            Some(Handle::Process(process)) => Ok(process),
            _ => Err(format!("there is no process {number}")),
        }
    }

    pub(super) fn sniffer(&mut self, number: u64) -> Result<&mut Sniffer, String> {
        match self.all.get_mut(&number) {
            Some(Handle::Sniffer(sniffer)) => Ok(sniffer),
            _ => Err(format!("there is no sniffer {number}")),
        }
    }

    pub(super) fn socket(&self, number: u64) -> Result<&UdpSocket, String> {
        match self.all.get(&number) {
            Some(Handle::Socket(socket)) => Ok(socket),
            _ => Err(format!("there is no socket {number}")),
        }
    }
}
