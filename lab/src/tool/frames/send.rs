//! The sender: sends the datagrams that are due, several in one call where the rate is high.

use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use super::answers::collect;
use super::bind;
use super::stamp::{END_NUMBER, STAMP_BYTES, now, stamp};
use crate::load::Histogram;
use crate::socket::set;

/// At most so much goes in one call: the kernel's limits are 64 segments and 65 507 bytes.
const MAX_SEGMENTS: usize = 44;
const MAX_SEND_BYTES: usize = 65_000;
/// Within this time what is due goes together: the pace is even down to here.
const SEND_INTERVAL: Duration = Duration::from_micros(200);

/// Options of the sender.
#[derive(Debug, clap::Args)]
pub struct Send {
    /// Where the receiver listens
    pub(super) to: SocketAddr,
    /// Bytes of user data in each datagram; several sizes, as 20,482,1472, go out in turn
    #[arg(long, value_delimiter = ',', required = true)]
    pub(super) bytes: Vec<usize>,
    /// Datagrams per second; 0: no limit
    #[arg(long)]
    pub(super) rate: f64,
    /// Duration in milliseconds
    #[arg(long)]
    pub(super) milliseconds: u64,
    /// Run number of the datagrams
    #[arg(long)]
    pub(super) run: u32,
    /// Send from here, and read there what the receiver answers
    #[arg(long, value_name = "ADDRESS")]
    pub(super) answers_at: Option<SocketAddr>,
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
    /// Nanoseconds from a datagram to its answer; `None`: none was asked for.
    #[serde(default)]
    pub round_trips: Option<Histogram>,
}

impl Send {
    pub(in crate::tool) fn run(self) -> io::Result<Sent> {
        if let Some(at) = self.answers_at {
            return self.with_answers(at);
        }
        let any: SocketAddr = match self.to {
            SocketAddr::V4(_) => ([0, 0, 0, 0], 0).into(),
            SocketAddr::V6(_) => ([0u16; 8], 0).into(),
        };
        let socket = UdpSocket::bind(any)?;
        socket.connect(self.to)?;
        let done = self.pace(&socket)?;
        self.end(&socket, &AtomicBool::new(false));
        Ok(done)
    }

    /// A thread of its own reads answers, as a datagram to be sent must not delay them.
    fn with_answers(&self, at: SocketAddr) -> io::Result<Sent> {
        let socket = bind(at)?;
        socket.connect(self.to)?;
        let (complete, all_sent) = (AtomicBool::new(false), AtomicBool::new(false));
        let (socket, complete, all_sent) = (&socket, &complete, &all_sent);
        std::thread::scope(|scope| {
            let reader = scope.spawn(move || collect(socket, self.run, complete, all_sent));
            let done = self.pace(socket);
            if done.is_ok() {
                self.end(socket, complete);
            }
            all_sent.store(true, Ordering::Relaxed);
            let answers = reader.join();
            let answers =
                answers.map_err(|_| io::Error::other("the reader of answers failed"))??;
            Ok(Sent {
                round_trips: Some(answers),
                ..done?
            })
        })
    }

    /// Sends what is due, again and again.
    fn pace(&self, socket: &UdpSocket) -> io::Result<Sent> {
        let mut segmented = SegmentedSend::new(socket);
        let (started, length) = (Instant::now(), Duration::from_millis(self.milliseconds));
        let mut sent = 0u64;
        loop {
            let gone = started.elapsed();
            if gone >= length {
                break;
            }
            let (bytes, alike) = equal_sizes(&self.bytes, sent);
            let most = segmented.max_per_call(bytes).min(alike) as u64;
            let due = if self.rate > 0.0 {
                (gone.as_secs_f64() * self.rate) as u64 + 1
            } else {
                sent + most
            };
            match due.saturating_sub(sent).min(most) {
                0 => self.sleep_until_due(started, sent),
                count => sent += segmented.send(bytes, sent..sent + count, self.run)?,
            }
        }
        let seconds = started.elapsed().as_secs_f64();
        let asked = (self.rate * length.as_secs_f64()) as u64;
        Ok(Sent {
            sent,
            seconds,
            behind: asked.saturating_sub(sent),
            round_trips: None,
        })
    }

