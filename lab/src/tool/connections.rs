//! TCP connections, one after another: opened, one request, one response, closed. The responding end closes first, as
//! servers do, so that the requesting end never runs out of ports.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::time::{Duration, Instant};

use super::round_trip::RoundTrips;
use crate::load::Histogram;

/// What takes longer is lost. A first packet that the path lost is sent again after a second: that is slow, and no
/// loss.
const CONNECTION_TIMEOUT: Duration = Duration::from_secs(2);

/// Echoes the request of every connection, until the process is killed.
pub(super) fn accept(listen: SocketAddr) -> io::Result<()> {
    let listener = TcpListener::bind(listen)?;
    loop {
        // A broken connection counts as lost at the other end.
        let _ = listener.accept().and_then(|(stream, _)| answer(stream));
    }
}

/// The request's length goes before it, in four bytes.
fn answer(mut stream: TcpStream) -> io::Result<()> {
    stream.set_read_timeout(Some(CONNECTION_TIMEOUT))?;
    stream.set_nodelay(true)?;
    let mut length = [0; 4];
    stream.read_exact(&mut length)?;
    let mut request = vec![0; (u32::from_be_bytes(length) as usize).min(MAX_REQUEST_BYTES)];
    stream.read_exact(&mut request)?;
    stream.write_all(&request)
}

/// Requests are never larger.
const MAX_REQUEST_BYTES: usize = 65_536;

/// Opens connections for so many milliseconds, each when the one before is closed.
pub(super) fn connect(
    to: SocketAddr,
    bytes: usize,
    milliseconds: u64,
    pause: u64,
) -> io::Result<RoundTrips> {
    let mut found = RoundTrips {
        asked: 0,
        lost: 0,
        seconds: 0.0,
        nanoseconds: Histogram::default(),
    };
    let request = request(bytes);
    let (started, length) = (Instant::now(), Duration::from_millis(milliseconds));
    while started.elapsed() < length {
        found.asked += 1;
        let opened = Instant::now();
        match once(to, &request) {
            Ok(()) => found.nanoseconds.add(opened.elapsed().as_nanos() as u64),
            Err(_) => found.lost += 1,
        }
        if pause > 0 {
            std::thread::sleep(Duration::from_millis(pause));
        }
    }
    found.seconds = started.elapsed().as_secs_f64();
    Ok(found)
}

fn request(bytes: usize) -> Vec<u8> {
    let bytes = bytes.min(MAX_REQUEST_BYTES);
    let mut request = (bytes as u32).to_be_bytes().to_vec();
    request.resize(4 + bytes, b'?');
    request
}

/// From the first packet to the other end's last.
fn once(to: SocketAddr, request: &[u8]) -> io::Result<()> {
    let mut stream = TcpStream::connect_timeout(&to, CONNECTION_TIMEOUT)?;
    stream.set_read_timeout(Some(CONNECTION_TIMEOUT))?;
    stream.set_nodelay(true)?;
    stream.write_all(request)?;
    let mut answer = Vec::with_capacity(request.len());
    stream.read_to_end(&mut answer)?;
    if answer[..] == request[4..] {
        Ok(())
    } else {
        Err(io::Error::other("the answer differs from the request"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_are_opened_answered_and_closed_over_the_loopback() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let at = listener.local_addr().unwrap();
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let _ = answer(stream);
            }
        });
        once(at, &request(1000)).unwrap();
        once(at, &request(0)).unwrap();
        let found = connect(at, 64, 50, 0).unwrap();
        assert!(found.asked > 0);
        assert_eq!(found.nanoseconds.count(), found.asked - found.lost);
    }

    #[test]
    fn a_server_that_does_not_answer_is_a_loss_and_no_error() {
        let at = TcpListener::bind("127.0.0.1:0").unwrap().local_addr();
        let found = connect(at.unwrap(), 64, 5, 1).unwrap();
        assert!(found.asked > 0 && found.lost == found.asked, "{found:?}");
    }
}
