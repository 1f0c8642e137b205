//! The sender: what is due goes, several in one call where the rate asks for it.

use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use super::stamp::{END, STAMP, now, stamp};
use crate::socket::set;

/// At most so much goes in one call: the kernel's limits are 64 segments and 65 507 bytes.
const MOST_SEGMENTS: usize = 44;
const MOST_BYTES: usize = 65_000;
/// Within this time what is due goes together: the pace is even down to here.
const TICK: Duration = Duration::from_micros(200);

/// What the sender is told.
#[derive(Debug, clap::Args)]
pub struct Send {
    /// Where the receiver listens
    pub(super) to: SocketAddr,
    /// Bytes of user data in each datagram
    #[arg(long)]
    pub(super) bytes: usize,
    /// Datagrams per second; 0: as many as go
    #[arg(long)]
    pub(super) rate: f64,
    /// How long, in milliseconds
    #[arg(long)]
    pub(super) milliseconds: u64,
    /// Marks the datagrams of this run
    #[arg(long)]
    pub(super) run: u32,
}

/// What the sender did.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Sent {
    /// Datagrams sent.
    pub sent: u64,
    /// Seconds it took.
    pub seconds: f64,
    /// Datagrams that the sender could not send in time: where there are many, the sender is the limit.
    pub behind: u64,
}

impl Send {
    pub(in crate::tool) fn run(self) -> io::Result<Sent> {
        let any: SocketAddr = match self.to {
            SocketAddr::V4(_) => ([0, 0, 0, 0], 0).into(),
            SocketAddr::V6(_) => ([0u16; 8], 0).into(),
        };
        let socket = UdpSocket::bind(any)?;
        socket.connect(self.to)?;
        let bytes = self.bytes.max(STAMP);
        segment(&socket, bytes)?;
        let done = self.pace(&socket, bytes)?;
        self.end(&socket, bytes);
        Ok(done)
    }

    /// Sends what is due, again and again.
    fn pace(&self, socket: &UdpSocket, bytes: usize) -> io::Result<Sent> {
        let mut most = (MOST_BYTES / bytes).clamp(1, MOST_SEGMENTS);
        let mut buffer = vec![0; most * bytes];
        let (started, length) = (Instant::now(), Duration::from_millis(self.milliseconds));
        let mut sent = 0u64;
        loop {
            let gone = started.elapsed();
            if gone >= length {
                break;
            }
            let due = match self.rate > 0.0 {
                true => (gone.as_secs_f64() * self.rate) as u64 + 1,
                false => sent + most as u64,
            };
            let count = due.saturating_sub(sent).min(most as u64) as usize;
            if count == 0 {
                self.rest(started, sent);
                continue;
            }
            for (place, datagram) in buffer[..count * bytes].chunks_mut(bytes).enumerate() {
                stamp(datagram, self.run, sent + place as u64, now());
            }
            match socket.send(&buffer[..count * bytes]) {
                Ok(_) => sent += count as u64,
                Err(error) if passing(&error) => {}
                // The path has become narrower than a datagram: the kernel does not segment then, but it fragments.
                Err(error) if most > 1 && too_long(&error) => {
                    most = 1;
                    segment(socket, 0)?;
                }
                // The very message that told the kernel so was lost, as on any narrow path.
                Err(error) if too_long(&error) => sent += count as u64,
                Err(error) => return Err(error),
            }
        }
        let seconds = started.elapsed().as_secs_f64();
        let asked = (self.rate * length.as_secs_f64()) as u64;
        Ok(Sent {
            sent,
            seconds,
            behind: asked.saturating_sub(sent),
        })
    }

    /// Sleeps until the next is due, but at least half a tick: spinning would take the processor that is measured.
    fn rest(&self, started: Instant, sent: u64) {
        let next = started + Duration::from_secs_f64(sent as f64 / self.rate);
        let left = next.saturating_duration_since(Instant::now());
        std::thread::sleep(left.max(TICK / 2));
    }

    /// Tells the receiver, often enough that a lossy path lets one through, after what is under way has arrived.
    fn end(&self, socket: &UdpSocket, bytes: usize) {
        let mut last = vec![0; bytes];
        for _ in 0..10 {
            std::thread::sleep(Duration::from_millis(20));
            stamp(&mut last, self.run, END, now());
            // A lost end is not tragic: the receiver has its own time.
            let _ = socket.send(&last);
        }
    }
}

fn passing(error: &io::Error) -> bool {
    let full = error.raw_os_error() == Some(libc::ENOBUFS);
    full || matches!(
        error.kind(),
        io::ErrorKind::ConnectionRefused | io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted
    )
}

fn too_long(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EMSGSIZE | libc::EINVAL))
}

fn segment(socket: &UdpSocket, bytes: usize) -> io::Result<()> {
    const UDP_SEGMENT: libc::c_int = 103;
    set(socket, libc::IPPROTO_UDP, UDP_SEGMENT, bytes as libc::c_int)
}