    /// Sleeps until the next is due, but at least half a tick: spinning would take the processor that is measured.
    fn sleep_until_due(&self, started: Instant, sent: u64) {
        let next = started + Duration::from_secs_f64(sent as f64 / self.rate);
        let left = next.saturating_duration_since(Instant::now());
        std::thread::sleep(left.max(SEND_INTERVAL / 2));
    }

    /// Tells the receiver, often enough that a lossy path lets one through, after what is under way has arrived; not
    /// again once it has answered.
    fn end(&self, socket: &UdpSocket, answered: &AtomicBool) {
        let (bytes, _) = equal_sizes(&self.bytes, 0);
        // A train's length does not fit one datagram, and switching it off cannot fail where it could be switched on.
        let _ = segment(socket, 0);
        let mut last = vec![0; bytes];
        for _ in 0..10 {
            std::thread::sleep(Duration::from_millis(20));
            if answered.load(Ordering::Relaxed) {
                break;
            }
            stamp(&mut last, self.run, END_NUMBER, now());
            // A lost end is not tragic: the receiver has its own time.
            let _ = socket.send(&last);
        }
    }
}

/// How long the datagram of this number is, and how many from it on are as long.
fn equal_sizes(sizes: &[usize], number: u64) -> (usize, usize) {
    let place = (number % sizes.len().max(1) as u64) as usize;
    let bytes = sizes.get(place).copied().unwrap_or(STAMP_BYTES);
    let alike = if sizes.iter().all(|size| *size == bytes) {
        usize::MAX
    } else {
        sizes[place..]
            .iter()
            .take_while(|size| **size == bytes)
            .count()
    };
    (bytes.max(STAMP_BYTES), alike)
}

/// Datagrams of one length that go in one call.
struct SegmentedSend<'s> {
    socket: &'s UdpSocket,
    buffer: Vec<u8>,
    /// The length the kernel segments to; 0: not at all.
    segment: usize,
    /// Whether the path takes trains.
    allowed: bool,
}

impl SegmentedSend<'_> {
    fn new(socket: &UdpSocket) -> SegmentedSend<'_> {
        SegmentedSend {
            socket,
            buffer: vec![0; MAX_SEND_BYTES],
            segment: 0,
            allowed: true,
        }
    }

    /// How many of this length go in one call.
    fn max_per_call(&self, bytes: usize) -> usize {
        if self.allowed {
            (MAX_SEND_BYTES / bytes).clamp(1, MAX_SEGMENTS)
        } else {
            1
        }
    }

    /// Sends these numbers; returns how many were sent.
    fn send(&mut self, bytes: usize, numbers: Range<u64>, run: u32) -> io::Result<u64> {
        let count = numbers.end - numbers.start;
        let wanted = if self.allowed { bytes } else { 0 };
        if wanted != self.segment {
            segment(self.socket, wanted)?;
            self.segment = wanted;
        }
        let whole = count as usize * bytes;
        if self.buffer.len() < whole {
            self.buffer.resize(whole, 0);
        }
        for (datagram, number) in self.buffer[..whole].chunks_mut(bytes).zip(numbers) {
            stamp(datagram, run, number, now());
        }
        match self.socket.send(&self.buffer[..whole]) {
            Ok(_) => Ok(count),
            Err(error) if passing(&error) => Ok(0),
            // The path has become narrower than a datagram: the kernel does not segment then, but it fragments.
            Err(error) if self.allowed && too_long(&error) => {
                self.allowed = false;
                Ok(0)
            }
            // The message that revealed the MTU was lost, as on any path with a smaller MTU.
            Err(error) if too_long(&error) => Ok(count),
            Err(error) => Err(error),
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
