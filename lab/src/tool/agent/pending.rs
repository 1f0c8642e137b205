//! Requests that are answered later: the end of a program, a datagram. The agent serves others meanwhile.

use std::time::Instant;

use super::handles::Handles;
use crate::host::{Finished, Process};
use crate::testbed::ssh::protocol::{Bytes, Response};

/// A request that is answered later.
pub(super) struct Pending {
    pub number: u64,
    pub handle: u64,
    pub until: Instant,
    pub what: AwaitedEvent,
}

/// What it waits for.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum AwaitedEvent {
    /// The end of a program that runs to it.
    End,
    /// The end of a program that was asked to.
    Stop,
    /// Something for a socket.
    Datagram,
}

impl Pending {
    /// The answer, once what is waited for has come or its time is over.
    pub(super) fn response(
        &self,
        handles: &mut Handles,
        late: bool,
    ) -> Option<Result<Response, String>> {
        if self.what == AwaitedEvent::Datagram {
            return datagram(handles, self.handle, late);
        }
        let process = match handles.process(self.handle) {
            Ok(process) => process,
            Err(why) => return Some(Err(why)),
        };
        let code = process.ended();
        if code.is_none() && !late {
            return None;
        }
        let answer = match (self.what, code) {
            (AwaitedEvent::Stop, code) => Response::Flag(code.is_some()),
            (_, None) => Response::Finished(None),
            (_, Some(code)) => {
                let (stdout, stderr) = process.outputs();
                Response::Finished(Some(Finished {
                    code,
                    stdout,
                    stderr,
                }))
            }
        };
        match self.what {
            AwaitedEvent::Stop => process.kill(),
            _ => handles.close(self.handle),
        }
        Some(Ok(answer))
    }
}

fn datagram(handles: &Handles, socket: u64, late: bool) -> Option<Result<Response, String>> {
    let socket = match handles.socket(socket) {
        Ok(socket) => socket,
        Err(why) => return Some(Err(why)),
    };
    let mut buffer = vec![0; 65_536];
    let received = socket
        .set_nonblocking(true)
        .and_then(|()| socket.recv(&mut buffer));
    match received {
        Ok(length) => {
            buffer.truncate(length);
            Some(Ok(Response::Datagram(Some(Bytes(buffer)))))
        }
        Err(_) if late => Some(Ok(Response::Datagram(None))),
        // For example an ICMP error for an earlier datagram: the wait continues.
        Err(_) => None,
    }
}
