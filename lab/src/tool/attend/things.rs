//! What an attendant keeps for its lab, by number: processes, ears and sockets. A number is never used twice.

use std::collections::BTreeMap;
use std::net::UdpSocket;
use std::os::fd::{AsFd, BorrowedFd};

use super::ear::Ear;
use crate::testbed::process::Running;

/// One of them.
pub(super) enum Thing {
    Process(Running),
    Ear(Ear),
    Socket(UdpSocket),
}

impl Thing {
    /// What becomes readable when something happened to it.
    pub(super) fn event(&self) -> Option<BorrowedFd<'_>> {
        match self {
            Thing::Process(process) => Some(process.end()),
            Thing::Socket(socket) => Some(socket.as_fd()),
            Thing::Ear(_) => None,
        }
    }
}

/// All of them. Dropping a process kills it.
#[derive(Default)]
pub(super) struct Things {
    all: BTreeMap<u64, Thing>,
    given: u64,
}

impl Things {
    pub(super) fn keep(&mut self, thing: Thing) -> u64 {
        self.given += 1;
        self.all.insert(self.given, thing);
        self.given
    }

    pub(super) fn get(&self, number: u64) -> Option<&Thing> {
        self.all.get(&number)
    }

    pub(super) fn close(&mut self, number: u64) {
        self.all.remove(&number);
    }

    pub(super) fn process(&mut self, number: u64) -> Result<&mut Running, String> {
        match self.all.get_mut(&number) {
            Some(Thing::Process(process)) => Ok(process),
            _ => Err(format!("there is no process {number}")),
        }
    }

    pub(super) fn ear(&mut self, number: u64) -> Result<&mut Ear, String> {
        match self.all.get_mut(&number) {
            Some(Thing::Ear(ear)) => Ok(ear),
            _ => Err(format!("there is no ear {number}")),
        }
    }

    pub(super) fn socket(&self, number: u64) -> Result<&UdpSocket, String> {
        match self.all.get(&number) {
            Some(Thing::Socket(socket)) => Ok(socket),
            _ => Err(format!("there is no socket {number}")),
        }
    }
}
