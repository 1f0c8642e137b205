//! Requests and echoes over UDP: what a packet's way there and back takes. One request is under way at a time; an
//! answer that does not come in time is counted as lost and not waited for again.

use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use crate::load::Histogram;

/// What asking found.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct RoundTrips {
    /// Requests sent.
    pub asked: u64,
    /// Requests without a response in time.
    pub lost: u64,
    /// Seconds from the first request to the last answer.
    pub seconds: f64,
    /// Nanoseconds from request to answer.
    pub nanoseconds: Histogram,
}

/// An answer later than this is lost.
const ANSWER_TIMEOUT: Duration = Duration::from_millis(500);

/// Sends every datagram back to its sender, until the process is killed.
pub(super) fn echo(listen: SocketAddr) -> io::Result<()> {
    let socket = UdpSocket::bind(listen)?;
    let mut buffer = vec![0; 65_536];
    loop {
        match socket.recv_from(&mut buffer) {
            // A response that cannot be sent counts as lost at the other end.
            Ok((length, from)) => drop(socket.send_to(&buffer[..length], from)),
            // An ICMP error for an earlier response, or a signal.
            Err(error) if transient(&error) => {}
            Err(error) => return Err(error),
        }
    }
}

fn transient(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionRefused, Interrupted, TimedOut, WouldBlock};
    matches!(
        error.kind(),
        ConnectionRefused | Interrupted | TimedOut | WouldBlock
    )
}

/// Asks for so many milliseconds.
pub(super) fn ask(
    to: SocketAddr,
    bytes: usize,
    milliseconds: u64,
    pause: u64,
) -> io::Result<RoundTrips> {
    let any: SocketAddr = match to {
        SocketAddr::V4(_) => ([0, 0, 0, 0], 0).into(),
        SocketAddr::V6(_) => ([0u16; 8], 0).into(),
    };
    let socket = UdpSocket::bind(any)?;
    socket.connect(to)?;
    socket.set_read_timeout(Some(ANSWER_TIMEOUT))?;
    let mut found = RoundTrips {
        asked: 0,
        lost: 0,
        seconds: 0.0,
        nanoseconds: Histogram::default(),
    };
    let (started, length) = (Instant::now(), Duration::from_millis(milliseconds));
    while started.elapsed() < length {
        found.asked += 1;
        match once(&socket, bytes, found.asked)? {
            Some(time) => found.nanoseconds.add(time.as_nanos() as u64),
            None => found.lost += 1,
        }
        if pause > 0 {
            std::thread::sleep(Duration::from_millis(pause));
        }
    }
    found.seconds = started.elapsed().as_secs_f64();
    Ok(found)
}

/// A late response to an earlier request is ignored: each carries its number.
fn once(socket: &UdpSocket, bytes: usize, number: u64) -> io::Result<Option<Duration>> {
    let mut request = vec![0; bytes.max(8)];
    request[..8].copy_from_slice(&number.to_be_bytes());
    let mut answer = vec![0; 65_536];
    let asked = Instant::now();
    match socket.send(&request) {
        Err(error) if !transient(&error) => return Err(error),
        _ => {}
    }
    while asked.elapsed() < ANSWER_TIMEOUT {
        match socket.recv(&mut answer) {
            Ok(length) if answer.get(..length.min(8)) == request.get(..8) => {
                return Ok(Some(asked.elapsed()));
            }
            Ok(_) => {}
            Err(error) if transient(&error) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(None)
}
