//! Questions whose answer takes its time: the end of a program, a datagram. Nobody is waited for while others ask.

use std::time::Instant;

use super::things::Things;
use crate::host::{Finished, Process};
use crate::testbed::ssh::protocol::{Answer, Bytes};

/// A question whose answer takes its time.
pub(super) struct Wait {
    pub number: u64,
    pub thing: u64,
    pub until: Instant,
    pub what: Awaited,
}

/// What it waits for.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum Awaited {
    /// The end of a program that runs to it.
    End,
    /// The end of a program that was asked to.
    Stop,
    /// Something for a socket.
    Datagram,
}

impl Wait {
    /// The answer, once what is waited for has come or its time is over.
    pub(super) fn over(&self, things: &mut Things, late: bool) -> Option<Result<Answer, String>> {
        if self.what == Awaited::Datagram {
            return datagram(things, self.thing, late);
        }
        let process = match things.process(self.thing) {
            Ok(process) => process,
            Err(why) => return Some(Err(why)),
        };
        let code = process.ended();
        if code.is_none() && !late {
            return None;
        }
        let answer = match (self.what, code) {
            (Awaited::Stop, code) => Answer::Flag(code.is_some()),
            (_, None) => Answer::Finished(None),
            (_, Some(code)) => {
                let (stdout, stderr) = process.words();
                Answer::Finished(Some(Finished {
                    code,
                    stdout,
                    stderr,
                }))
            }
        };
        match self.what {
            Awaited::Stop => process.kill(),
            _ => things.close(self.thing),
        }
        Some(Ok(answer))
    }
}

fn datagram(things: &Things, socket: u64, late: bool) -> Option<Result<Answer, String>> {
    let socket = match things.socket(socket) {
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
            Some(Ok(Answer::Datagram(Some(Bytes(buffer)))))
        }
        Err(_) if late => Some(Ok(Answer::Datagram(None))),
        // Also an ICMP answer to something sent earlier: not what is waited for.
        Err(_) => None,
    }
}
